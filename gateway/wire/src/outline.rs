//! Which members of a frame somebody reads, and where they are in it.
//!
//! In: the names that [`crate::scan`] passes, and where their values begin and end. Out: a table of places. A name is
//! looked up once, when it is read; what the values mean is left to [`crate::frame`] and [`crate::params`].

use std::ops::Range;

/// The prefix of the protocol's own `_meta` keys.
pub const PREFIX: &str = "io.modelcontextprotocol/";
/// What the names of context fields among arguments begin with.
pub const MARK: &str = "__";
/// The prefix of the `_meta` keys that are for this gateway.
pub const OURS: &str = "dev.moongate/";

/// Where a value sits, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Where nobody reads anything.
    Other,
    /// The frame itself.
    Frame,
    /// An element of the frame's array.
    Element,
    /// A message's `params`.
    Params,
    /// `params._meta`
    Meta,
    /// `params.arguments` itself.
    Arguments,
    /// Somewhere inside the arguments.
    Inside,
}

impl Place {
    /// What the member `name` of an object at this place is.
    pub(crate) fn field(self, name: &[u8]) -> Field {
        match self {
            Self::Frame | Self::Element => of_message(name),
            Self::Params => of_params(name),
            Self::Meta => of_meta(name),
            Self::Arguments if name.starts_with(MARK.as_bytes()) => Field::Marked,
            Self::Arguments | Self::Inside | Self::Other => Field::Other,
        }
    }

    /// The place of the value of `field` in an object at this place.
    pub(crate) fn member(self, field: Field) -> Self {
        match field {
            Field::Params => Self::Params,
            Field::Arguments => Self::Arguments,
            Field::Meta => Self::Meta,
            _ if self.is_inside() => Self::Inside,
            _ => Self::Other,
        }
    }

    /// The place of a value in an array at this place.
    pub(crate) fn element(self) -> Self {
        match self {
            Self::Frame => Self::Element,
            Self::Arguments | Self::Inside => Self::Inside,
            Self::Element | Self::Params | Self::Meta | Self::Other => Self::Other,
        }
    }

    /// Whether this is `params.arguments` or something in them.
    pub(crate) fn is_inside(self) -> bool {
        matches!(self, Self::Arguments | Self::Inside)
    }
}

/// A member that somebody reads. Those of a message come first, then those of its `params`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// Nobody reads it.
    Other,
    Jsonrpc,
    Id,
    Method,
    Result,
    Error,
    Params,
    Name,
    Uri,
    Cursor,
    TaskId,
    Arguments,
    /// An argument whose name begins with [`MARK`].
    Marked,
    InputResponses,
    RequestState,
    Meta,
    ProtocolVersion,
    ClientCapabilities,
    ClientInfo,
    LogLevel,
    ProgressToken,
    SessionId,
    AssistantId,
    ThreadId,
    /// A key of `_meta` that begins with [`OURS`] and is none of the three above.
    Ours,
    /// A key of `_meta` that is neither the protocol's nor ours.
    Foreign,
}

/// How many fields there are of a message, the one of nobody with them, and how many of `params`.
const OF_MESSAGE: usize = Field::Params as usize;
const OF_PARAMS: usize = Field::Foreign as usize + 1 - OF_MESSAGE;
const _: () = assert!(OF_PARAMS <= u32::BITS as usize, "there is a bit for each in `Members::escaped`");

impl Field {
    /// Whether `null` is something else than no value: an answer may be `null`, and a claim or a mark that is `null` was
    /// still made.
    fn may_be_null(self) -> bool {
        let kept = matches!(self, Self::Id | Self::Result | Self::ProtocolVersion | Self::Marked);
        kept || matches!(
            self,
            Self::SessionId | Self::AssistantId | Self::ThreadId | Self::Ours | Self::Foreign
        )
    }
}

// Comparisons, the most frequent first, and no patterns: those are compared byte by byte.

fn of_message(name: &[u8]) -> Field {
    match name {
        _ if name == b"id" => Field::Id,
        _ if name == b"jsonrpc" => Field::Jsonrpc,
        _ if name == b"method" => Field::Method,
        _ if name == b"params" => Field::Params,
        _ if name == b"result" => Field::Result,
        _ if name == b"error" => Field::Error,
        _ => Field::Other,
    }
}

