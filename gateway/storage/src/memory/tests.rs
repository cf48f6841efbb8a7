//! The in-memory state through its trait, on a paused clock.

use std::{
    collections::BTreeMap,
    future::Future,
    num::NonZeroU32,
    pin::pin,
    task::{Context as Poller, Waker},
};

use moongate_core::{Announcement, Audience, Context, Principal, Raw, StateKey, Version, task::Group};
use serde::Serialize;
use tokio::{sync::mpsc::Receiver, time::advance};

use super::*;
use crate::{Plain, Quota};

#[derive(Clone, Debug, Default, Serialize)]
struct Value(u32);

impl Plain for Value {
    fn weight(&self) -> usize {
        4
    }
}

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

fn state(options: MemoryOptions) -> (Arc<MemoryState>, Receiver<(To, Note)>) {
    let state = MemoryState::new(options);
    let inbox = state.inbox().unwrap();
    (Arc::new(state), inbox)
}

fn changed(change: moongate_core::Change) -> Note {
    Note::Changed(Announcement { change, audience: Audience::Everybody })
}

fn record(path: &str) -> SessionRecord {
    SessionRecord {
        layout: SessionRecord::LAYOUT,
        principal: "local".into(),
        path: path.into(),
        version: Version::V2025_11_25,
        capabilities: Raw::empty_object(),
        info: None,
        log_level: None,
        subscriptions: BTreeMap::new(),
    }
}

fn rate(count: u32, cost: u32) -> Rate {
    let quota = Quota { count: NonZeroU32::new(count).unwrap(), per: MINUTE };
    Rate { key: 1, quota, cost: NonZeroU32::new(cost).unwrap() }
}

fn owner(session: &str, assistant: Option<&str>) -> StateKey {
    Context::for_test(Principal::local(), session, assistant, None).state_key()
}

fn key(session: &str, kind: &'static str) -> DocumentKey {
    DocumentKey { owner: owner(session, None), kind }
}

async fn write(state: &MemoryState, key: &DocumentKey, value: u32) {
    let revision = state.document(key).await.unwrap().map_or(0, |found| found.revision);
    assert!(state.swap(key, revision, Arc::new(Value(value))).await.unwrap());
}

async fn is_there(state: &MemoryState, key: &DocumentKey) -> bool {
    state.document(key).await.unwrap().is_some()
}

async fn welcome(state: &MemoryState, id: &str) -> bool {
    matches!(state.enter(Some(id), &[]).await.unwrap(), Entry::Welcome(Some(_)))
}

/// The ids of the sessions announced so far.
fn ended(inbox: &mut Receiver<(To, Note)>) -> Vec<String> {
    let mut ids = Vec::new();
    while let Ok((to, note)) = inbox.try_recv() {
        let Note::SessionEnded { id, .. } = note else { panic!("{note:?}") };
        assert_eq!(to, To::Session(Arc::clone(&id)));
        ids.push(id.to_string());
    }
    ids.sort_unstable();
    ids
}

fn is_pending(future: impl Future) -> bool {
    pin!(future).poll(&mut Poller::from_waker(Waker::noop())).is_pending()
}

