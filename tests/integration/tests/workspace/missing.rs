//! Machines that lack something of the confinement: what still holds there, and that it is said.
//!
//! They are made of this one by taking something away from the gateway, in a way that it cannot tell from a kernel without
//! it. The columns are those of the table in README.md.

use std::sync::Arc;

use anyhow::Result;
use moongate_test_support::{Gateway, Home};
use serde_json::json;

use crate::support::{Caller, session, yaml};

const WARNING: &str = "commands of the workspace are not fully confined on this machine";

/// A gateway that has to do without something.
async fn without(what: &str, settings: &str) -> Result<(Gateway, Caller)> {
    let gateway =
        Gateway::builder().binary("without").env("WITHOUT", what).config(&yaml(settings)).start().await?;
    let caller = session(&gateway, "confined");
    Ok((gateway, caller))
}

/// What `doctor` says to an operator of such a machine.
async fn doctor(what: &str, settings: &str) -> Result<String> {
    let home = Arc::new(Home::create()?);
    let config = home.write_config(&yaml(settings))?;
    let mut command = home.command("without")?;
    command.env("WITHOUT", what).arg("doctor").arg("--config").arg(config);
    let output = moongate_test_support::patiently("doctor", command.output()).await??;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test]
async fn what_is_missing_is_logged_with_the_first_command() -> Result<()> {
    let (mut gateway, caller) = without("landlock", "").await?;
    assert!(!gateway.process().stderr().text().contains(WARNING));
    assert_eq!(caller.output("echo runs").await?, "runs");
    let line = gateway.logged(WARNING).await?;
    assert!(line.contains("landlock: this kernel does not have it"), "{line}");
    caller.output("true").await?;
    let text = gateway.process().stderr().text();
    assert_eq!(text.matches(WARNING).count(), 1, "once is enough: {text}");
    Ok(())
}

#[tokio::test]
async fn where_nothing_is_missing_nothing_is_logged() -> Result<()> {
    let mut gateway = Gateway::start(&yaml("")).await?;
    session(&gateway, "confined").output("true").await?;
    gateway.stop().await?;
    let text = gateway.process().stderr().text();
    assert!(!text.contains(WARNING), "{text}");
    Ok(())
}

#[tokio::test]
async fn doctor_says_what_is_missing() -> Result<()> {
    let report = doctor("landlock", "").await?;
    let expected = "commands are not fully confined: landlock: this kernel does not have it";
    assert!(report.contains(expected), "{report}");
    let report = doctor("landlock", "confine: required").await?;
    assert!(report.contains("the confinement is not complete here: landlock"), "{report}");
    assert!(report.contains("backends.workspace.confine: best_effort"), "{report}");
    Ok(())
}

#[tokio::test]
async fn where_all_is_required_and_something_is_missing_nothing_runs() -> Result<()> {
    let (_gateway, caller) = without("landlock", "confine: required").await?;
    for tool in ["execute_command", "execute_shell"] {
        let (code, text) = caller.refusal(tool, json!({"command": "touch made"})).await?;
        assert_eq!(code, -32603, "{tool}");
        assert!(text.contains("the confinement is not complete here: landlock"), "{tool}: {text}");
    }
    // Files are not confined by it.
    let listed = caller.data("list_directory", json!({})).await?;
    assert!(!listed.to_string().contains("made"), "{listed}");
    Ok(())
}

#[tokio::test]
async fn without_landlock_files_outside_are_read_but_neither_written_nor_changed() -> Result<()> {
    let (_gateway, caller) = without("landlock", "").await?;
    let outside = tempfile::tempdir()?;
    let file = outside.path().join("file");
    std::fs::write(&file, "kept\n")?;
    let file = file.display();
    assert_eq!(caller.output(&format!("cat {file}")).await?, "kept");
    for way in [
        format!("echo x >> {file}"),
        format!("touch {file}.new"),
        format!("rm {file}"),
        format!("chmod 777 {file}"),
        format!("touch -d @0 {file}"),
    ] {
        let ended = caller.run(&way).await?;
        let said = ended["stderr"].as_str().unwrap_or_default();
        assert!(ended["status"] == "failed" && said.contains("Read-only file system"), "{way}: {ended}");
    }
    // Inside it is as ever, and so is what seccomp sees to.
    assert_eq!(caller.output("echo 'echo ran' > s && chmod 755 s && ./s").await?, "ran");
    let unshared = caller.run("unshare -U true").await?;
    assert_eq!(unshared["status"], "failed", "{unshared}");
    Ok(())
}

#[tokio::test]
async fn without_mounts_nothing_outside_is_read_or_written_and_no_mode_is_changed() -> Result<()> {
    let (mut gateway, caller) = without("mounts", "").await?;
    let outside = tempfile::tempdir()?;
    let file = outside.path().join("file");
    std::fs::write(&file, "kept\n")?;
    let path = file.display();
    for (way, why) in [
        (format!("cat {path}"), "Permission denied"),
        (format!("echo x >> {path}"), "Permission denied"),
        (format!("touch {path}.new"), "Permission denied"),
        (format!("rm {path}"), "Permission denied"),
        (format!("chmod 777 {path}"), "Operation not permitted"),
        ("touch inside; chmod 755 inside".to_owned(), "Operation not permitted"),
    ] {
        let ended = caller.run(&way).await?;
        let said = ended["stderr"].as_str().unwrap_or_default();
        assert!(ended["status"] == "failed" && said.contains(why), "{way}: {ended}");
    }
    assert_eq!(caller.output("echo inside > f && cat f").await?, "inside");
    assert_eq!(std::fs::read_to_string(&file)?, "kept\n");
    // Another way to the same end is no lack: it is told by doctor only.
    assert!(!gateway.process().stderr().text().contains(WARNING));
    let report = doctor("mounts", "confine: required").await?;
    assert!(report.contains("ok     workspace      commands are confined"), "{report}");
    assert!(report.contains("changed not at all, by seccomp (no mounts of its own"), "{report}");
    Ok(())
}
