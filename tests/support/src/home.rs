//! A temporary home directory: where one gateway of a test keeps its configuration and all its state.
//!
//! Several processes may share a home, which is how restarts, hand-over and the command line are tested.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use tokio::process::Command;

/// What a process of a test inherits from the test run; everything else is left out, so that no setting of the
/// developer's machine changes a result.
const INHERITED: [&str; 6] =
    ["PATH", "LANG", "LLVM_PROFILE_FILE", "RUST_BACKTRACE", "RUST_LOG", "LD_LIBRARY_PATH"];

/// A home directory that is deleted with its last user.
#[derive(Debug)]
pub struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    /// Makes an empty home.
    pub fn create() -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("moongate-test-").tempdir()?;
        let home = Self { directory };
        for part in ["state", "data", "config", "run", "tmp"] {
            std::fs::create_dir(home.path().join(part))?;
        }
        restrict(&home.path().join("run"))?;
        Ok(home)
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Where [`write_config`](Self::write_config) puts the configuration.
    pub fn config_path(&self) -> PathBuf {
        self.path().join("moongate.yaml")
    }

    /// Replaces the configuration file in one step, as editors do. The admin listener gets an ephemeral port unless
    /// `yaml` has its own `admin:` section.
    pub fn write_config(&self, yaml: &str) -> Result<PathBuf> {
        let path = self.config_path();
        let partial = self.path().join("moongate.yaml.new");
        std::fs::write(&partial, with_ephemeral_admin(yaml))?;
        std::fs::rename(&partial, &path)?;
        Ok(path)
    }

    /// A command in this home: `binary` of the same build as the running test, such as `moongate`.
    pub fn command(&self, binary: &str) -> Result<Command> {
        Ok(self.command_at(&locate(binary)?))
    }

    /// A command in this home: any program, such as a client script.
    pub fn command_at(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.path()).kill_on_drop(true);
        for name in INHERITED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("HOME", self.path())
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env("XDG_DATA_HOME", self.path().join("data"))
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("XDG_RUNTIME_DIR", self.path().join("run"))
            .env("TMPDIR", self.path().join("tmp"));
        command
    }

    /// Runs `moongate` with `arguments` to its end.
    pub async fn run(&self, arguments: &[&str]) -> Result<std::process::Output> {
        let output = self.command("moongate")?.args(arguments).output();
        crate::patiently(&format!("moongate {}", arguments.join(" ")), output).await?.map_err(Into::into)
    }
}

/// The path of `binary` beside the running test executable.
///
/// Cargo builds no binaries of other packages for a test, so it must have been built before; `./test` does.
pub(crate) fn locate(binary: &str) -> Result<PathBuf> {
    let test = std::env::current_exe().context("a test knows its own path")?;
    let directory = test.parent().context("a test lies in a directory")?;
    let profile =
        if directory.ends_with("deps") { directory.parent().unwrap_or(directory) } else { directory };
    let path = profile.join(binary);
    anyhow::ensure!(path.is_file(), "{} is not built: run `cargo build --workspace` first", path.display());
    Ok(path)
}

fn with_ephemeral_admin(yaml: &str) -> String {
    let has_admin = yaml.lines().any(|line| line.starts_with("admin:"));
    if has_admin { yaml.to_owned() } else { format!("{}\nadmin: {{listen: 127.0.0.1:0}}\n", yaml.trim_end()) }
}

/// A runtime directory must be its owner's alone.
fn restrict(directory: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_section_is_added_once() {
        assert_eq!(with_ephemeral_admin(""), "\nadmin: {listen: 127.0.0.1:0}\n");
        let own = "admin:\n  enabled: false\n";
        assert_eq!(with_ephemeral_admin(own), own);
    }

    #[test]
    fn missing_binary_says_what_to_do() {
        let error = locate("no-such-binary").unwrap_err().to_string();
        assert!(error.contains("cargo build --workspace"), "{error}");
    }

    #[tokio::test]
    async fn processes_see_the_home_and_not_the_developers_environment() {
        let home = Home::create().unwrap();
        let output = home.command_at("env").output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let root = home.path().display();
        assert!(text.contains(&format!("XDG_STATE_HOME={root}/state\n")), "{text}");
        assert!(!text.contains("CARGO"), "{text}");
    }
}
