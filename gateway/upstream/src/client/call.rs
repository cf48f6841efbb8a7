//! One call at a server: what it reports goes to the client, what it asks comes back answered, and it runs once.
//!
//! A legacy server asks in the middle of its answer; a modern one answers with questions and is called again with the
//! answers and the state it gave. Either way the client is asked through the call's [`Peer`], whatever era it has.
//!
//! [`Peer`]: moongate_core::Peer

use std::time::Duration;

use futures_util::StreamExt as _;
use moongate_core::{Answer, Ask as Asked, CallError, Context, Kind, Raw, Reply, TASKS, call::Freshness};
use moongate_wire::{Era, Message, RpcError, edit, write};
use serde::Deserialize;
use serde_json::json;

use super::{
    asking::{Desk, fitted, report},
    connection::{Connection, Request},
    declared::{Declared, missing},
    envelope::{self, Params, Question, Shape},
    refusal::{Failure, URL_ELICITATION_REQUIRED, quoted},
    relay::made,
    task::{declaring, wants_task},
};
use crate::transport::{Event, Fault};

/// How often a server may ask before its call is given up.
const MAX_ROUNDS: usize = 10;
/// How long a round that asks nothing is waited for.
const NOTHING_ASKED: Duration = Duration::from_millis(250);

impl Connection {
    /// Makes a call for the client of `cx`.
    ///
    /// # Errors
    /// What the server, the way to it or the client said.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call at the server.
    pub(crate) async fn call(
        &self,
        upstream: &str,
        ask: &Request<'_>,
        cx: &Context,
    ) -> Result<Reply, Failure> {
        // Also between its requests, so that nobody closes the connection under it.
        let _under_way = self.hearing.begin();
        if self.version().era() == Era::Modern {
            return self.call_modern(upstream, ask, cx).await;
        }
        if ask.log_level.is_some() {
            Box::pin(self.log_at(ask.log_level)).await;
        }
        if ask.as_task {
            return Box::pin(self.legacy_task(upstream, ask, cx)).await;
        }
        for round in 0..MAX_ROUNDS {
            match self.call_legacy(upstream, ask, cx).await {
                // A legacy client of that version knows what to do; a modern one is asked first.
                Err(Failure::Rpc(error))
                    if error.code == URL_ELICITATION_REQUIRED
                        && cx.client.version.era() == Era::Modern
                        && may_ask(ask.method) =>
                {
                    Box::pin(visit(&error, cx)).await?;
                }
                outcome if round > 0 => return outcome.map(once).map_err(Failure::once_begun),
                outcome => return outcome,
            }
        }
        Err(Failure::invalid("it wanted addresses visited again and again"))
    }

    pub(super) async fn call_legacy(
        &self,
        upstream: &str,
        ask: &Request<'_>,
        cx: &Context,
    ) -> Result<Reply, Failure> {
        let id = self.mint();
        let attention = self.hearing.attend(id, cx);
        let mut exchange = self.exchange(id, ask, &ask.params);
        let mut desk = Desk::new(self, cx);
        let answer = loop {
            attention.messages.set_asking(desk.is_asking());
            tokio::select! {
                // What was said before the end is heard before the end.
                biased;
                message = attention.messages.next() => desk.take(upstream, message, false),
                event = exchange.next() => match event {
                    Some(Event::Message(message)) => desk.take(upstream, message, true),
                    Some(Event::HungUp) => cx.peer.hang_up(),
                    Some(Event::Answer(answer)) => {
                        // They may have come together, while nobody looked.
                        while let Some(message) = attention.messages.take() {
                            desk.take(upstream, message, false);
                        }
                        break answer;
                    }
                    Some(Event::Lost(fault)) => return Err(fault.into()),
                    None => return Err(Fault::Lost("the answer never came".into()).into()),
                },
                () = desk.work() => {}
            }
        };
        let failed = || {
            answer
                .outcome
                .as_ref()
                .map_or(true, |result| result.member("isError").is_some_and(|flag| flag.as_str() == "true"))
        };
        match desk.missing.take() {
            // The server was refused an answer and could not go on: that is what the client can do something about.
            Some(missing) if cx.client.version.era() == Era::Modern && failed() => Err(missing.into()),
            // By the next time the server is known to ask, and each caller has it for itself.
            _ if attention.messages.was_refused() && failed() => {
                let text = format!(
                    "The upstream {upstream} asked a question while calls of several clients were under way, and nobody \
                     could tell whose it was. From now on such calls are kept apart: try again"
                );
                Err(CallError::upstream(Kind::Unavailable, text).into())
            }
            _ if desk.asked > 0 => Ok(once(answer.outcome?.into())),
            _ => Ok(answer.outcome?.into()),
        }
    }

