//! The members of `params` that the gateway itself reads; everything else stays text.
//!
//! They are found by the scan of the frame and kept as places in it, so that a request costs one look at its bytes and
//! nothing is copied or counted for what nobody asks for.

use std::{borrow::Cow, fmt};

use bytes::Bytes;

pub use crate::outline::{MARK, OURS, PREFIX};
use crate::{
    Method, Raw,
    outline::{Field, Members, Outline, Place, Span},
    scan::{self, Problem},
    walk,
};

/// What the gateway reads of a request's `params`. Members that are `null` count as absent, except for the claim, and for
/// names whose being there is what counts.
#[derive(Clone, Default)]
pub struct Params {
    /// The frame they came in, which all places are in.
    frame: Bytes,
    members: Members,
    /// Those of [`TEXTS`] that are not written as they read; nearly always none.
    decoded: Option<Box<Decoded>>,
}

type Decoded = [Option<Box<str>>; TEXTS.len()];

/// The members that must be strings.
const TEXTS: [(Field, &str); 4] =
    [(Field::Name, "name"), (Field::Uri, "uri"), (Field::Cursor, "cursor"), (Field::TaskId, "taskId")];

/// A member of `params` that should be a string and is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} must be a string")]
pub struct Mistyped(&'static str);

impl Params {
    /// Reads `params` that did not come in a frame.
    ///
    /// # Errors
    /// What would be wrong with a frame they are in: too deep, or a name that appears twice.
    pub fn read(params: Raw) -> Result<Self, Problem> {
        let text = params.into_bytes();
        let mut outline = Outline::default();
        scan::outline(&text, Place::Params, &mut outline)?;
        outline.params.set_whole((0..text.len()).into());
        Ok(Self::found(&outline.params, text))
    }

    /// Those whose members the scan found in `frame`.
    #[inline]
    pub(crate) fn found(members: &Members, frame: Bytes) -> Self {
        let escaped = TEXTS.iter().any(|(field, _)| members.is_escaped(*field));
        let decoded = escaped.then(|| Box::new(decode(members, &frame)));
        Self { frame, members: *members, decoded }
    }

    /// Whether what was read has the right types.
    ///
    /// # Errors
    /// The first known member that has not; it counts as absent.
    pub fn check(&self) -> Result<(), Mistyped> {
        let mistyped = |field: Field| self.value(field).is_some_and(|value| !value.starts_with(b"\""));
        let wrong = TEXTS.into_iter().filter(|(field, _)| mistyped(*field));
        let first = wrong.min_by_key(|(field, _)| self.members.span(*field).start());
        first.map_or(Ok(()), |(_, name)| Err(Mistyped(name)))
    }

    fn value(&self, field: Field) -> Option<&[u8]> {
        self.members.span(field).of(&self.frame)
    }

    /// The bytes between the quotes of a string in which nothing is escaped.
    pub(crate) fn written(&self, field: Field) -> Option<&[u8]> {
        let value = self.value(field).filter(|_| !self.members.is_escaped(field))?;
        value.strip_prefix(b"\"")?.strip_suffix(b"\"")
    }

    fn raw_member(&self, field: Field) -> Option<Raw> {
        raw(self.members.span(field), &self.frame)
    }

    fn text(&self, field: Field) -> Option<&str> {
        if let Some(decoded) = &self.decoded {
            let index = TEXTS.iter().position(|(text, _)| *text == field)?;
            if let Some(text) = decoded.get(index)? {
                return Some(text);
            }
        }
        plain(self.value(field)?)
    }

    /// All of it as it came, if there was any.
    pub fn raw(&self) -> Option<Raw> {
        self.raw_member(Field::Params)
    }

    /// Tool or prompt name.
    pub fn name(&self) -> Option<&str> {
        self.text(Field::Name)
    }

    /// Resource.
    pub fn uri(&self) -> Option<&str> {
        self.text(Field::Uri)
    }

    /// A list's cursor.
    pub fn cursor(&self) -> Option<&str> {
        self.text(Field::Cursor)
    }

    /// Task.
    pub fn task_id(&self) -> Option<&str> {
        self.text(Field::TaskId)
    }

    /// What `method` is about: a tool's or prompt's name, a resource or a task.
    pub fn target(&self, method: Method) -> Option<&str> {
        match method.named_by()? {
            "uri" => self.uri(),
            "taskId" => self.task_id(),
            _ => self.name(),
        }
    }

    /// Arguments of a tool or prompt.
    pub fn arguments(&self) -> Option<Raw> {
        self.raw_member(Field::Arguments)
    }

    /// Whether a name among the arguments begins with [`MARK`].
    pub fn has_marked_arguments(&self) -> bool {
        !self.members.span(Field::Marked).is_absent()
    }

    /// Answers to an earlier `input_required`.
    pub fn input_responses(&self) -> Option<Raw> {
        self.raw_member(Field::InputResponses)
    }

    /// The state an earlier `input_required` gave.
    pub fn request_state(&self) -> Option<Raw> {
        self.raw_member(Field::RequestState)
    }

    /// `_meta`
    pub fn meta(&self) -> Meta<'_> {
        Meta { params: self }
    }
}

impl fmt::Debug for Params {
    /// Only the size: arguments are never printed by accident.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Params({} bytes)", self.value(Field::Params).unwrap_or_default().len())
    }
}

