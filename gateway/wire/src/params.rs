//! The members of `params` that the gateway itself reads; everything else stays text.
//!
//! They are found by the scan of the frame and kept as places in it, so that a request costs one look at its bytes and
//! nothing is copied or counted for what nobody asks for.

use std::{borrow::Cow, fmt, ops::Range};

use bytes::Bytes;

use crate::{
    Raw,
    scan::{self, Place, Problem},
    walk,
};

/// The prefix of the protocol's own `_meta` keys.
pub const PREFIX: &str = "io.modelcontextprotocol/";
/// What the names of context fields among arguments begin with.
pub const MARK: &str = "__";
/// The prefix of the `_meta` keys that are for this gateway.
pub const OURS: &str = "dev.moongate/";

/// What the gateway reads of a request's `params`. Members that are `null` count as absent, except for the claim.
#[derive(Clone, Default)]
pub struct Params {
    /// The frame they came in, which all places are in.
    frame: Bytes,
    whole: Span,
    name: Text,
    uri: Text,
    cursor: Text,
    arguments: Span,
    /// Whether an argument's name begins with [`MARK`].
    marked: bool,
    input_responses: Span,
    request_state: Span,
    meta: MetaSpans,
    /// The first member that should be a string and is none.
    mistyped: Option<&'static str>,
}

#[derive(Clone, Copy, Default)]
struct MetaSpans {
    whole: Span,
    protocol_version: Span,
    client_capabilities: Span,
    client_info: Span,
    log_level: Span,
    progress_token: Span,
    session_id: Span,
    assistant_id: Span,
    thread_id: Span,
    /// Whether a key begins with [`OURS`].
    ours: bool,
}

/// A member of `params` that should be a string and is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} must be a string")]
pub struct Mistyped(&'static str);

/// Where a value is in its frame; empty when it is absent, as no JSON value is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The largest frame whose places can be told.
    pub(crate) const MAX: usize = u32::MAX as usize;

    pub(crate) fn of(self, frame: &[u8]) -> Option<&[u8]> {
        frame.get(self.start as usize..self.end as usize).filter(|value| !value.is_empty())
    }

    pub(crate) fn is_absent(self) -> bool {
        self.start == self.end
    }

    pub(crate) fn raw(self, frame: &Bytes) -> Option<Raw> {
        self.of(frame).map(|value| Raw::trusted(frame.slice_ref(value)))
    }
}

/// Both ends are within [`Span::MAX`], or else the value counts as absent.
impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        let ends = u32::try_from(range.start).ok().zip(u32::try_from(range.end).ok());
        ends.map_or_else(Self::default, |(start, end)| Self { start, end })
    }
}

/// A string: where it is written, or decoded when that differs.
#[derive(Clone, Default)]
enum Text {
    #[default]
    Absent,
    Written(Span),
    Decoded(Box<str>),
}

impl Text {
    fn of<'a>(&'a self, frame: &'a [u8]) -> Option<&'a str> {
        match self {
            Self::Absent => None,
            // An empty string has an empty place.
            Self::Written(span) => std::str::from_utf8(span.of(frame).unwrap_or_default()).ok(),
            Self::Decoded(text) => Some(text),
        }
    }
}

impl Params {
    /// Reads `params` that did not come in a frame.
    ///
    /// # Errors
    /// What would be wrong with a frame they are in: too deep, or a name that appears twice.
    pub fn read(params: Raw) -> Result<Self, Problem> {
        let mut read = Self::default();
        let text = params.into_bytes();
        scan::outline(&text, Place::Params, |place, name, value| read.note(place, name, value, &text))?;
        Ok(read.located((0..text.len()).into(), &text))
    }

    /// Takes note of a member that the scan found in `frame`.
    pub(crate) fn note(&mut self, place: Place, name: &[u8], value: Range<usize>, frame: &[u8]) {
        match place {
            Place::Params => self.note_own(name, value.into(), frame),
            Place::Meta => self.meta.note(name, value.into(), frame),
            Place::Arguments => self.marked |= name.starts_with(MARK.as_bytes()),
            Place::Frame | Place::Element | Place::Inside | Place::Other => {}
        }
    }

    fn note_own(&mut self, name: &[u8], span: Span, frame: &[u8]) {
        match name {
            b"name" => self.name = self.text("name", span, frame),
            b"uri" => self.uri = self.text("uri", span, frame),
            b"cursor" => self.cursor = self.text("cursor", span, frame),
            b"arguments" => self.arguments = present(span, frame),
            b"inputResponses" => self.input_responses = present(span, frame),
            b"requestState" => self.request_state = present(span, frame),
            b"_meta" => self.meta.whole = present(span, frame),
            _ => {}
        }
    }

    fn text(&mut self, name: &'static str, span: Span, frame: &[u8]) -> Text {
        let span = present(span, frame);
        let Some(value) = span.of(frame) else { return Text::Absent };
        match walk::text(value) {
            Some(Cow::Borrowed(_)) => Text::Written(Span { start: span.start + 1, end: span.end - 1 }),
            Some(Cow::Owned(text)) => Text::Decoded(text.into()),
            None => {
                self.mistyped.get_or_insert(name);
                Text::Absent
            }
        }
    }

