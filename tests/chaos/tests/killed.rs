//! A gateway that is killed while texts come in: what was acknowledged is there and found, the rest is whole or not there.
//!
//! `MOONGATE_KILLS=200` makes it that many kills; `./bench` does.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result};
use moongate_test_chaos::UNLIMITED;
use moongate_test_support::{Gateway, Home, ModernClient, PATIENCE};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinSet};

/// Kills, unless the environment says otherwise.
const KILLS: u64 = 10;
/// So many that some of them must have come between a commit and its answer, and some before a commit.
const MANY: u64 = 100;
const CLIENTS: u64 = 8;
/// Clients of one session: some share theirs, some do not.
const SHARING: u64 = 3;
/// Lines of a text, so that it is several passages.
const LINES: u64 = 40;

/// Texts by name.
type Texts = BTreeMap<String, Text>;

/// A text that somebody wanted to add.
#[derive(Clone, Debug)]
struct Text {
    session: String,
    /// A word that stands in this text only.
    word: String,
    body: String,
    /// Its id, if the addition was answered.
    acknowledged: Option<String>,
}

impl Text {
    fn new(round: u64, client: u64, number: u64) -> Self {
        let word = letters(round * 1_000_000 + client * 10_000 + number);
        let line = |line: u64| match line {
            1 => format!("q{word} stands in line {line}\n"),
            LINES => format!("z{word} stands in line {line}\n"),
            _ => format!("nothing but line {line}\n"),
        };
        let body = (1..=LINES).map(line).collect();
        Self { session: format!("round{round}-{}", client / SHARING), word, body, acknowledged: None }
    }
}

/// A number as a word like no other: consonants, which make no endings, and the digits that differ most first, because words
/// that begin alike are found for each other.
fn letters(number: u64) -> String {
    let letter = |digit: u8| "bcdfghjkmp".chars().nth(usize::from(digit - b'0')).unwrap_or_default();
    format!("{number:010}").bytes().rev().map(letter).collect()
}

/// What became of texts whose addition nobody answered.
#[derive(Default)]
struct Unanswered {
    /// They are there, and whole.
    there: usize,
    /// There is nothing of them.
    absent: usize,
}

/// How far a round is.
#[derive(Default)]
struct Tally {
    /// Clients that have begun.
    begun: AtomicU64,
    acknowledged: AtomicU64,
    grown: Notify,
    /// Whether the gateway may fail to answer.
    killed: AtomicBool,
}

/// A caller in a session of its own choice.
fn client(gateway: &Gateway, session: &str) -> ModernClient {
    ModernClient::new(&gateway.client().with_header("x-session-id", session))
}

async fn structured(client: &ModernClient, tool: &str, arguments: Value) -> Result<Value> {
    let result = client.call(tool, arguments).await?;
    anyhow::ensure!(result.get("isError") == Some(&json!(false)), "{tool}: {result}");
    result.get("structuredContent").cloned().context("a tool answers with data")
}

/// Adds texts until the gateway is killed; before that it has to take all of them.
async fn add_until_killed(
    gateway: ModernClient,
    round: u64,
    number: u64,
    tally: Arc<Tally>,
) -> Result<Texts> {
    let mut texts = Texts::new();
    for count in 0.. {
        let text = Text::new(round, number, count);
        let name = format!("{}.txt", text.word);
        let adding = gateway.call("add_content", json!({"filename": name, "content": text.body}));
        if count == 0 {
            tally.begun.fetch_add(1, Ordering::Relaxed);
            tally.grown.notify_one();
        }
        let added = match adding.await {
            Ok(added) => added,
            Err(_) if tally.killed.load(Ordering::Acquire) => {
                texts.insert(name, text);
                break;
            }
            Err(error) => return Err(error.context("nobody has killed it yet")),
        };
        let id = added.pointer("/structuredContent/contentId").and_then(Value::as_str);
        let id = id.with_context(|| format!("a text was refused: {added}"))?.to_owned();
        texts.insert(name, Text { acknowledged: Some(id), ..text });
        tally.acknowledged.fetch_add(1, Ordering::Relaxed);
        tally.grown.notify_one();
    }
    Ok(texts)
}

