//! Rooms on a real file system.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    time::SystemTime,
};

use moongate_core::{Principal, clock::ClockHandle};
use tempfile::TempDir;

use super::*;

const DAY: Duration = Duration::from_hours(24);

fn rooms() -> (TempDir, Rooms, ClockHandle) {
    let directory = TempDir::new().unwrap();
    let (clock, handle) = Clock::settable(SystemTime::now());
    let rooms = Rooms::new(directory.path().join("rooms"), clock);
    (directory, rooms, handle)
}

fn remove(rooms: &Rooms, session: &SessionKey) -> io::Result<()> {
    rooms.remove_named(&[name(session)])
}

fn key(session: &str) -> SessionKey {
    SessionKey { principal: Principal::local(), session: session.into() }
}

fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_room_is_private_and_found_again() {
    let (_directory, rooms, _) = rooms();
    let room = rooms.open(&key("s")).unwrap();
    assert_eq!(fs::metadata(room.path()).unwrap().permissions().mode() & 0o777, 0o700);
    fs::write(room.path().join("kept"), "x").unwrap();
    let again = rooms.open(&key("s")).unwrap();
    assert_eq!(again.path(), room.path());
    assert!(again.path().join("kept").exists());
    let opened = rustix::fs::fstat(again.directory()).unwrap();
    assert_eq!(opened.st_ino, fs::metadata(room.path()).unwrap().ino());
}

#[test]
fn no_two_sessions_share_a_room_and_no_name_leaves_the_root() {
    let (_directory, rooms, _) = rooms();
    let long = "x".repeat(10_000);
    let mut seen = std::collections::HashSet::new();
    let principals = [Principal::local(), Principal::issued("a"), Principal::issued("ab")];
    for principal in principals {
        for session in ["default", "a", "b", "", ".", "..", "../default", "/etc", "a\0b", "é", "bb", &long] {
            let room =
                rooms.open(&SessionKey { principal: principal.clone(), session: session.into() }).unwrap();
            assert_eq!(room.path().parent(), Some(&*rooms.root));
            assert!(is_room(room.path().file_name().unwrap().to_str().unwrap()));
            assert!(seen.insert(room.path().to_owned()), "{principal} {session}");
        }
    }
}

#[test]
fn an_ended_session_takes_its_room_along_and_leaves_the_others() {
    let (_directory, rooms, _) = rooms();
    let (ended, other) = (rooms.open(&key("ended")).unwrap(), rooms.open(&key("other")).unwrap());
    fs::create_dir_all(ended.path().join("a/b")).unwrap();
    fs::write(ended.path().join("a/b/c"), "x").unwrap();
    remove(&rooms, &key("ended")).unwrap();
    assert_eq!(names(&rooms.root), [other.path().file_name().unwrap().to_str().unwrap()]);
    remove(&rooms, &key("ended")).unwrap();
    assert_eq!(names(rooms.open(&key("ended")).unwrap().path()), [""; 0]);
}

#[test]
fn who_only_looks_gets_no_room() {
    let (_directory, rooms, _) = rooms();
    let looked = rooms.look(&key("s")).unwrap();
    assert_eq!(names(looked.path()), [""; 0]);
    assert_eq!(names(&rooms.root), [EMPTY]);
    fs::write(rooms.open(&key("s")).unwrap().path().join("kept"), "x").unwrap();
    assert_eq!(names(rooms.look(&key("s")).unwrap().path()), ["kept"]);
    assert_eq!(names(rooms.look(&key("other")).unwrap().path()), [""; 0]);
}

#[test]
fn a_lock_for_edits_is_shared_in_a_room_and_by_nobody_else() {
    let (_directory, rooms, _) = rooms();
    let (mine, other) = (rooms.open(&key("mine")).unwrap(), rooms.open(&key("other")).unwrap());
    let held = mine.edits().lock().unwrap();
    assert!(rooms.open(&key("mine")).unwrap().edits().try_lock().is_err());
    assert!(rooms.look(&key("mine")).unwrap().edits().try_lock().is_err());
    assert!(other.edits().try_lock().is_ok());
    drop(held);
    drop((mine, other));
    rooms.open(&key("third")).unwrap();
    assert_eq!(rooms.edits.lock().unwrap().len(), 1, "the locks of rooms that nobody holds are forgotten");
}

