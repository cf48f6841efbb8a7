//! Calls of modern clients that wait for answers between two requests.
//!
//! A modern server cannot ask; it answers `input_required` and the client calls again. The call itself is not run again:
//! it stays here, exactly as it stopped, behind a sealed `requestState` that is bound to the principal, to what was
//! called and to one round. Only a retry of its own caller or its expiry takes it out.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moongate_core::{
    Answer, Ask, BoxFuture, CallError, Clock, Kind, Note, Principal,
    peer::{Answers, Link},
    task::Group,
};
use moongate_security::keyring::{Keyring, Purpose};
use moongate_wire::{Id, Raw, RpcError, Version, code, write};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    downgrade::question,
    fingerprint::Fingerprint,
    job::{Job, Outbox, Questions, Step},
    tally::{AGAIN, Counted, Tally},
};

/// How long a parked call waits for its client.
pub const TTL: Duration = Duration::from_mins(10);

/// The parked calls of this process.
pub struct Parked {
    instance: Arc<str>,
    keyring: Arc<Keyring>,
    clock: Clock,
    tasks: Group,
    tally: Tally,
    calls: Arc<Mutex<HashMap<u64, Entry>>>,
    next: AtomicU64,
}

struct Entry {
    questions: Questions,
    round: u32,
    counted: Counted,
    /// Asks the task that keeps the call to give it back. Dropped with the entry, which ends task and call.
    recall: oneshot::Sender<oneshot::Sender<Job>>,
}

/// What a `requestState` says once opened.
#[derive(Serialize, Deserialize)]
struct Ticket {
    instance: String,
    call: u64,
    round: u32,
    digest: String,
    expires: u64,
}

/// What became of a retry.
#[derive(Debug)]
pub enum Resumed {
    /// All questions are answered: drive the call on.
    Go(Job),
    /// Some are not: the result that asks for them again.
    Again(Raw),
}

impl Parked {
    /// No parked calls yet.
    pub fn new(instance: Arc<str>, keyring: Arc<Keyring>, clock: Clock, tasks: Group) -> Self {
        let (tally, calls) = (Tally::default(), Arc::default());
        Self { instance, keyring, clock, tasks, tally, calls, next: AtomicU64::new(1) }
    }

    /// How many calls are parked.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Parks a call and gives the `input_required` result that asks its questions.
    ///
    /// # Errors
    /// `Limited` when the principal has `limit` parked calls already; the call is dropped then.
    pub fn park(
        &self,
        job: Job,
        questions: Questions,
        principal: &Principal,
        fingerprint: &Fingerprint,
        limit: usize,
    ) -> Result<Raw, CallError> {
        let Some(counted) = self.tally.count(principal, limit) else {
            let message =
                format!("Too many calls wait for answers: at most {limit} may; answer or let some expire");
            return Err(CallError::limited(AGAIN, message));
        };
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(self.store(call, 1, job, questions, counted, principal, fingerprint))
    }

    /// Takes up the call that `state` names, with the answers of a retry.
    ///
    /// # Errors
    /// -32602 when the state is not good for this caller, this call or any more. The parked call stays as it is.
    ///
    /// # Cancel safety
    /// Dropping the future after the state was accepted cancels the call, as closing the retry's connection does.
    pub async fn resume(
        &self,
        state: &Raw,
        responses: Option<&Raw>,
        principal: &Principal,
        fingerprint: &Fingerprint,
        id: Id,
    ) -> Result<Resumed, RpcError> {
        let ticket = self.open(state, principal)?;
        if ticket.digest != fingerprint.to_string() {
            return Err(refused(
                "the retry differs from the call that asked: repeat method, name, arguments and the extension for tasks unchanged",
            ));
        }
        if ticket.instance != *self.instance {
            return Err(refused(
                "the call it belongs to is gone, because the gateway was restarted; call again without it",
            ));
        }
        if ticket.expires <= self.clock.millis() {
            return Err(refused("it has expired; call again without it"));
        }
        let (mut questions, round, counted, mut job) = self.take(&ticket).await?;
        job.id = id;
        let mut responses = responses.map(Raw::members).unwrap_or_default();
        let (answered, open) = take_answers(std::mem::take(&mut questions.open), &mut responses);
        questions.answered.extend(answered);
        questions.open = open;
        if questions.open.is_empty() {
            // What this request answers beyond the question may be asked for next.
            job.outbox().bring(responses);
            // The call may have ended by itself meanwhile; driving it on then yields its outcome.
            drop(questions.reply.send(questions.answered));
            return Ok(Resumed::Go(job));
        }
        Ok(Resumed::Again(self.store(
            ticket.call,
            round + 1,
            job,
            questions,
            counted,
            principal,
            fingerprint,
        )))
    }