/// One life of the gateway, ended after some texts: by chance that is the same in every run, and other in every round.
async fn kill_while_adding(home: &Arc<Home>, round: u64) -> Result<Texts> {
    let mut gateway = Gateway::builder().home(home).config(UNLIMITED).start().await?;
    let (tally, mut tasks) = (Arc::new(Tally::default()), JoinSet::new());
    for number in 0..CLIENTS {
        let session = Text::new(round, number, 0).session;
        tasks.spawn(add_until_killed(client(&gateway, &session), round, number, Arc::clone(&tally)));
    }
    let enough = 1 + (round * 37) % 60;
    let waiting = async {
        while tally.begun.load(Ordering::Relaxed) < CLIENTS
            || tally.acknowledged.load(Ordering::Relaxed) < enough
        {
            tally.grown.notified().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.context("nothing is acknowledged")?;
    tally.killed.store(true, Ordering::Release);
    gateway.signal(Signal::KILL)?;
    gateway.wait(PATIENCE).await?;
    let mut texts = Texts::new();
    while let Some(added) = tasks.join_next().await {
        texts.append(&mut added??);
    }
    Ok(texts)
}

/// Names and ids of what a session holds.
async fn listed(client: &ModernClient) -> Result<BTreeMap<String, String>> {
    let listed = structured(client, "list_contents", json!({"pagination": {"limit": 1000}})).await?;
    let contents = listed.get("contents").and_then(Value::as_array).context("a list")?;
    let text = |one: &Value, key: &str| Some(one.get(key)?.as_str()?.to_owned());
    let entry = |one| text(one, "filename").zip(text(one, "contentId")).context("a name and an id");
    contents.iter().map(entry).collect()
}

/// Where a word is found: names of texts and lines.
async fn found(client: &ModernClient, word: &str) -> Result<Vec<(Value, Value)>> {
    let found = structured(client, "search_content", json!({"query": word})).await?;
    let results = found.get("results").and_then(Value::as_array).context("results")?;
    let place = |one: &Value| Some((one.get("filename")?.clone(), one.get("lineRange")?.clone()));
    results.iter().map(|one| place(one).context("a place")).collect()
}

/// Looks at what is there of the texts of a round. Answers what became of those that were not acknowledged.
async fn examine(gateway: &Gateway, texts: &Texts) -> Result<Unanswered> {
    let mut by_session: BTreeMap<&str, BTreeMap<String, String>> = BTreeMap::new();
    let mut unanswered = Unanswered::default();
    for (name, text) in texts {
        let client = client(gateway, &text.session);
        if !by_session.contains_key(text.session.as_str()) {
            by_session.insert(&text.session, listed(&client).await?);
        }
        let left = by_session.get_mut(text.session.as_str()).context("it was just listed")?;
        let Some(id) = left.remove(name) else {
            anyhow::ensure!(text.acknowledged.is_none(), "{name} was acknowledged and is gone");
            let places = found(&client, &format!("z{}", text.word)).await?;
            anyhow::ensure!(places.is_empty(), "{name} is half there: {places:?}");
            unanswered.absent += 1;
            continue;
        };
        match &text.acknowledged {
            Some(known) => anyhow::ensure!(*known == id, "{name} has another id"),
            None => unanswered.there += 1,
        }
        let read = structured(&client, "read_content", json!({"content_id": id})).await?;
        anyhow::ensure!(read.get("content") == Some(&json!(text.body)), "{name} is not whole: {read}");
        for (letter, lines) in [("q", [1, 10]), ("z", [31, 40])] {
            let places = found(&client, &format!("{letter}{}", text.word)).await?;
            anyhow::ensure!(places == [(json!(name), json!(lines))], "{name} is not found: {places:?}");
        }
    }
    let strange: Vec<_> = by_session.values().flat_map(BTreeMap::keys).collect();
    anyhow::ensure!(strange.is_empty(), "nobody has added {strange:?}");
    Ok(unanswered)
}

#[tokio::test]
async fn texts_survive_a_gateway_that_is_killed_again_and_again() -> Result<()> {
    let kills = std::env::var("MOONGATE_KILLS").ok().map_or(Ok(KILLS), |text| text.parse())?;
    let home = Arc::new(Home::create()?);
    let (mut acknowledged, mut there, mut absent, mut all) = (0, 0, 0, Vec::new());
    for round in 0..kills {
        let texts = kill_while_adding(&home, round).await.with_context(|| format!("round {round}"))?;
        let mut gateway = Gateway::builder().home(&home).config(UNLIMITED).start().await?;
        let unanswered = examine(&gateway, &texts).await.with_context(|| format!("round {round}"))?;
        there += unanswered.there;
        absent += unanswered.absent;
        gateway.stop().await?;
        acknowledged += texts.values().filter(|text| text.acknowledged.is_some()).count();
        all.push(texts);
    }
    // Nothing of the earlier rounds was lost in the later ones.
    let gateway = Gateway::builder().home(&home).config(UNLIMITED).start().await?;
    for texts in &all {
        examine(&gateway, texts).await?;
    }
    eprintln!(
        "{kills} kills: {acknowledged} texts acknowledged, all there and found; without an answer {there} there, whole, and \
         {absent} not there"
    );
    anyhow::ensure!(
        kills < MANY || (there > 0 && absent > 0),
        "no kill came between a commit and its answer, or none before a commit: nothing is shown about such texts"
    );
    Ok(())
}
