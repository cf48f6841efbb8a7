//! Every client version to every upstream version: strict clients in front of the gateway, scripted servers behind it,
//! and all that they can do together.
//!
//! What each of the 25 cells must do is `expected.txt`; a difference fails, and so does whatever the gateway says to
//! either side that its version does not allow. The whole runs three times: over HTTP to processes, over HTTP to remote
//! servers, and on a pipe. The README shows the matrix; a test compares.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

mod cell;
mod client;
mod expected;
mod judge;
mod table;
mod version;
mod wire;

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, Result};
use moongate_test_integration::UNLIMITED;
use moongate_test_support::{Gateway, Home, PATIENCE, Peer, Stdio};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    cell::{ABLE, BARE},
    client::Client,
    expected::{Expected, Place},
    version::{VERSIONS, capabilities},
};

/// Nothing but the upstream, so that what is listed is the upstream's.
const ALONE: &str = "backends: {planning: {enabled: false}, playbook: {enabled: false}, ui: {enabled: false}, \
                     content: {enabled: false}, workspace: {enabled: false}}\n";

/// What was seen so far, and what was wrong.
#[derive(Debug, Default)]
struct Seen {
    outcomes: BTreeMap<Place, String>,
    breaches: Vec<String>,
}

/// Where clients come from: a gateway that serves all of them, or one for each.
enum Front {
    Http(Box<Gateway>),
    Pipes(String),
}

#[tokio::test]
async fn over_http_to_processes() -> Result<()> {
    let mut seen = Seen::default();
    for upstream in VERSIONS {
        let home = Home::create()?;
        let file = home.path().join("breaches");
        let yaml = configuration(&started(upstream, &file)?);
        column(&mut seen, upstream, Front::Http(Box::new(Gateway::start(&yaml).await?))).await?;
        seen.judged_by(upstream, &file)?;
    }
    let expected = seen.check()?;
    // What was seen, now that it is the same.
    println!("{}", table::plain(&expected));
    Ok(())
}

#[tokio::test]
async fn over_http_to_remote_servers() -> Result<()> {
    let mut seen = Seen::default();
    for upstream in VERSIONS {
        let home = Home::create()?;
        let file = home.path().join("breaches");
        let mut peer = Peer::http(upstream, &["--breaches", &file.to_string_lossy()]).await?;
        let yaml = configuration(&peer.url_yaml("peer"));
        column(&mut seen, upstream, Front::Http(Box::new(Gateway::start(&yaml).await?))).await?;
        peer.process().signal(Signal::KILL)?;
        peer.process().wait(PATIENCE).await?;
        seen.judged_by(upstream, &file)?;
    }
    seen.check().map(drop)
}

#[tokio::test]
async fn on_pipes_to_processes() -> Result<()> {
    let mut seen = Seen::default();
    for upstream in VERSIONS {
        let home = Home::create()?;
        let file = home.path().join("breaches");
        let yaml = configuration(&started(upstream, &file)?);
        column(&mut seen, upstream, Front::Pipes(yaml)).await?;
        seen.judged_by(upstream, &file)?;
    }
    seen.check().map(drop)
}

#[test]
fn the_readme_shows_the_matrix() -> Result<()> {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md"))?;
    let (_, rest) = readme.split_once("<!-- matrix -->\n").context("the README says where it begins")?;
    let (shown, _) = rest.split_once("<!-- /matrix -->").context("the README says where it ends")?;
    assert_eq!(shown.trim(), table::markdown(&Expected::load()?).trim());
    Ok(())
}

/// All clients in front of one upstream, one after the other: a process may be shared by those who can do the same.
async fn column(seen: &mut Seen, upstream: &str, mut front: Front) -> Result<()> {
    for version in VERSIONS {
        for (behaviours, declared) in [(&ABLE[..], capabilities(version)), (&BARE[..], json!({}))] {
            let mut client = front.client(version, &declared).await?;
            for behaviour in behaviours {
                let outcome = cell::attempt(behaviour, &mut client, upstream).await;
                let place = (version.to_owned(), upstream.to_owned(), (*behaviour).to_owned());
                seen.outcomes.insert(place, outcome);
            }
            let breaches = client.leave().await.with_context(|| format!("{version} to {upstream}"))?;
            seen.breaches.extend(breaches.iter().map(|breach| format!("{version} to {upstream}: {breach}")));
        }
    }
    if let Front::Http(gateway) = &mut front {
        let status = gateway.stop().await?;
        anyhow::ensure!(status.success(), "the gateway ended with {status}");
    }
    Ok(())
}

impl Front {
    async fn client(&self, version: &'static str, declared: &Value) -> Result<Client> {
        match self {
            Self::Http(gateway) => Client::http(version, declared, &gateway.client()).await,
            Self::Pipes(yaml) => Client::pipe(version, declared, Stdio::start(yaml)?).await,
        }
    }
}

impl Seen {
    /// Adds what the upstream noted in `file`, and the processes that it left behind.
    fn judged_by(&mut self, upstream: &str, file: &Path) -> Result<()> {
        let noted = Peer::breaches_in(file)?;
        self.breaches.extend(noted.iter().map(|breach| format!("the gateway to {upstream}: {breach}")));
        let left = processes_with(&file.to_string_lossy())?;
        self.breaches.extend(left.iter().map(|process| format!("left behind: {process}")));
        Ok(())
    }

    /// Fails unless everything is as expected.
    fn check(&self) -> Result<Expected> {
        let expected = Expected::load()?;
        let mut wrong = expected.differences(&self.outcomes);
        wrong.extend(self.breaches.iter().cloned());
        anyhow::ensure!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
        Ok(expected)
    }
}

fn started(upstream: &str, breaches: &Path) -> Result<String> {
    Peer::stdio_yaml("peer", upstream, &["--breaches", &breaches.to_string_lossy()])
}

fn configuration(entry: &str) -> String {
    format!("{ALONE}{UNLIMITED}upstreams:\n{entry}")
}

/// The command lines of processes that have `word` in them.
fn processes_with(word: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        // A process may end while it is looked at.
        let line = std::fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(word) {
            found.push(line);
        }
    }
    Ok(found)
}
