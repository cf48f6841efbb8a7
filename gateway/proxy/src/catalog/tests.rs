//! Views of fake members: who waits for whom, and what is kept.

use moongate_core::{Backend, BoxFuture, Call, Offer, Raw, Reply, ResourcePage};
use moongate_wire::Version;
use serde_json::json;

use super::*;
use crate::fake::{Fake, catalog, local, tools};

async fn view_for(catalog: &Catalog, client: &Client) -> Arc<View> {
    let admitted = local().await;
    let context = || {
        let client = Arc::new(client.clone());
        Context {
            principal: admitted.principal().clone(),
            ids: moongate_core::ContextIds {
                session: "s".into(),
                durable_session: "s".into(),
                assistant: None,
                thread: None,
            },
            deadline: Instant::now() + Duration::from_mins(1),
            peer: moongate_core::Peer::silent(Arc::clone(&client)),
            client,
            log_level: None,
            transport_session: None,
            session_named: true,
        }
    };
    catalog.view(&admitted, None, client, context).await
}

/// The tools changed for these.
fn to(audience: Audience) -> Announcement {
    Announcement { change: Change::Tools, audience }
}

async fn view(catalog: &Catalog) -> Arc<View> {
    view_for(catalog, &Client::bare(Version::V2026_07_28)).await
}

fn names(view: &Arc<View>) -> Vec<String> {
    let mut names: Vec<String> = view.shown().map(str::to_owned).collect();
    names.sort();
    names
}

fn held(name: &str) -> (Arc<Fake>, Member) {
    let fake = Arc::new(Fake::new(tools(&["t"])).held());
    (Arc::clone(&fake), Member::upstream(name, fake))
}

fn quick(name: &str) -> (Arc<Fake>, Member) {
    let fake = Arc::new(Fake::new(tools(&["t"])));
    (Arc::clone(&fake), Member::upstream(name, fake))
}

#[tokio::test(start_paused = true)]
async fn members_are_asked_side_by_side_and_the_slow_are_left_out_for_a_while() {
    let ((slow, first), (_, second), (slower, third)) = (held("slow"), quick("quick"), held("slower"));
    let timeout = Duration::from_secs(3);
    let (first, third) = (first.with_list_timeout(timeout), third.with_list_timeout(timeout));
    let catalog = catalog(vec![first, second, third], Config::default());
    let start = Instant::now();
    let incomplete = view(&catalog).await;
    assert_eq!(start.elapsed(), timeout, "not one after the other");
    assert_eq!(names(&incomplete), ["quick__t"]);
    assert_eq!(incomplete.ttl, Duration::from_secs(1));
    assert!(Arc::ptr_eq(&incomplete, &view(&catalog).await), "kept for a moment");

    // Whoever comes next does not wait as long again.
    tokio::time::advance(Duration::from_secs(1)).await;
    let start = Instant::now();
    assert_eq!(names(&view(&catalog).await), ["quick__t"]);
    assert_eq!(start.elapsed(), BRIEFLY);

    // They are there now and say so.
    slow.let_go();
    slower.let_go();
    catalog.changed(&to(Audience::Everybody));
    assert_eq!(names(&view(&catalog).await), ["quick__t", "slow__t", "slower__t"]);
}

#[tokio::test(start_paused = true)]
async fn a_member_that_was_late_is_given_its_full_time_again_later() {
    let (_, member) = held("slow");
    let catalog = catalog(vec![member.with_list_timeout(Duration::from_secs(3))], Config::default());
    view(&catalog).await;
    tokio::time::advance(LATE_FOR).await;
    let start = Instant::now();
    view(&catalog).await;
    assert_eq!(start.elapsed(), Duration::from_secs(3));
}

/// A member like a server that hangs: when its time is up it says why it offers nothing.
struct Hung;

impl Backend for Hung {
    fn offer<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Arc<Offer>> {
        Box::pin(async {
            tokio::time::sleep_until(cx.deadline).await;
            let ttl = Some(Duration::from_secs(1));
            Arc::new(Offer { ttl, missing: Some("it hangs".into()), ..Offer::default() })
        })
    }

    fn call<'a>(&'a self, _: Call, _: &'a Context) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(std::future::pending())
    }

    fn resources<'a>(
        &'a self,
        _after: Option<&'a str>,
        _cx: &'a Context,
    ) -> BoxFuture<'a, Result<ResourcePage, CallError>> {
        Box::pin(std::future::ready(Ok(ResourcePage::default())))
    }

    fn roots_changed(&self, _: &SessionKey) {}

    fn session_ended(&self, _: &SessionKey) {}
}

