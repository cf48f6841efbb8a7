//! The way back to the client while a call runs: progress, logs and questions, whatever the client's era.
//!
//! A legacy client gets a question as a server request on the call's stream; for a modern one the call parks and the
//! answer is `input_required`. The backend sees neither: it awaits [`Peer::ask`].

use std::{fmt, sync::Arc};

use moongate_wire::{Raw, RpcError};
use serde::{Deserialize, Serialize};

use crate::{BoxFuture, CallError, Client};

/// The client of one call.
#[derive(Clone)]
pub struct Peer {
    link: Arc<dyn Link>,
    client: Arc<Client>,
}

/// What the request path provides behind a [`Peer`].
pub trait Link: Send + Sync {
    /// Passes a note on, or drops it when the client does not want it or does not keep up. Never blocks.
    fn notify(&self, note: Note);

    /// Asks the client; the answers come back under the same keys, in any order. Waiting may take minutes.
    fn ask(&self, questions: Vec<(Box<str>, Ask)>) -> BoxFuture<'_, Answers>;

    /// Ends the client's connection but not the call, where the client can come back for the rest (2025-11-25).
    fn hang_up(&self);
}

/// Answers under the keys of their questions.
pub type Answers = Result<Vec<(Box<str>, Answer)>, CallError>;

/// What a backend tells the client on the way.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// How far the call is.
    Progress {
        /// Must grow from note to note.
        progress: f64,
        /// The value at the end, if known.
        total: Option<f64>,
        /// A few words.
        message: Option<String>,
    },
    /// A log line for the client.
    Log {
        /// How important.
        level: Level,
        /// Which part of the backend.
        logger: Option<String>,
        /// Any JSON.
        data: Raw,
    },
}

/// The severities of log notes, least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// For debugging.
    Debug,
    /// Normal progress.
    Info,
    /// Normal but significant.
    Notice,
    /// Something to look at.
    Warning,
    /// An operation failed.
    Error,
    /// A component failed.
    Critical,
    /// Act at once.
    Alert,
    /// Nothing works.
    Emergency,
}

/// One question to the client.
#[derive(Clone, Debug)]
pub enum Ask {
    /// `elicitation/create`: ask the person.
    Elicit {
        /// The request's parameters.
        params: Raw,
    },
    /// `sampling/createMessage`: ask the client's model.
    Sample {
        /// The request's parameters.
        params: Raw,
    },
    /// `roots/list`: ask which directories are open.
    Roots,
}

/// What came back for one question.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The client's result object.
    Result(Raw),
    /// The client answered with an error; only legacy clients can.
    Refused(RpcError),
}

impl Ask {
    /// A form with `message` and the JSON Schema of the answer.
    pub fn form(message: &str, schema: &Raw) -> Self {
        let message = Raw::of(message);
        let params = moongate_wire::write::object([("message", &message), ("requestedSchema", schema)]);
        Self::Elicit { params }
    }

    /// The request's method.
    pub fn method(&self) -> &'static str {
        match self {
            Self::Elicit { .. } => "elicitation/create",
            Self::Sample { .. } => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    /// The request's parameters.
    pub fn params(&self) -> Raw {
        match self {
            Self::Elicit { params } | Self::Sample { params } => params.clone(),
            Self::Roots => Raw::empty_object(),
        }
    }

    /// The client capability it needs.
    pub fn capability(&self) -> &'static str {
        match self {
            Self::Elicit { .. } => "elicitation",
            Self::Sample { .. } => "sampling",
            Self::Roots => "roots",
        }
    }

    /// Whether `result` has the shape an answer to this question must have.
    pub fn accepts(&self, result: &Raw) -> bool {
        #[derive(Deserialize)]
        struct Shape {
            action: Option<Raw>,
            content: Option<Raw>,
            role: Option<Raw>,
            roots: Option<Raw>,
        }
        let Ok(shape) = result.parse::<Shape>() else { return false };
        match self {
            Self::Elicit { .. } => {
                let action = shape.action.and_then(|action| action.parse::<String>().ok());
                matches!(action.as_deref(), Some("accept" | "decline" | "cancel"))
            }
            Self::Sample { .. } => shape.role.is_some() && shape.content.is_some(),
            Self::Roots => shape.roots.is_some_and(|roots| roots.as_bytes().first() == Some(&b'[')),
        }
    }
}

impl Peer {
    /// A peer of `client` over `link`.
    pub fn new(client: Arc<Client>, link: Arc<dyn Link>) -> Self {
        Self { link, client }
    }

    /// A peer that hears nothing and answers nothing.
    pub fn silent(client: Arc<Client>) -> Self {
        Self::new(client, Arc::new(Silent))
    }

    /// Reports how far the call is; values must grow.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        self.link.notify(Note::Progress { progress, total, message: message.map(Into::into) });
    }

    /// Sends a log line.
    pub fn log(&self, level: Level, logger: Option<&str>, data: impl Serialize) {
        self.link.notify(Note::Log { level, logger: logger.map(Into::into), data: Raw::of(&data) });
    }

    /// Whether the client declared what `question` needs, and speaks a version that has it.
    pub fn can(&self, question: &Ask) -> bool {
        self.client.abilities().lacks(question).is_none()
    }

    /// Asks the client, all questions at once; answers come back in the order of the questions.
    ///
    /// # Errors
    /// `MissingCapability` when the client did not declare what a question needs (nothing is asked then), `Cancelled`
    /// and `Timeout` when no answer came.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the questions.
    pub async fn ask(&self, questions: Vec<(&str, Ask)>) -> Result<Vec<Answer>, CallError> {
        let abilities = self.client.abilities();
        if let Some(missing) = questions.iter().find_map(|(_, question)| abilities.lacks(question)) {
            return Err(CallError::missing_capability(missing));
        }
        let keys: Vec<Box<str>> = questions.iter().map(|(key, _)| Box::from(*key)).collect();
        let questions = questions.into_iter().map(|(key, question)| (Box::from(key), question)).collect();
        let mut answers = self.link.ask(questions).await?;
        let mut ordered = Vec::with_capacity(keys.len());
        for key in keys {
            let at = answers.iter().position(|(answered, _)| *answered == key);
            let at = at.ok_or_else(|| {
                CallError::internal("a question was left unanswered", "no answer for its key")
            })?;
            ordered.push(answers.swap_remove(at).1);
        }
        Ok(ordered)
    }

    /// Asks one question.
    ///
    /// # Cancel safety
    /// As [`Peer::ask`].
    pub async fn ask_one(&self, key: &str, question: Ask) -> Result<Answer, CallError> {
        let answers = self.ask(vec![(key, question)]).await?;
        answers
            .into_iter()
            .next()
            .ok_or_else(|| CallError::internal("a question was left unanswered", "no answer"))
    }

    /// Ends the client's connection, not the call: a 2025-11-25 client comes back for the rest; others notice nothing.
    pub fn hang_up(&self) {
        self.link.hang_up();
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({})", self.client.version)
    }
}

struct Silent;

impl Link for Silent {
    fn notify(&self, _note: Note) {}

    fn ask(&self, _questions: Vec<(Box<str>, Ask)>) -> BoxFuture<'_, Answers> {
        Box::pin(async { Err(CallError::client(crate::Kind::Cancelled, "nobody is there to answer")) })
    }

    fn hang_up(&self) {}
}