    async fn call_modern(&self, upstream: &str, ask: &Request<'_>, cx: &Context) -> Result<Reply, Failure> {
        let mut params = ask.params.clone();
        // The same for a server that insists on a task, which is then followed here.
        let mut driven: Option<Box<Request<'_>>> = None;
        for round in 0..=MAX_ROUNDS {
            let mut result = self.round(upstream, driven.as_deref().unwrap_or(ask), &params, cx).await;
            if driven.is_none() && result.as_ref().is_err_and(wants_task) && may_drive(cx) {
                let declaring = driven.insert(Box::new(declaring(ask)));
                result = self.round(upstream, declaring, &params, cx).await;
            }
            let result = match result {
                Err(failure) if round > 0 => return Err(failure.once_begun()),
                result => result?,
            };
            let (questions, state) = match envelope::read(&result, self.version()) {
                Shape::Complete(reply) if round > 0 => return Ok(once(reply)),
                Shape::Complete(reply) => return Ok(reply),
                Shape::Task(task) if driven.is_some() => return Box::pin(self.drive(&task, ask, cx)).await,
                Shape::Task(task) if ask.relays_tasks => return made(self, &task),
                Shape::Task(_) => return Err(Failure::unknown_result("task")),
                Shape::Unknown(what) => {
                    return of_extension(ask, &result).ok_or_else(|| Failure::unknown_result(&what));
                }
                Shape::InputRequired { questions, state } => (questions, state),
            };
            if !may_ask(ask.method) {
                return Err(Failure::invalid("it asked a question where none is allowed"));
            }
            if round == MAX_ROUNDS {
                break;
            }
            let mut added = Vec::new();
            if questions.is_empty() {
                Box::pin(tokio::time::sleep(NOTHING_ASKED)).await;
            } else {
                match Box::pin(self.answers(questions, ask, cx)).await? {
                    Answered::All(answers) => added.push(("inputResponses", answers)),
                    Answered::Refused(error) if ask.method == "tools/call" => {
                        let text =
                            format!("The client did not answer a question of the tool: {}", error.message);
                        return Ok(write::ToolResult::text(&text).finish(true).into());
                    }
                    Answered::Refused(error) => return Err(error.into()),
                }
            }
            added.extend(state.map(|state| ("requestState", state)));
            params = ask.params.with(&added);
        }
        Err(Failure::invalid("it asked again and again"))
    }

    /// One request of a modern call and its result.
    pub(super) async fn round(
        &self,
        upstream: &str,
        ask: &Request<'_>,
        params: &Params<'_>,
        cx: &Context,
    ) -> Result<Raw, Failure> {
        let id = self.mint();
        // Also here: on a pipe, logs come without a word about whose they are.
        let attention = self.hearing.attend(id, cx);
        let mut exchange = self.exchange(id, ask, params);
        loop {
            let message = tokio::select! {
                biased;
                message = attention.messages.next() => message,
                event = exchange.next() => match event {
                    Some(Event::Message(message)) => message,
                    Some(Event::HungUp) => continue,
                    Some(Event::Answer(answer)) => return Ok(answer.outcome?),
                    Some(Event::Lost(fault)) => return Err(fault.into()),
                    None => return Err(Fault::Lost("the answer never came".into()).into()),
                },
            };
            match message {
                Message::Notification(notification) => report(self, upstream, &notification, cx),
                Message::Request(_) => {
                    return Err(Failure::invalid(
                        "it sent a request, which its protocol version does not have",
                    ));
                }
                Message::Response(_) => {}
            }
        }
    }

