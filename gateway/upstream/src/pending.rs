//! Requests on a conversation that carries many at a time, and who waits for their answers.
//!
//! In: ids when requests are sent, and answers by id from whoever reads. Out: each answer to the one who waits for it,
//! or the reason why there will be none. Whoever stops waiting is forgotten at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use moongate_core::{hash, task::Signal};
use moongate_wire::Id;
use tokio::sync::oneshot;

use crate::transport::{Answer, Fault};

/// Everyone who waits on one conversation.
#[derive(Default)]
pub(crate) struct Pending {
    state: Mutex<State>,
    ended: Signal,
}

#[derive(Default)]
struct State {
    waiting: hash::Map<i64, oneshot::Sender<Result<Answer, Fault>>>,
    /// Why nobody is answered any more.
    end: Option<Fault>,
}

/// One who waits. Dropped, it does not any more.
pub(crate) struct Waiting {
    pending: Arc<Pending>,
    id: i64,
    answer: oneshot::Receiver<Result<Answer, Fault>>,
}

impl Pending {
    /// Begins to wait for the answer to the request `id`, which must not have been sent yet. After the end, nothing may
    /// be sent.
    pub(crate) fn wait(self: &Arc<Self>, id: i64) -> Result<Waiting, Fault> {
        let (sender, answer) = oneshot::channel();
        let mut state = self.state();
        if let Some(end) = &state.end {
            return Err(Fault::Unreached(end.to_string().into()));
        }
        state.waiting.insert(id, sender);
        Ok(Waiting { pending: Arc::clone(self), id, answer })
    }

    /// Hands an answer to the one who waits for it. False when nobody does.
    pub(crate) fn answer(&self, id: &Id, answer: Answer) -> bool {
        let Id::Integer(id) = id else { return false };
        let waiting = self.state().waiting.remove(id);
        waiting.is_some_and(|waiting| waiting.send(Ok(answer)).is_ok())
    }

    /// Tells everyone that there will be no answer. The first reason counts.
    pub(crate) fn end(&self, fault: Fault) {
        let mut state = self.state();
        let fault = state.end.get_or_insert(fault).clone();
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for (_, waiting) in waiting {
            // One who has just stopped waiting needs no reason.
            drop(waiting.send(Err(fault.clone())));
        }
        self.ended.give();
    }

    /// Resolves when nobody is answered any more, with the reason.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn ended(&self) -> Fault {
        self.ended.given().await;
        self.state().end.clone().unwrap_or_else(forgotten)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// The answer, or why there is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn answer(&mut self) -> Result<Answer, Fault> {
        (&mut self.answer).await.unwrap_or_else(|_| Err(forgotten()))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.pending.state().waiting.remove(&self.id);
    }
}

fn forgotten() -> Fault {
    Fault::Lost("the connection ended before the answer".into())
}

#[cfg(test)]
mod tests {
    use moongate_wire::Raw;

    use super::*;

    fn answer(text: &str) -> Answer {
        Answer { outcome: Ok(Raw::of(text)), status: None }
    }

    #[tokio::test]
    async fn answers_find_those_who_wait_whatever_their_order() {
        let pending = Arc::new(Pending::default());
        let (mut one, mut two) = (pending.wait(1).unwrap(), pending.wait(2).unwrap());
        assert!(pending.answer(&Id::from(2), answer("b")));
        assert!(pending.answer(&Id::from(1), answer("a")));
        assert!(!pending.answer(&Id::from(1), answer("again")));
        assert!(!pending.answer(&Id::from("1"), answer("another type")));
        assert_eq!(one.answer().await.unwrap().outcome, Ok(Raw::of("a")));
        assert_eq!(two.answer().await.unwrap().outcome, Ok(Raw::of("b")));
    }

    #[test]
    fn who_stops_waiting_is_forgotten() {
        let pending = Arc::new(Pending::default());
        drop(pending.wait(1).unwrap());
        assert!(!pending.answer(&Id::from(1), answer("a")));
        assert!(pending.state().waiting.is_empty());
    }

    #[tokio::test]
    async fn the_end_is_told_to_all_and_nothing_is_sent_after_it() {
        let pending = Arc::new(Pending::default());
        let mut waiting = pending.wait(1).unwrap();
        pending.end(Fault::Lost("over".into()));
        pending.end(Fault::Lost("too late".into()));
        assert_eq!(waiting.answer().await.unwrap_err(), Fault::Lost("over".into()));
        assert_eq!(pending.wait(2).err(), Some(Fault::Unreached("over".into())));
        assert_eq!(pending.ended().await, Fault::Lost("over".into()));
    }
}
