//! The memos of a plan, kept as the text they are shown as.
//!
//! Every answer shows all memos and none of them ever changes, so each is written once, when it is added, and an answer
//! copies them together. A change makes new texts; until the next one the revisions of a document share them.

use std::{borrow::Cow, ops::Range, sync::Arc};

use moongate_core::builtin::{Fragment, ToolOutput, escape};
use serde::{Deserialize, Serialize, Serializer, ser::Error as _};
use serde_json::value::RawValue;

use crate::{
    plan::{MAX_MEMOS, length},
    shelf::ITEM_OVERHEAD,
};

/// What a memo takes beside its texts as data and as a line, with the longest id.
const AROUND_DATA: usize = r#"{"id":18446744073709551615,"content":"","source":""},"#.len();
const AROUND_LINE: usize = r"- 18446744073709551615: \n".len();

/// At most [`MAX_MEMOS`] memos, oldest first.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Vec<Memo<'static>>")]
pub(crate) struct Memos(Arc<Written>);

/// A note as it is stored and shown. Its id counts from 0 and is never used again.
#[derive(Serialize, Deserialize)]
pub(super) struct Memo<'a> {
    pub(super) id: u64,
    pub(super) content: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<Cow<'a, str>>,
}

#[derive(Debug, Default)]
struct Written {
    places: Vec<Place>,
    weight: usize,
    /// Each memo as an object, with a comma behind it.
    data: Fragment,
    /// Each memo as a line of Markdown, as it stands in a JSON string.
    lines: Fragment,
}

/// One memo, and how many bytes of each text are about it.
#[derive(Clone, Copy, Debug)]
struct Place {
    id: u64,
    weight: usize,
    data: usize,
    line: usize,
}

impl Memos {
    /// Adds a memo; the oldest falls out when there are too many.
    pub(super) fn push(&mut self, memo: &Memo<'_>) {
        self.0 = Arc::new(self.0.followed_by(memo));
    }

