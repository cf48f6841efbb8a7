//! The documents of one owner, searched: what a backend talks to.
//!
//! A library keeps terms and file names, never texts. A search therefore asks for the texts it needs: those of the hits, for what
//! is shown of them, and, while there is room for more hits, those of the other documents, for what is only found literally. Of the
//! latter it reads [`LITERAL_BYTES`] and no more, those whose name holds the query first.

use std::collections::VecDeque;

use crate::{
    Index, LineRange,
    chunk::{self, Chunk},
    fold, snippet,
    snippet::Needles,
    tokens,
};

/// After how many bytes of texts that no word of the query led to a search stops looking for it literally.
pub const LITERAL_BYTES: usize = 8 << 20;

/// The documents of one owner, found by what they say and by what they are called.
#[derive(Debug, Clone)]
pub struct Library<Id> {
    index: Index<Id>,
    /// The folded names, in the order of the index.
    names: Vec<Box<str>>,
}

/// A chunk that answers a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit<Id> {
    /// The document.
    pub document: Id,
    /// The chunk's place in the document, from 0.
    pub chunk: usize,
    /// From 0, only found literally, to below 1.
    pub score: f64,
    /// The part of the chunk that shows the match.
    pub text: String,
    /// The lines of the chunk.
    pub lines: LineRange,
}

impl<Id: Clone + PartialEq> Default for Library<Id> {
    fn default() -> Library<Id> {
        Library { index: Index::default(), names: Vec::new() }
    }
}

impl<Id: Clone + PartialEq> Library<Id> {
    /// Adds a document, in place of the one with the same id.
    pub fn add(&mut self, id: Id, name: &str, text: &str) {
        self.remove(&id);
        self.index.add(id, text);
        self.names.push(fold::fold(name).into());
    }

    /// Forgets a document. Answers whether it was there.
    pub fn remove(&mut self, id: &Id) -> bool {
        if let Some(at) = self.index.documents().position(|known| known == id) {
            self.names.remove(at);
        }
        self.index.remove(id)
    }

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether a document is there.
    pub fn contains(&self, id: &Id) -> bool {
        self.index.contains(id)
    }

    /// About how many bytes the library takes, beside what the ids themselves point at.
    pub fn memory(&self) -> usize {
        self.index.memory() + self.names.iter().map(|name| name.len() + size_of::<Box<str>>()).sum::<usize>()
    }

    /// Begins a search for at most `most` hits whose score is at least `threshold`. It owns what it needs, so that the
    /// library need not be held while texts are read.
    pub fn find(&self, query: &str, most: usize, threshold: f64) -> Finding<Id> {
        let needles = Needles::new(query);
        let character = tokens::is_one_character(tokens::bounded(query));
        let ranked = self.index.search(query, most).into_iter().map(|ranked| Hit {
            document: ranked.document.clone(),
            chunk: ranked.chunk,
            // A single character is found, but ranking by it would pretend to know more.
            score: if character { 0.0 } else { ranked.bm25 / (ranked.bm25 + 1.0) },
            text: String::new(),
            lines: ranked.lines,
        });
        let hits = ranked.filter(|hit| hit.score >= threshold).collect::<Vec<_>>();
        let mut unread = VecDeque::new();
        for hit in &hits {
            if !unread.iter().any(|(id, _)| *id == hit.document) {
                unread.push_back((hit.document.clone(), self.is_named(&hit.document, &needles)));
            }
        }
        // A literal match has score 0: a threshold above it cuts them all, and a full answer has no room for them.
        if threshold <= 0.0 && hits.len() < most && !needles.is_empty() {
            let ranked = unread.iter().map(|(id, _): &(Id, bool)| id.clone()).collect::<Vec<_>>();
            let others = self.index.documents().zip(&self.names).filter(|(id, _)| !ranked.contains(id));
            let others = others.map(|(id, name)| (id.clone(), needles.whole_in_folded(name)));
            let (named, unnamed) = others.partition::<Vec<_>, _>(|(_, named)| *named);
            unread.extend(named.into_iter().chain(unnamed));
        }
        let literal = if threshold <= 0.0 { LITERAL_BYTES } else { 0 };
        Finding { ranked: hits.len(), hits, unread, needles, most, literal }
    }

    /// Searches with texts that can be read at once. A document without a text is left out.
    pub fn search<Text: AsRef<str>>(
        &self,
        query: &str,
        most: usize,
        threshold: f64,
        mut read: impl FnMut(&Id) -> Option<Text>,
    ) -> Vec<Hit<Id>> {
        let mut finding = self.find(query, most, threshold);
        while let Some(id) = finding.wanted() {
            let text = read(id);
            finding.give(text.as_ref().map(AsRef::as_ref));
        }
        finding.into_hits()
    }

