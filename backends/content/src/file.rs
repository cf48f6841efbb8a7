//! Files that callers may have read: regular ones under the roots that the operator lists, and nothing else.
//!
//! In: a `file://` address. Out: the file's name and bytes. An address outside the roots and one that leads nowhere are
//! answered alike, so that nobody learns what there is elsewhere. Everything here blocks.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::Read as _,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

use percent_encoding::percent_decode_str;
use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, OFlags, fstat, open, openat},
    io::Errno,
};

use crate::error::Error;

/// The most an operating system takes for a path.
const MAX_PATH: usize = 4096;

/// What was read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Reads the file at `url`, which must lie under one of `roots` once all links are followed and take at most `limit` bytes.
pub(crate) fn read(url: &str, roots: &[PathBuf], limit: u64) -> Result<Found, Error> {
    let path = path_of(url)?;
    if roots.is_empty() {
        return Err(Error::NoRoots);
    }
    let real = fs::canonicalize(path).map_err(|_| Error::NoFile)?;
    let (root, inside) = roots.iter().find_map(|root| beneath(root, &real)).ok_or(Error::NoFile)?;
    let file = open_beneath(&root, &inside)?;
    let name = inside.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Found { name, bytes: read_whole(file, limit)? })
}

/// The path that a `file://` address names.
fn path_of(url: &str) -> Result<PathBuf, Error> {
    let rest =
        url.split_at_checked("file://".len()).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("file://"));
    let (_, rest) = rest.ok_or(Error::Url("must begin with file://"))?;
    let (host, path) = rest.split_at_checked(rest.find('/').unwrap_or(rest.len())).unwrap_or((rest, ""));
    if !(host.is_empty() || host.eq_ignore_ascii_case("localhost")) {
        return Err(Error::Url("must not name a host"));
    }
    if path.contains(['?', '#']) {
        return Err(Error::Url("must write ? and # as %3F and %23"));
    }
    let path: Vec<u8> = percent_decode_str(path).collect();
    if path.is_empty() || path.contains(&0) || path.len() > MAX_PATH {
        return Err(Error::Url("must name a path"));
    }
    Ok(OsString::from_vec(path).into())
}

/// The root as it really is, and the way from it to `real`. A root that does not exist has nothing beneath it.
fn beneath(root: &Path, real: &Path) -> Option<(PathBuf, PathBuf)> {
    let root = fs::canonicalize(root).ok()?;
    let inside = real.strip_prefix(&root).ok()?.to_owned();
    Some((root, inside))
}

/// Opens what lies at `inside`, step by step and without following a link: all of them have been followed before, so one
/// that is met now was put there meanwhile.
fn open_beneath(root: &Path, inside: &Path) -> Result<File, Error> {
    const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    let mut steps: Vec<&OsStr> = inside.iter().collect();
    // Without a step it is the root itself that is asked for.
    let last = steps.pop().ok_or(Error::NotRegular)?;
    let mut place: OwnedFd = open(root, DIRECTORY, Mode::empty()).map_err(unopened)?;
    for step in steps {
        place = openat(&place, step, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).map_err(unopened)?;
    }
    // Without waiting, because a pipe without a writer would wait for one.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(&place, last, flags, Mode::empty()).map_err(unopened)?.into())
}

fn unopened(error: Errno) -> Error {
    match error {
        Errno::NOENT | Errno::LOOP | Errno::NOTDIR => Error::NoFile,
        Errno::NXIO => Error::NotRegular, // a socket
        error => Error::Unreadable(error.into()),
    }
}

