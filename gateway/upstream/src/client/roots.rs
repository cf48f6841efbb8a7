//! The directories that a server may ask for: as configured, or as the client of a session said once.
//!
//! A client is asked once for each session; what it said is kept until the session ends, the client says that it changed,
//! or nobody has asked for long. The client of a call that belongs to no session is not known again: it is asked by the
//! call that the server asks in.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use moongate_core::{Context, Raw, SessionKey, hash::Map};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

/// Sessions whose roots are kept; the one that was used longest ago goes first.
const MAX_SESSIONS: usize = 4096;
/// How long the roots of a session are kept that nobody uses: some sessions have no end that is told.
const KEPT_FOR: Duration = Duration::from_hours(1);

/// What a client said are its roots.
#[derive(Clone, Debug)]
pub(crate) struct Roots {
    /// The result of `roots/list`, as it wrote it.
    pub(crate) told: Raw,
    /// Of the set, in whichever order it came.
    pub(crate) hash: u64,
}

/// What is known of the roots of each session.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<Map<SessionKey, (Roots, Instant)>>);

impl Roots {
    /// Reads the result of `roots/list`.
    pub(crate) fn read(told: &Raw) -> Option<Self> {
        #[derive(Deserialize)]
        struct Listed {
            roots: Vec<Root>,
        }
        #[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
        struct Root {
            uri: String,
            name: Option<String>,
        }
        let mut roots = told.parse::<Listed>().ok()?.roots;
        roots.sort();
        roots.dedup();
        let mut hasher = DefaultHasher::new();
        roots.hash(&mut hasher);
        Some(Self { told: told.detached(), hash: hasher.finish() })
    }

    /// Those of a client that does not tell any.
    pub(crate) fn none() -> Self {
        let told = listed(&[]);
        Self { hash: DefaultHasher::new().finish(), told }
    }
}

impl Book {
    /// Whether a call has a session that can say it once for all.
    pub(crate) fn knows(cx: &Context) -> bool {
        cx.transport_session.is_some() || cx.session_named
    }

    /// What the session of a call has said, if the call has one and it has.
    pub(crate) fn kept(&self, cx: &Context) -> Option<Roots> {
        let session = session_of(cx)?;
        let mut book = self.lock();
        let (roots, used) = book.get_mut(&session)?;
        *used = Instant::now();
        Some(roots.clone())
    }

    /// The session of a call says so.
    pub(crate) fn keep(&self, cx: &Context, roots: &Roots) {
        let Some(session) = session_of(cx) else { return };
        let mut book = self.lock();
        if book.len() >= MAX_SESSIONS && !book.contains_key(&session) {
            let oldest = book.iter().min_by_key(|(_, (_, used))| *used).map(|(session, _)| session.clone());
            oldest.map(|oldest| book.remove(&oldest));
        }
        book.insert(session, (roots.clone(), Instant::now()));
    }

    /// A session has ended, or its client said that its roots have changed.
    pub(crate) fn forget(&self, session: &SessionKey) {
        self.lock().remove(session);
    }

    /// Forgets what nobody has used for long.
    pub(crate) fn clear_old(&self) {
        self.lock().retain(|_, (_, used)| used.elapsed() < KEPT_FOR);
    }

    fn lock(&self) -> MutexGuard<'_, Map<SessionKey, (Roots, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session that has one client: that of the transport, else the one that was named.
fn session_of(cx: &Context) -> Option<SessionKey> {
    let named = || cx.session_named.then_some(&cx.ids.session);
    let session = cx.transport_session.as_ref().or_else(named)?;
    Some(SessionKey { principal: cx.principal.clone(), session: session.clone() })
}

/// `{"roots":[{"uri":…},…]}`
pub(crate) fn listed(uris: &[String]) -> Raw {
    let roots: Vec<_> = uris.iter().map(|uri| json!({"uri": uri})).collect();
    Raw::of(&json!({"roots": roots}))
}

#[cfg(test)]
mod tests {
    use moongate_core::Principal;

    use super::*;

    fn read(uris: &[&str]) -> Roots {
        let uris: Vec<_> = uris.iter().map(|uri| (*uri).to_owned()).collect();
        Roots::read(&listed(&uris)).unwrap()
    }

    fn session(name: &str) -> Context {
        Context::for_test(Principal::local(), name, None, None)
    }

    #[test]
    fn sets_are_told_apart_by_what_is_in_them_and_not_by_order() {
        let one = read(&["file:///a", "file:///b"]);
        assert_eq!(one.hash, read(&["file:///b", "file:///a", "file:///a"]).hash);
        for other in [read(&["file:///a"]), read(&[]), Roots::none()] {
            assert_ne!(one.hash, other.hash);
        }
        let named = json!({"roots": [{"uri": "file:///a", "name": "x"}, {"uri": "file:///b"}]});
        assert_ne!(one.hash, Roots::read(&Raw::of(&named)).unwrap().hash);
        assert!(Roots::read(&Raw::of(&json!({"roots": [{"name": "x"}]}))).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_kept_for_the_session_until_it_ends_or_is_not_used() {
        let (book, roots) = (Book::default(), read(&["file:///a"]));
        let (one, other) = (session("one"), session("other"));
        let nobody = Context { session_named: false, ..session("default") };
        for cx in [&one, &other, &nobody] {
            book.keep(cx, &roots);
        }
        assert!(book.kept(&one).is_some() && book.kept(&nobody).is_none());
        let foreign = Context { principal: Principal::anonymous(), ..session("one") };
        assert!(book.kept(&foreign).is_none());
        book.forget(&other.session_key());
        assert!(book.kept(&other).is_none());
        tokio::time::sleep(KEPT_FOR / 2).await;
        assert!(book.kept(&one).is_some());
        tokio::time::sleep(KEPT_FOR / 2).await;
        book.clear_old();
        assert!(book.kept(&one).is_some(), "it was used");
        tokio::time::sleep(KEPT_FOR).await;
        book.clear_old();
        assert!(book.kept(&one).is_none());
    }

    #[test]
    fn only_so_many_are_kept() {
        let (book, roots) = (Book::default(), read(&["file:///a"]));
        for number in 0..MAX_SESSIONS + 10 {
            book.keep(&session(&number.to_string()), &roots);
        }
        assert_eq!(book.lock().len(), MAX_SESSIONS);
    }
}
