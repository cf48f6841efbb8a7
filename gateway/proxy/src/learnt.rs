//! Resources that nobody lists but a result named: who can read them.
//!
//! A tool may answer with a link to a resource, or embed one, that is in no list and fits no template. Whoever was given
//! the address may come back with it, so it is remembered for that principal: a bounded number for each upstream, the
//! oldest forgotten first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use moongate_core::{Principal, hash::Map};
use moongate_wire::{Method, Raw, raw::Needle};

/// What links and embedded resources are called.
static RESOURCE: Needle = Needle::new("resource");

/// Addresses remembered of one member for one principal.
const MAX_URIS: usize = 1024;
/// Members with something remembered, counted for each principal anew; beyond that the one not used for longest goes.
const MAX_OWNERS: usize = 4096;
/// No address is longer.
const MAX_URI: usize = 8 * 1024;

/// What was learnt from results.
#[derive(Debug, Default)]
pub(crate) struct Learnt(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    owners: Map<(Principal, Arc<str>), Uris>,
    /// Counts what is learnt: the larger, the younger.
    moment: u64,
}

#[derive(Debug, Default)]
struct Uris {
    by_uri: Map<Arc<str>, u64>,
    youngest: u64,
}

impl Learnt {
    /// Remembers for `principal` what a result of `member` links to or embeds.
    pub(crate) fn learn(&self, principal: &Principal, member: &Arc<str>, method: Method, result: &Raw) {
        // Only these have content, and most of them name none, which a search tells soonest.
        if !matches!(method, Method::CallTool | Method::GetPrompt) || !RESOURCE.may_be_in(result) {
            return;
        }
        let uris = uris_in(method, result);
        if uris.is_empty() {
            return;
        }
        let mut known = self.lock();
        let key = (principal.clone(), Arc::clone(member));
        if known.owners.len() >= MAX_OWNERS && !known.owners.contains_key(&key) {
            let oldest =
                known.owners.iter().min_by_key(|(_, uris)| uris.youngest).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| known.owners.remove(&oldest));
        }
        for uri in uris {
            known.moment += 1;
            let moment = known.moment;
            known.owners.entry(key.clone()).or_default().insert(uri, moment);
        }
    }

    /// Whether a result of `member` named `uri` to `principal`.
    pub(crate) fn knows(&self, principal: &Principal, member: &Arc<str>, uri: &str) -> bool {
        let known = self.lock();
        let uris = known.owners.get(&(principal.clone(), Arc::clone(member)));
        uris.is_some_and(|uris| uris.by_uri.contains_key(uri))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Uris {
    fn insert(&mut self, uri: Arc<str>, moment: u64) {
        self.youngest = moment;
        self.by_uri.insert(uri, moment);
        if self.by_uri.len() > MAX_URIS {
            let oldest =
                self.by_uri.iter().min_by_key(|(_, moment)| **moment).map(|(uri, _)| Arc::clone(uri));
            oldest.and_then(|oldest| self.by_uri.remove(&oldest));
        }
    }
}

/// The addresses that the content of a tool's or prompt's result names.
fn uris_in(method: Method, result: &Raw) -> Vec<Arc<str>> {
    let items = |name: &str| result.member(name).map(|value| value.items()).unwrap_or_default();
    let blocks: Vec<Raw> = match method {
        Method::CallTool => items("content"),
        Method::GetPrompt => items("messages").iter().filter_map(|said| said.member("content")).collect(),
        _ => return Vec::new(),
    };
    blocks.iter().filter_map(uri_of).filter(|uri| uri.len() <= MAX_URI).collect()
}

fn uri_of(block: &Raw) -> Option<Arc<str>> {
    let uri = match &*block.member("type")?.text()? {
        "resource_link" => block.member("uri"),
        "resource" => block.member("resource")?.member("uri"),
        _ => None,
    };
    uri?.text().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn link(uri: &str) -> Raw {
        Raw::of(&json!({"content": [{"type": "resource_link", "uri": uri, "name": "x"}]}))
    }

    #[test]
    fn links_and_embedded_resources_are_learnt_for_their_principal_only() {
        let (learnt, up): (_, Arc<str>) = (Learnt::default(), "up".into());
        let (me, other) = (Principal::issued("me"), Principal::issued("other"));
        let called = json!({"content": [
            {"type": "text", "text": "x://text"},
            {"type": "resource_link", "uri": "x://link", "name": "x"},
            {"type": "resource", "resource": {"uri": "x://embedded", "text": ""}},
        ]});
        learnt.learn(&me, &up, Method::CallTool, &Raw::of(&called));
        let got = json!({"messages": [{"role": "user", "content": {"type": "resource", "resource": {"uri": "x://said"}}}]});
        learnt.learn(&me, &up, Method::GetPrompt, &Raw::of(&got));
        for (uri, expected) in
            [("x://link", true), ("x://embedded", true), ("x://said", true), ("x://text", false)]
        {
            assert_eq!(learnt.knows(&me, &up, uri), expected, "{uri}");
            assert!(!learnt.knows(&other, &up, uri) && !learnt.knows(&me, &"other".into(), uri), "{uri}");
        }
    }

    #[test]
    fn the_oldest_is_forgotten_and_what_is_named_again_is_young() {
        let (learnt, up): (_, Arc<str>) = (Learnt::default(), "up".into());
        let me = Principal::local();
        for number in 0..MAX_URIS {
            learnt.learn(&me, &up, Method::CallTool, &link(&format!("x://{number}")));
        }
        learnt.learn(&me, &up, Method::CallTool, &link("x://0"));
        learnt.learn(&me, &up, Method::CallTool, &link("x://more"));
        assert!(learnt.knows(&me, &up, "x://0") && learnt.knows(&me, &up, "x://more"));
        assert!(!learnt.knows(&me, &up, "x://1"));
        assert_eq!(learnt.lock().owners.values().map(|uris| uris.by_uri.len()).sum::<usize>(), MAX_URIS);
    }

    #[test]
    fn only_so_many_principals_are_remembered() {
        let (learnt, up): (_, Arc<str>) = (Learnt::default(), "up".into());
        for number in 0..=MAX_OWNERS {
            learnt.learn(&Principal::issued(&number.to_string()), &up, Method::CallTool, &link("x://a"));
        }
        assert_eq!(learnt.lock().owners.len(), MAX_OWNERS);
        assert!(!learnt.knows(&Principal::issued("0"), &up, "x://a"));
        assert!(learnt.knows(&Principal::issued("1"), &up, "x://a"));
    }
}
