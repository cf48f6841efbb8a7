//! What holds where a process can have no mounts of its own. All of it is for a thread as for a process, so each test
//! confines a thread.

use std::{fs::File, path::Path, thread};

use rustix::{
    fs::{
        AtFlags, CWD, Mode, Timespec, Timestamps, UTIME_NOW, XattrFlags, chmod, chmodat, chownat, fchmod,
        futimens, setxattr, utimensat,
    },
    io::Errno,
    process::{Resource, Rlimit, getpid, getppid, prlimit},
};

use super::*;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
const TIMES: Timestamps = Timestamps { last_access: NOW, last_modification: NOW };

/// What `attempt` comes to for who is confined to a directory without a view of its own. It is given a file in there.
fn without_view<T: Send>(network: Network, attempt: impl FnOnce(&Path) -> T + Send) -> T {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    File::create(&file).unwrap();
    let confinement = Confinement {
        directory: directory.path().to_owned(),
        readable: Vec::new(),
        network,
        required: false,
    };
    let confined = || {
        let outcome = confinement.restrict_with(Err("there can be none".to_owned()));
        let note = "modes, owners and times of files: changed not at all, by seccomp (there can be none)";
        assert_eq!(outcome.notes, [note]);
        // Landlock may be missing here; what is looked at is done by the rest.
        assert!(outcome.missing.iter().all(|missing| missing.starts_with("landlock")), "{outcome:?}");
        attempt(&file)
    };
    thread::scope(|scope| scope.spawn(confined).join().unwrap())
}

#[test]
fn without_a_view_modes_owners_and_attributes_stay_as_they_are() {
    let done = without_view(Network::None, |file| {
        let open = File::open(file).unwrap();
        [
            chmod(file, Mode::RUSR),
            chmodat(CWD, file, Mode::RUSR, AtFlags::empty()),
            fchmod(&open, Mode::RUSR),
            chownat(CWD, file, None, None, AtFlags::empty()),
            setxattr(file, "user.x", b"x", XattrFlags::empty()),
            utimensat(CWD, file, &TIMES, AtFlags::empty()),
        ]
    });
    assert_eq!(done, [Err(Errno::PERM); 6]);
}

#[test]
fn without_a_view_files_are_made_and_open_ones_get_times() {
    without_view(Network::None, |file| {
        let other = File::create(file.with_file_name("other")).unwrap();
        futimens(&other, &TIMES).unwrap();
        std::fs::rename(file, file.with_file_name("moved")).unwrap();
    });
}

#[test]
fn limits_are_set_of_oneself_and_of_nobody_else() {
    let nofile = || {
        let now = rustix::process::getrlimit(Resource::Nofile);
        Rlimit { current: now.current, maximum: now.maximum }
    };
    let [own, named, parent] = without_view(Network::Outbound, |_| {
        [None, Some(getpid()), getppid()].map(|pid| prlimit(pid, Resource::Nofile, nofile()).map(drop))
    });
    assert_eq!((own, named, parent), (Ok(()), Err(Errno::PERM), Err(Errno::PERM)));
}

#[test]
fn who_may_speak_over_tcp_may_not_listen() {
    use rustix::net::{AddressFamily, SocketType, listen, socket};
    let listened = without_view(Network::Outbound, |_| {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        listen(&socket, 1)
    });
    assert_eq!(listened, Err(Errno::PERM));
}
