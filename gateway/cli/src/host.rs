//! The process: pingora starts the runtime, keeps the table of listening sockets and passes them to a successor.
//!
//! The only file that names pingora's server. Its signal policy is not used: on SIGQUIT without a successor it would
//! stop serving, on SIGTERM it would sleep through its grace period and cut what is left. Here the one service decides
//! everything itself, and the process ends when the service does.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    os::fd::{AsRawFd as _, OwnedFd},
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, anyhow};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use pingora::{
    server::{
        Fds, ListenFds, RunArgs, Server, ShutdownSignal, ShutdownSignalWatch, ShutdownWatch,
        configuration::ServerConf,
    },
    services::Service,
};
use tokio::{net::TcpListener, sync::Notify};

/// The longest path of a Unix socket, without its final zero.
const MAX_SOCKET_PATH: usize = 107;

type Work = Box<dyn FnOnce(Host) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>> + Send>;

/// The sockets of this process, for whoever serves on them.
#[derive(Clone)]
pub(crate) struct Host {
    table: ListenFds,
    socket: PathBuf,
}

/// Runs `work` on a runtime with a thread for each core, until it returns. `socket` is where listeners are handed over.
///
/// A panic of `work` itself aborts the process: a gateway that stays alive without listening helps nobody.
pub(crate) fn run<F>(socket: PathBuf, work: impl FnOnce(Host) -> F + Send + 'static) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let configuration = ServerConf {
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        upgrade_sock: socket.to_string_lossy().into_owned(),
        ..ServerConf::default()
    };
    let ended = Arc::new(Ended::default());
    let work: Work = Box::new(move |host| Box::pin(work(host)));
    let mut server = Server::new_with_opt_and_conf(None, configuration);
    server.add_service(EdgeSvc { work: Mutex::new(Some(work)), socket, ended: Arc::clone(&ended) });
    server.run(RunArgs { shutdown_signal: Box::new(WhenEnded(Arc::clone(&ended))) });
    let outcome = ended.outcome.lock().unwrap_or_else(PoisonError::into_inner).take();
    outcome.unwrap_or_else(|| Err(anyhow!("the service did not start")))
}

/// How the service ended.
#[derive(Default)]
struct Ended {
    outcome: Mutex<Option<anyhow::Result<()>>>,
    told: Notify,
}

/// The one service, because each has a runtime of its own. Its work is taken out once; the lock is there because
/// pingora wants services that can be shared.
struct EdgeSvc {
    work: Mutex<Option<Work>>,
    socket: PathBuf,
    ended: Arc<Ended>,
}

#[async_trait]
impl Service for EdgeSvc {
    async fn start_service(&mut self, fds: Option<ListenFds>, _: ShutdownWatch, _: usize) {
        let work = self.work.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let (Some(work), Some(table)) = (work, fds) else { return };
        let host = Host { table, socket: self.socket.clone() };
        let Ok(outcome) = AssertUnwindSafe(work(host)).catch_unwind().await else { std::process::abort() };
        *self.ended.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.ended.told.notify_one();
    }

    fn name(&self) -> &'static str {
        "moongate"
    }
}

/// Tells pingora to stop, at once, when the service has ended.
struct WhenEnded(Arc<Ended>);

#[async_trait]
impl ShutdownSignalWatch for WhenEnded {
    async fn recv(&self) -> ShutdownSignal {
        self.0.told.notified().await;
        ShutdownSignal::FastShutdown
    }
}

impl Host {
    /// Puts a listener into the table, to be handed to a successor.
    pub(crate) fn add(&self, listener: &TcpListener) -> io::Result<()> {
        let address = listener.local_addr()?;
        self.table.lock().add(address.to_string(), listener.as_raw_fd());
        Ok(())
    }

    /// Where listeners are handed over.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends the table to the process that waits in [`Host::receive`].
    pub(crate) async fn send(&self) -> anyhow::Result<()> {
        let host = self.clone();
        let path = self.socket_text()?;
        // It waits and retries with sleeping threads.
        tokio::task::spawn_blocking(move || host.table.lock().send_to_sock(path.as_str()))
            .await?
            .map_err(|error| anyhow!("the successor did not take the listeners: {error}"))?;
        Ok(())
    }

