//! One call from its first request to its last: progress on the way, and questions answered on the terminal.

use std::{
    io::{self, Write as _},
    sync::Arc,
};

use moongate_wire::{Raw, RpcError, code, write};
use serde_json::{Map, json};
use tokio::{
    io::{BufReader, Stdin},
    signal::ctrl_c,
};

use super::form::Form;
use crate::client::{Ask, Client, Failed, Progress};

/// Rounds of questions before it is given up; real tools ask once or twice.
const MAX_ROUNDS: usize = 32;

/// A call to be made.
pub(super) struct Calling<'a> {
    pub(super) client: &'a Client,
    pub(super) name: Arc<str>,
    pub(super) arguments: Raw,
    /// What HTTP repeats of the arguments.
    pub(super) repeated: Vec<(Arc<str>, String)>,
}

type Terminal = Form<BufReader<Stdin>, io::Stderr>;

impl Calling<'_> {
    /// The result, after all questions.
    pub(super) async fn run(self) -> Result<Raw, Failed> {
        let mut form: Option<Terminal> = None;
        let mut answers = Vec::new();
        for _ in 0..MAX_ROUNDS {
            let result = tokio::select! {
                result = self.once(&answers) => result?,
                // Dropping the request cancels it.
                _ = ctrl_c() => return Err(cancelled()),
            };
            if !result.member("resultType").is_some_and(|kind| kind.is_text("input_required")) {
                return Ok(result);
            }
            let form =
                form.get_or_insert_with(|| Form::new(BufReader::new(tokio::io::stdin()), io::stderr()));
            answers = answer(form, &result).await;
        }
        Err(Failed::Strange("it asks without end"))
    }

    async fn once(&self, answers: &[(&'static str, Raw)]) -> Result<Raw, Failed> {
        let name = Raw::of(&*self.name);
        let mut members = vec![("name", &name), ("arguments", &self.arguments)];
        members.extend(answers.iter().map(|(key, answer)| (*key, answer)));
        let ask = Ask {
            method: "tools/call",
            params: write::object(members),
            name: Some(Arc::clone(&self.name)),
            repeated: self.repeated.clone(),
        };
        self.client.request(ask, &mut |progress| tell(&progress)).await
    }
}

/// Asks what the result wants to know.
async fn answer(form: &mut Terminal, result: &Raw) -> Vec<(&'static str, Raw)> {
    let mut responses = Map::new();
    for (key, question) in result.member("inputRequests").map(|all| all.members()).unwrap_or_default() {
        let params = question.member("params").unwrap_or_else(Raw::empty_object);
        let response = tokio::select! {
            response = form.ask(&params) => response,
            _ = ctrl_c() => {
                form.end_line();
                json!({"action": "cancel"})
            }
        };
        responses.insert(key, response);
    }
    let mut answers = vec![("inputResponses", Raw::of(&responses))];
    answers.extend(result.member("requestState").map(|state| ("requestState", state)));
    answers
}

fn tell(progress: &Progress) {
    let Progress { done, total, message } = progress;
    let total = total.map(|total| format!("/{total}")).unwrap_or_default();
    let message = message.as_ref().map(|message| format!(" {message}")).unwrap_or_default();
    let _written = writeln!(anstream::stderr(), "… {done}{total}{message}").is_ok();
}

fn cancelled() -> Failed {
    Failed::Refused(RpcError::new(code::INTERNAL, "cancelled"))
}
