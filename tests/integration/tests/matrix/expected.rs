//! What each cell must do, read from `expected.txt`, and how it is told apart from what a cell did.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};

use crate::version::VERSIONS;

/// A client version, an upstream version, and a behaviour.
pub(crate) type Place = (String, String, String);

/// The data.
#[derive(Debug)]
pub(crate) struct Expected {
    /// The word that stands at each place.
    words: BTreeMap<Place, String>,
    /// What each word means: exactly what a client is told.
    meanings: BTreeMap<String, String>,
    /// What people are told about a word, where something is lost.
    pub(crate) notes: Vec<(String, String)>,
}

impl Expected {
    /// The committed data.
    pub(crate) fn load() -> Result<Self> {
        let mut expected = Self { words: BTreeMap::new(), meanings: BTreeMap::new(), notes: Vec::new() };
        let mut behaviour = "";
        let lines =
            include_str!("expected.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            if let Some((word, meaning)) = line.split_once(" = ") {
                expected.meanings.insert(word.trim().to_owned(), meaning.trim().to_owned());
            } else if let Some((word, note)) = line.split_once(" ! ") {
                expected.notes.push((word.trim().to_owned(), note.trim().to_owned()));
            } else if let Some(row) = line.strip_prefix("  ") {
                let mut words = row.split_whitespace();
                let client = words.next().context("a row has a client")?;
                expected.row(behaviour, client, &words.collect::<Vec<_>>())?;
            } else if let Some((everywhere, word)) = line.split_once(": ") {
                for client in VERSIONS {
                    expected.row(everywhere, client, &[word.trim(); 5])?;
                }
            } else {
                behaviour = line;
            }
        }
        Ok(expected)
    }

    fn row(&mut self, behaviour: &str, client: &str, words: &[&str]) -> Result<()> {
        anyhow::ensure!(VERSIONS.contains(&client) && words.len() == 5, "{behaviour}, {client}: {words:?}");
        for (upstream, word) in VERSIONS.into_iter().zip(words) {
            anyhow::ensure!(self.meanings.contains_key(*word), "{word} means nothing");
            self.words
                .insert((client.to_owned(), upstream.to_owned(), behaviour.to_owned()), (*word).to_owned());
        }
        Ok(())
    }

    /// Where `seen` is something else, one line each.
    pub(crate) fn differences(&self, seen: &BTreeMap<Place, String>) -> Vec<String> {
        let places: BTreeSet<&Place> = self.words.keys().chain(seen.keys()).collect();
        let differs = |place: &&Place| self.meaning(place) != seen.get(*place).map(String::as_str);
        let tell = |place: &Place| {
            let (client, upstream, behaviour) = place;
            let (expected, seen) = (self.meaning(place), seen.get(place));
            format!("{client} to {upstream}, {behaviour}: expected {expected:?}, seen {seen:?}")
        };
        places.into_iter().filter(differs).map(tell).collect()
    }

    /// The numbers of the notes that a cell of the table carries, from 1 on.
    pub(crate) fn notes_of(&self, client: &str, upstream: &str) -> Vec<usize> {
        let stands = |word: &str| {
            self.words
                .iter()
                .any(|((one, other, _), there)| one == client && other == upstream && there == word)
        };
        let notes =
            self.notes.iter().enumerate().filter(|(_, (words, _))| words.split_whitespace().any(stands));
        notes.map(|(index, _)| index + 1).collect()
    }

    fn meaning(&self, place: &Place) -> Option<&str> {
        self.words.get(place).and_then(|word| self.meanings.get(word)).map(String::as_str)
    }
}