    /// Takes a call out of the table and back from the task that keeps it. Whoever comes second finds nothing.
    async fn take(&self, ticket: &Ticket) -> Result<(Questions, u32, Counted, Job), RpcError> {
        let entry = {
            let mut calls = self.lock();
            match calls.get(&ticket.call) {
                Some(entry) if entry.round == ticket.round => calls.remove(&ticket.call),
                _ => None,
            }
        };
        let spent = || refused("it was already answered; each one is good for one retry");
        let Entry { questions, round, counted, recall } = entry.ok_or_else(spent)?;
        let (back, job) = oneshot::channel();
        // Either fails only when the task is gone, and it goes only with the call.
        drop(recall.send(back));
        let job = job.await.map_err(|_| refused("the call it belongs to is gone; call again without it"))?;
        Ok((questions, round, counted, job))
    }

    #[expect(clippy::too_many_arguments, reason = "a private constructor of one entry from its parts")]
    fn store(
        &self,
        call: u64,
        round: u32,
        job: Job,
        questions: Questions,
        counted: Counted,
        principal: &Principal,
        fingerprint: &Fingerprint,
    ) -> Raw {
        let ticket = Ticket {
            instance: self.instance.to_string(),
            call,
            round,
            digest: fingerprint.to_string(),
            expires: self.clock.millis() + u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX),
        };
        let plain = serde_json::to_vec(&ticket).expect("a ticket is plain data");
        let state = Raw::of(&self.keyring.seal(Purpose::ParkedState, principal.as_str().as_bytes(), &plain));
        let result = input_required(&questions.open, &state);
        let (recall, recalled) = oneshot::channel();
        self.lock().insert(call, Entry { questions, round, counted, recall });
        let calls = Arc::clone(&self.calls);
        self.tasks.spawn(async move {
            if tokio::time::timeout(TTL, keep(job, recalled)).await.is_err() {
                // Taken out only if it is still this round's: a retry in the last moment has its own.
                let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
                if calls.get(&call).is_some_and(|entry| entry.round == round) {
                    calls.remove(&call);
                    tracing::info!(call, "parked call expired");
                }
            }
        });
        result
    }

    fn open(&self, state: &Raw, principal: &Principal) -> Result<Ticket, RpcError> {
        let invalid = || refused("it is not one this gateway gave to this caller");
        let text: String = state.parse().map_err(|_| refused("it must be the string that was given"))?;
        let plain = self.keyring.open(Purpose::ParkedState, principal.as_str().as_bytes(), &text);
        serde_json::from_slice(&plain.map_err(|_| invalid())?).map_err(|_| invalid())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Parked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Parked({})", self.len())
    }
}

fn refused(why: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("Invalid params: requestState: {why}"))
}

/// Keeps a call going while its client is away, until it is recalled. Nobody hears what it says meanwhile, but what it
/// asks and how it ends is kept for the one who comes back.
async fn keep(mut job: Job, mut recalled: oneshot::Receiver<oneshot::Sender<Job>>) {
    let (mut asked, mut ended) = (Vec::new(), None);
    let recall = loop {
        tokio::select! {
            recall = &mut recalled => break recall,
            step = job.step(), if ended.is_none() => match step {
                Step::Done(outcome) => ended = Some(outcome),
                Step::Ask(questions) => asked.push(questions),
                Step::Cancelled => return,
                Step::Message(_) | Step::HangUp => {}
            },
        }
    };
    // The entry was dropped: nobody will come back.
    let Ok(back) = recall else { return };
    for questions in asked {
        job.outbox().ask(questions);
    }
    if let Some(outcome) = ended {
        job.hold(outcome);
    }
    drop(back.send(job));
}

type Keyed<T> = Vec<(Box<str>, T)>;

fn take_answers(questions: Keyed<Ask>, responses: &mut Vec<(String, Raw)>) -> (Keyed<Answer>, Keyed<Ask>) {
    let (mut answered, mut open) = (Vec::new(), Vec::new());
    for (key, question) in questions {
        match responses.iter().position(|(name, answer)| **name == *key && question.accepts(answer)) {
            Some(at) => answered.push((key, Answer::Result(responses.swap_remove(at).1))),
            None => open.push((key, question)),
        }
    }
    (answered, open)
}

fn input_required(open: &[(Box<str>, Ask)], state: &Raw) -> Raw {
    let entries: Vec<(&str, Raw)> = open
        .iter()
        .map(|(key, question)| {
            let (method, params) = (Raw::of(question.method()), question.params());
            (&**key, write::object([("method", &method), ("params", &params)]))
        })
        .collect();
    let requests = write::object(entries.iter().map(|(key, request)| (*key, request)));
    let kind = Raw::of("input_required");
    write::object([("resultType", &kind), ("inputRequests", &requests), ("requestState", state)])
}

