//! Files that hold secrets: whether they are there, and whether they are their owner's alone.

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path};

use super::report::Finding;

/// How the file with a secret is. One that is not there is made when it is needed; `remedy` makes a new one.
pub(super) fn secret(area: &str, path: &Path, remedy: &str) -> Finding {
    let name = path.display();
    let unreadable = |error: io::Error| {
        Finding::problem(area, format!("{name}: {error}"), format!("make {name} readable for this user"))
    };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Finding::note(area, format!("{name} is not there yet; the first use makes it"));
        }
        Err(error) => return unreadable(error),
    };
    let mode = metadata.permissions().mode() & 0o7777;
    if !metadata.is_file() {
        Finding::problem(area, format!("{name} is not a file"), format!("move {name} away; {remedy}"))
    } else if mode & 0o077 != 0 {
        let text = format!("{name} has mode {mode:04o}: others may use it");
        Finding::problem(area, text, format!("chmod 600 {name}"))
    } else if let Err(error) = fs::File::open(path) {
        unreadable(error)
    } else if metadata.len() == 0 {
        Finding::problem(area, format!("{name} is empty"), remedy)
    } else {
        Finding::fine(area, format!("{name}, mode {mode:04o}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::report::State, *};

    #[test]
    fn a_secret_that_others_may_read_is_a_problem() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        assert_eq!(secret("token", &path, "").state, State::Note);
        for (mode, text, expected) in
            [(0o600, "", State::Problem), (0o600, "x", State::Fine), (0o640, "x", State::Problem)]
        {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let finding = secret("token", &path, "");
            assert_eq!(finding.state, expected, "{finding:?}");
            assert_eq!(finding.advice.is_some(), expected == State::Problem);
        }
        assert_eq!(secret("token", directory.path(), "").state, State::Problem);
    }
}
