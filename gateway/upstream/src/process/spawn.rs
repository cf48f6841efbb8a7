//! Starts a command under its supervisor: which program, in which environment.
//!
//! In: a spec and our own environment. Out: a command that is about to run, with its supervisor and its pipes.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use moongate_launch::{Input, Launch, Started};
use rustix::fs::{Access, access};

use super::{Secret, Spec};
use crate::transport::Fault;

/// What every program is given of our environment, if we have it.
const COMMON: [&str; 18] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
];
/// Beginnings of names that every program is given.
const FAMILIES: [&str; 2] = ["LC_", "XDG_"];

/// Where programs are looked for when nobody says so.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Starts what `spec` says.
///
/// # Cancel safety
/// Dropping the future ends what was started.
pub(super) async fn spawn(spec: &Spec) -> Result<Started, Fault> {
    let environment = environment(env::vars_os().collect(), &spec.inherit_env, &spec.env);
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
    let here = spec.cwd.as_deref().unwrap_or(Path::new("."));
    if !here.is_dir() {
        return Err(unreached(format!("the working directory {} does not exist", here.display())));
    }
    let program = find(&spec.command, path.unwrap_or(OsStr::new(DEFAULT_PATH)), here).map_err(unreached)?;

    let launch = Launch {
        launcher: spec.launcher.clone(),
        program,
        name: spec.command.clone().into(),
        args: spec.args.iter().map(OsString::from).collect(),
        environment,
        directory: here.to_owned(),
        limits: spec.limits.clone(),
        confinement: None,
    };
    launch.start(Input::Piped).await.map_err(|error| unreached(error.to_string()))
}

fn unreached(text: String) -> Fault {
    Fault::Unreached(text.into())
}

/// What a program is given: the common variables, those that are inherited by name, and those that are listed, which win.
fn environment(
    ours: Vec<(OsString, OsString)>,
    inherited: &[String],
    listed: &[(String, Secret)],
) -> Vec<(OsString, OsString)> {
    let is_listed = |name: &OsStr| listed.iter().any(|(listed, _)| name == listed.as_str());
    let is_given = |name: &OsStr| {
        let common = name.to_str().is_some_and(|name| {
            COMMON.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
        });
        common || inherited.iter().any(|inherited| name == inherited.as_str())
    };
    let ours = ours.into_iter().filter(|(name, _)| is_given(name) && !is_listed(name));
    ours.chain(listed.iter().map(|(name, value)| (name.into(), value.expose().into()))).collect()
}

/// The program that `command` names: a path, which begins at `here`, or a name that is looked for in `path`.
fn find(command: &str, path: &OsStr, here: &Path) -> Result<PathBuf, String> {
    let runs = |program: &PathBuf| program.is_file() && access(program, Access::EXEC_OK).is_ok();
    // An absolute path, because the search must not depend on where it is made.
    let here = std::path::absolute(here).unwrap_or_else(|_| here.to_owned());
    if command.contains('/') {
        let program = here.join(command);
        let missing = format!("the command {command} cannot be run: {} is no program", program.display());
        return Some(program).filter(runs).ok_or(missing);
    }
    let found = env::split_paths(path).map(|directory| here.join(directory).join(command)).find(runs);
    let missing = || format!("the command {command} was not found in PATH={}", path.to_string_lossy());
    found.filter(|_| !command.is_empty()).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(given: &[(OsString, OsString)]) -> Vec<&str> {
        given.iter().map(|(name, _)| name.to_str().unwrap()).collect()
    }

    #[test]
    fn the_environment_is_clean_but_for_what_is_listed() {
        let ours = [
            "PATH",
            "LC_ALL",
            "XDG_DATA_HOME",
            "https_proxy",
            "AWS_SECRET_ACCESS_KEY",
            "LD_PRELOAD",
            "EDITOR",
        ];
        let ours = || ours.iter().map(|name| (OsString::from(name), OsString::from("ours"))).collect();
        let given = environment(ours(), &[], &[]);
        assert_eq!(names(&given), ["PATH", "LC_ALL", "XDG_DATA_HOME", "https_proxy"]);
        let listed = [("PATH".to_owned(), Secret::new("theirs")), ("TOKEN".to_owned(), Secret::new("x"))];
        let given = environment(ours(), &["EDITOR".to_owned(), "ABSENT".to_owned()], &listed);
        assert_eq!(names(&given), ["LC_ALL", "XDG_DATA_HOME", "https_proxy", "EDITOR", "PATH", "TOKEN"]);
        assert_eq!(given[4].1, "theirs");
    }

    #[test]
    fn a_program_is_found_in_path_or_where_it_is_said_to_be() {
        let directory = tempfile::tempdir().unwrap();
        let (here, other) = (directory.path(), tempfile::tempdir().unwrap());
        std::fs::copy("/bin/sh", here.join("tool")).unwrap();
        std::fs::write(here.join("text"), "no program").unwrap();
        let path = env::join_paths([other.path(), here]).unwrap();
        assert_eq!(find("tool", &path, other.path()).unwrap(), here.join("tool"));
        assert_eq!(find("./tool", OsStr::new(""), here).unwrap(), here.join("./tool"));
        for (command, at) in
            [("tool", other.path()), ("./tool", other.path()), ("text", here), ("./text", here), ("", here)]
        {
            let error = find(command, other.path().as_os_str(), at).unwrap_err();
            assert!(error.contains(&format!("the command {command} ")), "{error}");
        }
        let error = find("no-such-tool", &path, here).unwrap_err();
        assert_eq!(error, format!("the command no-such-tool was not found in PATH={}", path.display()));
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "***");
    }
}
