//! The socket side of the admin pages: bounded in connections and in time, so that it cannot be used to wear the
//! gateway down.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use moongate_core::task::Group;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tracing::{debug, warn};

use crate::{
    View,
    page::{self, Hosts},
};

/// Connections at once. Scrapers and probes need a handful; further ones wait in the listener's queue.
const CONNECTIONS: u32 = 64;
/// From the connection to the end of the request's head.
const HEAD: Duration = Duration::from_secs(15);
/// From the connection to the end of the answer: a reader that takes longer for a page of a megabyte is not a scraper.
const WHOLE: Duration = Duration::from_mins(1);
/// How long answers under way may take when the process ends.
const GRACE: Duration = Duration::from_secs(1);
/// The pause after a failed accept, which is mostly a lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers on `listener` until `shutdown` is ready; answers under way then get a second to finish.
///
/// On a loopback listener only requests whose Host names this machine are answered.
///
/// # Errors
/// When the listener's own address cannot be read. Failures of single connections only end those.
///
/// # Cancel safety
/// Dropping the future stops accepting; answers under way are finished or timed out.
pub async fn serve(
    listener: TcpListener,
    view: Arc<dyn View>,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let hosts = if listener.local_addr()?.ip().is_loopback() { Hosts::Local } else { Hosts::Any };
    let connections = Group::new();
    let free = Arc::new(Semaphore::new(CONNECTIONS as usize));
    tokio::select! {
        () = shutdown => {}
        () = accept(&listener, hosts, &view, &connections, &free) => {}
    }
    drop(listener);
    // All permits are back once every answer is out; those that take longer are cut off.
    drop(timeout(GRACE, free.acquire_many(CONNECTIONS)).await);
    connections.shut_down(Duration::ZERO).await;
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    hosts: Hosts,
    view: &Arc<dyn View>,
    connections: &Group,
    free: &Arc<Semaphore>,
) {
    loop {
        let permit = Arc::clone(free).acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let view = Arc::clone(view);
                connections.spawn(async move {
                    connection(stream, hosts, view).await;
                    drop(permit);
                });
            }
            Err(error) => {
                warn!(%error, "the admin listener could not accept a connection");
                sleep(PAUSE).await;
            }
        }
    }
}

/// One request and its answer. Connections are not kept: scrapes are seconds apart, and one that ends cannot idle.
async fn connection(stream: TcpStream, hosts: Hosts, view: Arc<dyn View>) {
    let service = service_fn(move |request| {
        let view = Arc::clone(&view);
        async move { Ok::<_, Infallible>(page::answer(&request, hosts, &view).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(false);
    match timeout(WHOLE, http.serve_connection(TokioIo::new(stream), service)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "an admin connection failed"),
        Err(_) => debug!("an admin connection took too long"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        mpsc::{Receiver, channel},
    };

    use moongate_core::{BoxFuture, task::Group};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::oneshot,
    };

    use super::*;
    use crate::Readiness;

    /// A process whose metrics page is made when the test says so.
    struct Process {
        page: Mutex<Receiver<String>>,
        asked: Mutex<Option<oneshot::Sender<()>>>,
    }

    impl View for Process {
        fn metrics(&self) -> String {
            if let Some(asked) = self.asked.lock().unwrap().take() {
                asked.send(()).unwrap();
            }
            self.page.lock().unwrap().recv().unwrap()
        }

        fn readiness(&self) -> Readiness {
            Readiness { ready: true, details: serde_json::Value::Null }
        }

        fn admits<'a>(&'a self, _token: &'a str) -> BoxFuture<'a, bool> {
            Box::pin(async { false })
        }

        fn upstreams(&self) -> serde_json::Value {
            serde_json::Value::Null
        }
    }

    struct Running {
        address: std::net::SocketAddr,
        page: std::sync::mpsc::Sender<String>,
        asked: oneshot::Receiver<()>,
        stop: oneshot::Sender<()>,
        stopped: oneshot::Receiver<io::Result<()>>,
        _tasks: Group,
    }

    async fn start() -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (page, pages) = channel();
        let (asked, was_asked) = oneshot::channel();
        let view = Arc::new(Process { page: Mutex::new(pages), asked: Mutex::new(Some(asked)) });
        let (stop, stopping) = oneshot::channel::<()>();
        let (done, stopped) = oneshot::channel();
        let tasks = Group::new();
        tasks.spawn(async move {
            let outcome = serve(listener, view, async move { drop(stopping.await) }).await;
            done.send(outcome).unwrap();
        });
        Running { address, page, asked: was_asked, stop, stopped, _tasks: tasks }
    }

    async fn send(address: std::net::SocketAddr, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn read(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn one_request_is_answered_and_the_connection_ends() {
        let running = start().await;
        let answer =
            read(send(running.address, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with(r#"{"status":"ok"}"#), "{answer}");
    }

    #[tokio::test]
    async fn a_loopback_listener_refuses_foreign_hosts() {
        let running = start().await;
        let answer =
            read(send(running.address, "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n").await).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }

    #[tokio::test]
    async fn a_page_under_way_is_finished_at_shutdown() {
        let running = start().await;
        let stream = send(running.address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        running.asked.await.unwrap();
        running.stop.send(()).unwrap();
        running.page.send("moongate_sessions 1\n".into()).unwrap();
        assert!(read(stream).await.ends_with("moongate_sessions 1\n"));
        running.stopped.await.unwrap().unwrap();
        TcpStream::connect(running.address).await.expect_err("nobody listens any more");
    }

    #[tokio::test]
    async fn an_idle_connection_does_not_hold_up_shutdown() {
        let running = start().await;
        let idle = send(running.address, "GET /healthz HTTP/1.1\r\nHost: loc").await;
        running.stop.send(()).unwrap();
        running.stopped.await.unwrap().unwrap();
        drop(idle);
    }
}
