//! What a process writes: kept in a bounded file for each stream, and read line by line.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use memchr::memchr_iter;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tracing::warn;

/// How much is taken from a pipe at once.
const CHUNK: usize = 64 << 10;
/// Steps in which a file is read from its end.
const STEP: u64 = 8 << 10;
/// How much of a file is looked at for one answer: a line may be as long as the whole file.
const LOOK: u64 = 256 << 10;

/// One of the two streams of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    #[default]
    Stdout,
    Stderr,
}

/// From which end lines are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    #[default]
    Tail,
    Head,
}

/// The output of one process.
#[derive(Debug)]
pub(crate) struct Output {
    directory: PathBuf,
    stdout: Stream,
    stderr: Stream,
}

/// One stream of it.
#[derive(Debug)]
pub(crate) struct Stream {
    path: PathBuf,
    /// Bytes in the file.
    size: AtomicU64,
}

/// Some lines of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lines {
    pub(crate) lines: Vec<String>,
    /// They are too long to be shown whole.
    pub(crate) cut: bool,
}

impl Output {
    pub(crate) fn new(directory: PathBuf) -> Self {
        let stream = |name: &str| Stream { path: directory.join(name), size: AtomicU64::new(0) };
        Self { stdout: stream("stdout"), stderr: stream("stderr"), directory }
    }

    pub(crate) fn stream(&self, source: Source) -> &Stream {
        match source {
            Source::Stdout => &self.stdout,
            Source::Stderr => &self.stderr,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.stdout.size() + self.stderr.size()
    }

    /// As if so much had been written.
    #[cfg(test)]
    pub(crate) fn pretend(&self, size: u64) {
        self.stdout.size.store(size, Ordering::Release);
    }
}

/// The files go with whoever could read them. Removing may take long, and it may be a task that lets go of them last: so
/// where there are tasks, a thread for that does it.
impl Drop for Output {
    fn drop(&mut self) {
        let directory = std::mem::take(&mut self.directory);
        let remove = move || {
            let _gone = std::fs::remove_dir_all(&directory).is_err();
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

impl Stream {
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Keeps what `pipe` has to say, up to `limit` bytes and a note. The pipe is read to its end in any case: a process
    /// whose pipe is full would wait for ever.
    pub(crate) async fn keep(&self, mut pipe: impl AsyncRead + Unpin, limit: u64) {
        let mut file = match tokio::fs::File::create(&self.path).await {
            Ok(file) => Some(file),
            Err(error) => return self.lost(&error, &mut pipe).await,
        };
        let mut buffer = vec![0; CHUNK];
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            let Some(open) = &mut file else { continue };
            let room = usize::try_from(limit.saturating_sub(self.size())).unwrap_or(usize::MAX);
            let fitting = buffer.get(..count.min(room)).unwrap_or_default();
            let written = append(open, fitting).await;
            self.size.fetch_add(fitting.len() as u64, Ordering::AcqRel);
            if let Err(error) = written {
                return self.lost(&error, &mut pipe).await;
            }
            if fitting.len() < count {
                let note = format!("\n[truncated: only the first {limit} bytes are kept]\n");
                if append(open, note.as_bytes()).await.is_ok() {
                    self.size.fetch_add(note.len() as u64, Ordering::AcqRel);
                }
                file = None;
            }
        }
    }

    /// Reads on although nothing can be kept.
    async fn lost(&self, error: &io::Error, pipe: &mut (impl AsyncRead + Unpin)) {
        warn!(%error, file = %self.path.display(), "the output of a process is lost");
        let mut nowhere = tokio::io::sink();
        let _ended = tokio::io::copy(pipe, &mut nowhere).await.is_ok();
    }

    /// Up to `count` lines from one end, as text whatever they are. Blocks on the file system.
    pub(crate) fn lines(&self, end: End, count: usize) -> io::Result<Lines> {
        let size = self.size();
        if size == 0 {
            return Ok(Lines { lines: Vec::new(), cut: false });
        }
        match end {
            End::Head => head(&self.path, size, count),
            End::Tail => tail(&self.path, size, count),
        }
    }
}

/// Writes all of it to where others can read it.
async fn append(file: &mut tokio::fs::File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes).await?;
    file.flush().await
}

fn head(path: &Path, size: u64, count: usize) -> io::Result<Lines> {
    let mut bytes = Vec::new();
    File::open(path)?.take(size.min(LOOK)).read_to_end(&mut bytes)?;
    let breaks = memchr_iter(b'\n', &bytes).count();
    let cut = size > LOOK && breaks < count;
    let mut lines = split(&bytes);
    lines.truncate(count);
    Ok(Lines { lines, cut })
}

fn tail(path: &Path, size: u64, count: usize) -> io::Result<Lines> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    let mut start = size;
    // One break more than lines: the first line that is shown begins behind one. The last byte may be one, or not.
    while start > 0 && size - start < LOOK {
        let begin = start.saturating_sub(STEP);
        let mut step = vec![0; usize::try_from(start - begin).unwrap_or_default()];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(&mut step)?;
        step.append(&mut bytes);
        (bytes, start) = (step, begin);
        let inner = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        if memchr_iter(b'\n', inner).count() >= count {
            break;
        }
    }
    let mut lines = split(&bytes);
    let cut = start > 0 && lines.len() <= count;
    let surplus = lines.len().saturating_sub(count);
    lines.drain(..surplus);
    Ok(Lines { lines, cut })
}

fn split(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    bytes.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn kept(written: &[u8], limit: u64) -> (tempfile::TempDir, Output) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p");
        std::fs::create_dir(&path).unwrap();
        let output = Output::new(path);
        output.stream(Source::Stdout).keep(written, limit).await;
        (directory, output)
    }

