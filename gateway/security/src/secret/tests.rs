//! Secret files: modes, links, rotation, and what never gets printed.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    time::Duration,
};

use super::*;

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn token(&self) -> PathBuf {
        self.0.path().join("state/moongate/token")
    }

    fn open(&self) -> (TokenFile, Vec<Warning>) {
        TokenFile::open_or_create(&self.token()).unwrap()
    }

    /// Names in the token's directory.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.token().parent().unwrap()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_new_token_is_random_and_closed_to_others() {
    let home = Home::new();
    let (file, warnings) = home.open();
    assert_eq!(warnings, []);
    assert_eq!(mode(&home.token()), 0o600);
    assert_eq!(mode(home.token().parent().unwrap()), 0o700);
    assert_eq!(mode(home.token().parent().unwrap().parent().unwrap()), 0o700);
    assert_eq!(home.names(), ["token"], "no draft is left behind");

    let token = file.token().unwrap();
    assert_eq!(URL_SAFE_NO_PAD.decode(token.expose()).unwrap().len(), 32);
    assert!(file.matches(token.expose()));
    assert!(!file.matches(""));
    assert!(!file.matches(&token.expose()[1..]));
    let other = Home::new();
    assert_ne!(other.open().0.token().unwrap().expose(), token.expose());
}

#[test]
fn an_existing_token_is_kept() {
    let home = Home::new();
    let token = home.open().0.token().unwrap();
    let (again, warnings) = home.open();
    assert_eq!(again.token().unwrap().expose(), token.expose());
    assert_eq!(warnings, []);
}

