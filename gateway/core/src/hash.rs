//! Maps that every call looks into.
//!
//! Keyed at random, so that a caller who chooses keys (session names, request ids) cannot make them collide; several
//! times faster than the standard library's hasher, which a call would wait for twenty times.

use std::collections::{HashMap, HashSet};

pub use ahash::RandomState as Hasher;

/// A hash map.
pub type Map<K, V> = HashMap<K, V, Hasher>;
/// A hash set.
pub type Set<K> = HashSet<K, Hasher>;
