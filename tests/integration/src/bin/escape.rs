//! Tries to get out of where it is run, in one way that its arguments name. The status says whether it did.
//!
//! Only what no shell can do: a shell reads, writes and signals by itself.

use std::{
    net::{TcpStream, UdpSocket},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixStream},
    },
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use nix::{sys::ptrace, unistd};
use rustix::{
    net::{AddressFamily, SocketType, ipproto, listen, socket},
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};

fn main() -> ExitCode {
    match attempt() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn attempt() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (way, target) = (arguments.next().context("which way?")?, arguments.next().context("where to?")?);
    match way.as_str() {
        "tcp" => drop(TcpStream::connect(&target)?),
        "listen" => drop(std::net::TcpListener::bind(&target)?),
        // The kernel finds an address for who has none.
        "unbound" => {
            let protocol = if target == "mptcp" { ipproto::MPTCP } else { ipproto::TCP };
            listen(socket(AddressFamily::INET, SocketType::STREAM, Some(protocol))?, 1)?;
        }
        "udp" => {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.send_to(b"out", &target)?;
        }
        "unix" => drop(UnixStream::connect(&target)?),
        "abstract" => drop(UnixStream::connect_addr(&SocketAddr::from_abstract_name(&target)?)?),
        // What a debugger does; whom it holds is let go when this process ends.
        "trace" => ptrace::seize(unistd::Pid::from_raw(target.parse()?), ptrace::Options::empty())?,
        // The same right, used for taking an open file out of another process.
        "take" => {
            let pid = Pid::from_raw(target.parse()?).context("a process id is positive")?;
            let process = pidfd_open(pid, PidfdFlags::empty())?;
            drop(pidfd_getfd(&process, 0, PidfdGetfdFlags::empty())?);
        }
        _ => bail!("there is no way called {way}"),
    }
    Ok(())
}
