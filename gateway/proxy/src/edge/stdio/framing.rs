//! Frames on a pipe: one message per line, or `Content-Length` headers, each answered in kind.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use moongate_wire::{Raw, RpcError, code};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader},
    sync::mpsc,
};

/// The longest header block of a framed message.
const MAX_HEADERS: usize = 4096;

/// How the other side frames; shared by reader and writer, so that answers are framed as requests were.
#[derive(Clone, Debug, Default)]
pub(super) struct Framing(Arc<AtomicBool>);

impl Framing {
    fn set_headers(&self, headers: bool) {
        self.0.store(headers, Ordering::Release);
    }

    fn has_headers(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framed {
    /// The bytes of one frame.
    Frame(Bytes),
    /// Something that is answered and survived.
    Bad(RpcError),
    /// Something after which nobody knows where the next frame begins.
    Broken(RpcError),
    /// The input ended.
    End,
}

/// Cuts the input into frames.
pub(super) struct Reader<R> {
    input: BufReader<R>,
    framing: Framing,
    max: usize,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// A reader of frames of at most `max` bytes.
    pub(super) fn new(input: R, framing: Framing, max: usize) -> Self {
        Self { input: BufReader::new(input), framing, max }
    }

    /// The next frame. Blank lines are skipped.
    ///
    /// # Cancel safety
    /// Not cancel safe: part of a frame may be lost.
    pub(super) async fn next(&mut self) -> Framed {
        loop {
            let line = match self.line().await {
                Ok(Some(line)) => line,
                Ok(None) => return Framed::End,
                Err(framed) => return framed,
            };
            let text = line.trim_ascii();
            if text.is_empty() {
                continue;
            }
            if is_header(text) {
                return self.framed(text).await;
            }
            if text.len() > self.max {
                return Framed::Bad(too_large(self.max));
            }
            self.framing.set_headers(false);
            let start = line.len() - line.trim_ascii_start().len();
            let end = start + text.len();
            return Framed::Frame(Bytes::from(line).slice(start..end));
        }
    }

    /// One line without its end. A line that is too long is skipped to its end and answered.
    async fn line(&mut self) -> Result<Option<Vec<u8>>, Framed> {
        let (mut line, mut too_long) = (Vec::new(), false);
        let max = self.max.max(MAX_HEADERS);
        loop {
            let chunk = match self.input.fill_buf().await {
                Ok(chunk) => chunk,
                Err(error) => {
                    tracing::info!(%error, "the pipe cannot be read any more");
                    return Ok(None);
                }
            };
            if chunk.is_empty() && too_long {
                return Err(Framed::Bad(too_large(self.max)));
            }
            if chunk.is_empty() {
                return Ok((!line.is_empty()).then_some(line));
            }
            let (take, complete) = match chunk.iter().position(|&byte| byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (chunk.len(), false),
            };
            // Beyond the limit bytes are only counted, to find the end of the line.
            too_long |= line.len() + take > max + 1;
            if !too_long {
                line.extend(chunk.iter().take(take));
            }
            self.input.consume(take);
            if complete {
                if too_long {
                    return Err(Framed::Bad(too_large(self.max)));
                }
                line.pop();
                return Ok(Some(line));
            }
        }
    }

    async fn framed(&mut self, first: &[u8]) -> Framed {
        let broken = |why: &str| Framed::Broken(RpcError::new(code::PARSE, format!("Parse error: {why}")));
        let mut length = content_length(first);
        let mut seen = first.len();
        loop {
            let line = match self.line().await {
                Ok(Some(line)) => line,
                Ok(None) => return broken("the headers ended early"),
                Err(_) => return broken("the headers are too long"),
            };
            seen += line.len();
            let text = line.trim_ascii();
            if text.is_empty() {
                break;
            }
            if seen > MAX_HEADERS {
                return broken("the headers are too long");
            }
            length = content_length(text).or(length);
        }
        let Some(length) = length else { return broken("Content-Length is missing or not a number") };
        self.framing.set_headers(true);
        if length > self.max as u64 {
            return if self.skip(length).await { Framed::Bad(too_large(self.max)) } else { Framed::End };
        }
        let mut body = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        match self.input.read_exact(&mut body).await {
            Ok(_) => Framed::Frame(body.into()),
            Err(_) => broken("the body ended early"),
        }
    }

    async fn skip(&mut self, mut length: u64) -> bool {
        while length > 0 {
            let Ok(chunk) = self.input.fill_buf().await else { return false };
            if chunk.is_empty() {
                return false;
            }
            let take = chunk.len().min(usize::try_from(length).unwrap_or(usize::MAX));
            self.input.consume(take);
            length -= take as u64;
        }
        true
    }
}

fn too_large(max: usize) -> RpcError {
    RpcError::new(code::INVALID_REQUEST, format!("Invalid Request: the message is larger than {max} bytes"))
}

/// Whether a line begins a block of headers. JSON never begins with a letter of these.
fn is_header(line: &[u8]) -> bool {
    let name = line.split(|&byte| byte == b':').next().unwrap_or_default().trim_ascii();
    line.contains(&b':')
        && (name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"content-type"))
}

fn content_length(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?;
    let (name, value) = text.split_once(':')?;
    name.trim().eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok()).flatten()
}

