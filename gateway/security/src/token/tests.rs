//! Issued tokens that are forged, expired, revoked or of another key.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::SystemTime,
};

use moongate_core::{BoxFuture, Scope, StoreScope, clock::ClockHandle};
use moongate_storage::store::Summary;

use super::*;

/// The gateway's own rows, as two processes share them.
#[derive(Clone, Default)]
struct Shelf(Arc<Inner>);

#[derive(Default)]
struct Inner {
    rows: Mutex<RowMap>,
    reads: AtomicUsize,
    broken: std::sync::atomic::AtomicBool,
}

type RowMap = BTreeMap<(&'static str, String), Put>;

impl Shelf {
    fn read(&self) -> Result<std::sync::MutexGuard<'_, RowMap>, moongate_storage::Error> {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        if self.0.broken.load(Ordering::Relaxed) {
            return Err(moongate_storage::Error::Closed);
        }
        Ok(self.0.rows.lock().unwrap())
    }

    fn reads(&self) -> usize {
        self.0.reads.load(Ordering::Relaxed)
    }
}

fn row(put: &Put) -> Row {
    Row { key: put.key.clone(), revision: Revision(1), expires: put.expires, body: put.body.clone() }
}

impl Store for Shelf {
    fn get<'a>(
        &'a self,
        kind: Kind,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Row>, moongate_storage::Error>> {
        Box::pin(async move { Ok(self.read()?.get(&(kind.0, key.to_owned())).map(row)) })
    }

    fn scan<'a>(
        &'a self,
        kind: Kind,
        rows: Rows<'a>,
    ) -> BoxFuture<'a, Result<Vec<Row>, moongate_storage::Error>> {
        Box::pin(async move {
            let found = self.read()?;
            let wanted = found.iter().filter(|((of, key), _)| {
                *of == kind.0 && rows.after.is_none_or(|after| key.as_str() > after)
            });
            Ok(wanted.take(rows.limit).map(|(_, put)| row(put)).collect())
        })
    }

    fn summary(&self, kind: Kind) -> BoxFuture<'_, Result<Summary, moongate_storage::Error>> {
        Box::pin(async move {
            let rows = self.read()?.keys().filter(|(of, _)| *of == kind.0).count();
            Ok(Summary { rows, ..Summary::default() })
        })
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, moongate_storage::Error>> {
        Box::pin(async move {
            let mut rows = self.read()?;
            for put in batch.puts {
                let key = (put.kind.0, put.key.clone());
                if put.expected == Some(Revision(0)) && rows.contains_key(&key) {
                    return Err(moongate_storage::Error::Conflict);
                }
                rows.insert(key, put);
            }
            Ok(Revision(1))
        })
    }
}

impl Stores for Shelf {
    fn open(&self, _: &StoreScope) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    fn own(&self) -> Arc<dyn Store> {
        Arc::new(self.clone())
    }

    fn purge(&self, _: u64) -> BoxFuture<'_, Result<u64, moongate_storage::Error>> {
        Box::pin(async { Ok(0) })
    }
}

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
const DAY: Duration = Duration::from_hours(24);