    /// The members that were noted, now that it is known where they all are.
    pub(crate) fn located(mut self, whole: Span, frame: &Bytes) -> Self {
        self.whole = whole;
        self.frame = frame.clone();
        self
    }

    /// Whether what was read has the right types.
    ///
    /// # Errors
    /// The first known member that has not; it counts as absent.
    pub fn check(&self) -> Result<(), Mistyped> {
        self.mistyped.map_or(Ok(()), |name| Err(Mistyped(name)))
    }

    /// All of it as it came, if there was any.
    pub fn raw(&self) -> Option<Raw> {
        self.whole.raw(&self.frame)
    }

    /// Tool or prompt name.
    pub fn name(&self) -> Option<&str> {
        self.name.of(&self.frame)
    }

    /// Resource.
    pub fn uri(&self) -> Option<&str> {
        self.uri.of(&self.frame)
    }

    /// A list's cursor.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.of(&self.frame)
    }

    /// Arguments of a tool or prompt.
    pub fn arguments(&self) -> Option<Raw> {
        self.arguments.raw(&self.frame)
    }

    /// Whether a name among the arguments begins with [`MARK`].
    pub fn has_marked_arguments(&self) -> bool {
        self.marked
    }

    /// Answers to an earlier `input_required`.
    pub fn input_responses(&self) -> Option<Raw> {
        self.input_responses.raw(&self.frame)
    }

    /// The state an earlier `input_required` gave.
    pub fn request_state(&self) -> Option<Raw> {
        self.request_state.raw(&self.frame)
    }

    /// `_meta`
    pub fn meta(&self) -> Meta<'_> {
        Meta { frame: &self.frame, spans: &self.meta }
    }
}

impl fmt::Debug for Params {
    /// Only the size: arguments are never printed by accident.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Params({} bytes)", self.whole.of(&self.frame).unwrap_or_default().len())
    }
}

/// They are equal when their texts are.
impl PartialEq for Params {
    fn eq(&self, other: &Self) -> bool {
        self.whole.of(&self.frame) == other.whole.of(&other.frame)
    }
}

impl Eq for Params {}

impl MetaSpans {
    fn note(&mut self, name: &[u8], span: Span, frame: &[u8]) {
        let slot = match name.strip_prefix(PREFIX.as_bytes()) {
            Some(b"protocolVersion") => return self.protocol_version = span,
            Some(b"clientCapabilities") => &mut self.client_capabilities,
            Some(b"clientInfo") => &mut self.client_info,
            Some(b"logLevel") => &mut self.log_level,
            Some(_) => return,
            None if name == b"progressToken" => &mut self.progress_token,
            None => {
                let Some(name) = name.strip_prefix(OURS.as_bytes()) else { return };
                self.ours = true;
                match name {
                    b"sessionId" => &mut self.session_id,
                    b"assistantId" => &mut self.assistant_id,
                    b"threadId" => &mut self.thread_id,
                    _ => return,
                }
            }
        };
        *slot = present(span, frame);
    }
}

/// What the gateway reads of `_meta`.
#[derive(Clone, Copy)]
pub struct Meta<'a> {
    frame: &'a Bytes,
    spans: &'a MetaSpans,
}

impl<'a> Meta<'a> {
    /// The whole object as it came, for those who pass it on.
    pub fn raw(self) -> Option<Raw> {
        self.spans.whole.raw(self.frame)
    }

    /// Whether a key begins with [`OURS`].
    pub fn speaks_to_us(self) -> bool {
        self.spans.ours
    }

    /// Whether there is an `io.modelcontextprotocol/protocolVersion`: the claim that makes a request modern, even if it is
    /// `null`.
    pub fn claims(self) -> bool {
        !self.spans.protocol_version.is_absent()
    }

    /// The claimed version, if it is a string.
    pub fn protocol_version(self) -> Option<Cow<'a, str>> {
        self.text(self.spans.protocol_version)
    }

    /// `io.modelcontextprotocol/clientCapabilities`
    pub fn client_capabilities(self) -> Option<Raw> {
        self.spans.client_capabilities.raw(self.frame)
    }

    /// Whether the client's capabilities are there and an object.
    pub fn declares_capabilities(self) -> bool {
        self.spans.client_capabilities.of(self.frame).is_some_and(|value| value.starts_with(b"{"))
    }

    /// `io.modelcontextprotocol/clientInfo`
    pub fn client_info(self) -> Option<Raw> {
        self.spans.client_info.raw(self.frame)
    }

    /// `io.modelcontextprotocol/logLevel`
    pub fn log_level(self) -> Option<Raw> {
        self.spans.log_level.raw(self.frame)
    }

    /// `progressToken`
    pub fn progress_token(self) -> Option<Raw> {
        self.spans.progress_token.raw(self.frame)
    }

    /// `dev.moongate/sessionId`, `assistantId` and `threadId`, as far as they are strings.
    pub fn context_ids(self) -> [Option<Cow<'a, str>>; 3] {
        [self.spans.session_id, self.spans.assistant_id, self.spans.thread_id].map(|span| self.text(span))
    }

    fn text(self, span: Span) -> Option<Cow<'a, str>> {
        walk::text(span.of(self.frame)?)
    }
}

