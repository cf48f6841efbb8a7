//! One gateway follows another without refusing a connection: the sockets change hands, not the port.
//!
//! ```text
//! successor: assemble ─ wait on the upgrade socket ─ SIGQUIT to the running one ─ take the listeners ─ serve ─ record
//! running:                                           is a successor waiting? ─ send the listeners ─ see its record ─ drain
//! ```
//! The running gateway goes on serving until its successor has recorded itself, so a successor that fails at any point
//! costs nothing.

use std::{io, path::Path, time::Duration};

use anyhow::{Context as _, bail, ensure};
use tokio::{net::TcpListener, time};

use crate::{
    host::Host,
    runfile::{Record, Recorded, RunDirectory},
};

/// How often a file is looked at that another process will change.
const GLANCE: Duration = Duration::from_millis(20);
/// How long a successor may take from the listeners to its first answer.
const GET_READY: Duration = Duration::from_secs(10);
/// How long the socket may take to appear.
const SOCKET: Duration = Duration::from_secs(5);

/// The listeners of the gateway that ran before.
#[derive(Debug)]
pub(crate) struct Inherited {
    /// The gateway's.
    pub gateway: TcpListener,
    /// The admin listener, if the old gateway had one and the new one wants it.
    pub admin: Option<TcpListener>,
}

/// The gateway whose listeners can be taken over.
pub(crate) fn predecessor(run: &RunDirectory) -> anyhow::Result<Record> {
    run.running()?.context("no gateway of this user is running, so there is nothing to take over")
}

/// Takes the listeners of `running` over. Whether this gateway may serve on them was decided before, by its record.
///
/// # Cancel safety
/// Not cancel safe: the running gateway may already have sent them. It serves on, so a process that ends then costs
/// nothing.
pub(crate) async fn take_over(
    host: &Host,
    run: &RunDirectory,
    running: &Record,
    with_admin: bool,
) -> anyhow::Result<Inherited> {
    ensure!(predecessor(run)? == *running, "another gateway has become the running one; try again");
    let admin = running.admin.filter(|_| with_admin);
    let addresses: Vec<_> = std::iter::once(running.address).chain(admin).collect();
    let (asked, received) = tokio::join!(ask(running, host.socket()), host.receive(&addresses));
    // Why nothing came is more telling than that nothing came.
    asked?;
    let mut received = received?.into_iter();
    let gateway = received.next().context("the running gateway sent no listener")?;
    Ok(Inherited { gateway, admin: received.next() })
}

/// Asks the running gateway for its listeners, once this process waits for them.
async fn ask(running: &Record, socket: &Path) -> anyhow::Result<()> {
    let waiting = async {
        while !is_awaited(socket)? {
            time::sleep(GLANCE).await;
        }
        io::Result::Ok(())
    };
    time::timeout(SOCKET, waiting).await.context("the upgrade socket did not appear")??;
    let pid =
        i32::try_from(running.pid).ok().and_then(rustix::process::Pid::from_raw).context("no process id")?;
    rustix::process::kill_process(pid, rustix::process::Signal::QUIT)
        .with_context(|| format!("cannot signal the running gateway, process {}", running.pid))
}

/// Sends the listeners to a successor and waits until it serves. On any error this gateway should go on.
///
/// Only the recorded gateway does: a successor waits for that one, and only its record shows by being replaced that the
/// successor serves.
///
/// # Cancel safety
/// Cancel safe: a successor that was sent the listeners serves beside this gateway.
pub(crate) async fn give_over(
    host: &Host,
    run: &RunDirectory,
    recorded: Option<&Recorded>,
) -> anyhow::Result<()> {
    let recorded = recorded.filter(|recorded| recorded.is_current());
    let recorded =
        recorded.context("a successor takes over from the recorded gateway, and this is another")?;
    ensure!(
        is_awaited(host.socket())?,
        "no successor waits on {}; start `moongate serve --upgrade`",
        host.socket().display()
    );
    host.send().await?;
    let replaced = async {
        loop {
            match run.running()? {
                Some(successor) if !recorded.is_current() => return io::Result::Ok(successor.pid),
                _ => time::sleep(GLANCE).await,
            }
        }
    };
    match time::timeout(GET_READY, replaced).await {
        Ok(pid) => {
            tracing::info!(successor = pid?, "listeners handed over");
            Ok(())
        }
        Err(_) => bail!("the successor took the listeners and did not get ready"),
    }
}

/// Whether a process listens on the Unix socket at `path`. Connecting to find out would be taken for the hand-over.
fn is_awaited(path: &Path) -> io::Result<bool> {
    let table = std::fs::read_to_string("/proc/net/unix")?;
    Ok(path.to_str().is_some_and(|path| table.lines().any(|line| listens_on(line, path))))
}

/// Whether a line of `/proc/net/unix` is about a listening socket at `path`.
fn listens_on(line: &str, path: &str) -> bool {
    /// Set for sockets on which `listen` was called.
    const ACCEPTS: u32 = 0x10000;
    let mut words = line.split_whitespace();
    let flags = words.nth(3).and_then(|flags| u32::from_str_radix(flags, 16).ok()).unwrap_or(0);
    // After type, state and inode the rest of the line is the path, spaces included.
    flags & ACCEPTS != 0 && line.ends_with(path) && words.nth(3).is_some_and(|first| path.starts_with(first))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn lines_of_the_kernels_table_are_understood() {
        let listening =
            "0000000000000000: 00000002 00000000 00010000 0001 01 23671 /run/moon gate/upgrade.sock";
        let connected =
            "0000000000000000: 00000003 00000000 00000000 0001 03 23672 /run/moon gate/upgrade.sock";
        let unnamed = "0000000000000000: 00000003 00000000 00000000 0001 03 23673";
        assert!(listens_on(listening, "/run/moon gate/upgrade.sock"));
        assert!(!listens_on(listening, "/upgrade.sock"));
        assert!(!listens_on(connected, "/run/moon gate/upgrade.sock"));
        assert!(!listens_on(unnamed, "/run/moon gate/upgrade.sock"));
        assert!(!listens_on("Num RefCount Protocol Flags Type St Inode Path", "Path"));
    }

    #[test]
    fn a_socket_is_awaited_while_somebody_listens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("upgrade.sock");
        assert!(!is_awaited(&path).unwrap());
        let listener = UnixListener::bind(&path).unwrap();
        assert!(is_awaited(&path).unwrap());
        drop(listener);
        assert!(!is_awaited(&path).unwrap(), "a file left behind is no successor");
    }
}