    /// Removes a memo. False when there is none with this id.
    pub(super) fn remove(&mut self, id: u64) -> bool {
        let Some(at) = self.ids().position(|known| known == id) else { return false };
        self.0 = Arc::new(self.0.without(at..at + 1, 0, 0));
        true
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = u64> {
        self.0.places.iter().map(|place| place.id)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.places.len()
    }

    /// About how many bytes all of them take.
    pub(crate) fn weight(&self) -> usize {
        self.0.weight
    }

    /// All of them as the inside of an array.
    pub(crate) fn data(&self) -> &[u8] {
        let data = self.0.data.as_ref();
        data.strip_suffix(b",").unwrap_or(data)
    }

    /// All of them as lines of Markdown, as they stand in a JSON string.
    pub(crate) fn lines(&self) -> &[u8] {
        self.0.lines.as_ref()
    }

    /// What a tool answers that changed them: `text` and all memos.
    pub(super) fn output(&self, text: impl FnOnce(&mut Fragment)) -> ToolOutput {
        // A sentence and two names fit beside the memos.
        ToolOutput::written(self.data().len() + 128, text, |data| {
            data.raw(r#"{"success":true,"memos":["#).raw(self.data()).raw("]}");
        })
    }
}

impl Written {
    fn followed_by(&self, memo: &Memo<'_>) -> Self {
        let content = escape(&memo.content);
        let source = memo.source.as_deref().map(escape);
        let excess = (self.places.len() + 1).saturating_sub(MAX_MEMOS);
        let data_room = content.len() + length(source.as_deref()) + AROUND_DATA;
        let mut next = self.without(0..excess, data_room, content.len() + AROUND_LINE);
        let (data, lines) = next.lengths();

        next.data.raw(r#"{"id":"#).value(&memo.id).raw(r#","content":""#).raw(&*content);
        if let Some(source) = source {
            next.data.raw(r#"","source":""#).raw(&*source);
        }
        next.data.raw(r#""},"#);
        next.lines.raw("- ").value(&memo.id).raw(": ").raw(&*content).raw(r"\n");

        let weight = memo.content.len() + length(memo.source.as_deref()) + ITEM_OVERHEAD;
        let (data_now, lines_now) = next.lengths();
        next.weight += weight;
        next.places.push(Place { id: memo.id, weight, data: data_now - data, line: lines_now - lines });
        next
    }

    /// The same without the memos at `gone`, with so much room for one more.
    fn without(&self, gone: Range<usize>, data_room: usize, line_room: usize) -> Self {
        let before = self.places.get(..gone.start).unwrap_or_default();
        let after = self.places.get(gone.end..).unwrap_or_default();
        let gone = self.places.get(gone).unwrap_or_default();
        let cut = |text: &Fragment, part: fn(&Place) -> usize, room: usize| {
            let start = before.iter().map(part).sum::<usize>();
            let end = start + gone.iter().map(part).sum::<usize>();
            let text = text.as_ref();
            let mut left = Fragment::with_room(text.len() + start - end + room);
            left.raw(text.get(..start).unwrap_or_default()).raw(text.get(end..).unwrap_or_default());
            left
        };
        let mut places = Vec::with_capacity(before.len() + after.len() + 1);
        places.extend_from_slice(before);
        places.extend_from_slice(after);
        Self {
            places,
            weight: self.weight - gone.iter().map(|place| place.weight).sum::<usize>(),
            data: cut(&self.data, |place| place.data, data_room),
            lines: cut(&self.lines, |place| place.line, line_room),
        }
    }

    fn lengths(&self) -> (usize, usize) {
        (self.data.as_ref().len(), self.lines.as_ref().len())
    }
}

impl From<Vec<Memo<'static>>> for Memos {
    fn from(memos: Vec<Memo<'static>>) -> Self {
        let written = memos.iter().fold(Written::default(), |written, memo| written.followed_by(memo));
        Self(Arc::new(written))
    }
}

impl Serialize for Memos {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut array = Fragment::default();
        array.raw("[").raw(self.data()).raw("]");
        let array: &RawValue = serde_json::from_slice(array.as_ref()).map_err(S::Error::custom)?;
        array.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is kept must be what serde and `format!` would write of the memos themselves.
    fn check(memos: &Memos, expected: &[Memo<'static>]) {
        let array = serde_json::to_string(expected).unwrap();
        assert_eq!(serde_json::to_string(memos).unwrap(), array);
        assert_eq!(format!("[{}]", std::str::from_utf8(memos.data()).unwrap()), array);
        let line = |memo: &Memo<'_>| format!("- {}: {}\n", memo.id, memo.content);
        let lines = expected.iter().map(line).collect::<Vec<_>>().concat();
        assert_eq!(
            format!("\"{}\"", std::str::from_utf8(memos.lines()).unwrap()),
            serde_json::to_string(&lines).unwrap()
        );
        let weight = |memo: &Memo<'_>| memo.content.len() + length(memo.source.as_deref()) + ITEM_OVERHEAD;
        assert_eq!(memos.weight(), expected.iter().map(weight).sum::<usize>());
        assert_eq!(memos.ids().collect::<Vec<_>>(), expected.iter().map(|memo| memo.id).collect::<Vec<_>>());
        assert_eq!(memos.len(), expected.len());
    }

    proptest! {
        #[test]
        fn memos_are_kept_as_they_would_be_written(steps in prop::collection::vec(
            (any::<bool>(), prop::sample::select(vec!["", "plain", "a \"b\" \\", "tab\tnew\nline\u{1}", "한국어 🌙"]),
                prop::option::of(".{0,6}"), 0..30_u64), 0..40)) {
            let mut memos = Memos::default();
            let mut expected: Vec<Memo<'static>> = Vec::new();
            let mut made = 0;
            for (add, content, source, id) in steps {
                let (before, shown) = (memos.clone(), memos.data().to_vec());
                if add {
                    let memo = Memo { id: made, content: content.into(), source: source.map(Cow::Owned) };
                    memos.push(&memo);
                    expected.push(memo);
                    made += 1;
                    if expected.len() > MAX_MEMOS {
                        expected.remove(0);
                    }
                } else {
                    let known = expected.iter().any(|memo| memo.id == id);
                    expected.retain(|memo| memo.id != id);
                    prop_assert_eq!(memos.remove(id), known);
                }
                check(&memos, &expected);
                prop_assert_eq!(before.data(), shown, "an older revision changed");
                let back: Memos = serde_json::from_slice(&serde_json::to_vec(&memos).unwrap()).unwrap();
                check(&back, &expected);
            }
        }
    }
}