#[test]
fn removal_without_a_root_is_no_error() {
    let (_directory, rooms, _) = rooms();
    remove(&rooms, &key("s")).unwrap();
    assert_eq!(rooms.sweep(DAY).unwrap(), 0);
}

#[test]
fn removal_does_not_follow_symbolic_links() {
    let (directory, rooms, _) = rooms();
    let outside = directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "x").unwrap();
    let room = rooms.open(&key("s")).unwrap();
    fs::create_dir(room.path().join("inner")).unwrap();
    symlink(&outside, room.path().join("link")).unwrap();
    symlink(&outside, room.path().join("inner/link")).unwrap();
    symlink(outside.join("kept"), room.path().join("file")).unwrap();
    remove(&rooms, &key("s")).unwrap();
    assert!(outside.join("kept").exists());
    assert_eq!(names(&rooms.root), [""; 0]);
}

#[test]
fn a_symbolic_link_in_the_place_of_a_room_is_not_opened() {
    let (directory, rooms, _) = rooms();
    fs::create_dir(&rooms.root).unwrap();
    symlink(directory.path(), rooms.root.join(name(&key("s")))).unwrap();
    assert!(rooms.open(&key("s")).is_err());
}

#[test]
fn removal_takes_directories_that_are_read_only_and_very_deep() {
    let (_directory, rooms, _) = rooms();
    let room = rooms.open(&key("s")).unwrap();
    let mut deepest = rustix::io::dup(room.directory()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&deepest, "d", Mode::RWXU).unwrap();
        let deeper = open_directory(&deepest, "d").unwrap();
        rustix::fs::fchmod(&deepest, Mode::RUSR | Mode::XUSR).unwrap();
        deepest = deeper;
    }
    remove(&rooms, &key("s")).unwrap();
    assert_eq!(names(&rooms.root), [""; 0]);
}

/// Does `work` on a thread whose owner gets no further than modes allow: root's does without what makes it root.
#[cfg(target_os = "linux")]
fn without_privileges(work: impl FnOnce() + Send) {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets).unwrap();
            work();
        });
        worker.join().unwrap();
    });
}

#[test]
#[cfg(target_os = "linux")]
fn directories_that_are_closed_to_everybody_are_removed() {
    let (_directory, rooms, clock) = rooms();
    without_privileges(|| {
        for session in ["ended", "old"] {
            let room = rooms.open(&key(session)).unwrap();
            let inner = room.path().join("outer/inner");
            fs::create_dir_all(&inner).unwrap();
            fs::write(inner.join("file"), "x").unwrap();
            for path in [&inner, inner.parent().unwrap(), room.path()] {
                fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
            }
            assert!(fs::read_dir(room.path()).is_err(), "modes mean nothing to this thread");
        }
        remove(&rooms, &key("ended")).unwrap();
        assert_eq!(names(&rooms.root), [name(&key("old"))]);
        clock.advance(2 * DAY);
        assert_eq!(rooms.sweep(DAY).unwrap(), 1);
        assert_eq!(names(&rooms.root), [""; 0]);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_room_that_was_closed_is_open_to_its_session_again() {
    let (_directory, rooms, _) = rooms();
    without_privileges(|| {
        let path = rooms.open(&key("s")).unwrap().path().to_owned();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        assert_eq!(names(rooms.open(&key("s")).unwrap().path()), [""; 0]);
    });
}

#[test]
#[cfg(target_os = "linux")]
fn no_mode_is_changed_behind_a_symbolic_link() {
    let (directory, rooms, _) = rooms();
    let outside = directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o500)).unwrap();
    fs::create_dir(&rooms.root).unwrap();
    symlink(&outside, rooms.root.join("link")).unwrap();
    let root = rooms.open_root().unwrap();
    assert!(unlock(&root, "link").is_err());
    assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o500);
}

