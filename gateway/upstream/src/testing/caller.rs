//! A client that answers questions by a rule and keeps what it is told.

use std::sync::{Arc, Mutex};

use moongate_core::{
    Answer, Ask, BoxFuture, CallError, Client, Context, Kind, Level, Peer, Principal,
    peer::{Answers, Link, Note},
};
use moongate_wire::{RpcError, Version};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{soon, value};

/// What a client says to one question.
pub(crate) enum Says {
    Result(Value),
    Refuse(i64),
    /// Nothing comes back, and the link gives up.
    Fail(Kind),
    /// It thinks for ever.
    Nothing,
}

/// One round of questions: their keys, methods and parameters.
pub(crate) type Round = Vec<(String, &'static str, Value)>;

/// A client.
pub(crate) struct Caller {
    rule: Box<dyn Fn(&Ask) -> Says + Send + Sync>,
    rounds: Mutex<Vec<Round>>,
    notes: Mutex<Vec<Note>>,
    withdrawn: Mutex<usize>,
    seen: watch::Sender<u64>,
}

impl Caller {
    pub(crate) fn new(rule: impl Fn(&Ask) -> Says + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            rule: Box::new(rule),
            rounds: Mutex::default(),
            notes: Mutex::default(),
            withdrawn: Mutex::default(),
            seen: watch::Sender::new(0),
        })
    }

    /// One that accepts every form, says `ok` to every prompt and has one root.
    pub(crate) fn willing() -> Arc<Self> {
        Self::new(|question| {
            Says::Result(match question {
                Ask::Elicit { .. } => json!({"action": "accept", "content": {"a": 1}}),
                Ask::Sample { .. } => {
                    json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "ok"}})
                }
                Ask::Roots => json!({"roots": [{"uri": "file:///home"}]}),
            })
        })
    }

    /// The context of a call of this client.
    pub(crate) fn context(self: &Arc<Self>, version: Version, capabilities: Value) -> Context {
        let client = Arc::new(Client { capabilities: capabilities.into(), ..Client::bare(version) });
        Context {
            peer: Peer::new(Arc::clone(&client), Arc::clone(self) as Arc<dyn Link>),
            client,
            log_level: Some(Level::Debug),
            ..Context::for_test(Principal::local(), "s", None, None)
        }
    }

    /// What it was asked so far.
    pub(crate) fn rounds(&self) -> Vec<Round> {
        self.rounds.lock().unwrap().clone()
    }

    /// The methods it was asked for, round by round.
    pub(crate) fn asked(&self) -> Vec<Vec<&'static str>> {
        self.rounds().iter().map(|round| round.iter().map(|(_, method, _)| *method).collect()).collect()
    }

    /// What it was told so far.
    pub(crate) fn notes(&self) -> Vec<Note> {
        self.notes.lock().unwrap().clone()
    }

    /// How many rounds were withdrawn.
    pub(crate) fn withdrawn(&self) -> usize {
        *self.withdrawn.lock().unwrap()
    }

    /// Resolves when `test` holds.
    pub(crate) async fn until(&self, test: impl Fn(&Self) -> bool) {
        let mut seen = self.seen.subscribe();
        soon(async {
            while !test(self) {
                seen.changed().await.unwrap();
            }
        })
        .await;
    }

    fn happened(&self) {
        self.seen.send_modify(|count| *count += 1);
    }
}

struct Thinking<'a>(&'a Caller);

impl Drop for Thinking<'_> {
    fn drop(&mut self) {
        *self.0.withdrawn.lock().unwrap() += 1;
        self.0.happened();
    }
}

impl Link for Caller {
    fn notify(&self, note: Note) {
        self.notes.lock().unwrap().push(note);
        self.happened();
    }

    fn ask(&self, questions: Vec<(Box<str>, Ask)>) -> BoxFuture<'_, Answers> {
        Box::pin(async move {
            let of = |(key, ask): &(Box<str>, Ask)| (key.to_string(), ask.method(), value(&ask.params()));
            self.rounds.lock().unwrap().push(questions.iter().map(of).collect());
            self.happened();
            let mut answers = Vec::new();
            for (key, question) in questions {
                answers.push(match (self.rule)(&question) {
                    Says::Result(result) => (key, Answer::Result(result.into())),
                    Says::Refuse(code) => (key, Answer::Refused(RpcError::new(code, "no"))),
                    Says::Fail(kind) => return Err(CallError::client(kind, "the client is gone")),
                    Says::Nothing => {
                        let _thinking = Thinking(self);
                        std::future::pending().await
                    }
                });
            }
            Ok(answers)
        })
    }

    fn hang_up(&self) {}
}