impl fmt::Debug for Meta<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meta({} bytes)", self.spans.whole.of(self.frame).unwrap_or_default().len())
    }
}

/// Where the value is, unless it is `null`.
fn present(span: Span, frame: &[u8]) -> Span {
    if span.of(frame) == Some(b"null") { Span::default() } else { span }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Params {
        Params::read(Raw::from_text(text.to_owned()).unwrap()).unwrap()
    }

    #[test]
    fn known_members_are_read_and_share_the_bodys_memory() {
        let raw = Raw::from_text(
            r#"{"name":"\u0061dd","x":[],"arguments":{"n": 1},"cursor":"c","uri":"","_meta":{"progressToken":7,"dev.moongate/threadId":"t"}}"#,
        )
        .unwrap();
        let params = Params::read(raw.clone()).unwrap();
        assert_eq!(params.check(), Ok(()));
        assert_eq!(params.raw(), Some(raw.clone()));
        assert_eq!(params.name(), Some("add"));
        assert_eq!(params.cursor(), Some("c"));
        assert_eq!(params.uri(), Some(""));
        let arguments = params.arguments().unwrap();
        assert_eq!(arguments.as_str(), r#"{"n": 1}"#);
        assert!(raw.as_bytes().as_ptr_range().contains(&arguments.as_bytes().as_ptr()));
        assert_eq!(params.meta().progress_token(), Some(Raw::of(&7)));
        assert_eq!(params.meta().context_ids(), [None, None, Some("t".into())]);
        assert_eq!(params.meta().raw().unwrap().members().len(), 2);
    }

    #[test]
    fn null_counts_as_absent_except_for_the_claim() {
        let params = read(
            r#"{"name":null,"arguments":null,"_meta":{"io.modelcontextprotocol/protocolVersion":null,"progressToken":null}}"#,
        );
        assert_eq!(params.name(), None);
        assert_eq!(params.arguments(), None);
        assert_eq!(params.meta().progress_token(), None);
        assert!(params.meta().claims());
        assert_eq!(params.meta().protocol_version(), None);
        let absent = Params::default();
        assert!(absent.raw().is_none() && absent.meta().raw().is_none() && !absent.meta().claims());
    }

    #[test]
    fn a_known_member_of_the_wrong_type_is_named_and_counts_as_absent() {
        for (text, name) in
            [(r#"{"name":1}"#, "name"), (r#"{"uri":{}}"#, "uri"), (r#"{"cursor":[]}"#, "cursor")]
        {
            assert_eq!(read(text).check(), Err(Mistyped(name)), "{text}");
        }
        assert_eq!(read(r#"{"name":1}"#).name(), None);
        assert!(read(r#"{"_meta":[1]}"#).meta().raw().is_some());
    }

    #[test]
    fn what_is_for_the_gateway_is_seen_however_it_is_spelled() {
        for (text, marked, ours) in [
            (r#"{"arguments":{"a":1,"b_":{"__c":2}},"__d":3,"_meta":{"x":"dev.moongate/"}}"#, false, false),
            (r#"{"arguments":{"a":1,"__b":2}}"#, true, false),
            (r#"{"arguments":{"\u005f_b":2}}"#, true, false),
            (r#"{"\u0061rguments":{"__b":2}}"#, true, false),
            (r#"{"_m\u0065ta":{"\u0064ev.moongate/x":1}}"#, false, true),
            (r#"{"_meta":{"dev.moongate\/other":1}}"#, false, true),
        ] {
            let params = read(text);
            assert_eq!(
                (params.has_marked_arguments(), params.meta().speaks_to_us()),
                (marked, ours),
                "{text}"
            );
        }
    }

    #[test]
    fn what_no_frame_may_have_is_not_read() {
        let deep = format!(r#"{{"x":{}{},"arguments":{{"__a":1}}}}"#, "[".repeat(200), "]".repeat(200));
        for text in [&*deep, r#"{"_meta":{"dev.moongate/sessionId":"a"},"_meta":{}}"#] {
            assert!(Params::read(Raw::from_text(text.to_owned()).unwrap()).is_err(), "{text}");
        }
    }

    #[test]
    fn only_the_members_of_params_and_its_meta_are_read() {
        let inner = r#"{"name":"inner","_meta":{"progressToken":1},"arguments":{"name":"x"}}"#;
        let params = read(&format!(r#"{{"arguments":{inner},"x":[{inner}],"_meta":{{"_meta":{inner}}}}}"#));
        assert_eq!(params.name(), None);
        assert_eq!(params.meta().progress_token(), None);
        assert_eq!(params.arguments().unwrap().as_str(), inner);
    }
}
