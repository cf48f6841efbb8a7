//! Questions of a legacy server on their way to the client of a call, and the answers on their way back.
//!
//! A legacy client is asked each question as it comes. A modern one is asked in rounds, so questions that come within a
//! moment, or while others are being answered, are put together. A question that is still open when its call ends is
//! refused, so that no server waits for ever.

use std::time::Duration;

use futures_util::{
    StreamExt as _,
    future::{AbortHandle, Abortable, BoxFuture, FutureExt as _},
    stream::FuturesUnordered,
};
use moongate_core::{Answer, Ask, CallError, Context, Kind, Raw};
use moongate_wire::{
    Era, Id, Message, Notification, Request, RpcError, Version, code,
    edit::{self, Edit},
    write::{self, NoId},
};
use serde_json::json;
use tokio::time::Instant;

use super::{
    connection::Connection,
    declared::{Declared, missing},
    naming::{self, take_name},
};

/// How long a first question waits for others to go with it in one round.
const TOGETHER: Duration = Duration::from_millis(20);

/// Questions of one call without an answer; further ones are refused.
const MAX_OPEN: usize = 32;

/// Where the questions of one call are dealt with.
pub(super) struct Desk<'a> {
    connection: &'a Connection,
    cx: &'a Context,
    /// Not asked yet.
    waiting: Vec<Question>,
    /// Since when the first of them waits.
    since: Instant,
    /// Being asked; each ends with the questions that were answered.
    open: FuturesUnordered<BoxFuture<'a, Vec<Id>>>,
    /// Questions that the server has no answer to.
    owed: Vec<Owed>,
    withdrawn: Vec<(Id, AbortHandle)>,
    /// A question that the client cannot be asked, if there was one.
    pub(super) missing: Option<CallError>,
    /// How many questions were put to the client.
    pub(super) asked: usize,
}

/// A question that can be put to the client.
struct Question {
    id: Id,
    /// What the server calls it.
    name: Option<Box<str>>,
    ask: Ask,
}

/// A question without an answer.
struct Owed {
    id: Id,
    /// The whole, if another call will do as well.
    for_anybody: Option<Request>,
}

impl<'a> Desk<'a> {
    pub(super) fn new(connection: &'a Connection, cx: &'a Context) -> Self {
        Self {
            connection,
            cx,
            waiting: Vec::new(),
            since: Instant::now(),
            open: FuturesUnordered::new(),
            owed: Vec::new(),
            withdrawn: Vec::new(),
            missing: None,
            asked: 0,
        }
    }

    /// Whether the client owes an answer.
    pub(super) fn is_asking(&self) -> bool {
        !self.waiting.is_empty() || !self.open.is_empty()
    }

    /// Takes what the server says during the call; `bound` if it said that it is about this one.
    pub(super) fn take(&mut self, upstream: &str, message: Message, bound: bool) {
        match message {
            Message::Request(request) => {
                let (id, roots) = (request.id.clone(), &*request.method == "roots/list");
                let for_anybody = (roots && !bound).then(|| request.clone());
                self.owed.push(Owed { id, for_anybody });
                self.question(request);
            }
            Message::Notification(notification) => {
                if &*notification.method == "notifications/cancelled" {
                    self.withdraw(&notification);
                } else {
                    report(self.connection, upstream, &notification, self.cx);
                }
            }
            Message::Response(_) => {}
        }
    }

    fn question(&mut self, request: Request) {
        let (name, params) = take_name(&request.params.raw().unwrap_or_else(Raw::empty_object));
        let question = match &*request.method {
            "elicitation/create" => Ask::Elicit { params },
            "sampling/createMessage" => Ask::Sample { params },
            "roots/list" => Ask::Roots,
            "ping" => return self.send(&request.id, write::result(&request.id, &Raw::empty_object())),
            method => {
                let error = RpcError::new(code::METHOD_NOT_FOUND, format!("Method not found: {method}"));
                return self.send(&request.id, write::error(Some(&request.id), NoId::Omit, &error));
            }
        };
        if self.owed.len() > MAX_OPEN {
            let error = RpcError::new(code::INTERNAL, "too many questions of this call have no answer yet");
            return self.send(&request.id, write::error(Some(&request.id), NoId::Omit, &error));
        }
        if matches!(question, Ask::Roots)
            && let Some(roots) = self.roots()
        {
            return self.send(&request.id, write::result(&request.id, &roots));
        }
        let able = Declared::of(&self.cx.client).can(&question);
        if !able || !self.connection.abilities.can(&question) {
            let missing = missing(&question);
            self.send(&request.id, refusal(&request.id, &question, &missing));
            // A client that can, but shares the server with others who are not asked, has nothing to change.
            if !able {
                self.missing.get_or_insert(missing);
            }
        } else if self.cx.client.version.era() == Era::Legacy {
            self.ask(vec![Question { id: request.id, name, ask: question }]);
        } else {
            if self.waiting.is_empty() {
                self.since = Instant::now();
            }
            self.waiting.push(Question { id: request.id, name, ask: question });
        }
    }