    /// Waits for the running gateway to send its table, and takes the listeners at `addresses` out of it. Others are
    /// closed.
    pub(crate) async fn receive(&self, addresses: &[SocketAddr]) -> anyhow::Result<Vec<TcpListener>> {
        let path = self.socket_text()?;
        let addresses = addresses.to_vec();
        let listeners = tokio::task::spawn_blocking(move || {
            let mut table = Fds::new();
            table
                .get_from_sock(path.as_str())
                .map_err(|error| anyhow!("the running gateway did not hand its listeners over: {error}"))?;
            let claimed =
                addresses.iter().map(|address| claim(&table, *address)).collect::<anyhow::Result<Vec<_>>>();
            // The table's own descriptors have no owner: what was claimed is a duplicate, and one that stayed open would
            // keep the port after our listener is closed.
            table.close_unclaimed(&std::collections::HashSet::new());
            claimed
        })
        .await??;
        listeners.into_iter().map(|listener| Ok(TcpListener::from_std(listener)?)).collect()
    }

    fn socket_text(&self) -> anyhow::Result<String> {
        let path = self.socket.to_str().context("the path of the upgrade socket is not UTF-8")?;
        anyhow::ensure!(
            path.len() <= MAX_SOCKET_PATH,
            "the path of the upgrade socket is too long for the system: {path}"
        );
        Ok(path.to_owned())
    }
}

/// The listener at `address`, as an owner of its own.
#[cfg(target_os = "linux")]
fn claim(table: &Fds, address: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

    let number = *table
        .get(&address.to_string())
        .with_context(|| format!("the running gateway does not listen on {address}"))?;
    // A number becomes an owner without unsafe code only by way of the kernel.
    let this = pidfd_open(getpid(), PidfdFlags::empty()).context("cannot open this process")?;
    let descriptor: OwnedFd = pidfd_getfd(&this, number, PidfdGetfdFlags::empty())
        .context("cannot duplicate an inherited listener")?;
    let listener = std::net::TcpListener::from(descriptor);
    listener.set_nonblocking(true)?;
    anyhow::ensure!(listener.local_addr()? == address, "the inherited socket is not the one of {address}");
    Ok(listener)
}

#[cfg(not(target_os = "linux"))]
fn claim(_: &Fds, _: SocketAddr) -> anyhow::Result<std::net::TcpListener> {
    anyhow::bail!("listeners can be handed over on Linux only")
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("socket", &self.socket).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    /// The outcome of `run`, which owns threads and must not run inside a test's runtime.
    fn outcome<F>(work: impl FnOnce(Host) -> F + Send + 'static) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let directory = tempfile::tempdir()?;
        run(directory.path().join("upgrade.sock"), work)
    }

    #[test]
    fn the_process_ends_with_its_service() {
        outcome(|_| async { Ok(()) }).unwrap();
        let error = outcome(|_| async { Err(anyhow!("port in use")) }).unwrap_err();
        assert_eq!(error.to_string(), "port in use");
    }

    #[test]
    fn a_listener_goes_from_table_to_table_and_can_be_closed_there() {
        outcome(|host| async move {
            let old = TcpListener::bind("127.0.0.1:0").await?;
            let address = old.local_addr()?;
            host.add(&old)?;
            // Sending retries until the receiver listens.
            let wanted = [address];
            let (sent, received) = tokio::join!(host.send(), host.receive(&wanted));
            sent?;
            drop(old);
            let [new] = <[TcpListener; 1]>::try_from(received?).expect("one was asked for");
            let (client, accepted) = tokio::join!(TcpStream::connect(address), new.accept());
            assert_eq!(client?.local_addr()?, accepted?.1);
            drop(new);
            assert!(TcpStream::connect(address).await.is_err(), "no duplicate may keep the port");
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn a_listener_that_was_not_sent_is_an_error() {
        outcome(|host| async move {
            let old = TcpListener::bind("127.0.0.1:0").await?;
            host.add(&old)?;
            let wanted = ["127.0.0.1:9".parse()?];
            let (_, received) = tokio::join!(host.send(), host.receive(&wanted));
            assert!(received.unwrap_err().to_string().contains("does not listen on 127.0.0.1:9"));
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_an_error_and_no_panic() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(120)));
        run(path, |host| async move {
            assert!(host.receive(&[]).await.unwrap_err().to_string().contains("too long"));
            Ok(())
        })
        .unwrap();
    }
}