#[tokio::test(start_paused = true)]
async fn a_member_that_says_itself_that_its_time_is_up_holds_up_one_call_and_no_more() {
    let timeout = Duration::from_secs(3);
    let hung = Member::upstream("hung", Arc::new(Hung)).with_list_timeout(timeout);
    let catalog = catalog(vec![hung, quick("quick").1], Config::default());
    for (change, patience) in [(false, timeout), (false, BRIEFLY), (true, BRIEFLY)] {
        if change {
            catalog.changed(&to(Audience::Everybody));
        }
        let start = Instant::now();
        let incomplete = view(&catalog).await;
        assert_eq!(start.elapsed(), patience);
        assert_eq!(names(&incomplete), ["quick__t"]);
        let error = incomplete.tool("hung__t").err().unwrap().to_string();
        assert!(error.contains("hung") && error.contains("it hangs"), "{error}");
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    tokio::time::advance(LATE_FOR).await;
    let start = Instant::now();
    view(&catalog).await;
    assert_eq!(start.elapsed(), timeout, "it is given its full time again later");
}

#[tokio::test(start_paused = true)]
async fn who_was_late_is_known_also_when_something_changed_meanwhile() {
    let (quick, member) = quick("quick");
    let timeout = Duration::from_secs(3);
    let hung = Member::upstream("hung", Arc::new(Hung)).with_list_timeout(timeout);
    let catalog = catalog(vec![hung, member], Config::default());
    let change = async {
        quick.asking.notified().await;
        catalog.changed(&to(Audience::Everybody));
    };
    tokio::join!(view(&catalog), change);
    let start = Instant::now();
    view(&catalog).await;
    assert_eq!(start.elapsed(), BRIEFLY);
}

#[tokio::test]
async fn one_builds_and_the_others_wait_for_it() {
    let (fake, member) = held("up");
    let catalog = catalog(vec![member], Config::default());
    let go = async {
        fake.asking.notified().await;
        fake.let_go();
    };
    let (one, two, three, ()) = tokio::join!(view(&catalog), view(&catalog), view(&catalog), go);
    assert!(Arc::ptr_eq(&one, &two) && Arc::ptr_eq(&two, &three));
    assert_eq!(fake.asked(), 1);
    assert!(lock(&catalog.turns).is_empty());
}

#[tokio::test]
async fn who_gives_up_leaves_the_build_to_the_next() {
    let (fake, member) = held("up");
    let catalog = catalog(vec![member], Config::default());
    let mut first = Box::pin(view(&catalog));
    assert!(futures_util::poll!(&mut first).is_pending());
    let mut second = Box::pin(view(&catalog));
    assert!(futures_util::poll!(&mut second).is_pending());
    drop(first);
    fake.let_go();
    assert_eq!(names(&second.await), ["up__t"]);
    assert_eq!(fake.asked(), 2);
    assert!(lock(&catalog.turns).is_empty());
}

#[tokio::test]
async fn what_changed_while_it_was_built_is_not_kept() {
    let (fake, member) = held("up");
    let catalog = catalog(vec![member], Config::default());
    let change = async {
        fake.asking.notified().await;
        catalog.changed(&to(Audience::Everybody));
        fake.let_go();
    };
    let (outdated, ()) = tokio::join!(view(&catalog), change);
    fake.let_go();
    let fresh = view(&catalog).await;
    assert!(!Arc::ptr_eq(&outdated, &fresh));
    assert!(Arc::ptr_eq(&fresh, &view(&catalog).await));
}

#[tokio::test]
async fn what_changed_for_one_principal_costs_others_nothing() {
    let (fake, member) = held("up");
    let catalog = catalog(vec![member], Config::default());
    let (me, other) = (Audience::Principal(Principal::local()), Principal::issued("other"));
    let elsewhere = || [Audience::Principal(other.clone()), session_of(&other)];
    // Also while it is being built.
    for (audiences, kept) in [(elsewhere(), true), ([me.clone(), session_of(&Principal::local())], false)] {
        for audience in audiences {
            catalog.changed(&to(Audience::Everybody));
            let change = async {
                fake.asking.notified().await;
                catalog.changed(&to(audience.clone()));
                fake.let_go();
            };
            let (first, ()) = tokio::join!(view(&catalog), change);
            fake.let_go();
            let second = view(&catalog).await;
            assert_eq!(Arc::ptr_eq(&first, &second), kept, "{audience:?}, while it was built");
            catalog.changed(&to(audience.clone()));
            fake.let_go();
            assert_eq!(Arc::ptr_eq(&second, &view(&catalog).await), kept, "{audience:?}");
        }
    }
}

#[tokio::test]
async fn resources_of_their_own_that_change_have_no_view_built_anew() {
    let (fake, member) = quick("up");
    let catalog = catalog(vec![member], Config::default());
    let first = view(&catalog).await;
    for audience in [Audience::Principal(Principal::local()), Audience::Everybody] {
        let change = Change::OwnResources;
        catalog.changed(&Announcement { change, audience: audience.clone() });
        assert!(Arc::ptr_eq(&first, &view(&catalog).await), "{audience:?}");
    }
    assert_eq!(fake.asked(), 1);
    let audience = Audience::Principal(Principal::local());
    catalog.changed(&Announcement { change: Change::Resources, audience });
    assert!(!Arc::ptr_eq(&first, &view(&catalog).await), "what all are offered is looked at again");
}

fn session_of(principal: &Principal) -> Audience {
    Audience::Session(SessionKey { principal: principal.clone(), session: "s".into() })
}

#[tokio::test]
async fn clients_share_a_view_unless_a_member_cares_about_what_they_can_do() {
    let (bare, able) = (Client::bare(Version::V2026_07_28), |name: &str| Client {
        capabilities: Raw::of(&json!({ name: {} })),
        ..Client::bare(Version::V2026_07_28)
    });
    let old = Client::bare(Version::V2025_06_18);
    for (cares, shared) in [(false, true), (true, false)] {
        let catalog = catalog(vec![quick("up").1.with_cares(cares)], Config::default());
        let first = view_for(&catalog, &bare).await;
        for other in [&able("sampling"), &able("elicitation"), &able("roots"), &old] {
            assert_eq!(Arc::ptr_eq(&first, &view_for(&catalog, other).await), shared, "{other:?}");
        }
        assert!(Arc::ptr_eq(&first, &view_for(&catalog, &able("experimental")).await));
    }
}

#[tokio::test]
async fn members_are_listed_as_given() {
    let members =
        vec![quick("b").1, quick("a").1, Member::builtin("c", Arc::new(Fake::new(Offer::default())))];
    let catalog = catalog(members, Config::default());
    let order: Vec<&str> = catalog.members().iter().map(|member| &*member.name).collect();
    assert_eq!(order, ["b", "a", "c"]);
}
