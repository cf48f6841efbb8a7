//! Looking at things from outside: what they say, and how much they take.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// The text of a result or the message of an error, whichever a response or a result has.
pub fn text_of(answer: &Value) -> &str {
    let texts = ["/error/message", "/result/content/0/text", "/content/0/text"];
    texts.iter().find_map(|path| answer.pointer(path)?.as_str()).unwrap_or_default()
}

/// The most memory that a process has ever had, in bytes.
pub fn peak(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM line")?;
    let kibibytes = line.trim().strip_suffix(" kB").context("VmHWM is not in kB")?;
    Ok(kibibytes.parse::<u64>()? * 1024)
}