fn tokens_with(key: &str, shelf: &Shelf) -> (IssuedTokens, ClockHandle) {
    let (clock, handle) = Clock::settable(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let keyring = Keyring::fixed(&Secret::new(key.to_owned())).unwrap();
    (IssuedTokens::new(Arc::new(keyring), shelf, clock), handle)
}

fn tokens(shelf: &Shelf) -> (IssuedTokens, ClockHandle) {
    tokens_with(KEY, shelf)
}

fn scopes(names: &[&str]) -> Scopes {
    names.iter().copied().map(Scope::new).collect()
}

async fn check(tokens: &IssuedTokens, token: &str) -> Result<(String, Scopes), String> {
    let credentials = Credentials { bearer: Some(token), conn: None };
    match tokens.authenticate(&credentials).await {
        Verdict::Admit(identity) => Ok((identity.principal.to_string(), (*identity.scopes).clone())),
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test]
async fn an_issued_token_admits_its_subject_with_its_scopes() {
    let shelf = Shelf::default();
    let (tokens, _) = tokens(&shelf);
    let issued = tokens.issue("ci: build#1", scopes(&["read", "own"]), DAY).await.unwrap();
    assert_eq!(issued.claims.exp, 1_000_000 + 24 * 3600);
    let admitted = check(&tokens, issued.token.expose()).await;
    assert_eq!(admitted, Ok(("issued:ci%3A%20build%231".into(), scopes(&["read", "own"]))));
    let nothing = tokens.authenticate(&Credentials { bearer: None, conn: None }).await;
    assert!(matches!(nothing, Verdict::Pass));
}

#[tokio::test]
async fn a_token_ends_at_its_second_without_leeway() {
    let shelf = Shelf::default();
    let (tokens, clock) = tokens(&shelf);
    let issued = tokens.issue("ci", scopes(&["read"]), Duration::from_mins(1)).await.unwrap();
    clock.advance(Duration::from_millis(59_999));
    assert!(check(&tokens, issued.token.expose()).await.is_ok());
    clock.advance(Duration::from_millis(1));
    assert_eq!(check(&tokens, issued.token.expose()).await, Err("Refuse(Expired)".into()));
}

#[tokio::test]
async fn a_token_of_another_key_is_not_ours() {
    let shelf = Shelf::default();
    let (ours, _) = tokens(&shelf);
    let (theirs, _) = tokens_with(&KEY.replace("AAEC", "BBEC"), &shelf);
    let issued = theirs.issue("ci", scopes(&["read"]), DAY).await.unwrap();
    assert_eq!(check(&ours, issued.token.expose()).await, Err("Pass".into()));
}

#[tokio::test(start_paused = true)]
async fn a_revocation_survives_a_restart_and_reaches_a_running_process_within_a_second() {
    let shelf = Shelf::default();
    let (running, _) = tokens(&shelf);
    let (command_line, _) = tokens(&shelf);
    let issued = command_line.issue("ci", scopes(&["read"]), DAY).await.unwrap();
    let other = command_line.issue("ci", scopes(&["read"]), DAY).await.unwrap();
    assert!(check(&running, issued.token.expose()).await.is_ok());

    assert!(command_line.revoke(&issued.claims.jti).await.unwrap());
    assert_eq!(check(&command_line, issued.token.expose()).await, Err("Refuse(Revoked)".into()));
    tokio::time::advance(REMEMBERED).await;
    assert_eq!(check(&running, issued.token.expose()).await, Err("Refuse(Revoked)".into()));
    assert!(check(&running, other.token.expose()).await.is_ok(), "only this one");

    let (restarted, _) = tokens(&shelf);
    assert_eq!(check(&restarted, issued.token.expose()).await, Err("Refuse(Revoked)".into()));
    assert!(!command_line.revoke("0000").await.unwrap(), "no such token");
}

#[tokio::test(start_paused = true)]
async fn the_store_is_asked_once_a_second_per_token() {
    let shelf = Shelf::default();
    let (tokens, _) = tokens(&shelf);
    let issued = tokens.issue("ci", scopes(&["read"]), DAY).await.unwrap();
    let before = shelf.reads();
    for _ in 0..10 {
        assert!(check(&tokens, issued.token.expose()).await.is_ok());
    }
    assert_eq!(shelf.reads() - before, 1);
    tokio::time::advance(REMEMBERED).await;
    assert!(check(&tokens, issued.token.expose()).await.is_ok());
    assert_eq!(shelf.reads() - before, 2);
}

#[tokio::test(start_paused = true)]
async fn answers_out_of_date_are_cleared_away() {
    let shelf = Shelf::default();
    let (tokens, _) = tokens(&shelf);
    for number in 0..STALE_ANSWERS {
        tokens.is_revoked(&number.to_string()).await.unwrap();
    }
    tokio::time::advance(REMEMBERED).await;
    tokens.is_revoked("one more").await.unwrap();
    assert_eq!(tokens.answers().len(), 1);
}

#[tokio::test]
async fn nobody_gets_in_while_the_list_cannot_be_read() {
    let shelf = Shelf::default();
    let (tokens, _) = tokens(&shelf);
    let issued = tokens.issue("ci", scopes(&["read"]), DAY).await.unwrap();
    shelf.0.broken.store(true, Ordering::Relaxed);
    assert_eq!(check(&tokens, issued.token.expose()).await, Err("Fail(Storage(Closed))".into()));
    assert!(matches!(tokens.issue("ci", scopes(&["read"]), DAY).await, Err(Error::Storage(_))));
}

#[tokio::test]
async fn the_list_shows_every_token_and_never_its_text() {
    let shelf = Shelf::default();
    let (tokens, _) = tokens(&shelf);
    let mut ids = Vec::new();
    for number in 0..PAGE + 3 {
        let issued = tokens.issue(&format!("ci-{number}"), scopes(&["read"]), DAY).await.unwrap();
        for put in shelf.0.rows.lock().unwrap().values() {
            assert!(!String::from_utf8_lossy(&put.body).contains(issued.token.expose()));
        }
        ids.push(issued.claims.jti);
    }
    tokens.revoke(&ids[0]).await.unwrap();
    ids.sort();
    let listed = tokens.list().await.unwrap();
    assert_eq!(listed.iter().map(|token| token.claims.jti.clone()).collect::<Vec<_>>(), ids);
    assert_eq!(listed.iter().filter(|token| token.revoked).count(), 1);
}

#[tokio::test]
async fn rows_go_when_their_token_ends() {
    let shelf = Shelf::default();
    let (tokens, _) = tokens(&shelf);
    let issued = tokens.issue("ci", scopes(&["read"]), Duration::from_mins(1)).await.unwrap();
    tokens.revoke(&issued.claims.jti).await.unwrap();
    let rows = shelf.0.rows.lock().unwrap();
    assert_eq!(rows.len(), 2);
    assert!(rows.values().all(|put| put.expires == Some(1_000_060_000)));
}

#[tokio::test]
async fn odd_subjects_and_lifetimes_are_refused() {
    let shelf = Shelf::default();
    let (tokens, _) = tokens(&shelf);
    for subject in ["", "a\nb", "\u{7f}", &"a".repeat(MAX_SUBJECT + 1)] {
        let refused = tokens.issue(subject, Scopes::default(), DAY).await;
        assert!(matches!(refused, Err(Error::BadSubject)), "{subject:?}");
    }
    for lifetime in [Duration::ZERO, Duration::from_millis(999), Duration::MAX, MAX_LIFETIME + DAY] {
        let refused = tokens.issue("ci", Scopes::default(), lifetime).await;
        assert!(matches!(refused, Err(Error::BadLifetime)), "{lifetime:?}");
    }
}

#[tokio::test]
async fn no_debug_output_holds_a_token() {
    let shelf = Shelf::default();
    let (tokens, _) = tokens(&shelf);
    let issued = tokens.issue("ci", scopes(&["read"]), DAY).await.unwrap();
    let credentials = Credentials { bearer: Some(issued.token.expose()), conn: None };
    let printed = format!("{issued:?} {tokens:?} {credentials:?}");
    assert!(printed.contains("***") && !printed.contains(issued.token.expose()), "{printed}");
}