fn of_params(name: &[u8]) -> Field {
    match name {
        _ if name == b"name" => Field::Name,
        _ if name == b"arguments" => Field::Arguments,
        _ if name == b"_meta" => Field::Meta,
        _ if name == b"uri" => Field::Uri,
        _ if name == b"cursor" => Field::Cursor,
        _ if name == b"requestState" => Field::RequestState,
        _ if name == b"inputResponses" => Field::InputResponses,
        _ if name == b"taskId" => Field::TaskId,
        _ => Field::Other,
    }
}

fn of_meta(name: &[u8]) -> Field {
    if let Some(name) = name.strip_prefix(PREFIX.as_bytes()) {
        return match name {
            _ if name == b"protocolVersion" => Field::ProtocolVersion,
            _ if name == b"clientCapabilities" => Field::ClientCapabilities,
            _ if name == b"clientInfo" => Field::ClientInfo,
            _ if name == b"logLevel" => Field::LogLevel,
            _ => Field::Other,
        };
    }
    match name.strip_prefix(OURS.as_bytes()) {
        Some(b"sessionId") => Field::SessionId,
        Some(b"assistantId") => Field::AssistantId,
        Some(b"threadId") => Field::ThreadId,
        Some(_) => Field::Ours,
        None if name == b"progressToken" => Field::ProgressToken,
        None => Field::Foreign,
    }
}

/// Where a value is in its frame; empty when it is absent, as no JSON value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

    pub(crate) fn start(self) -> u32 {
        self.start
    }
}

/// Both ends are within [`Span::MAX`], or else the value counts as absent.
impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        let ends = u32::try_from(range.start).ok().zip(u32::try_from(range.end).ok());
        ends.map_or_else(Self::default, |(start, end)| Self { start, end })
    }
}

/// What was found of a message. Members that are `null` are left out where that means the same.
#[derive(Debug, Default)]
pub(crate) struct Outline {
    message: [Span; OF_MESSAGE],
    pub(crate) params: Members,
}

impl Outline {
    /// Takes note of where the value of `field` is in `frame`, and whether it is a string with something escaped.
    pub(crate) fn note(&mut self, field: Field, value: Range<usize>, escaped: bool, frame: &[u8]) {
        if value.len() == NULL.len() && !field.may_be_null() && frame.get(value.clone()) == Some(NULL) {
            return;
        }
        let index = field as usize;
        match self.message.get_mut(index) {
            Some(slot) => *slot = value.into(),
            None => self.params.set(index - OF_MESSAGE, value.into(), escaped),
        }
    }

    /// Where a member of the message is.
    pub(crate) fn span(&self, field: Field) -> Span {
        self.message.get(field as usize).copied().unwrap_or_default()
    }
}

const NULL: &[u8] = b"null";

/// What was found of `params`, which is moved about with every request: small, and not more than is read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Members {
    spans: [Span; OF_PARAMS],
    /// One bit for each that is a string with something escaped.
    escaped: u32,
}

impl Members {
    fn set(&mut self, index: usize, span: Span, escaped: bool) {
        if let Some(slot) = self.spans.get_mut(index) {
            *slot = span;
            self.escaped |= u32::from(escaped) << index;
        }
    }

    /// Says where `params` themselves are, when they did not come in a frame.
    pub(crate) fn set_whole(&mut self, span: Span) {
        self.set(Field::Params as usize - OF_MESSAGE, span, false);
    }

    /// Where one of them is.
    pub(crate) fn span(&self, field: Field) -> Span {
        let index = (field as usize).wrapping_sub(OF_MESSAGE);
        self.spans.get(index).copied().unwrap_or_default()
    }

