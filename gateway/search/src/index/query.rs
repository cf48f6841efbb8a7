//! The terms of a query, each once, weighed, and bounded however long the query is.

use crate::tokens::{self, Role};

use super::term::Term;

/// What a term that is only a part or another form of a word is worth.
const PART: f64 = 0.5;
/// What grammar is worth: enough to find something when there is nothing else.
const COMMON: f64 = 0.05;

#[derive(Debug)]
pub(super) struct Query {
    pub(super) terms: Vec<(Term, f64)>,
}

impl Query {
    pub(super) fn new(text: &str) -> Query {
        let mut terms = Vec::<(Term, f64)>::new();
        tokens::terms(tokens::bounded(text), &mut |text, role| {
            let weight = match role {
                Role::Word => 1.0,
                Role::Common => COMMON,
                Role::Part => PART,
            };
            let term = Term::new(text);
            if let Some((_, known)) = terms.iter_mut().find(|(known, _)| *known == term) {
                *known = known.max(weight);
            } else if terms.len() < tokens::MAX_QUERY_TERMS {
                terms.push((term, weight));
            }
        });
        Query { terms }
    }
}