/// The link of a modern call: what the present request's `inputResponses` answers is used at once, the rest is asked by
/// parking.
#[derive(Debug)]
pub struct RoundsLink {
    /// The call's way out.
    pub outbox: Arc<Outbox>,
    /// What the client speaks.
    pub version: Version,
}

impl Link for RoundsLink {
    fn notify(&self, note: Note) {
        self.outbox.note(&note);
    }

    fn ask(&self, questions: Vec<(Box<str>, Ask)>) -> BoxFuture<'_, Answers> {
        Box::pin(async move {
            let (mut unasked, mut sayable) = (Vec::new(), Vec::new());
            for (key, question) in questions {
                match question::shape(question, self.version) {
                    Ok(question) => sayable.push((key, question)),
                    Err(answer) => unasked.push((key, answer)),
                }
            }
            let (mut answered, open) = self.outbox.answers(|responses| take_answers(sayable, responses));
            answered.extend(unasked);
            if open.is_empty() {
                return Ok(answered);
            }
            let _wait = self.outbox.waiting_for_client();
            let (reply, answers) = oneshot::channel();
            self.outbox.ask(Questions { open, answered, reply });
            answers.await.map_err(|_| {
                CallError::client(Kind::Cancelled, "The client did not come back with an answer")
            })
        })
    }

    /// A modern client has no way to come back to a connection.
    fn hang_up(&self) {}
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use moongate_security::Secret;

    use super::*;

    fn parked(clock: Clock) -> Parked {
        let keyring = Keyring::fixed(&Secret::random()).unwrap();
        Parked::new("i1".into(), Arc::new(keyring), clock, Group::new())
    }

    fn fingerprint() -> Fingerprint {
        Fingerprint::of("/mcp", "tools/call", "t", &Raw::empty_object())
    }

    /// A call that has just asked for a name.
    async fn asking() -> (Job, Questions) {
        let outbox = Arc::new(Outbox::default());
        let link = RoundsLink { outbox: Arc::clone(&outbox), version: Version::V2026_07_28 };
        let call = Box::pin(async move {
            link.ask(vec![("name".into(), Ask::form("?", &Raw::empty_object()))]).await?;
            Ok(Raw::empty_object().into())
        });
        let mut job = Job::new(Id::from(1), outbox, call);
        match job.step().await {
            Step::Ask(questions) => (job, questions),
            other => panic!("{other:?}"),
        }
    }

    /// Parks a call and gives its state.
    async fn park(parked: &Parked, limit: usize) -> Result<Raw, CallError> {
        let (job, questions) = asking().await;
        let asked = parked.park(job, questions, &Principal::local(), &fingerprint(), limit)?;
        Ok(asked.member("requestState").unwrap())
    }

    async fn answer(parked: &Parked, state: &Raw) -> Result<Resumed, RpcError> {
        let answers = Raw::of(&serde_json::json!({"name": {"action": "accept"}}));
        parked.resume(state, Some(&answers), &Principal::local(), &fingerprint(), Id::from(2)).await
    }

    #[tokio::test]
    async fn a_state_is_good_until_its_time_is_up() {
        let (clock, time) = Clock::settable(SystemTime::now());
        let parked = parked(clock);
        let (early, late) = (park(&parked, 9).await.unwrap(), park(&parked, 9).await.unwrap());
        time.advance(TTL.saturating_sub(Duration::from_millis(1)));
        assert!(matches!(answer(&parked, &early).await, Ok(Resumed::Go(_))));
        time.advance(Duration::from_millis(1));
        let error = answer(&parked, &late).await.unwrap_err();
        assert_eq!((error.code, error.message.contains("expired")), (code::INVALID_PARAMS, true), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_nobody_comes_back_for_is_dropped_and_makes_room() {
        let parked = parked(Clock::system());
        let state = park(&parked, 1).await.unwrap();
        assert!(park(&parked, 1).await.is_err(), "there is room for one");
        tokio::time::sleep(TTL.saturating_sub(Duration::from_secs(1))).await;
        assert_eq!(parked.len(), 1);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(parked.is_empty());
        assert!(answer(&parked, &state).await.is_err());
        assert!(park(&parked, 1).await.is_ok());
    }

    #[test]
    fn answers_need_the_right_key_and_shape() {
        let form = || Ask::form("?", &Raw::empty_object());
        let questions = vec![("name".into(), form()), ("roots".into(), Ask::Roots)];
        for (responses, open) in [
            (serde_json::json!({"name": {"action": "accept"}, "roots": {"roots": []}}), 0),
            (serde_json::json!({"name": {"action": "accept"}, "extra": {"roots": []}}), 1),
            (serde_json::json!({"name": 5, "roots": null}), 2),
            (serde_json::json!({"name": {"action": "maybe"}, "roots": {"roots": 1}}), 2),
        ] {
            let (_, left) = take_answers(questions.clone(), &mut Raw::of(&responses).members());
            assert_eq!(left.len(), open, "{responses}");
        }
    }
}