    /// The roots that the server asks for, where they are known. Either way it keeps to those of this client from now on.
    fn roots(&self) -> Option<Raw> {
        let Connection { hearing, abilities, .. } = self.connection;
        if abilities.roots {
            hearing.asks_for_roots();
        }
        hearing.roots(self.cx, abilities.roots)
    }

    /// Goes on with questions and answers; never resolves while there is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn work(&mut self) {
        if self.open.is_empty() && !self.waiting.is_empty() {
            tokio::time::sleep_until(self.since + TOGETHER).await;
            let questions = std::mem::take(&mut self.waiting);
            self.ask(questions);
        }
        match self.open.next().await {
            Some(answered) => {
                self.owed.retain(|owed| !answered.contains(&owed.id));
                self.withdrawn.retain(|(asked, _)| !answered.contains(asked));
            }
            None => std::future::pending().await,
        }
    }

    fn ask(&mut self, questions: Vec<Question>) {
        let (abort, registration) = AbortHandle::new_pair();
        if let [only] = questions.as_slice() {
            self.withdrawn.push((only.id.clone(), abort));
        }
        self.asked += questions.len();
        let first = self.asked - questions.len() + 1;
        let ids: Vec<Id> = questions.iter().map(|question| question.id.clone()).collect();
        let work = ask_all(self.connection, self.cx, questions, first);
        self.open.push(Abortable::new(work, registration).map(move |_| ids).boxed());
    }

    /// The server does not want to know any more.
    fn withdraw(&mut self, notification: &Notification) {
        let id = notification.params.raw().and_then(|params| params.member("requestId")?.parse::<Id>().ok());
        let Some(id) = id else { return };
        self.owed.retain(|owed| owed.id != id);
        self.waiting.retain(|waiting| waiting.id != id);
        for (_, abort) in self.withdrawn.iter().filter(|(asked, _)| *asked == id) {
            abort.abort();
        }
    }

    /// Answers the question `id` without asking anybody. The server may end the call before it has acknowledged that.
    fn send(&mut self, id: &Id, message: Raw) {
        self.connection.hearing.respond(message);
        self.owed.retain(|owed| owed.id != *id);
    }
}

impl Drop for Desk<'_> {
    fn drop(&mut self) {
        for owed in self.owed.drain(..) {
            let hearing = &self.connection.hearing;
            match owed.for_anybody {
                Some(request) => hearing.ask_later(request),
                None => hearing.refuse(&owed.id, "the call that it belongs to is over"),
            }
        }
    }
}

/// Asks the client and gives the server its answers.
async fn ask_all(connection: &Connection, cx: &Context, questions: Vec<Question>, first: usize) {
    let keys = naming::keys(questions.iter().map(|question| question.name.as_deref()), first);
    let keyed = keys.iter().zip(&questions).map(|(key, question)| (key.as_str(), question.ask.clone()));
    let answers = cx.peer.ask(keyed.collect()).await;
    match answers {
        Ok(answers) => {
            for (Question { id, ask, .. }, answer) in questions.iter().zip(answers) {
                let message = match answer {
                    Answer::Result(result) => {
                        if matches!(ask, Ask::Roots) {
                            connection.hearing.keep_roots(cx, &result);
                        }
                        write::result(id, &fitted(ask, result, connection.version()))
                    }
                    Answer::Refused(error) => write::error(Some(id), NoId::Omit, &error),
                };
                connection.hearing.respond(message);
            }
        }
        Err(error) => {
            for Question { id, ask, .. } in &questions {
                connection.hearing.respond(refusal(id, ask, &error));
            }
        }
    }
}

