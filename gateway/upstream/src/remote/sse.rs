//! Server-sent events, read piece by piece.
//!
//! In: the chunks of a body, cut wherever the network likes. Out: events. A pure state machine: it neither reads nor
//! waits, and the same bytes give the same events in whatever pieces they come. An event that is all in one chunk, as
//! nearly every one is, shares the chunk's memory.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};

/// The longest event id that is kept. It goes back in a header, and servers bound those.
const MAX_ID: usize = 4096;
/// Some servers begin their text with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads one stream, and what resumes it.
#[derive(Debug)]
pub(super) struct Parser {
    /// How many bytes an event may have.
    limit: usize,
    /// What was fed and not read yet.
    chunk: Bytes,
    /// The beginning of a line whose end has not come.
    line: BytesMut,
    /// The last line ended with a carriage return; a line feed right after it belongs to it.
    after_return: bool,
    /// No line was read yet.
    fresh: bool,
    name: Name,
    data: Data,
    /// The id that the next blank line makes the last one.
    id: Vec<u8>,
    last_id: Vec<u8>,
    retry: Option<Duration>,
}

/// An event of the stream. One without data, which only primes the stream with an id, is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) name: Name,
    pub(super) data: Bytes,
}

/// The names of events that MCP uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Name {
    /// `message`, or no name.
    #[default]
    Message,
    /// `endpoint`, with which HTTP+SSE begins.
    Endpoint,
    /// Anything else.
    Other,
}

/// An event is larger than allowed. The stream cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// The data of the event that is being read.
#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    One(Bytes),
    /// Several lines, joined. Apart from [`Data::One`] because joining copies.
    Many(BytesMut),
}

impl Parser {
    /// For a stream whose events have at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            chunk: Bytes::new(),
            line: BytesMut::new(),
            after_return: false,
            fresh: true,
            name: Name::Message,
            data: Data::None,
            id: Vec::new(),
            last_id: Vec::new(),
            retry: None,
        }
    }

    /// Takes the next chunk. Everything before it must have been read by [`Self::next`].
    pub(super) fn feed(&mut self, chunk: Bytes) {
        debug_assert!(self.chunk.is_empty(), "events are read before more is fed");
        self.chunk = chunk;
    }

    /// The next event that has come whole, or `None` when more must be fed.
    pub(super) fn next(&mut self) -> Result<Option<Event>, TooLong> {
        while let Some(line) = self.line()? {
            if let Some(event) = self.take(&line)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// The id to resume after, if the server gives ids.
    pub(super) fn last_id(&self) -> Option<&[u8]> {
        Some(self.last_id.as_slice()).filter(|id| !id.is_empty())
    }

    /// How long the server wants us to wait before we come again.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Begins to read another stream that continues this one.
    pub(super) fn resume(&mut self) {
        let (last_id, retry) = (std::mem::take(&mut self.last_id), self.retry);
        *self = Self { id: last_id.clone(), last_id, retry, ..Self::new(self.limit) };
    }

    /// The next line without its end, if that has come.
    fn line(&mut self) -> Result<Option<Bytes>, TooLong> {
        if self.after_return && !self.chunk.is_empty() {
            self.after_return = false;
            if self.chunk.first() == Some(&b'\n') {
                self.chunk.advance(1);
            }
        }
        let end = memchr::memchr2(b'\n', b'\r', &self.chunk);
        let piece = end.unwrap_or(self.chunk.len());
        if self.line.len() + piece + self.data.len() > self.limit {
            return Err(TooLong);
        }
        let mut line = self.chunk.split_to(piece);
        if end.is_none() {
            self.line.extend_from_slice(&line);
            return Ok(None);
        }
        self.after_return = self.chunk.first() == Some(&b'\r');
        self.chunk.advance(1);
        if !self.line.is_empty() {
            self.line.extend_from_slice(&line);
            line = self.line.split().freeze();
        }
        if std::mem::take(&mut self.fresh) && line.starts_with(BYTE_ORDER_MARK) {
            line.advance(BYTE_ORDER_MARK.len());
        }
        Ok(Some(line))
    }

    /// Reads a line; a blank one ends an event.
    fn take(&mut self, line: &Bytes) -> Result<Option<Event>, TooLong> {
        if line.is_empty() {
            self.last_id.clone_from(&self.id);
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data).into_bytes());
            return Ok(Some(Event { name, data }).filter(|event| !event.data.is_empty()));
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let blank = usize::from(line.get(colon + 1) == Some(&b' '));
                (line.slice(..colon), line.slice(colon + 1 + blank..))
            }
            None => (line.clone(), Bytes::new()),
        };
        match &*field {
            b"data" => self.data.add(value, self.limit)?,
            b"event" => self.name = Name::of(&value),
            // An id that cannot be sent back resumes nothing.
            b"id" if value.contains(&0) => {}
            b"id" => {
                self.id.clear();
                self.id.extend_from_slice(value.get(..).filter(|id| id.len() <= MAX_ID).unwrap_or_default());
            }
            b"retry" => self.retry = milliseconds(&value).or(self.retry),
            // Comments, whose field has no name, and fields nobody knows.
            _ => {}
        }
        Ok(None)
    }
}

