//! The program that the tests of child processes start: the supervisor, and a gateway that can be killed.
//!
//! A test cannot be either: a supervisor is a program of its own, and whoever kills the gateway must live on. As a gateway
//! it starts the command of its arguments, prints a line once that has answered, and waits for its end.

use std::{env, process::ExitCode, sync::Arc};

use futures_util::StreamExt as _;
use moongate_core::task::Group;
use moongate_upstream::{
    process::{Launcher, Spec},
    transport::{Dial as _, Inbound, Outgoing},
};
use moongate_wire::{Message, Raw, write};

struct Deaf;

impl Inbound for Deaf {
    fn hear(&self, _message: Message) {}
}

fn main() -> ExitCode {
    moongate_launch::launched().unwrap_or_else(gateway)
}

#[tokio::main(flavor = "current_thread")]
async fn gateway() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let (Ok(own), Some(command)) = (env::current_exe(), arguments.next()) else { return ExitCode::FAILURE };
    let mut spec = Spec::new("test", command, own);
    spec.args = arguments.collect();
    let Ok(connection) = Launcher::new(spec, Group::new()).dial(Arc::new(Deaf)).await else {
        return ExitCode::FAILURE;
    };
    let ping = Outgoing {
        id: 1,
        method: "ping",
        message: write::request(&1.into(), "ping", &Raw::empty_object()),
        version: None,
        name: None,
        param_headers: Vec::new(),
        undeclared: Vec::new(),
    };
    let answered = connection.request(ping).next().await;
    eprintln!("{answered:?}");
    eprintln!("{}", connection.closed().await);
    ExitCode::SUCCESS
}
