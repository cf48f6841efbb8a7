//! `resources/list` where callers have resources of their own, behind those that everybody is offered.
//!
//! What is shared is rendered once and kept; a caller's own is asked for with each list, because it depends on the session
//! and may change with every call. A page that ends the one goes on with the other, for clients that read one page only.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use moongate_core::{CallError, Peer, ResourcePage};
use moongate_wire::{Params, Raw, write};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    engine::{Caller, listed, timeout},
    gateway::Gateway,
    job::{Outbox, Outcome, within},
    member::Member,
    view::View,
};

/// Where a page of own resources begins.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    /// Whose.
    owner: String,
    /// Behind which of them, as the backend wrote it; at the first without.
    after: Option<String>,
}

impl Gateway {
    /// One page of the resources that `view` shows, and of the caller's own.
    ///
    /// # Errors
    /// `InvalidParams` for a cursor that no list gave out, or what a backend said.
    pub(crate) async fn list_with_own(&self, caller: &Caller, view: &View, params: &Params) -> Outcome {
        let cursor = params.cursor();
        let (mut entries, mut place) = (Vec::new(), cursor.and_then(Place::read));
        if place.is_none() {
            let shared = view.resource_list.page(cursor)?;
            if shared.member("nextCursor").is_some() {
                return Ok(listed(shared, view.ttl));
            }
            entries = shared.member("resources").map(|list| list.items()).unwrap_or_default();
            place = view.owners().first().map(|owner| Place::first(owner));
        }
        // A page ends where an owner has more than it gave, or with the last of them.
        while let Some(begin) = place.take() {
            let (own, next) = self.own_page(caller, view, params, begin).await?;
            entries.extend(own);
            match next {
                Some(more) if more.after.is_some() => return Ok(page(&entries, Some(&more))),
                next => place = next,
            }
        }
        Ok(page(&entries, None))
    }

    /// The definitions of one owner's page, and where the next one begins: there, or at the owner behind it.
    async fn own_page(
        &self,
        caller: &Caller,
        view: &View,
        params: &Params,
        place: Place,
    ) -> Result<(Vec<Raw>, Option<Place>), CallError> {
        let mut owners = view.owners().iter().skip_while(|owner| *owner.name != *place.owner);
        let owner = owners.next().ok_or_else(|| {
            CallError::invalid_params("the cursor is of a list that is gone; list again without it")
        })?;
        let (limit, start) = (timeout(caller, owner.timeout), Instant::now());
        let peer = Peer::silent(Arc::clone(&caller.client));
        let cx = self.context(caller, params, None, peer, start + limit)?;
        let asking = owner.backend.resources(place.after.as_deref(), &cx);
        let own = within(limit, start, &Outbox::default(), owner.upstream_name(), asking).await?;
        let ResourcePage { resources, next } = own;
        let shown = resources.into_iter().filter(|resource| view.shows_resource(&resource.uri));
        let next = match next {
            Some(after) => Some(Place { after: Some(after), ..place }),
            None => owners.next().map(|owner| Place::first(owner)),
        };
        Ok((shown.map(|resource| resource.definition).collect(), next))
    }
}

impl Place {
    fn first(owner: &Member) -> Self {
        Self { owner: owner.name.to_string(), after: None }
    }

    fn cursor(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(Raw::of(self).as_bytes())
    }

    /// The place that `cursor` names, unless it is one of the shared list, or of none.
    fn read(cursor: &str) -> Option<Self> {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()
    }
}