#[test]
fn a_sweep_goes_on_where_one_room_cannot_be_removed_and_says_so() {
    let (_directory, rooms, clock) = rooms();
    for session in ["a", "b", "c", "d"] {
        drop(rooms.open(&key(session)).unwrap());
    }
    // No directory, wherever in the order it comes.
    for digit in ["0", "7", "f"] {
        fs::write(rooms.root.join(digit.repeat(64)), "").unwrap();
        fs::write(rooms.root.join(format!("{digit}{GONE}")), "").unwrap();
    }
    clock.advance(2 * DAY);
    assert!(rooms.sweep(DAY).is_err());
    assert_eq!(names(&rooms.root).len(), 6, "only what is no room is left");
}

#[test]
fn a_sweep_takes_what_is_old_and_unused_and_nothing_else() {
    let (_directory, rooms, clock) = rooms();
    drop(rooms.open(&key("old")).unwrap());
    let held = rooms.open(&key("held")).unwrap();
    drop(rooms.open(&key("used again")).unwrap());
    let stranger = rooms.root.join("stranger");
    fs::create_dir(&stranger).unwrap();
    clock.advance(30 * DAY);
    drop(rooms.open(&key("used again")).unwrap());
    assert_eq!(rooms.sweep(30 * DAY).unwrap(), 0, "exactly the retention is not too old");
    clock.advance(DAY);
    assert_eq!(rooms.sweep(30 * DAY).unwrap(), 1);
    assert!(!rooms.root.join(name(&key("old"))).exists());
    assert!(held.path().exists() && stranger.exists());
    assert!(rooms.root.join(name(&key("used again"))).exists());
    drop(held);
    assert_eq!(rooms.sweep(30 * DAY).unwrap(), 1, "nobody holds it any more");
}

#[test]
fn a_room_held_through_another_gateway_is_not_swept() {
    let (_directory, rooms, clock) = rooms();
    let other = Rooms::new(rooms.root.clone(), rooms.clock.clone());
    let held = other.open(&key("s")).unwrap();
    clock.advance(100 * DAY);
    assert_eq!(rooms.sweep(DAY).unwrap(), 0);
    assert!(held.path().exists());
}

#[test]
fn a_sweep_finishes_what_an_earlier_removal_left() {
    let (_directory, rooms, _) = rooms();
    let room = rooms.open(&key("s")).unwrap();
    fs::create_dir_all(rooms.root.join("1-2-3.gone/x/y")).unwrap();
    assert_eq!(rooms.sweep(DAY).unwrap(), 0, "no room was swept");
    assert_eq!(names(&rooms.root), [room.path().file_name().unwrap().to_str().unwrap()]);
}

#[test]
fn rooms_opened_while_they_are_swept_are_there() {
    let (_directory, rooms, _) = rooms();
    std::thread::scope(|scope| {
        let sweeping =
            scope.spawn(|| (0..200).map(|_| remove(&rooms, &key("s")).is_ok()).filter(|ok| *ok).count());
        for _ in 0..200 {
            let room = rooms.open(&key("s")).unwrap();
            assert!(rustix::fs::fstat(room.directory()).is_ok());
        }
        assert!(sweeping.join().unwrap() > 0);
    });
}

#[test]
fn a_room_that_a_program_has_locked_is_refused_and_not_waited_for() {
    let (_directory, rooms, _) = rooms();
    let path = rooms.open(&key("s")).unwrap().path().to_owned();
    let locked = open_directory(CWD, &path).unwrap();
    rustix::fs::flock(&locked, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(rooms.open(&key("s")).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(locked);
    assert_eq!(rooms.open(&key("s")).unwrap().path(), path);
}

#[test]
fn the_root_may_be_a_symbolic_link() {
    let (directory, rooms, _) = rooms();
    fs::create_dir(directory.path().join("elsewhere")).unwrap();
    symlink("elsewhere", &rooms.root).unwrap();
    drop(rooms.open(&key("s")).unwrap());
    assert_eq!(names(&directory.path().join("elsewhere")).len(), 1);
    remove(&rooms, &key("s")).unwrap();
    assert_eq!(names(&directory.path().join("elsewhere")), [""; 0]);
}