/// Writes messages as the other side frames, until there are no more senders or the output is gone.
pub(super) async fn write(
    mut output: impl AsyncWrite + Unpin,
    mut messages: mpsc::Receiver<Raw>,
    framing: &Framing,
) {
    while let Some(message) = messages.recv().await {
        let mut out = Vec::with_capacity(message.len() + 32);
        if framing.has_headers() {
            out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", message.len()).as_bytes());
            out.extend_from_slice(message.as_bytes());
        } else {
            // Line breaks between tokens mean nothing; inside strings there are none.
            out.extend(
                message
                    .as_bytes()
                    .iter()
                    .map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }),
            );
            out.push(b'\n');
        }
        let flush = messages.is_empty();
        if output.write_all(&out).await.is_err() || (flush && output.flush().await.is_err()) {
            return;
        }
    }
    // The process may end right after this, so what is buffered must be out.
    if let Err(error) = output.flush().await {
        tracing::debug!(%error, "the last messages were not read");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn frames(input: &[u8], max: usize) -> (Vec<Framed>, bool) {
        let framing = Framing::default();
        let mut reader = Reader::new(input, framing.clone(), max);
        let mut frames = Vec::new();
        loop {
            let frame = reader.next().await;
            let last = matches!(frame, Framed::End | Framed::Broken(_));
            frames.push(frame);
            if last {
                return (frames, framing.has_headers());
            }
        }
    }

    fn frame(text: &'static str) -> Framed {
        Framed::Frame(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn lines_are_frames_and_blank_ones_are_skipped() {
        let (found, headers) = frames(b"{\"a\":1}\r\n\n  \n{\"b\":2}\n{\"c\":3}", 100).await;
        assert_eq!(found, [frame("{\"a\":1}"), frame("{\"b\":2}"), frame("{\"c\":3}"), Framed::End]);
        assert!(!headers);
    }

    #[tokio::test]
    async fn headers_frame_a_body_with_line_breaks() {
        let input = b"Content-Length: 8\r\nContent-Type: x\r\n\r\n{\"a\":\n1}content-length:2\n\n{}";
        let (found, headers) = frames(input, 100).await;
        assert_eq!(found, [frame("{\"a\":\n1}"), frame("{}"), Framed::End]);
        assert!(headers);
    }

    #[tokio::test]
    async fn a_message_that_is_too_large_is_answered_and_survived() {
        for input in [
            &b"{\"aaaaaaaaaaaaaaaaaaaaaaa\":1}\n{}\n"[..],
            b"Content-Length: 20\r\n\r\n12345678901234567890{}\n",
        ] {
            let (found, _) = frames(input, 10).await;
            assert!(matches!(found.as_slice(), [Framed::Bad(_), Framed::Frame(_), Framed::End]), "{found:?}");
        }
    }

    #[tokio::test]
    async fn a_broken_header_ends_the_pipe() {
        for input in
            [&b"Content-Length: x\r\n\r\n{}"[..], b"Content-Length: 9\r\n\r\n{}", b"Content-Length: 2\r\n"]
        {
            let (found, _) = frames(input, 100).await;
            assert!(matches!(found.last(), Some(Framed::Broken(_))), "{found:?}");
        }
    }

    #[tokio::test]
    async fn answers_are_framed_in_kind() {
        for (headers, expected) in [(true, "Content-Length: 9\r\n\r\n{\"a\":\n 1}"), (false, "{\"a\":  1}\n")]
        {
            let framing = Framing::default();
            framing.set_headers(headers);
            let (sender, receiver) = mpsc::channel(1);
            sender.send(Raw::from_text("{\"a\":\n 1}").unwrap()).await.unwrap();
            drop(sender);
            let mut out = Vec::new();
            write(&mut out, receiver, &framing).await;
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