/// A page with something of the caller's own, which nobody keeps.
fn page(entries: &[Raw], next: Option<&Place>) -> moongate_core::Reply {
    let (entries, next) = (write::array(entries), next.map(|place| Raw::of(&place.cursor())));
    let next = next.as_ref().map(|next| ("nextCursor", next));
    listed(write::object([("resources", &entries)].into_iter().chain(next)), Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use moongate_config::{Config, Glob, Profile};
    use moongate_core::Offer;
    use moongate_wire::{Method, Version};
    use serde_json::{Value, json};

    use super::*;
    use crate::fake::{Fake, caller, catalog, gateway, resource, template};

    fn owner(name: &'static str, count: usize) -> Member {
        let uri = format!("{name}://{{+rest}}");
        let offer = Offer { templates: vec![template(&uri)], has_own_resources: true, ..Offer::default() };
        Member::builtin(name, Arc::new(Fake::new(offer).owning(name, count, 100)))
    }

    fn sharing(count: usize) -> Member {
        let resources = (0..count).map(|number| resource(&format!("shared://{number}"))).collect();
        Member::upstream("up", Arc::new(Fake::new(Offer { resources, ..Offer::default() })))
    }

    /// The addresses on each page.
    async fn pages(members: Vec<Member>, config: impl Fn() -> Config, session: &str) -> Vec<Vec<String>> {
        let profile = config().profiles.keys().next().map(|name| name.as_str().into());
        let gateway = gateway(catalog(members, config()), config());
        let caller = Caller { profile, ..caller(&gateway, Version::V2026_07_28).await };
        let (mut pages, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let mut params = json!({"_meta": {"dev.moongate/sessionId": session}});
            if !cursor.is_null() {
                params["cursor"] = cursor;
            }
            let params = Params::read(Raw::of(&params)).unwrap();
            let listed = gateway.list(&caller, Method::ListResources, &params).await.unwrap();
            let page: Value = listed.result.parse().unwrap();
            let uri = |entry: &Value| entry["uri"].as_str().unwrap().to_owned();
            pages.push(page["resources"].as_array().unwrap().iter().map(uri).collect());
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                return pages;
            }
        }
    }

    #[tokio::test]
    async fn own_resources_follow_the_shared_ones_page_by_page_and_owner_by_owner() {
        let members = vec![owner("a", 150), owner("none", 0), owner("b", 100), sharing(1001)];
        let pages = pages(members, Config::default, "mine").await;
        let lengths: Vec<usize> = pages.iter().map(Vec::len).collect();
        assert_eq!(lengths, [1000, 1 + 100, 50 + 100]);
        let all: Vec<&String> = pages.iter().flatten().collect();
        assert_eq!((all[0].as_str(), all[1000].as_str()), ("shared://0", "shared://1000"));
        assert_eq!((all[1001].as_str(), all[1150].as_str()), ("a://mine/0", "a://mine/149"));
        assert_eq!((all[1151].as_str(), all[1250].as_str()), ("b://mine/0", "b://mine/99"));
    }

    #[tokio::test]
    async fn nobody_who_owns_anything_leaves_one_empty_page() {
        let none: &[String] = &[];
        assert_eq!(pages(vec![owner("a", 0), owner("b", 0)], Config::default, "s").await, [none]);
    }

    #[tokio::test]
    async fn a_profile_hides_owners_and_single_resources() {
        let profile = |pattern: &str| {
            let pattern = [Glob::new(pattern).unwrap()].into_iter().collect();
            let config = Config::default();
            Config {
                profiles: [("p".into(), Profile { resources: pattern, ..Profile::default() })].into(),
                ..config
            }
        };
        let members = || vec![owner("a", 3), owner("b", 2)];
        assert_eq!(pages(members(), || profile("b://*"), "s").await, [["b://s/0", "b://s/1"]]);
        let none: &[String] = &[];
        assert_eq!(pages(members(), || profile("a://s/1"), "s").await, [none]);
    }

    #[tokio::test]
    async fn a_cursor_that_no_list_gave_out_is_refused() {
        let gateway = gateway(catalog(vec![owner("a", 1)], Config::default()), Config::default());
        let caller = caller(&gateway, Version::V2026_07_28).await;
        let gone = Place { owner: "gone".into(), after: None }.cursor();
        for cursor in ["", "x", gone.as_str()] {
            let params = Params::read(Raw::of(&json!({"cursor": cursor}))).unwrap();
            let refused = gateway.list(&caller, Method::ListResources, &params).await.unwrap_err();
            assert!(refused.public.contains("list again without it"), "{cursor:?}: {refused}");
        }
    }
}