#[tokio::test(start_paused = true)]
async fn a_session_is_found_until_it_is_idle_for_longer_than_its_time() {
    let (state, mut inbox) = state(MemoryOptions { session_ttl: 30 * MINUTE, ..MemoryOptions::default() });
    state.put("a", record("/mcp")).await.unwrap();
    state.put("b", record("/mcp")).await.unwrap();
    advance(30 * MINUTE).await;
    assert!(welcome(&state, "a").await, "not longer, just as long");
    state.sweep().await.unwrap();
    assert!(ended(&mut inbox).is_empty());

    advance(Duration::from_nanos(1)).await;
    assert!(!welcome(&state, "b").await, "expired, though not yet swept");
    assert!(ended(&mut inbox).is_empty(), "announcing it is left to the sweep");
    state.sweep().await.unwrap();
    state.sweep().await.unwrap();
    assert_eq!(ended(&mut inbox), ["b"]);
    assert!(welcome(&state, "a").await);
    assert_eq!(state.sessions().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_touched_session_does_not_expire() {
    let (state, mut inbox) = state(MemoryOptions::default());
    state.put("open-stream", record("/mcp")).await.unwrap();
    state.put("idle", record("/mcp")).await.unwrap();
    for _ in 0..10 {
        advance(20 * MINUTE).await;
        state.touch(&["open-stream".into(), "unknown".into()]).await.unwrap();
        state.sweep().await.unwrap();
    }
    assert_eq!(ended(&mut inbox), ["idle"]);
    assert!(welcome(&state, "open-stream").await);
}

#[tokio::test]
async fn an_ended_session_is_announced_with_its_record_and_stays_ended() {
    let (state, mut inbox) = state(MemoryOptions::default());
    state.put("a", record("/mcp/review")).await.unwrap();
    assert!(state.end("a").await.unwrap());
    assert!(!state.end("a").await.unwrap());
    assert!(!state.end("unknown").await.unwrap());
    let (_, note) = inbox.try_recv().unwrap();
    assert_eq!(note, Note::SessionEnded { id: "a".into(), record: Arc::new(record("/mcp/review")) });
    assert!(inbox.try_recv().is_err());

    let late = state.put("a", record("/mcp/review")).await;
    assert!(matches!(late, Err(Error::NoSession)), "a change that was on its way does not bring it back");
    assert!(!welcome(&state, "a").await);
}

#[tokio::test(start_paused = true)]
async fn ended_sessions_leave_nothing_behind() {
    let (state, mut inbox) = state(MemoryOptions::default());
    for n in 0..1000 {
        state.put(&n.to_string(), record("/mcp")).await.unwrap();
        assert!(state.end(&n.to_string()).await.unwrap());
    }
    assert_eq!(ended(&mut inbox).len(), 1000);
    advance(2 * MINUTE).await;
    state.sweep().await.unwrap();
    assert_eq!(state.sessions().await.unwrap(), 0);
    state.put("5", record("/mcp")).await.expect("not remembered any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_ends_and_sweeps_announce_each_session_once() {
    let options = MemoryOptions { session_ttl: Duration::ZERO, ..MemoryOptions::default() };
    let (state, mut inbox) = state(options);
    for n in 0..500 {
        state.put(&format!("{n:03}"), record("/mcp")).await.unwrap();
    }
    let group = Group::new();
    let (done, mut finished) = tokio::sync::mpsc::channel::<()>(1);
    for task in 0..8 {
        let (state, done) = (Arc::clone(&state), done.clone());
        group.spawn(async move {
            for n in 0..500 {
                if task % 2 == 0 {
                    state.end(&format!("{n:03}")).await.unwrap();
                } else if n % 50 == 0 {
                    state.sweep().await.unwrap();
                }
            }
            drop(done);
        });
    }
    drop(done);
    assert_eq!(finished.recv().await, None);
    assert_eq!(ended(&mut inbox), (0..500).map(|n| format!("{n:03}")).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_full_inbox_delays_and_loses_nothing() {
    let (state, mut inbox) = state(MemoryOptions::default());
    for _ in 0..INBOX {
        state.send(To::All, changed(moongate_core::Change::Tools)).await.unwrap();
    }
    state.put("a", record("/mcp")).await.unwrap();
    state.put("b", record("/mcp")).await.unwrap();
    assert!(is_pending(state.end("a")));
    assert!(welcome(&state, "a").await, "the dropped end has not happened");
    advance(HOUR).await;
    state.touch(&["b".into()]).await.unwrap();
    assert!(is_pending(state.sweep()));
    assert_eq!(state.sessions().await.unwrap(), 2);

    for _ in 0..INBOX {
        inbox.recv().await.unwrap();
    }
    state.sweep().await.unwrap();
    assert_eq!(ended(&mut inbox), ["a"]);
    drop(inbox);
    assert!(state.end("b").await.unwrap(), "nobody listens, it ends all the same");
    assert!(matches!(state.send(To::All, changed(moongate_core::Change::Tools)).await, Err(Error::Closed)));
}

#[tokio::test]
async fn the_inbox_is_taken_once() {
    let (state, mut inbox) = state(MemoryOptions::default());
    assert!(state.inbox().is_none());
    let note = changed(moongate_core::Change::Prompts);
    state.send(To::All, note.clone()).await.unwrap();
    assert_eq!(inbox.recv().await, Some((To::All, note)));
}

#[tokio::test(start_paused = true)]
async fn rates_are_counted_before_the_session_is_looked_at() {
    let (state, _inbox) = state(MemoryOptions::default());
    state.put("a", record("/mcp")).await.unwrap();
    assert!(matches!(state.enter(Some("unknown"), &[rate(2, 1)]).await.unwrap(), Entry::NoSession));
    assert!(matches!(state.enter(Some("a"), &[rate(2, 1)]).await.unwrap(), Entry::Welcome(Some(_))));
    advance(10 * Duration::from_secs(1)).await;
    let limited = state.enter(Some("a"), &[rate(2, 1)]).await.unwrap();
    assert!(
        matches!(limited, Entry::Limited { retry_after } if retry_after == Duration::from_secs(20)),
        "{limited:?}"
    );
    assert!(matches!(state.enter(None, &[]).await.unwrap(), Entry::Welcome(None)));
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_does_not_keep_its_session_alive() {
    let (state, _inbox) = state(MemoryOptions { session_ttl: MINUTE, ..MemoryOptions::default() });
    state.put("a", record("/mcp")).await.unwrap();
    advance(MINUTE).await;
    assert!(matches!(state.enter(Some("a"), &[rate(1, 2)]).await.unwrap(), Entry::Limited { .. }));
    advance(Duration::from_secs(1)).await;
    assert!(!welcome(&state, "a").await);
}

#[tokio::test]
async fn a_changed_record_keeps_its_events() {
    let (state, _inbox) = state(MemoryOptions::default());
    state.put("a", record("/mcp")).await.unwrap();
    let stream = StreamId { session: "a".into(), number: 3 };
    let first = state.append(&stream, Bytes::from_static(b"one")).await.unwrap();
    state
        .put("a", SessionRecord { log_level: Some(moongate_core::Level::Debug), ..record("/mcp") })
        .await
        .unwrap();
    let second = state.append(&stream, Bytes::from_static(b"two")).await.unwrap();
    assert!(second > first);

    let replayed = state.replay("a", first).await.unwrap().unwrap();
    assert_eq!(replayed, (stream.clone(), vec![(second, Bytes::from_static(b"two"))]));
    let Entry::Welcome(Some(record)) = state.enter(Some("a"), &[]).await.unwrap() else { panic!("gone") };
    assert_eq!(record.log_level, Some(moongate_core::Level::Debug));
}

#[tokio::test]
async fn events_belong_to_their_session_and_end_with_it() {
    let options = MemoryOptions { log_frames: 2, ..MemoryOptions::default() };
    let (state, _inbox) = state(options);
    let unknown = StreamId { session: "a".into(), number: 0 };
    assert!(matches!(state.append(&unknown, Bytes::new()).await, Err(Error::NoSession)));
    for id in ["a", "b"] {
        state.put(id, record("/mcp")).await.unwrap();
    }
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(state.append(&unknown, Bytes::from_static(b"frame")).await.unwrap());
    }
    assert_eq!(state.replay("b", ids[3]).await.unwrap(), None);
    assert_eq!(state.replay("a", ids[0]).await.unwrap(), None, "fell out");
    assert_eq!(state.replay("a", ids[2]).await.unwrap().unwrap().1.len(), 1);
    state.set_options(MemoryOptions { log_frames: 1, ..options });
    state.append(&unknown, Bytes::from_static(b"frame")).await.unwrap();
    assert_eq!(state.replay("a", ids[2]).await.unwrap(), None, "the new bound holds");
    state.end("a").await.unwrap();
    assert_eq!(state.replay("a", ids[3]).await.unwrap(), None);
}

#[tokio::test]
async fn a_session_does_not_hold_on_to_the_request_it_came_with() {
    let (state, _inbox) = state(MemoryOptions::default());
    let body = Raw::from_text(Bytes::from(format!(
        r#"{{"capabilities":{{"roots":{{}}}},"x":"{}"}}"#,
        "x".repeat(100_000)
    )));
    let body = body.unwrap();
    let capabilities = body.member("capabilities").unwrap();
    state
        .put("a", SessionRecord { info: Some(capabilities.clone()), capabilities, ..record("/mcp") })
        .await
        .unwrap();
    assert!(body.into_bytes().is_unique());
    let Entry::Welcome(Some(record)) = state.enter(Some("a"), &[]).await.unwrap() else { panic!("gone") };
    assert_eq!(record.capabilities.as_str(), r#"{"roots":{}}"#);
}

/// CTX-T14 (sweep), CTX-T16
#[tokio::test(start_paused = true)]
async fn state_idle_for_more_than_an_hour_is_gone_and_touched_state_survives() {
    let (state, _inbox) = state(MemoryOptions::default());
    for session in ["idle", "read", "written"] {
        write(&state, &key(session, "planning"), 1).await;
    }
    write(&state, &key("read", "ui"), 1).await;
    advance(HOUR).await;
    state.sweep().await.unwrap();
    assert!(is_there(&state, &key("read", "planning")).await, "not longer than an hour");
    write(&state, &key("written", "planning"), 2).await;

    advance(Duration::from_nanos(1)).await;
    assert!(!is_there(&state, &key("idle", "planning")).await, "expired, though not yet swept");
    state.sweep().await.unwrap();
    assert_eq!(state.documents.owners(), (2, 2));
    assert!(is_there(&state, &key("read", "planning")).await);
    assert!(!is_there(&state, &key("read", "ui")).await, "each kind has its own time");
    assert!(is_there(&state, &key("written", "planning")).await);
}

#[tokio::test]
async fn only_the_right_revision_can_be_swapped() {
    let (state, _inbox) = state(MemoryOptions::default());
    let key = key("s", "planning");
    let swap = async |expected, value| state.swap(&key, expected, Arc::new(Value(value))).await.unwrap();
    assert!(!swap(1, 0).await, "there is none");
    assert!(swap(0, 1).await);
    assert!(!swap(0, 2).await, "there is one now");
    let first = state.document(&key).await.unwrap().unwrap().revision;
    assert!(swap(first, 3).await);
    assert!(!swap(first, 4).await);
    let second = state.document(&key).await.unwrap().unwrap();
    assert!(second.revision > first);
    assert_eq!(second.value.encode(), b"3");
}

#[tokio::test]
async fn forgetting_a_session_leaves_others_and_voids_its_revisions() {
    let (state, _inbox) = state(MemoryOptions::default());
    let stranger = Context::for_test(Principal::issued("eve"), "s", None, None);
    let keys = [
        key("s", "planning"),
        key("s", "ui"),
        DocumentKey { owner: owner("s", Some("asst")), kind: "planning" },
        key("t", "planning"),
        DocumentKey { owner: stranger.state_key(), kind: "planning" },
    ];
    for key in &keys {
        write(&state, key, 1).await;
    }
    let before = state.document(&keys[0]).await.unwrap().unwrap().revision;
    state.forget(keys[0].owner.session()).await.unwrap();
    state.forget(keys[0].owner.session()).await.unwrap();
    for (key, kept) in keys.iter().zip([false, false, false, true, true]) {
        assert_eq!(is_there(&state, key).await, kept, "{key:?}");
    }
    assert_eq!(state.documents.owners(), (2, 2));
    write(&state, &keys[0], 2).await;
    assert!(
        !state.swap(&keys[0], before, Arc::new(Value(3))).await.unwrap(),
        "a revision of the forgotten document"
    );
}

/// Evicts in exact order of use, against a model that keeps that order in a list.
#[tokio::test(start_paused = true)]
async fn with_lru_the_least_recently_used_go_first() {
    const CAP: usize = 40;
    let options = MemoryOptions { eviction: Eviction::Lru, document_cap: CAP, ..MemoryOptions::default() };
    let (state, _inbox) = state(options);
    let mut model: Vec<u32> = Vec::new();
    let mut random = 1_u32;
    for step in 0..4000_u32 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let session = (random >> 16) % 90;
        let key = key(&session.to_string(), if step % 2 == 0 { "planning" } else { "ui" });
        let known = model.iter().position(|known| *known == session);
        if step % 3 == 0 {
            // A read uses what it finds, and finds nothing of an evicted owner.
            if is_there(&state, &key).await {
                model.remove(known.expect("it was evicted"));
                model.push(session);
            }
        } else {
            known.map(|place| model.remove(place));
            model.push(session);
            if model.len() > CAP {
                model.remove(0);
            }
            write(&state, &key, step).await;
        }
        assert_eq!(state.documents.owners(), (model.len(), model.len()));
    }
    for session in model {
        let session = session.to_string();
        assert!(
            is_there(&state, &key(&session, "planning")).await
                || is_there(&state, &key(&session, "ui")).await
        );
    }
    advance(10 * HOUR).await;
    state.sweep().await.unwrap();
    assert_eq!(state.documents.owners(), (CAP, CAP), "without the idle time nothing expires");
}

#[tokio::test(start_paused = true)]
async fn options_can_be_changed_at_run_time() {
    let (state, mut inbox) = state(MemoryOptions::default());
    for n in 0..20 {
        write(&state, &key(&n.to_string(), "planning"), 1).await;
        advance(MINUTE).await;
    }
    state.put("a", record("/mcp")).await.unwrap();
    advance(2 * MINUTE).await;
    let both = MemoryOptions { eviction: Eviction::TtlAndLru, document_cap: 8, ..MemoryOptions::default() };
    state.set_options(both);
    state.sweep().await.unwrap();
    assert_eq!(state.documents.owners(), (8, 8));
    assert!(
        is_there(&state, &key("12", "planning")).await && !is_there(&state, &key("11", "planning")).await
    );

    state.set_options(MemoryOptions { session_ttl: MINUTE, document_ttl: 4 * MINUTE, ..both });
    state.sweep().await.unwrap();
    assert_eq!(ended(&mut inbox), ["a"]);
    assert_eq!(state.documents.owners(), (3, 3), "those of the last four minutes, and the one just read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_cap_holds_under_concurrent_use() {
    let options = MemoryOptions { eviction: Eviction::Lru, document_cap: 10, ..MemoryOptions::default() };
    let (state, _inbox) = state(options);
    let group = Group::new();
    let (done, mut finished) = tokio::sync::mpsc::channel::<()>(1);
    for task in 0..8 {
        let (state, done) = (Arc::clone(&state), done.clone());
        group.spawn(async move {
            for n in 0..200 {
                write(&state, &key(&format!("{task}-{n}"), "planning"), n).await;
                state.forget(owner(&format!("{task}-{}", n / 2), None).session()).await.unwrap();
            }
            drop(done);
        });
    }
    drop(done);
    assert_eq!(finished.recv().await, None);
    let (counted, there) = state.documents.owners();
    assert_eq!(counted, there);
    assert!(there <= 10, "{there}");
}
