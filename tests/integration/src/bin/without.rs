//! The gateway on a machine that lacks something: `WITHOUT=landlock without serve …`.
//!
//! Takes it away from this process for good, by a filter of system calls that answers as a kernel without it would, and
//! then becomes `moongate`, with everything that it starts.

use std::{collections::BTreeMap, os::unix::process::CommandExt as _, process::Command};

use anyhow::{Context as _, Result, bail};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// What decides what is taken away. The gateway does not get to see it.
const WITHOUT: &str = "WITHOUT";

fn main() -> Result<()> {
    let (calls, error): (&[i64], i32) = match std::env::var(WITHOUT)?.as_str() {
        // As a kernel that was built without it.
        "landlock" => (&[libc::SYS_landlock_create_ruleset], libc::ENOSYS),
        // As a machine where users have no namespaces, or a container that refuses them.
        "mounts" => (&[libc::SYS_unshare, libc::SYS_mount], libc::EPERM),
        other => bail!("nothing is called {other}"),
    };
    let refused = SeccompAction::Errno(error.unsigned_abs());
    let rules: BTreeMap<_, _> = calls.iter().map(|call| (*call, Vec::new())).collect();
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refused, std::env::consts::ARCH.try_into()?)?;
    apply_filter(&BpfProgram::try_from(filter)?)?;
    let gateway = std::env::current_exe()?.parent().context("it lies in a directory")?.join("moongate");
    let error = Command::new(gateway).args(std::env::args_os().skip(1)).env_remove(WITHOUT).exec();
    Err(error.into())
}
