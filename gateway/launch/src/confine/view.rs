//! A view of the file system in which nothing but a directory can be changed.
//!
//! Landlock does not look at changes of modes, owners, times and attributes. Where this process may have mounts of its
//! own, all but the directory is mounted read-only for it, and those calls can be allowed: compilers and `git` need them.
//! Where it may not, they are refused altogether.

use std::{fs, path::Path};

use rustix::{
    fs::{FileType, fstat},
    io::{self, Errno},
    mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount},
    process::{getegid, geteuid},
    stdio::{dup2_stdin, stdin},
    thread::UnshareFlags,
};

/// Takes the rest of the file system away for writing. On an error the view may be half made; it is never wider.
pub(super) fn narrow(directory: &Path) -> Result<(), String> {
    own_mounts().map_err(|error| format!("no mounts of its own: {error}"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(|error| format!("mounts cannot be made private: {error}"))?;
    // A mount of its own, so that it can differ from the rest.
    let directory = &fs::canonicalize(directory).map_err(|error| error.to_string())?;
    mount_bind(directory, directory).map_err(|error| format!("the directory cannot be kept: {error}"))?;
    // The working directory is the one below the new mount until it is entered again.
    std::env::set_current_dir(directory).map_err(|error| error.to_string())?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    for Mount { place, flags } in mounts.lines().filter_map(Mount::read) {
        if Path::new(&place) == directory {
            continue;
        }
        match mount_remount(&*place, flags | MountFlags::BIND | MountFlags::RDONLY, "") {
            // What this process cannot name, or what lies below another mount, it cannot reach either.
            Ok(()) | Err(Errno::NOENT | Errno::ACCESS | Errno::INVAL) => {}
            Err(error) => return Err(format!("{place} stays writable: {error}")),
        }
    }
    take_input_from_here()
}

/// What is open stays open by the mount it was opened by. A pipe lies in no file system that anybody else sees; but where
/// there is no input, it is a device, whose owner could change it for the whole machine.
fn take_input_from_here() -> Result<(), String> {
    let is_device = fstat(stdin()).is_ok_and(|stat| {
        matches!(FileType::from_raw_mode(stat.st_mode), FileType::CharacterDevice | FileType::BlockDevice)
    });
    if !is_device {
        return Ok(());
    }
    let taken = fs::File::open("/dev/null").and_then(|nothing| Ok(dup2_stdin(&nothing)?));
    taken.map_err(|error| format!("the input cannot be taken from here: {error}"))
}

/// Gives this process a list of mounts of its own; if need be with a list of users of its own, in which it is who it is.
fn own_mounts() -> std::io::Result<()> {
    let (user, group) = (geteuid(), getegid());
    if unshare(UnshareFlags::NEWNS).is_ok() {
        return Ok(());
    }
    unshare(UnshareFlags::NEWNS | UnshareFlags::NEWUSER)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{0} {0} 1", user.as_raw()))?;
    fs::write("/proc/self/gid_map", format!("{0} {0} 1", group.as_raw()))
}

#[expect(deprecated, reason = "what makes it unsafe is a flag for descriptors, which is not used here")]
fn unshare(flags: UnshareFlags) -> io::Result<()> {
    rustix::thread::unshare(flags)
}

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    place: String,
    /// Those that must be given again, because leaving one out is asking for its removal.
    flags: MountFlags,
}

impl Mount {
    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').skip(4);
        let (place, options) = (fields.next()?, fields.next()?);
        let flag = |option: &str| match option {
            "nosuid" => MountFlags::NOSUID,
            "nodev" => MountFlags::NODEV,
            "noexec" => MountFlags::NOEXEC,
            "noatime" => MountFlags::NOATIME,
            "nodiratime" => MountFlags::NODIRATIME,
            "relatime" => MountFlags::RELATIME,
            "nosymfollow" => MountFlags::NOSYMFOLLOW,
            _ => MountFlags::empty(),
        };
        let mut flags: MountFlags = options.split(',').map(flag).collect();
        if !flags.intersects(MountFlags::NOATIME | MountFlags::RELATIME) {
            flags |= MountFlags::STRICTATIME;
        }
        Some(Self { place: plain(place), flags })
    }
}

/// A path with the escapes of the kernel undone: blanks and the like are three octal digits there.
fn plain(escaped: &str) -> String {
    let mut parts = escaped.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(3).unwrap_or(("", part));
        path.extend(u8::from_str_radix(code, 8).ok().map(char::from));
        path.push_str(rest);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_with_what_it_must_keep() {
        let line = r"28 27 0:25 / /mnt/a\040b\134c ro,nosuid,nodev,relatime shared:1 - tmpfs none ro,size=4k";
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME;
        assert_eq!(Mount::read(line), Some(Mount { place: r"/mnt/a b\c".to_owned(), flags }));
        assert_eq!(Mount::read("28 27"), None);
    }
}
