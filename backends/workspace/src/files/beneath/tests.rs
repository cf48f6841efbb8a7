//! Ways out of a directory, each of which must not be one.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::fs::{CWD, RenameFlags};
use tempfile::TempDir;

use super::*;

/// A room beside a directory with a secret.
struct Site {
    directory: TempDir,
    root: OwnedFd,
}

impl Site {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        for name in ["room", "room/inner", "outside"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        fs::write(directory.path().join("room/inner/file"), "inside").unwrap();
        fs::write(directory.path().join("outside/file"), "secret").unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, directory.path().join("room"), flags, Mode::empty()).unwrap();
        Self { directory, root }
    }

    fn link(&self, target: &str, name: &str) {
        symlink(target, self.directory.path().join("room").join(name)).unwrap();
    }

    fn outside(&self) -> String {
        self.directory.path().join("outside").to_str().unwrap().to_owned()
    }

    /// What `path` is read as, both ways of opening it.
    fn read(&self, path: &str) -> [Result<String, Errno>; 2] {
        let path = Path::new(path);
        let text = |opened: Result<OwnedFd, Errno>| {
            opened.map(|file| std::io::read_to_string(fs::File::from(file)).unwrap())
        };
        [
            text(open(&self.root, path, OFlags::RDONLY, Mode::empty())),
            text(walk(&self.root, path, OFlags::RDONLY, Mode::empty())),
        ]
    }
}

#[test]
fn what_is_below_is_opened() {
    let site = Site::new();
    assert_eq!(site.read("inner/file"), [Ok("inside".to_owned()), Ok("inside".to_owned())]);
    assert_eq!(site.read("./inner/./file"), [Ok("inside".to_owned()), Ok("inside".to_owned())]);
    assert_eq!(site.read("inner/nothing"), [Err(Errno::NOENT), Err(Errno::NOENT)]);
    assert!(walk(&site.root, Path::new("."), OFlags::RDONLY, Mode::empty()).is_ok());
}

#[test]
fn parent_components_do_not_lead_out() {
    let site = Site::new();
    for path in ["..", "../outside/file", "inner/../../outside/file"] {
        assert_eq!(site.read(path), [Err(Errno::XDEV), Err(Errno::XDEV)], "{path}");
    }
}

#[test]
fn absolute_paths_do_not_lead_out() {
    let site = Site::new();
    let secret = format!("{}/file", site.outside());
    for path in ["/etc/passwd", &secret] {
        assert_eq!(site.read(path), [Err(Errno::XDEV), Err(Errno::XDEV)], "{path}");
    }
}

#[test]
fn symbolic_links_that_leave_are_refused() {
    let site = Site::new();
    site.link(&format!("{}/file", site.outside()), "absolute");
    site.link("../outside/file", "relative");
    site.link("../outside", "directory");
    site.link("../room/inner/file", "out and back");
    for path in ["absolute", "relative", "directory/file", "out and back"] {
        let [opened, walked] = site.read(path);
        assert_eq!(opened, Err(Errno::XDEV), "{path}");
        assert!(matches!(walked, Err(Errno::LOOP | Errno::NOTDIR)), "{path}: {walked:?}");
        assert_eq!(place(&site.root, Path::new(path)).map(drop), Err(Errno::XDEV), "{path}");
    }
}

#[test]
fn symbolic_links_that_stay_are_followed() {
    let site = Site::new();
    site.link("inner/file", "link");
    site.link("inner", "directory");
    symlink("../link", site.directory.path().join("room/inner/twice")).unwrap();
    for path in ["link", "directory/file", "inner/twice", "directory/twice"] {
        let [opened, walked] = site.read(path);
        assert_eq!(opened, Ok("inside".to_owned()), "{path}");
        assert!(matches!(walked, Err(Errno::LOOP | Errno::NOTDIR)), "the walk follows none: {path}");
        assert_eq!(place(&site.root, Path::new(path)).unwrap().name, "file", "{path}");
    }
}

#[test]
fn symbolic_links_in_circles_end() {
    let site = Site::new();
    site.link("two", "one");
    site.link("one", "two");
    assert_eq!(site.read("one")[0], Err(Errno::LOOP));
    assert_eq!(place(&site.root, Path::new("one")).map(drop), Err(Errno::LOOP));
}

#[test]
fn magic_links_are_not_followed() {
    let site = Site::new();
    let secret = fs::File::open(format!("{}/file", site.outside())).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&secret);
    site.link(&format!("/proc/self/fd/{number}"), "file");
    site.link("/proc/self/root", "root");
    for path in ["file", "root/etc/passwd"] {
        assert_eq!(site.read(path)[0], Err(Errno::XDEV), "{path}");
    }
    // Also where such links are below: in /proc itself.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = rustix::fs::openat(CWD, "/proc/self", flags, Mode::empty()).unwrap();
    for path in [format!("fd/{number}"), "root/etc/passwd".to_owned(), "cwd".to_owned()] {
        let opened = open(&proc, Path::new(&path), OFlags::RDONLY, Mode::empty());
        assert!(matches!(opened, Err(Errno::LOOP | Errno::XDEV)), "{path}");
    }
}

#[test]
fn directories_are_made_below_only() {
    let site = Site::new();
    site.link("../outside", "link");
    make_directories(&site.root, Path::new("a/b/c")).unwrap();
    make_directories(&site.root, Path::new("a/b/c")).unwrap();
    assert!(site.directory.path().join("room/a/b/c").is_dir());
    assert_eq!(make_directories(&site.root, Path::new("link/new")).map(drop), Err(Errno::XDEV));
    assert_eq!(make_directories(&site.root, Path::new("../new")).map(drop), Err(Errno::XDEV));
    assert_eq!(make_directories(&site.root, Path::new("inner/file/new")).map(drop), Err(Errno::NOTDIR));
    assert_eq!(fs::read_dir(site.outside()).unwrap().count(), 1);
}

/// `inner` is a directory at one moment and a symbolic link to the outside at the next, thousands of times.
#[test]
fn a_directory_swapped_for_a_link_never_leads_out() {
    let site = Site::new();
    site.link("../outside", "swap");
    let over = AtomicBool::new(false);
    let (mut inside, mut outside, mut refused, mut made) = (0, 0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(&site.root, "inner", &site.root, "swap", RenameFlags::EXCHANGE)
                    .unwrap();
            }
        });
        for round in 0..5000 {
            for outcome in site.read("inner/file") {
                match outcome {
                    Ok(text) if text == "inside" => inside += 1,
                    Ok(_) => outside += 1,
                    Err(_) => refused += 1,
                }
            }
            let name = format!("inner/{}", round % 100);
            let flags = OFlags::WRONLY | OFlags::CREATE;
            made += usize::from(open(&site.root, Path::new(&name), flags, Mode::RWXU).is_ok());
            if let Ok(place) = place(&site.root, Path::new(&name)) {
                made += usize::from(entry(&place.directory, &place.name, flags, Mode::RWXU).is_ok());
            }
            made += usize::from(make_directories(&site.root, Path::new("inner/new")).is_ok());
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(outside, 0, "nothing was read outside");
    assert!(inside > 0 && refused > 0 && made > 0, "both were met: {inside} {refused} {made}");
    let left: Vec<_> =
        fs::read_dir(site.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["file"], "nothing was made outside");
    assert_eq!(fs::read_to_string(format!("{}/file", site.outside())).unwrap(), "secret");
}