/// They are equal when their texts are.
impl PartialEq for Params {
    fn eq(&self, other: &Self) -> bool {
        self.value(Field::Params) == other.value(Field::Params)
    }
}

impl Eq for Params {}

/// What the gateway reads of `_meta`.
#[derive(Clone, Copy)]
pub struct Meta<'a> {
    params: &'a Params,
}

impl<'a> Meta<'a> {
    /// The whole object as it came, for those who pass it on.
    pub fn raw(self) -> Option<Raw> {
        self.params.raw_member(Field::Meta)
    }

    /// Whether a key begins with [`OURS`].
    pub fn speaks_to_us(self) -> bool {
        let ours = [Field::SessionId, Field::AssistantId, Field::ThreadId, Field::Ours];
        ours.into_iter().any(|field| self.has(field))
    }

    /// Whether there is more than the protocol says in every request and what is for this gateway: a token to report progress
    /// under, or a key that is somebody else's.
    pub fn says_more(self) -> bool {
        self.has(Field::ProgressToken) || self.has(Field::Foreign)
    }

    /// Whether there is an `io.modelcontextprotocol/protocolVersion`: the claim that makes a request modern, even if it is
    /// `null`.
    pub fn claims(self) -> bool {
        self.has(Field::ProtocolVersion)
    }

    /// The claimed version, if it is a string.
    pub fn protocol_version(self) -> Option<Cow<'a, str>> {
        self.text(Field::ProtocolVersion)
    }

    /// `io.modelcontextprotocol/clientCapabilities`
    pub fn client_capabilities(self) -> Option<Raw> {
        self.params.raw_member(Field::ClientCapabilities)
    }

    /// Whether the client's capabilities are there and an object.
    pub fn declares_capabilities(self) -> bool {
        self.params.value(Field::ClientCapabilities).is_some_and(|value| value.starts_with(b"{"))
    }

    /// `io.modelcontextprotocol/clientInfo`
    pub fn client_info(self) -> Option<Raw> {
        self.params.raw_member(Field::ClientInfo)
    }

    /// `io.modelcontextprotocol/logLevel`
    pub fn log_level(self) -> Option<Raw> {
        self.params.raw_member(Field::LogLevel)
    }

    /// `progressToken`
    pub fn progress_token(self) -> Option<Raw> {
        self.params.raw_member(Field::ProgressToken)
    }

    /// `dev.moongate/sessionId`, `assistantId` and `threadId`, as far as they are strings.
    pub fn context_ids(self) -> [Option<Cow<'a, str>>; 3] {
        [Field::SessionId, Field::AssistantId, Field::ThreadId].map(|field| self.text(field))
    }

    fn has(self, field: Field) -> bool {
        !self.params.members.span(field).is_absent()
    }

    fn text(self, field: Field) -> Option<Cow<'a, str>> {
        let value = self.params.value(field)?;
        if self.params.members.is_escaped(field) {
            walk::text(value)
        } else {
            plain(value).map(Cow::Borrowed)
        }
    }
}

impl fmt::Debug for Meta<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meta({} bytes)", self.params.value(Field::Meta).unwrap_or_default().len())
    }
}

/// The text of a string in which nothing is escaped; `None` when the value is no string.
fn plain(value: &[u8]) -> Option<&str> {
    let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    std::str::from_utf8(inner).ok()
}

#[cold]
fn decode(members: &Members, frame: &[u8]) -> Decoded {
    let text = |field: Field| walk::text(members.span(field).of(frame)?).map(Into::into);
    TEXTS.map(|(field, _)| text(field).filter(|_| members.is_escaped(field)))
}

/// The value at `span`, sharing the memory of its frame.
pub(crate) fn raw(span: Span, frame: &Bytes) -> Option<Raw> {
    span.of(frame).map(|value| Raw::trusted(frame.slice_ref(value)))
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
    fn texts_read_the_same_however_they_are_written() {
        for (text, name, uri, cursor) in [
            (r#"{"name":"a","uri":"b"}"#, Some("a"), Some("b"), None),
            (r#"{"name":"\u0061","uri":"b","cursor":"c"}"#, Some("a"), Some("b"), Some("c")),
            (r#"{"name":"a","uri":"\/","cursor":"\n"}"#, Some("a"), Some("/"), Some("\n")),
            (r#"{"name":["\n"],"uri":"\t","cursor":"한"}"#, None, Some("\t"), Some("한")),
        ] {
            let params = read(text);
            assert_eq!((params.name(), params.uri(), params.cursor()), (name, uri, cursor), "{text}");
        }
        for version in ["2026-07-28", r"2026\u002d07-28"] {
            let text = format!(r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}"}}}}"#);
            assert_eq!(read(&text).meta().protocol_version().as_deref(), Some("2026-07-28"), "{text}");
        }
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
        assert_eq!(read(r#"{"cursor":{},"uri":"u","name":1}"#).check(), Err(Mistyped("cursor")));
        assert_eq!(read(r#"{"uri":"u","name":1,"cursor":{}}"#).check(), Err(Mistyped("name")));
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
            (r#"{"arguments":{"__b":null},"_meta":{"dev.moongate/threadId":null}}"#, true, true),
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