    fn is_named(&self, id: &Id, needles: &Needles) -> bool {
        let name = self.index.documents().zip(&self.names).find(|(known, _)| *known == id);
        name.is_some_and(|(_, name)| needles.whole_in_folded(name))
    }
}

/// A search under way: give it the text it wants until it wants none.
///
/// ```
/// # let mut library = moongate_search::Library::default();
/// # library.add(7, "pump.md", "The pumps were repaired.");
/// let mut finding = library.find("repairing a pump", 10, 0.0);
/// while let Some(id) = finding.wanted() {
///     assert_eq!(*id, 7);
///     finding.give(Some("The pumps were repaired.")); // read from wherever texts are kept
/// }
/// assert_eq!(finding.into_hits()[0].lines.first, 1);
/// ```
#[derive(Debug)]
pub struct Finding<Id> {
    hits: Vec<Hit<Id>>,
    /// How many of the hits were ranked; the literal ones follow.
    ranked: usize,
    /// The documents to read, and whether their name holds the query.
    unread: VecDeque<(Id, bool)>,
    needles: Needles,
    most: usize,
    /// How many more bytes may be looked through literally.
    literal: usize,
}

impl<Id: Clone + PartialEq> Finding<Id> {
    /// The document whose text is to be given next.
    pub fn wanted(&self) -> Option<&Id> {
        let (id, _) = self.unread.front()?;
        (self.is_ranked(id) || self.looks_on()).then_some(id)
    }

    /// Gives the text of the wanted document; `None` where it is gone, which takes its hits out.
    pub fn give(&mut self, text: Option<&str>) {
        let Some((id, named)) = self.unread.pop_front() else { return };
        let Some(text) = text else {
            let before = self.hits.len();
            self.hits.retain(|hit| hit.document != id);
            self.ranked -= before - self.hits.len();
            return;
        };
        let is_ranked = self.is_ranked(&id);
        let chunks = chunk::chunks(text).collect::<Vec<_>>();
        for hit in self.hits.iter_mut().take(self.ranked).filter(|hit| hit.document == id) {
            let chunk = chunks.get(hit.chunk).map_or("", |chunk| chunk.text);
            snippet::snippet(chunk, &self.needles).clone_into(&mut hit.text);
        }
        if !self.looks_on() {
            return;
        }
        self.look_through(&id, &chunks);
        if !is_ranked {
            self.literal = self.literal.saturating_sub(text.len());
        }
        let found = self.hits.iter().any(|hit| hit.document == id);
        if named
            && !found
            && self.has_room()
            && let Some(first) = chunks.first()
        {
            let shown = snippet::snippet(first.text, &self.needles);
            self.push(&id, first, shown);
        }
    }

    /// Adds the chunks in which the whole query begins; it may end in the next.
    fn look_through(&mut self, id: &Id, chunks: &[Chunk<'_>]) {
        let (mut folded, mut starts) = (String::new(), Vec::with_capacity(chunks.len()));
        for chunk in chunks {
            starts.push(folded.len());
            folded.push_str(&fold::fold(chunk.text));
        }
        let needle = self.needles.whole().to_owned();
        let mut from = 0;
        while self.has_room()
            && let Some(at) = folded.get(from..).and_then(|rest| rest.find(&needle)).map(|at| from + at)
        {
            let number = starts.partition_point(|start| *start <= at).saturating_sub(1);
            let (Some(chunk), Some(start)) = (chunks.get(number), starts.get(number)) else { return };
            if !self.hits.iter().any(|hit| hit.document == *id && hit.chunk == number) {
                let shown = snippet::snippet_at(chunk.text, at - start, at - start + needle.len());
                self.push(id, chunk, shown);
            }
            let Some(next) = starts.get(number + 1) else { return };
            from = *next;
        }
    }

    /// What was found, best first.
    pub fn into_hits(self) -> Vec<Hit<Id>> {
        self.hits
    }

    fn is_ranked(&self, id: &Id) -> bool {
        self.hits.iter().take(self.ranked).any(|hit| hit.document == *id)
    }

    /// Whether literal matches are still looked for.
    fn looks_on(&self) -> bool {
        self.literal > 0 && !self.needles.is_empty() && self.has_room()
    }

    fn has_room(&self) -> bool {
        self.hits.len() < self.most
    }

    fn push(&mut self, id: &Id, chunk: &Chunk<'_>, shown: &str) {
        self.hits.push(Hit {
            document: id.clone(),
            chunk: chunk.number,
            score: 0.0,
            text: shown.to_owned(),
            lines: chunk.lines,
        });
    }
}

#[cfg(test)]
mod tests;