    /// Asks the client what a modern server wants to know.
    pub(super) async fn answers(
        &self,
        questions: Vec<(String, Question)>,
        ask: &Request<'_>,
        cx: &Context,
    ) -> Result<Answered, Failure> {
        let able = Declared::of(&cx.client);
        // What it was told with this request, or for all who share it.
        let told = if ask.capabilities.is_some() { &able } else { &self.abilities };
        let mut asked = Vec::with_capacity(questions.len());
        let mut answers: Vec<(String, Raw)> = Vec::with_capacity(questions.len());
        for (key, question) in questions {
            let params = question.params.unwrap_or_else(Raw::empty_object);
            match question.method.as_str() {
                "elicitation/create" => asked.push((key, Asked::Elicit { params })),
                "sampling/createMessage" => asked.push((key, Asked::Sample { params })),
                "roots/list" => match self.hearing.roots(cx, told.roots) {
                    Some(roots) => answers.push((key, roots)),
                    None => asked.push((key, Asked::Roots)),
                },
                method => {
                    let what = quoted(method);
                    return Err(Failure::Invalid(
                        format!("it asked for {what}, which cannot be asked").into(),
                    ));
                }
            }
        }
        // Nobody can be shown such a form, which is as if nobody filled it in.
        asked.retain(|(key, question)| {
            let cancelled =
                matches!(question, Asked::Elicit { .. }) && (able.form || able.url) && !able.can(question);
            if cancelled {
                answers.push((key.clone(), Raw::of(&json!({"action": "cancel"}))));
            }
            !cancelled
        });
        if asked.iter().any(|(_, question)| able.can(question) && !told.can(question)) {
            return Err(Failure::invalid("it asked for what it was told that nobody can do"));
        }
        if !asked.is_empty() {
            let questions = asked.iter().map(|(key, question)| (key.as_str(), question.clone())).collect();
            let given = cx.peer.ask(questions).await?;
            for ((key, question), answer) in asked.into_iter().zip(given) {
                match (answer, &question) {
                    (Answer::Result(result), _) => {
                        if matches!(question, Asked::Roots) {
                            self.hearing.keep_roots(cx, &result);
                        }
                        answers.push((key, fitted(&question, result, self.version())));
                    }
                    // Only legacy clients can refuse; a modern server has no word for it but this one.
                    (Answer::Refused(_), Asked::Elicit { .. }) => {
                        answers.push((key, Raw::of(&json!({"action": "cancel"}))));
                    }
                    (Answer::Refused(error), _) => return Ok(Answered::Refused(error)),
                }
            }
        }
        Ok(Answered::All(write::object(answers.iter().map(|(key, answer)| (key.as_str(), answer)))))
    }
}

/// Whether the gateway runs a task for the client of `cx` where a server insists on one. A modern client that does not
/// know tasks is told what it lacks, as its protocol has it; one that does is not, although this server was not told.
fn may_drive(cx: &Context) -> bool {
    cx.client.version.era() == Era::Legacy || cx.client.has_extension(TASKS)
}

/// A result of a kind that none of the protocol's own is, where the client declared an extension that may define it.
fn of_extension(ask: &Request<'_>, result: &Raw) -> Option<Reply> {
    let kind = result.member("resultType").filter(|_| ask.extended)?;
    let own = ["complete", "input_required", "task"];
    kind.text().filter(|kind| !own.contains(&&**kind))?;
    let rest = edit::remove(result, |name, _| name == "resultType");
    Some(once(Reply { result_type: Some(kind), ..rest.into() }))
}

/// A reply that is not kept: what was answered on the way to it belongs to this call alone.
fn once(reply: Reply) -> Reply {
    Reply { freshness: Some(Freshness::NONE), ..reply }
}

/// Whether a modern server may answer this with a question.
fn may_ask(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

pub(super) enum Answered {
    All(Raw),
    Refused(RpcError),
}

/// Has the client's user visit the addresses that a server of 2025-11-25 wants visited before it is called again.
async fn visit(error: &RpcError, cx: &Context) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Required {
        elicitations: Vec<Raw>,
    }
    let required = error.data.as_ref().and_then(|data| data.parse::<Required>().ok());
    let Some(Required { elicitations }) = required.filter(|required| !required.elicitations.is_empty())
    else {
        return Err(Failure::invalid("it wanted addresses visited and named none"));
    };
    // What else could be meant; some leave the mode out, because the error says it.
    let by_url = |params: Raw| match params.member("mode") {
        Some(_) => Asked::Elicit { params },
        None => Asked::Elicit { params: write::with_members(&params, &[("mode", Raw::of("url"))]) },
    };
    let questions: Vec<_> = elicitations.into_iter().map(by_url).collect();
    let able = Declared::of(&cx.client);
    if let Some(question) = questions.iter().find(|question| !able.can(question)) {
        return Err(missing(question).into());
    }
    let keys: Vec<String> = (1..=questions.len()).map(|number| format!("visit_{number}")).collect();
    let questions = keys.iter().map(String::as_str).zip(questions).collect();
    for answer in cx.peer.ask(questions).await? {
        let Answer::Result(result) = answer else { continue };
        if result.member("action").is_none_or(|action| action.as_str() != r#""accept""#) {
            let text = "The address that the tool needs visited was not";
            return Err(CallError::client(Kind::Cancelled, text).into());
        }
    }
    Ok(())
}