#[test]
fn of_processes_that_start_together_all_use_one_token() {
    let home = Home::new();
    let tokens: Vec<String> = std::thread::scope(|scope| {
        let start = || home.open().0.token().unwrap().expose().to_owned();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(tokens.iter().all(|token| *token == tokens[0]));
    assert_eq!(home.names(), ["token"]);
}

#[test]
fn a_mode_that_lets_others_read_is_repaired_with_a_warning() {
    let home = Home::new();
    let token = home.open().0.token().unwrap();
    for loose in [0o644, 0o640, 0o666, 0o604, 0o601] {
        set_mode(&home.token(), loose);
        let (file, warnings) = home.open();
        assert_eq!(warnings, [Warning::ModeRepaired { path: home.token(), mode: loose }]);
        assert_eq!(mode(&home.token()), 0o600);
        assert!(file.matches(token.expose()));
        assert!(warnings[0].to_string().contains(&format!("{loose:04o}")));
    }
}

#[test]
fn a_directory_that_others_may_write_is_warned_about_and_left_alone() {
    let home = Home::new();
    home.open();
    let directory = home.token().parent().unwrap().to_owned();
    set_mode(&directory, 0o777);
    assert_eq!(home.open().1, [Warning::OpenDirectory { path: directory.clone(), mode: 0o777 }]);
    assert_eq!(mode(&directory), 0o777);
    set_mode(&directory, 0o1777);
    assert_eq!(home.open().1, [], "with the sticky bit nobody can replace our file");
}

#[test]
fn a_link_is_followed_with_a_warning_and_kept_by_a_rotation() {
    let home = Home::new();
    let token = home.open().0.token().unwrap();
    let link = home.0.path().join("link");
    symlink(home.token(), &link).unwrap();
    let (file, warnings) = TokenFile::open_or_create(&link).unwrap();
    assert_eq!(warnings, [Warning::Link { path: link.clone() }]);
    assert!(file.matches(token.expose()));

    let (rotated, warnings) = TokenFile::write_new(&link).unwrap();
    assert_eq!(warnings, [Warning::Link { path: link.clone() }]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(home.open().0.token().unwrap().expose(), rotated.expose());
}

#[test]
fn a_dangling_link_is_no_place_for_a_new_token() {
    let home = Home::new();
    let link = home.0.path().join("link");
    symlink("nowhere", &link).unwrap();
    assert!(matches!(TokenFile::open_or_create(&link), Err(Error::Unreadable { .. })));
}

#[test]
fn what_is_no_file_or_no_token_is_refused() {
    let home = Home::new();
    home.open();
    let directory = home.token().parent().unwrap().to_owned();
    assert!(matches!(TokenFile::open_or_create(&directory), Err(Error::NotAFile { .. })));
    for text in ["", "\n", "two tokens", "two\ntokens\n", "tökén"] {
        fs::write(home.token(), text).unwrap();
        let error = TokenFile::open_or_create(&home.token()).unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{text:?}");
    }
    fs::write(home.token(), [0xff, 0xfe]).unwrap();
    assert!(matches!(TokenFile::open_or_create(&home.token()), Err(Error::Unreadable { .. })));

    let (token, _) = TokenFile::write_new(&home.token()).unwrap();
    assert!(home.open().0.matches(token.expose()));
}

#[test]
fn a_pipe_in_the_place_of_the_token_does_not_block() {
    let home = Home::new();
    let path = home.0.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(matches!(TokenFile::open_or_create(&path), Err(Error::NotAFile { .. })));
}

#[test]
fn a_foreign_owner_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return; // only root can give a file away
    }
    let home = Home::new();
    home.open();
    let owner = rustix::fs::Uid::from_raw(12345);
    rustix::fs::chown(home.token(), Some(owner), None).unwrap();
    let error = TokenFile::open_or_create(&home.token()).unwrap_err();
    assert!(matches!(error, Error::ForeignOwner { owner: 12345, .. }));

    let link = home.0.path().join("link");
    symlink(home.token(), &link).unwrap();
    rustix::fs::chownat(rustix::fs::CWD, &link, Some(owner), None, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        .unwrap();
    let error = TokenFile::write_new(&link).unwrap_err();
    assert!(
        matches!(error, Error::ForeignOwner { owner: 12345, .. }),
        "their link does not say where ours goes"
    );
}

#[test]
fn a_short_token_is_accepted_with_a_warning() {
    let home = Home::new();
    home.open();
    fs::write(home.token(), "hunter2\n").unwrap();
    let (file, warnings) = home.open();
    assert_eq!(warnings, [Warning::ShortToken { path: home.token() }]);
    assert!(file.matches("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn a_rotated_token_is_good_at_once_and_the_old_one_soon_refused() {
    let home = Home::new();
    let (running, _) = home.open();
    let old = running.token().unwrap();
    assert!(running.matches(old.expose()));

    let (new, _) = TokenFile::write_new(&home.token()).unwrap();
    assert_eq!(mode(&home.token()), 0o600);
    assert!(running.matches(new.expose()), "good from its first use");
    assert!(!running.matches(old.expose()));

    let (newer, _) = TokenFile::write_new(&home.token()).unwrap();
    tokio::time::advance(Duration::from_millis(250)).await;
    assert!(
        !running.matches(new.expose()),
        "refused when the next look is due, though nobody used the newer one"
    );
    assert!(running.matches(newer.expose()));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_vanishes_or_breaks_leaves_the_last_token_in_use() {
    let home = Home::new();
    let (running, _) = home.open();
    let token = running.token().unwrap();
    for step in 0..2 {
        if step == 0 {
            fs::remove_file(home.token()).unwrap();
        } else {
            fs::write(home.token(), "").unwrap();
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(running.matches(token.expose()));
        assert!(!running.matches("guess"));
    }
    fs::write(home.token(), "a-token-that-somebody-wrote-by-hand").unwrap();
    assert!(running.matches("a-token-that-somebody-wrote-by-hand"));
    assert!(!running.matches(token.expose()));
}

#[test]
fn no_debug_output_holds_the_token() {
    let home = Home::new();
    let (file, _) = home.open();
    let token = file.token().unwrap();
    let file = std::sync::Arc::new(file);
    let printed = format!("{token:?} {file:?} {:?}", crate::LocalToken::new(file.clone()));
    assert!(!printed.contains(token.expose()), "{printed}");
    assert!(printed.contains("***"));
}
