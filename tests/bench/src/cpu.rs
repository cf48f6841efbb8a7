//! How much CPU time a process has used.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// The CPU time of a process and all its threads so far, in user and system mode. Its grain is the kernel's tick.
pub fn time_of(pid: u32) -> Result<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = ticks(&text).context("/proc/PID/stat has another shape than expected")?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_millis(ticks * 1000 / per_second.max(1)))
}

fn ticks(stat: &str) -> Option<u64> {
    // The second field is a name in parentheses and may hold anything, so fields are counted behind it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 120 30 0 0 20 0 1";
        assert_eq!(ticks(stat), Some(150));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn a_busy_process_uses_time() {
        let own_time = || time_of(std::process::id()).unwrap();
        let before = own_time();
        let mut sum = 0_u64;
        while own_time() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(own_time() > before);
    }
}