/// All of a regular file, which may grow while it is read.
fn read_whole(file: File, limit: u64) -> Result<Vec<u8>, Error> {
    let stat = fstat(&file).map_err(|error| Error::Unreadable(error.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::NotRegular);
    }
    let too_large = Error::TooLarge { what: "the file", limit };
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if size > limit {
        return Err(too_large);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(Error::Unreadable)?;
    if bytes.len() as u64 > limit { Err(too_large) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::{fs::symlink, net::UnixListener},
        sync::atomic::{AtomicBool, Ordering},
    };

    use tempfile::TempDir;

    use super::*;

    const LIMIT: u64 = 100;

    /// A root with `inside.txt` and `deep/er.txt` in it, and `secret.txt` beside it.
    fn place() -> (TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir_all(root.join("deep")).unwrap();
        fs::write(root.join("inside.txt"), "inside").unwrap();
        fs::write(root.join("deep/er.txt"), "deeper").unwrap();
        fs::write(place.path().join("secret.txt"), "secret").unwrap();
        (place, root)
    }

    fn url(path: &Path) -> String {
        format!("file://{}", path.display())
    }

    fn told(found: Result<Found, Error>) -> String {
        match found {
            Ok(found) => String::from_utf8_lossy(&found.bytes).into_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn addresses_are_paths_of_this_machine() {
        for (url, path) in [
            ("file:///a/b.txt", "/a/b.txt"),
            ("FILE://localhost/a", "/a"),
            ("file:///a%20b/%C3%A9%3F", "/a b/é?"),
            ("file:///%2E%2E/x", "/../x"),
        ] {
            assert_eq!(path_of(url).unwrap(), Path::new(path), "{url}");
        }
        let not_text = path_of("file:///%FF").unwrap();
        assert_eq!(not_text.into_os_string().into_vec(), b"/\xff");
        for url in [
            "",
            "file:",
            "file://",
            "file:/a",
            "http://x/a",
            "/etc/passwd",
            "file://host/a",
            "file:///a%00b",
            "file:///a?b",
            "file:///a#b",
            "file://a\0/b",
            "fil\u{e9}:///a",
        ] {
            assert!(matches!(path_of(url), Err(Error::Url(_))), "{url}");
        }
        assert!(path_of(&format!("file:///{}", "a".repeat(MAX_PATH))).is_err());
    }

    #[test]
    fn files_under_a_root_are_read_wherever_links_lead_inside_it() {
        let (place, root) = place();
        symlink(root.join("deep"), root.join("link")).unwrap();
        symlink(&root, place.path().join("way-in")).unwrap();
        let roots = [place.path().join("absent"), root.clone()];
        for (path, bytes) in [
            (root.join("inside.txt"), "inside"),
            (root.join("deep/er.txt"), "deeper"),
            (root.join("link/er.txt"), "deeper"),
            (root.join("deep/../inside.txt"), "inside"),
            (place.path().join("way-in/inside.txt"), "inside"),
        ] {
            assert_eq!(told(read(&url(&path), &roots, LIMIT)), bytes, "{}", path.display());
        }
        assert_eq!(read(&url(&root.join("link/er.txt")), &roots, LIMIT).unwrap().name, "er.txt");
        let by_link = [place.path().join("way-in")];
        assert_eq!(
            told(read(&url(&root.join("inside.txt")), &by_link, LIMIT)),
            "inside",
            "a root may be a link"
        );
    }

    #[test]
    fn what_is_elsewhere_looks_like_what_does_not_exist() {
        let (place, root) = place();
        symlink(place.path().join("secret.txt"), root.join("out.txt")).unwrap();
        symlink(place.path(), root.join("up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let roots = std::slice::from_ref(&root);
        let outside = place.path().join("secret.txt");
        for address in [
            url(&outside),
            url(&root.join("../secret.txt")),
            format!("file://{}/%2e%2e/secret.txt", root.display()),
            format!("file://{}/..%2Fsecret.txt", root.display()),
            url(&root.join("out.txt")),
            url(&root.join("up/secret.txt")),
            url(&root.join("loop")),
            url(&root.join("absent.txt")),
            url(&root.join("inside.txt/x")),
            url(&place.path().join("root2")),
            format!("file://{}", "/x".repeat(2000)),
        ] {
            assert_eq!(told(read(&address, roots, LIMIT)), Error::NoFile.to_string(), "{address}");
        }
        assert_eq!(told(read(&url(&outside), &[], LIMIT)), Error::NoRoots.to_string());
    }

    #[test]
    fn only_regular_files_are_read_and_nothing_is_waited_for() {
        let (_place, root) = place();
        let roots = [root.clone(), PathBuf::from("/dev")];
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        let _socket = UnixListener::bind(root.join("socket")).unwrap();
        for path in
            [root.join("pipe"), root.join("socket"), root.join("deep"), root.clone(), "/dev/zero".into()]
        {
            assert_eq!(
                told(read(&url(&path), &roots, LIMIT)),
                Error::NotRegular.to_string(),
                "{}",
                path.display()
            );
        }
    }

    #[test]
    fn a_large_file_is_refused_unread() {
        let (_place, root) = place();
        let path = root.join("sparse");
        File::create(&path).unwrap().set_len(1 << 30).unwrap();
        let roots = [root.clone()];
        assert!(matches!(read(&url(&path), &roots, LIMIT), Err(Error::TooLarge { limit: LIMIT, .. })));
        fs::write(&path, vec![b'x'; 100]).unwrap();
        assert_eq!(read(&url(&path), &roots, LIMIT).unwrap().bytes.len(), 100);
        // A file that says it is empty, as those of the kernel do, is not read for ever either.
        let kernel = [PathBuf::from("/proc/self")];
        assert!(matches!(read("file:///proc/self/status", &kernel, LIMIT), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn a_link_that_appears_between_look_and_opening_is_not_followed() {
        let (place, root) = place();
        let (good, evil, switch) = (root.join("good"), place.path().join("evil"), root.join("switch"));
        for (directory, text) in [(&good, "good"), (&evil, "evil")] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("f"), text).unwrap();
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    // A directory that turns into a link outside and back.
                    fs::rename(&good, &switch).unwrap();
                    fs::rename(&switch, &good).unwrap();
                    symlink(&evil, &switch).unwrap();
                    fs::remove_file(&switch).unwrap();
                }
            });
            let (mut read_good, mut refused) = (0, 0);
            for _ in 0..20_000 {
                match read(&url(&switch.join("f")), std::slice::from_ref(&root), LIMIT) {
                    Ok(found) => {
                        assert_eq!(found.bytes, b"good", "it got out");
                        read_good += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(read_good > 0 && refused > 0, "{read_good} read, {refused} refused: no race was run");
        });
    }
}
