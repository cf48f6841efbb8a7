//! Pages of a list, rendered once, and the cursors between them.
//!
//! A cursor names the list it belongs to by the hash of its content, so that a cursor into a list that changed is
//! refused instead of skipping or repeating entries.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash as _, Hasher as _},
    sync::{Arc, OnceLock},
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use moongate_core::CallError;
use moongate_wire::{Raw, write};

use crate::downgrade::{Face, definition};

/// Entries on one page: more than most clients ever see, because many read only the first.
const PAGE: usize = 1000;

/// One list, ready to be sent.
#[derive(Clone, Debug)]
pub struct List {
    member: &'static str,
    pages: Vec<Raw>,
    content: u64,
}

impl List {
    /// The list of `entries` under the result's member `member`.
    pub fn new<'a>(member: &'static str, entries: impl IntoIterator<Item = &'a Raw>) -> Self {
        let entries: Vec<&Raw> = entries.into_iter().collect();
        let mut hasher = DefaultHasher::new();
        for entry in &entries {
            entry.hash(&mut hasher);
        }
        let content = hasher.finish();
        let count = entries.len().div_ceil(PAGE).max(1);
        let mut chunks = entries.chunks(PAGE);
        let pages = (0..count)
            .map(|page| {
                let items = write::array(chunks.next().unwrap_or_default().iter().copied());
                let next = (page + 1 < count).then(|| Raw::of(&cursor(content, page + 1)));
                let next = next.as_ref().map(|next| ("nextCursor", next));
                write::object([(member, &items)].into_iter().chain(next))
            })
            .collect();
        Self { member, pages, content }
    }

    /// The result for the page at `cursor`, the first one without.
    ///
    /// # Errors
    /// `InvalidParams` for a cursor that is not one of this list.
    pub fn page(&self, at: Option<&str>) -> Result<Raw, CallError> {
        let page = match at {
            None => Some(0),
            Some(text) => (1..self.pages.len()).find(|&page| cursor(self.content, page) == text),
        };
        page.and_then(|page| self.pages.get(page)).cloned().ok_or_else(|| {
            CallError::invalid_params(format_args!(
                "the cursor is not one of the current list of {}; list again without it",
                self.member
            ))
        })
    }
}

/// One list of definitions, as each face of the protocol is shown it. Rendered when it is asked for.
#[derive(Debug)]
pub struct FacedList {
    member: &'static str,
    definitions: Vec<Raw>,
    /// The definitions as they are, which is what most faces are shown.
    plain: OnceLock<Arc<List>>,
    faces: [OnceLock<Arc<List>>; Face::ALL.len()],
}

impl FacedList {
    /// The list of `definitions` under the result's member `member`.
    pub fn new(member: &'static str, definitions: Vec<Raw>) -> Self {
        Self { member, definitions, plain: OnceLock::new(), faces: Default::default() }
    }

    /// The list for `face`.
    pub fn of(&self, face: Face) -> &List {
        let slot = self.faces.get(face as usize).expect("every face has its place");
        slot.get_or_init(|| {
            let shaped: Vec<Raw> =
                self.definitions.iter().map(|tool| definition::shape(tool, face)).collect();
            if shaped == self.definitions {
                let plain = || Arc::new(List::new(self.member, &self.definitions));
                return Arc::clone(self.plain.get_or_init(plain));
            }
            Arc::new(List::new(self.member, &shaped))
        })
    }
}

fn cursor(content: u64, page: usize) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(format!("{content:016x}.{page}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn pages_follow_each_other_and_stale_cursors_are_refused() {
        let entries: Vec<Raw> = (0..2500).map(|number| Raw::of(&number)).collect();
        let list = List::new("tools", &entries);
        let (mut seen, mut at) = (0, None::<String>);
        loop {
            let page: Value = list.page(at.as_deref()).unwrap().parse().unwrap();
            seen += page["tools"].as_array().unwrap().len();
            at = page["nextCursor"].as_str().map(str::to_owned);
            if at.is_none() {
                break;
            }
        }
        assert_eq!(seen, 2500);
        let stale = cursor(list.content, 1);
        let changed = List::new("tools", entries.iter().skip(1));
        assert!(changed.page(Some(&stale)).is_err());
        assert!(list.page(Some("")).is_err());
    }

    #[test]
    fn faces_that_are_shown_the_same_share_one_list() {
        let plain = Raw::from_text(r#"{"name":"t",  "inputSchema":{}}"#).unwrap();
        let titled = Raw::from_text(r#"{"name":"t","title":"T","inputSchema":{}}"#).unwrap();
        let list = FacedList::new("tools", vec![plain.clone()]);
        assert!(std::ptr::eq(list.of(Face::First), list.of(Face::Modern)));
        assert!(list.of(Face::Modern).page(None).unwrap().as_str().contains(plain.as_str()));
        let list = FacedList::new("tools", vec![titled]);
        assert!(std::ptr::eq(list.of(Face::Structured), list.of(Face::Modern)));
        assert!(!list.of(Face::First).page(None).unwrap().as_str().contains("title"));
    }

    #[test]
    fn an_empty_list_is_one_empty_page() {
        assert_eq!(List::new("prompts", []).page(None).unwrap().as_str(), r#"{"prompts":[]}"#);
    }
}