/// What the server is told when its question was not answered.
fn refusal(id: &Id, question: &Ask, why: &CallError) -> Raw {
    let error = |code: i64| RpcError::new(code, why.public.clone());
    let error = match (&why.kind, question) {
        // A form that nobody filled in, as far as the server can tell.
        (Kind::Timeout | Kind::Cancelled, Ask::Elicit { .. }) => {
            return write::result(id, &Raw::of(&json!({"action": "cancel"})));
        }
        (Kind::MissingCapability { .. }, Ask::Elicit { params }) if params.member("mode").is_some() => {
            error(code::INVALID_PARAMS)
        }
        (Kind::MissingCapability { .. }, _) => error(code::METHOD_NOT_FOUND),
        // What servers know as the word of a user who said no.
        (_, Ask::Sample { .. }) => error(-1),
        _ => error(code::INTERNAL),
    };
    write::error(Some(id), NoId::Omit, &error)
}

/// A client's answer as a server of `version` can read it.
pub(super) fn fitted(question: &Ask, answer: Raw, version: Version) -> Raw {
    if !matches!(question, Ask::Sample { .. }) || version >= Version::V2025_11_25 {
        return answer;
    }
    edit::members(&answer, |name, value| match name {
        // Until 2025-06-18 a message had one block.
        "content" => match value.parse::<Vec<Raw>>() {
            Ok(blocks) => Edit::Replace(one_block(blocks)),
            Err(_) => Edit::Keep,
        },
        _ => Edit::Keep,
    })
}

/// The text of all blocks if they are texts, else the first block.
fn one_block(blocks: Vec<Raw>) -> Raw {
    let text = |block: &Raw| block.member("text")?.parse::<String>().ok();
    let texts: Option<Vec<String>> = blocks.iter().map(text).collect();
    match texts {
        Some(texts) if blocks.len() != 1 => Raw::of(&json!({"type": "text", "text": texts.join("\n")})),
        _ => blocks.into_iter().next().unwrap_or_else(Raw::empty_object),
    }
}

/// Passes on what a server reports of a call.
pub(super) fn report(connection: &Connection, upstream: &str, notification: &Notification, cx: &Context) {
    #[derive(serde::Deserialize)]
    struct Reported {
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    }
    #[derive(serde::Deserialize)]
    struct Log {
        level: moongate_core::Level,
        logger: Option<String>,
        data: Option<Raw>,
    }
    let params = notification.params.raw().unwrap_or_else(Raw::empty_object);
    match &*notification.method {
        "notifications/progress" => {
            if let Ok(note) = params.parse::<Reported>() {
                cx.peer.progress(note.progress, note.total, note.message.as_deref());
            }
        }
        "notifications/message" => {
            if let Ok(note) = params.parse::<Log>() {
                let logger =
                    note.logger.map_or_else(|| upstream.to_owned(), |name| format!("{upstream}/{name}"));
                cx.peer.log(note.level, Some(&logger), note.data.unwrap_or_else(Raw::null));
            }
        }
        _ => connection.hearing.changed(notification),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn an_unanswered_question_is_told_as_its_kind_expects() {
        let form = Ask::form("?", &Raw::empty_object());
        let url = Ask::Elicit { params: Raw::of(&json!({"mode": "url"})) };
        let sample = Ask::Sample { params: Raw::empty_object() };
        let late = || CallError::client(Kind::Timeout, "late");
        let missing = || CallError::missing_capability("x");
        for (question, why, code) in [
            (&form, missing(), -32601),
            (&url, missing(), -32602),
            (&sample, late(), -1),
            (&Ask::Roots, late(), -32603),
            (&sample, missing(), -32601),
        ] {
            let message: Value = refusal(&Id::from(1), question, &why).parse().unwrap();
            assert_eq!(message["error"]["code"], code, "{} {why}", question.method());
        }
        let cancelled: Value = refusal(&Id::from(1), &form, &late()).parse().unwrap();
        assert_eq!(cancelled["result"], json!({"action": "cancel"}));
    }

    #[test]
    fn an_answer_of_several_blocks_becomes_one_for_a_server_that_knows_one() {
        let sample = Ask::Sample { params: Raw::empty_object() };
        let text = |text: &str| json!({"type": "text", "text": text});
        let image = json!({"type": "image", "data": "", "mimeType": "image/png"});
        for (content, old) in [
            (text("a"), text("a")),
            (json!([text("a")]), text("a")),
            (json!([text("a"), text("b")]), text("a\nb")),
            (json!([image.clone(), text("b")]), image),
        ] {
            let answer = Raw::of(&json!({"role": "assistant", "content": content}));
            let fit = |version| fitted(&sample, answer.clone(), version).parse::<Value>().unwrap();
            assert_eq!(fit(Version::V2025_06_18)["content"], old);
            assert_eq!(fit(Version::V2025_11_25)["content"], content);
        }
    }
}
