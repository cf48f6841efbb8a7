//! A list that the revisions of a document share.
//!
//! Every update of a document clones it, so a list is behind one pointer and only the list that changes is copied, as
//! pointers to its items. The weight of all items is kept up to date, which makes the size of a document a sum of five.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// About how many bytes an item takes beyond its texts.
pub(crate) const ITEM_OVERHEAD: usize = 64;

/// An item of a [`Shelf`]. Its weight never changes: items are replaced, not edited.
pub(crate) trait Weigh {
    /// About how many bytes it takes.
    fn weight(&self) -> usize;
}

/// Items in the order they came.
#[derive(Debug)]
pub(crate) struct Shelf<T> {
    items: Arc<Vec<Arc<T>>>,
    weight: usize,
}

impl<T: Weigh> Shelf<T> {
    /// Adds an item at the end.
    pub(crate) fn push(&mut self, item: T) -> Arc<T> {
        let item = Arc::new(item);
        self.weight += item.weight();
        Arc::make_mut(&mut self.items).push(Arc::clone(&item));
        item
    }

    /// Puts `item` where another was. Nothing happens beyond the end.
    pub(crate) fn replace(&mut self, at: usize, item: T) -> Arc<T> {
        let item = Arc::new(item);
        if let Some(slot) = Arc::make_mut(&mut self.items).get_mut(at) {
            self.weight = self.weight + item.weight() - slot.weight();
            *slot = Arc::clone(&item);
        }
        item
    }

    /// Removes the items that `keep` does not want.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let weight = &mut self.weight;
        Arc::make_mut(&mut self.items).retain(|item| {
            let kept = keep(item);
            *weight -= if kept { 0 } else { item.weight() };
            kept
        });
    }

    /// Removes the oldest items until at most `count` are left and they weigh at most `weight`.
    pub(crate) fn trim(&mut self, count: usize, weight: usize) {
        let mut excess = 0;
        let mut left = self.weight;
        while self.len() - excess > count || (left > weight && excess < self.len()) {
            left -= self.items.get(excess).map_or(0, |item| item.weight());
            excess += 1;
        }
        if excess > 0 {
            Arc::make_mut(&mut self.items).drain(..excess);
            self.weight = left;
        }
    }
}

impl<T> Shelf<T> {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// About how many bytes all of them take.
    pub(crate) fn weight(&self) -> usize {
        self.weight
    }

    /// The item at a position.
    pub(crate) fn get(&self, at: usize) -> Option<&Arc<T>> {
        self.items.get(at)
    }

    /// The items, oldest first.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Arc<T>> {
        self.items.iter()
    }
}

impl<T> Clone for Shelf<T> {
    fn clone(&self) -> Self {
        Self { items: Arc::clone(&self.items), weight: self.weight }
    }
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { items: Arc::default(), weight: 0 }
    }
}

impl<T: Serialize> Serialize for Shelf<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.items.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de> + Weigh> Deserialize<'de> for Shelf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Vec::<Arc<T>>::deserialize(deserializer)?;
        let weight = items.iter().map(|item| item.weight()).sum();
        Ok(Self { items: Arc::new(items), weight })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Weigh for u16 {
        fn weight(&self) -> usize {
            usize::from(*self)
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u16),
        Replace(usize, u16),
        RemoveMultiplesOf(u16),
        Trim(usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => any::<u16>().prop_map(Step::Push),
            2 => (0..12_usize, any::<u16>()).prop_map(|(at, item)| Step::Replace(at, item)),
            1 => (1..5_u16).prop_map(Step::RemoveMultiplesOf),
            1 => (0..12_usize, 0..200_000_usize).prop_map(|(count, weight)| Step::Trim(count, weight)),
        ]
    }

    proptest! {
        #[test]
        fn the_weight_is_always_the_sum(steps in prop::collection::vec(step(), 0..60)) {
            let mut shelf = Shelf::default();
            for step in steps {
                let before = shelf.clone();
                let (len, weight) = (before.len(), before.weight());
                match step {
                    Step::Push(item) => { shelf.push(item); }
                    Step::Replace(at, item) => { shelf.replace(at, item); }
                    Step::RemoveMultiplesOf(n) => shelf.retain(|item| item % n != 0),
                    Step::Trim(count, weight) => {
                        shelf.trim(count, weight);
                        prop_assert!(shelf.len() <= count && shelf.weight() <= weight);
                    }
                }
                prop_assert_eq!(shelf.weight(), shelf.iter().map(|item| usize::from(**item)).sum::<usize>());
                prop_assert_eq!((before.len(), before.weight()), (len, weight), "an older revision changed");
            }
        }
    }

    #[test]
    fn a_shelf_survives_its_encoding() {
        let mut shelf = Shelf::default();
        shelf.push(7_u16);
        shelf.push(9);
        let back: Shelf<u16> = serde_json::from_slice(&serde_json::to_vec(&shelf).unwrap()).unwrap();
        assert_eq!((back.len(), back.weight()), (2, 16));
    }
}
