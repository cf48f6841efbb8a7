//! The shell for pipes: one message per line, all of them on stdout.

use std::future::ready;

use anyhow::Result;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    sync::mpsc,
    task::JoinSet,
};

use crate::{Breaches, Effect, Headers, Script, Setup};

/// Lines read ahead; the client's pipe fills when there are more.
const AHEAD: usize = 16;

/// Serves until the input ends or the script exits; the exit code.
pub async fn serve(
    setup: Setup,
    input: impl AsyncRead + Unpin + Send + 'static,
    mut output: impl AsyncWrite + Unpin,
) -> Result<i32> {
    let (sender, mut lines) = mpsc::channel(AHEAD);
    let mut reader = JoinSet::new();
    reader.spawn(read(input, sender, setup.breaches.clone()));
    let mut script = Script::new(setup);
    let mut exchange = 0;
    loop {
        let flood = script.flood(None);
        let line = tokio::select! {
            biased;
            line = lines.recv() => line,
            () = ready(()), if flood.is_some() => {
                output.write_all(format!("{}\n", flood.unwrap_or_default()).as_bytes()).await?;
                continue;
            }
        };
        let Some(line) = line else { return Ok(0) };
        exchange += 1;
        for effect in script.receive(exchange, &line, &Headers::default()) {
            match effect {
                Effect::Send(_, message) | Effect::Refuse(_, _, message) => {
                    output.write_all(format!("{message}\n").as_bytes()).await?;
                }
                Effect::Write(_, text) => output.write_all(format!("{text}\n").as_bytes()).await?,
                Effect::End(_) | Effect::Forget => {}
                Effect::Exit(half, code) => {
                    if half.is_some() {
                        output.write_all(br#"{"jsonrpc":"2.0","id""#).await?;
                    }
                    output.flush().await?;
                    return Ok(code);
                }
            }
        }
        output.flush().await?;
    }
}

async fn read(input: impl AsyncRead + Unpin, lines: mpsc::Sender<Vec<u8>>, breaches: Breaches) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).await.is_ok_and(|count| count > 0) {
        if line.pop_if(|last| *last == b'\n').is_none() {
            breaches.note("the last line has no end");
        }
        if line.is_empty() {
            breaches.note("an empty line");
        } else if lines.send(std::mem::take(&mut line)).await.is_err() {
            return;
        }
    }
}
