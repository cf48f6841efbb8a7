//! How a server misbehaves when a test asks it to.

use std::str::FromStr;

/// One way to misbehave, as `--misbehave` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Every answer to a call is sent twice.
    AnswerTwice,
    /// Answers to calls carry an id that nobody used.
    WrongId,
    /// Something that is no message stands before the answer to a call.
    Garbage,
    /// The answer to a call is a frame of at least so many bytes.
    LongLine(usize),
    /// Notifications without end while a call runs.
    Flood,
    /// Never answers anything.
    Silent,
    /// Does nothing for so many milliseconds at first.
    SlowStart(u64),
    /// Exits on any request before `initialize`.
    ExitOnDiscover,
    /// Offers so many more tools.
    Tools(usize),
    /// The schema of each of those tools has at least so many bytes.
    SchemaBytes(usize),
    /// Answers every POST with this status and nothing else.
    HttpStatus(u16),
    /// Answers every POST with a redirect.
    Redirect,
    /// Answers every POST with a page.
    WrongType,
    /// Closes the connection after the head of an answer.
    HangUp,
    /// Answers `initialize` with an error.
    RefuseInitialize,
    /// Lists come in pages of so many.
    Paginate(usize),
}

/// Everything the command line asked for.
#[derive(Clone, Debug, Default)]
pub struct Chaos(pub Vec<Misbehaviour>);

impl Chaos {
    /// Whether this was asked for.
    pub fn has(&self, wanted: Misbehaviour) -> bool {
        self.0.contains(&wanted)
    }

    /// The value of the first misbehaviour that `pick` knows.
    pub fn find<T>(&self, pick: impl Fn(Misbehaviour) -> Option<T>) -> Option<T> {
        self.0.iter().copied().find_map(pick)
    }
}

impl FromStr for Misbehaviour {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        Ok(match (name, value) {
            ("answer-twice", None) => Self::AnswerTwice,
            ("wrong-id", None) => Self::WrongId,
            ("garbage", None) => Self::Garbage,
            ("long-line", Some(bytes)) => Self::LongLine(number(bytes)?),
            ("flood", None) => Self::Flood,
            ("silent", None) => Self::Silent,
            ("slow-start", Some(milliseconds)) => Self::SlowStart(number(milliseconds)?),
            ("exit-on-discover", None) => Self::ExitOnDiscover,
            ("tools", Some(count)) => Self::Tools(number(count)?),
            ("schema-bytes", Some(bytes)) => Self::SchemaBytes(number(bytes)?),
            ("http-status", Some(status)) => Self::HttpStatus(number(status)?),
            ("redirect", None) => Self::Redirect,
            ("wrong-type", None) => Self::WrongType,
            ("hang-up", None) => Self::HangUp,
            ("refuse-initialize", None) => Self::RefuseInitialize,
            ("paginate", Some(size)) => Self::Paginate(number::<usize>(size)?.max(1)),
            _ => return Err(format!("{text:?} is no misbehaviour")),
        })
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}
