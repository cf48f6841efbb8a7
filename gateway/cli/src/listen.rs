//! Binds the listeners: the configured port, or the first free one.

use std::{io, net::SocketAddr};

use anyhow::{Context as _, anyhow};
use moongate_config::Listen;
use tokio::net::{TcpListener, TcpSocket};

/// How many completed connections may wait to be accepted; a burst of reconnecting clients must fit.
const BACKLOG: u32 = 1024;

/// Listens on the first free address of `listen`. `advice` ends the message when none is.
pub(crate) fn bind(listen: &Listen, advice: &str) -> anyhow::Result<TcpListener> {
    let mut taken = None;
    for address in listen.candidates() {
        match open(address) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken = Some(address),
            Err(error) => return Err(error).with_context(|| format!("cannot listen on {address}")),
        }
    }
    match taken {
        Some(_) => Err(anyhow!("cannot listen on {listen}: port in use; {advice}")),
        None => Err(anyhow!("cannot listen on {listen}: no port to try")),
    }
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of an earlier gateway that linger must not keep the next one from starting.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_taken_port_is_passed_over_only_when_there_are_others() {
        let first = bind(&Listen::exact("127.0.0.1:0".parse().unwrap()), "").unwrap();
        let taken = first.local_addr().unwrap();
        let error = bind(&Listen::exact(taken), "use --http-port").unwrap_err().to_string();
        assert_eq!(error, format!("cannot listen on {taken}: port in use; use --http-port"));
        if let Some(last) = taken.port().checked_add(20) {
            let next = bind(&Listen::search(taken.port()..=last), "").unwrap();
            assert_ne!(next.local_addr().unwrap().port(), taken.port());
        }
    }

    #[tokio::test]
    async fn an_address_of_another_machine_is_an_error_at_once() {
        let error = bind(&Listen::exact("192.0.2.1:1".parse().unwrap()), "").unwrap_err().to_string();
        assert_eq!(error, "cannot listen on 192.0.2.1:1");
    }
}