impl Name {
    fn of(name: &[u8]) -> Self {
        match name {
            b"" | b"message" => Self::Message,
            b"endpoint" => Self::Endpoint,
            _ => Self::Other,
        }
    }
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(line) => line.len(),
            Self::Many(lines) => lines.len(),
        }
    }

    fn add(&mut self, line: Bytes, limit: usize) -> Result<(), TooLong> {
        if self.len() + 1 + line.len() > limit {
            return Err(TooLong);
        }
        *self = match std::mem::take(self) {
            Self::None => Self::One(line),
            Self::One(first) => Self::Many(BytesMut::from(first)).joined(&line),
            many @ Self::Many(_) => many.joined(&line),
        };
        Ok(())
    }

    fn joined(self, line: &[u8]) -> Self {
        let Self::Many(mut lines) = self else { return self };
        lines.extend_from_slice(b"\n");
        lines.extend_from_slice(line);
        Self::Many(lines)
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::One(line) => line,
            Self::Many(lines) => lines.freeze(),
        }
    }
}

fn milliseconds(text: &[u8]) -> Option<Duration> {
    let digits = text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| digits)?;
    text.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every event of `chunks`, and the id and delay to resume with.
    fn read(chunks: &[&[u8]], limit: usize) -> (Result<Vec<Event>, TooLong>, Parser) {
        let mut parser = Parser::new(limit);
        let mut events = Vec::new();
        for chunk in chunks {
            parser.feed(Bytes::copy_from_slice(chunk));
            loop {
                match parser.next() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => break,
                    Err(problem) => return (Err(problem), parser),
                }
            }
        }
        (Ok(events), parser)
    }

    fn data(text: &str) -> Vec<String> {
        let (events, _) = read(&[text.as_bytes()], 1000);
        let text = |event: Event| {
            let data = String::from_utf8(event.data.to_vec()).unwrap();
            if event.name == Name::Message { data } else { format!("{:?} {data}", event.name) }
        };
        events.unwrap().into_iter().map(text).collect()
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        for (text, expected) in [
            ("data: {}\n\n", &["{}"][..]),
            ("event: message\ndata: 1\n\ndata:2\n\n", &["1", "2"]),
            ("data: 1\r\n\r\ndata: 2\r\rdata: 3\n\n", &["1", "2", "3"]),
            ("data: a\ndata: b\ndata\ndata:c\n\n", &["a\nb\n\nc"]),
            ("data: a\r\ndata: b\r\n\r\n", &["a\nb"]),
            ("data:  two blanks\n\n", &[" two blanks"]),
            (": comment\n\n:\n\ndata: 1\n:again\n\n", &["1"]),
            ("\u{feff}data: 1\n\n\u{feff}data: 2\n\n", &["1"]),
            ("id: 1\nretry: 5\ndata:\n\ndata: x\n\n", &["x"]),
            (
                "event: endpoint\ndata: /x\n\nevent: ping\ndata: 1\n\ndata: 2\n\n",
                &["Endpoint /x", "Other 1", "2"],
            ),
            ("event:\ndata: 1\n\n", &["1"]),
            ("unknown: 1\ndata2: 2\ndata: 3\n\n", &["3"]),
            ("data: a:b\n\n", &["a:b"]),
            ("data: the end is missing\n", &[]),
            ("event: endpoint\n\ndata: 1\n\n", &["1"]),
            ("", &[]),
        ] {
            assert_eq!(data(text), expected, "{text:?}");
        }
    }

    #[test]
    fn an_id_counts_once_its_event_is_over() {
        let long = format!("id: a\n\nid: {}\n\n", "x".repeat(MAX_ID + 1));
        for (text, expected) in [
            ("id: a\ndata: 1\n\n", Some("a")),
            ("id: a\ndata:\n\n", Some("a")),
            ("id: a\n\n", Some("a")),
            ("id: a\n\nid: b\ndata: 1\n", Some("a")),
            ("id: a\n\ndata: 1\n\n", Some("a")),
            ("id: a\n\nid: b\0\n\n", Some("a")),
            ("id: a\n\nid\n\n", None),
            (&long, None),
            ("data: 1\n\n", None),
        ] {
            let (_, parser) = read(&[text.as_bytes()], 10_000);
            assert_eq!(parser.last_id(), expected.map(str::as_bytes), "{text:?}");
        }
    }

    #[test]
    fn only_digits_are_a_delay() {
        for (text, expected) in [("1500", Some(1500)), ("0", Some(0)), ("-1", None), ("1s", None), ("", None)]
        {
            let (_, parser) = read(&[format!("retry: {text}\n").as_bytes()], 1000);
            assert_eq!(parser.retry(), expected.map(Duration::from_millis), "{text:?}");
        }
    }

    #[test]
    fn a_stream_that_goes_on_elsewhere_keeps_its_id_and_nothing_else() {
        let (_, mut parser) = read(&[b"id: 7\nretry: 3\n\nevent: ping\ndata: half"], 1000);
        parser.resume();
        parser.feed(Bytes::from_static(b"data: 1\n\n"));
        assert_eq!(parser.next().unwrap().unwrap().data, "1");
        assert_eq!((parser.last_id(), parser.retry()), (Some(&b"7"[..]), Some(Duration::from_millis(3))));
    }

    #[test]
    fn what_is_too_long_is_refused_however_it_is_cut() {
        assert_eq!(read(&[b"data: 12345678\n\n"], 14).0.unwrap().len(), 1);
        for (text, limit) in
            [("data: 123456789", 14), ("data: 12\ndata: 34\ndata: 56\n\n", 10), (":12345", 5)]
        {
            assert_eq!(read(&[text.as_bytes()], limit).0, Err(TooLong), "{text:?}");
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(read(&bytes, limit).0, Err(TooLong), "{text:?}");
        }
        let endless = vec![&b"data:\n"[..]; 20];
        assert_eq!(read(&endless, 10).0, Err(TooLong), "empty lines count too");
    }

    #[test]
    fn an_event_in_one_chunk_is_not_copied() {
        let chunk = Bytes::from_static(b"data: 12345\n\n");
        let mut parser = Parser::new(100);
        parser.feed(chunk.clone());
        let event = parser.next().unwrap().unwrap();
        assert!(chunk.as_ptr_range().contains(&event.data.as_ptr()));
    }

    proptest! {
        #[test]
        fn however_it_is_cut_a_stream_has_the_same_events(
            lines in prop::collection::vec("(data|event|id|retry|:|)(: ?)?([a-z0-9é]{0,5}|message|endpoint)(\n|\r|\r\n)", 0..24),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..16),
            marked in any::<bool>(),
        ) {
            let text = format!("{}{}", if marked { "\u{feff}" } else { "" }, lines.concat());
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut start = 0;
            for cut in cuts {
                chunks.push(&text.as_bytes()[start..cut]);
                start = cut;
            }
            chunks.push(&text.as_bytes()[start..]);
            let (whole, first) = read(&[text.as_bytes()], 64);
            let (pieces, second) = read(&chunks, 64);
            prop_assert_eq!(&whole, &pieces);
            if whole.is_ok() {
                prop_assert_eq!(first.last_id(), second.last_id());
                prop_assert_eq!(first.retry(), second.retry());
            }
        }

        #[test]
        fn nothing_makes_it_panic(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10)) {
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            drop(read(&chunks, 50));
        }
    }
}
