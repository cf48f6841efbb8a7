//! Whether commands of the workspace run here, and how far they are confined: one is run to see.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use moongate_config::{Confine, Workspace};
use moongate_launch::{Confinement, Input, Launch, Report};

use super::report::Finding;
use crate::workspace::options;

const AREA: &str = "workspace";
/// Does nothing, and is everywhere.
const PROGRAM: &str = "/bin/true";
/// How long that may take: the root may lie on a file system that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How it is with the workspace, if it is there.
pub(super) async fn finding(workspace: &Workspace) -> Option<Finding> {
    if !workspace.backend.enabled {
        return None;
    }
    let place = match Place::make(&workspace.root) {
        Ok(place) => place,
        Err(error) => {
            let advice = "let the user that runs the gateway write there, or name another directory (backends.workspace.root)";
            return Some(Finding::problem(AREA, format!("{error:#}"), advice));
        }
    };
    let tried = tokio::time::timeout(PATIENCE, try_one(workspace, &place.0)).await;
    let late = || anyhow::anyhow!("a command does not start within {} s", PATIENCE.as_secs());
    Some(match tried.unwrap_or_else(|_| Err(late())) {
        Ok(report) if report.unconfined.is_empty() => {
            Finding::fine(AREA, "commands are confined").with_details(report.notes)
        }
        Ok(report) => {
            let missing = report.unconfined.join("; ");
            Finding::note(AREA, format!("commands are not fully confined: {missing}"))
                .with_details(report.notes)
        }
        Err(error) => {
            let advice = if workspace.confine == Confine::Required {
                "use a kernel with landlock and seccomp, or let commands run with what there is (backends.workspace.confine: \
                 best_effort), or without any (backends.workspace.enabled: false)"
            } else {
                "mend this, or switch it off (backends.workspace.enabled: false)"
            };
            Finding::problem(AREA, format!("{error:#}"), advice)
        }
    })
}

/// A directory where those of sessions are, or will be, which is removed when this is dropped.
struct Place(PathBuf);

impl Place {
    /// The root itself is made with the first session, by whoever runs the gateway.
    fn make(root: &Path) -> anyhow::Result<Self> {
        let there = root.ancestors().find(|path| path.is_dir()).unwrap_or(root);
        let path = there.join(format!("moongate-doctor-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot make directories in {}", there.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Nothing was written to it.
        let _gone = fs::remove_dir(&self.0).is_err();
    }
}

/// Runs a program that does nothing in `directory`, as a command would be run.
async fn try_one(workspace: &Workspace, directory: &Path) -> anyhow::Result<Report> {
    let options = options(workspace);
    let launch = Launch {
        launcher: std::env::current_exe()?,
        program: PROGRAM.into(),
        name: PROGRAM.into(),
        args: Vec::new(),
        environment: Vec::new(),
        directory: directory.to_owned(),
        limits: options.limits,
        confinement: Some(Confinement {
            directory: directory.to_owned(),
            readable: options.readable,
            network: options.network,
            required: options.required,
        }),
    };
    let mut started = launch.start(Input::Empty).await?;
    let report = started.supervisor.report.clone();
    drop(started.stderr);
    started.supervisor.end().await;
    Ok(report)
}