    /// Whether it is a string with something escaped.
    pub(crate) fn is_escaped(&self, field: Field) -> bool {
        let index = (field as usize).wrapping_sub(OF_MESSAGE);
        index < OF_PARAMS && self.escaped >> index & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan;

    const ALL: [(Field, &str); OF_MESSAGE + OF_PARAMS - 1] = [
        (Field::Jsonrpc, "jsonrpc"),
        (Field::Id, "id"),
        (Field::Method, "method"),
        (Field::Result, "result"),
        (Field::Error, "error"),
        (Field::Params, "params"),
        (Field::Name, "params.name"),
        (Field::Uri, "params.uri"),
        (Field::Cursor, "params.cursor"),
        (Field::TaskId, "params.taskId"),
        (Field::Arguments, "params.arguments"),
        (Field::Marked, "params.arguments.__x"),
        (Field::InputResponses, "params.inputResponses"),
        (Field::RequestState, "params.requestState"),
        (Field::Meta, "params._meta"),
        (Field::ProtocolVersion, "params._meta.io:modelcontextprotocol/protocolVersion"),
        (Field::ClientCapabilities, "params._meta.io:modelcontextprotocol/clientCapabilities"),
        (Field::ClientInfo, "params._meta.io:modelcontextprotocol/clientInfo"),
        (Field::LogLevel, "params._meta.io:modelcontextprotocol/logLevel"),
        (Field::ProgressToken, "params._meta.progressToken"),
        (Field::SessionId, "params._meta.dev:moongate/sessionId"),
        (Field::AssistantId, "params._meta.dev:moongate/assistantId"),
        (Field::ThreadId, "params._meta.dev:moongate/threadId"),
        (Field::Ours, "params._meta.dev:moongate/x"),
        (Field::Foreign, "params._meta.x"),
    ];

    /// A frame that has only `value`, under the names of `path`; with `escaped` their first letters are.
    fn frame(path: &str, value: &str, escaped: bool) -> String {
        let wrap = |inner: String, name: &str| {
            let name = name.replace(':', ".");
            let (first, rest) = name.split_at(1);
            let code = u32::from(first.as_bytes()[0]);
            let name = if escaped { format!("\\u{code:04x}{rest}") } else { name };
            format!("{{ \"{name}\" : {inner} }}")
        };
        path.rsplit('.').fold(value.to_owned(), wrap)
    }

    fn outline(text: &str) -> Outline {
        let mut outline = Outline::default();
        scan::outline(text.as_bytes(), Place::Frame, &mut outline).unwrap();
        outline
    }

    fn found(text: &str, field: Field) -> Option<&str> {
        let outline = outline(text);
        let of_message = (field as usize) < OF_MESSAGE;
        let span = if of_message { outline.span(field) } else { outline.params.span(field) };
        span.of(text.as_bytes()).map(|value| std::str::from_utf8(value).unwrap())
    }

    #[test]
    fn every_field_is_found_at_its_place_and_nowhere_else() {
        for (field, path) in ALL {
            for escaped in [false, true] {
                let text = frame(path, "[7]", escaped);
                for (other, _) in ALL {
                    let inner = found(&text, other).is_some_and(|value| value == "[7]");
                    assert_eq!(inner, other == field, "{other:?} in {text}");
                }
            }
            let text = frame(&format!("x.{path}"), "7", false);
            assert!(ALL.iter().all(|(field, _)| found(&text, *field).is_none()), "{text}");
            let text = frame(&format!("{path}y"), "7", false);
            let marked = matches!(field, Field::Marked | Field::Ours | Field::Foreign);
            assert_eq!(found(&text, field).is_some(), marked, "{text}");
        }
    }

    #[test]
    fn null_is_left_out_where_it_means_no_value() {
        for (field, path) in ALL {
            let text = frame(path, "null", false);
            assert_eq!(found(&text, field).is_some(), field.may_be_null(), "{path}");
            for value in ["true", "1234", "\"ab\"", "[{}]"] {
                assert_eq!(found(&frame(path, value, false), field), Some(value), "{path}");
            }
        }
    }

    #[test]
    fn strings_with_something_escaped_are_told_from_others() {
        for (field, path) in ALL.iter().filter(|(field, _)| *field as usize >= OF_MESSAGE) {
            for (value, escaped) in [(r#""a\nb""#, true), (r#""ab""#, false), (r#"["\n"]"#, false)] {
                let members = outline(&frame(path, value, true)).params;
                let seen = ALL.iter().any(|(field, _)| members.is_escaped(*field));
                assert_eq!((members.is_escaped(*field), seen), (escaped, escaped), "{path} {value}");
            }
        }
    }
}