    #[tokio::test]
    async fn lines_are_taken_from_either_end() {
        let (_directory, output) = kept(b"one\ntwo\nthr\xffee\n", 1000).await;
        let stream = output.stream(Source::Stdout);
        assert_eq!(stream.lines(End::Head, 2).unwrap().lines, ["one", "two"]);
        assert_eq!(stream.lines(End::Tail, 2).unwrap().lines, ["two", "thr\u{fffd}ee"]);
        assert_eq!(
            stream.lines(End::Tail, 9).unwrap(),
            Lines { lines: vec!["one".to_owned(), "two".to_owned(), "thr\u{fffd}ee".to_owned()], cut: false }
        );
        assert!(output.stream(Source::Stderr).lines(End::Tail, 9).unwrap().lines.is_empty());
    }

    #[tokio::test]
    async fn long_files_are_read_from_their_end() {
        let text: Vec<String> = (0..500_000).map(|number| format!("line {number}")).collect();
        let text = text.join("\n");
        let (_directory, output) = kept(text.as_bytes(), u64::MAX).await;
        let tail = output.stream(Source::Stdout).lines(End::Tail, 100).unwrap();
        assert_eq!((tail.lines.len(), tail.cut), (100, false));
        assert_eq!(tail.lines.first().unwrap(), "line 499900");
        assert_eq!(tail.lines.last().unwrap(), "line 499999");
    }

    #[tokio::test]
    async fn a_line_without_end_is_cut() {
        let (_directory, output) = kept(&vec![b'x'; 1 << 20], u64::MAX).await;
        for end in [End::Head, End::Tail] {
            let lines = output.stream(Source::Stdout).lines(end, 10).unwrap();
            assert_eq!((lines.lines.len(), lines.cut), (1, true), "{end:?}");
            assert_eq!(lines.lines[0].len() as u64, LOOK);
        }
    }

    #[tokio::test]
    async fn lines_that_are_too_long_together_are_cut() {
        let line = "x".repeat(4000) + "\n";
        let (_directory, output) = kept(line.repeat(100).as_bytes(), u64::MAX).await;
        for end in [End::Head, End::Tail] {
            let lines = output.stream(Source::Stdout).lines(end, 100).unwrap();
            assert!(lines.cut && (50..100).contains(&lines.lines.len()), "{end:?} {}", lines.lines.len());
        }
    }

    #[tokio::test]
    async fn what_is_too_much_is_dropped_with_a_note() {
        let (_directory, output) = kept(b"0123456789\n0123456789\n", 15).await;
        let stream = output.stream(Source::Stdout);
        let lines = stream.lines(End::Tail, 10).unwrap().lines;
        assert_eq!(lines, ["0123456789", "0123", "[truncated: only the first 15 bytes are kept]"]);
        assert_eq!(stream.size(), std::fs::metadata(&stream.path).unwrap().len());
    }
}
