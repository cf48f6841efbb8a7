//! Where and on what was measured: enough to compare two results, nothing that names a machine or its owner.

use std::{path::Path, process::Command, time::SystemTime};

use anyhow::{Context as _, Result};

use crate::{cores::Cores, report::bytes};

/// One sentence about this run.
pub fn describe(cores: &Cores) -> Result<String> {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let date = now.split('T').next().unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // Distributions and providers add names of their own behind the number.
    let kernel = kernel.trim().split(['-', '+']).next().unwrap_or_default();
    Ok(format!(
        "Measured {date} at commit {}, profile {}: {} cores ({}), {} of memory, Linux {kernel}.",
        commit(),
        profile()?,
        cores.count(),
        processor(),
        memory(),
    ))
}

/// The short hash, with a mark when the tree differs from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(hash) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let dirty = git(&["status", "--porcelain", "--", "gateway", "backends", "config", "Cargo.lock"])
        .is_none_or(|changes| !changes.is_empty());
    if dirty { format!("{hash} with changes") } else { hash }
}

/// The profile this program, and so the gateway beside it, was built with, and whether `./dist` guided that build.
pub fn profile() -> Result<String> {
    let program = std::env::current_exe()?;
    let directory = program.parent().and_then(Path::file_name).context("the program lies in no directory")?;
    let guided = program.ancestors().any(|directory| directory.ends_with("guided"));
    Ok(format!("{}{}", directory.to_string_lossy(), if guided { " guided by counts" } else { "" }))
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

fn memory() -> String {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    total
        .and_then(|total| total.parse::<u64>().ok())
        .map_or_else(|| "?".to_owned(), |total| bytes(total * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_name_no_path_and_no_host() {
        let text = describe(&Cores::find().unwrap()).unwrap();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert!(!text.contains('/') && !text.contains(host.trim()), "{text}");
        assert!(text.contains(" cores ("), "{text}");
    }
}
