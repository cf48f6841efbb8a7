//! What a process of a test has written to stderr so far, line by line, so that tests can wait for a line.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader},
    sync::watch,
    task::JoinSet,
};

/// Lines kept; older ones fall out. Enough for any single test at the default log level.
const KEPT: usize = 20_000;

/// The collected lines of one stream. Collecting stops when it is dropped.
#[derive(Debug)]
pub struct Output {
    lines: Arc<Mutex<VecDeque<String>>>,
    changed: watch::Receiver<()>,
    _reader: JoinSet<()>,
}

impl Output {
    /// Starts to collect what `stream` says.
    pub fn collect(stream: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let (sender, changed) = watch::channel(());
        let mut reader = JoinSet::new();
        reader.spawn(read(stream, Arc::clone(&lines), sender));
        Self { lines, changed, _reader: reader }
    }

    /// Everything said so far.
    pub fn text(&self) -> String {
        lock(&self.lines).iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    /// Waits until the stream has ended and everything it said is here.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn ended(&self) {
        let mut changed = self.changed.clone();
        while changed.changed().await.is_ok() {}
    }

    /// The first line that satisfies `wanted`, now or later; an error when the stream ends without one.
    ///
    /// # Cancel safety
    /// Cancel safe: no line is lost.
    pub async fn line(&self, wanted: impl Fn(&str) -> bool) -> Result<String> {
        let mut changed = self.changed.clone();
        let find = || lock(&self.lines).iter().find(|line| wanted(line)).cloned();
        loop {
            // Before looking, so that a line written meanwhile wakes us.
            changed.mark_unchanged();
            if let Some(line) = find() {
                return Ok(line);
            }
            if changed.changed().await.is_err() {
                return find().context("the output ended without the expected line");
            }
        }
    }
}

async fn read(
    stream: impl AsyncRead + Unpin,
    lines: Arc<Mutex<VecDeque<String>>>,
    changed: watch::Sender<()>,
) {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).await.is_ok_and(|count| count > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        let mut kept = lock(&lines);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(text);
        drop(kept);
        changed.send_replace(());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn a_line_is_found_before_and_after_it_is_written() {
        let (mut writer, stream) = tokio::io::duplex(64);
        let output = Output::collect(stream);
        writer.write_all(b"one\ntwo").await.unwrap();
        assert_eq!(output.line(|line| line == "one").await.unwrap(), "one");
        let (found, ()) = tokio::join!(output.line(|line| line.starts_with("two")), async {
            writer.write_all(b" and a half\n").await.unwrap();
        });
        assert_eq!(found.unwrap(), "two and a half");
        assert_eq!(output.text(), "one\ntwo and a half\n");
    }

    #[tokio::test]
    async fn the_end_of_the_stream_ends_the_wait() {
        let (mut writer, stream) = tokio::io::duplex(64);
        let output = Output::collect(stream);
        writer.write_all(b"last words").await.unwrap();
        drop(writer);
        assert!(output.line(|line| line == "never said").await.is_err());
        assert_eq!(output.line(|line| line == "last words").await.unwrap(), "last words");
    }
}
