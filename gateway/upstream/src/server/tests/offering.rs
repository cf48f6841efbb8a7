//! What is offered, from where, and what is announced of it.

use super::*;

/// A legacy server that offers what `names` says at the moment.
fn changing(listed: &Arc<Mutex<Vec<&'static str>>>, capabilities: Value) -> Arc<Fake> {
    let listed = Arc::clone(listed);
    legacy_but(Way::Pipe, move |got| match got.method {
        "initialize" => Some(greeting("2025-11-25", capabilities.clone())),
        "tools/list" => Some(tools(&listed.lock().unwrap())),
        _ => None,
    })
}

fn announcing() -> Value {
    json!({"tools": {"listChanged": true}})
}

#[tokio::test(start_paused = true)]
async fn the_first_offer_waits_for_the_server() {
    let setup = Setup::new(legacy_but(Way::Pipe, |got| match got.method {
        "initialize" => Some(React::Result(json!({
            "protocolVersion": "2025-06-18", "instructions": "be kind",
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
        }))),
        "prompts/list" => Some(React::Result(json!({"prompts": [{"name": "p"}]}))),
        "resources/list" => Some(React::Result(json!({"resources": [{"uri": "x://1", "name": "one"}]}))),
        "resources/templates/list" => {
            Some(React::Result(json!({"resourceTemplates": [{"uriTemplate": "x://{a}"}]})))
        }
        _ => None,
    }));
    let offer = setup.offer(&bare()).await;
    assert_eq!(names(&offer), ["t"]);
    assert_eq!(
        (&*offer.prompts[0].name, &*offer.resources[0].uri, &*offer.templates[0].uri_template),
        ("p", "x://1", "x://{a}")
    );
    assert_eq!((offer.instructions.as_deref(), offer.ttl), (Some("be kind"), Some(Duration::from_mins(1))));
    assert_eq!(offer.tools[0].scope, Scope::write());
    assert_eq!(setup.server.status().offers, Some([1, 1, 1, 1]));

    let silent = Setup::with(
        legacy_but(Way::Pipe, |got| {
            (got.method == "initialize").then(|| {
                React::Result(json!({
                    "protocolVersion": "2025-06-18", "instructions": "be kind", "capabilities": {},
                }))
            })
        }),
        |settings| settings.instructions = false,
    );
    assert_eq!(silent.offer(&bare()).await.instructions, None);
}

#[tokio::test(start_paused = true)]
async fn it_waits_no_longer_than_it_may_and_announces_what_comes_later() {
    for (limit, deadline) in [(10, 3600), (3600, 10)] {
        let setup = Setup::with(
            legacy_but(Way::Pipe, |got| (got.method == "initialize").then_some(React::Hold)),
            |settings| settings.list_timeout = Duration::from_secs(limit),
        );
        let cx = Context { deadline: tokio::time::Instant::now() + Duration::from_secs(deadline), ..bare() };
        let before = tokio::time::Instant::now();
        let offer = setup.offer(&cx).await;
        assert_eq!((offer.tools.len(), offer.ttl), (0, Some(Duration::from_secs(1))));
        assert_eq!(before.elapsed(), Duration::from_secs(10));
        assert_eq!(setup.changes(), []);
        setup.fake.held("initialize").await.react(greeting("2025-11-25", json!({"tools": {}})));
        setup.announced(Change::Tools).await;
        assert_eq!(names(&setup.offer(&cx).await), ["t"]);
        assert_eq!(setup.fake.dials(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_greets_and_never_lists_is_asked_again_after_a_while() {
    let setup = Setup::new(legacy_but(Way::Pipe, |got| (got.method == "tools/list").then_some(React::Hold)));
    let offer = setup.offer(&bare()).await;
    assert_eq!(offer.missing.as_deref(), Some("it has not answered yet"));
    let _unanswered = setup.fake.held("tools/list").await;
    tokio::time::sleep(START_LIMIT).await;
    let asked = setup.begin_offer(&bare());
    setup.fake.held("tools/list").await.react(tools(&["t"]));
    assert_eq!(names(&soon(asked).await.unwrap()), ["t"]);
    let error = setup.server.status().last_error;
    assert_eq!(error.as_deref(), Some("it did not list what it offers within 60 s"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_offers_nothing_for_a_moment() {
    let setup = Setup::new(legacy(Way::Pipe));
    setup.fake.refuse_dial(Fault::Unreached("no".into()));
    let before = tokio::time::Instant::now();
    let offer = setup.offer(&bare()).await;
    assert_eq!(
        (offer.tools.len(), offer.ttl, before.elapsed()),
        (0, Some(Duration::from_secs(1)), Duration::ZERO)
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(names(&setup.offer(&bare()).await), ["t"]);
}

#[tokio::test(start_paused = true)]
async fn what_was_offered_is_remembered_and_served_without_starting_anything() {
    for fake in [legacy as fn(Way) -> Arc<Fake>, modern] {
        let shelf = Arc::<Shelf>::default();
        let able = client(Version::V2025_11_25, json!({"sampling": {}}), "s");
        let first = Setup::on(Arc::clone(&shelf), fake(Way::Pipe), |_| {});
        first.offer(&able).await;
        settle().await;
        let setup = Setup::on(Arc::clone(&shelf), fake(Way::Pipe), |_| {});
        let offer = setup.offer(&able).await;
        assert_eq!((names(&offer), offer.ttl, setup.fake.dials()), (vec!["t"], None, 0));
        // Once it runs it is listed anew, and nothing is announced when nothing is different.
        setup.call(&able).await.unwrap();
        setup.fake.counted("tools/list", 1).await;
        settle().await;
        assert_eq!(setup.changes(), []);
        // It was offered to this caller and this kind of client only.
        let setup = Setup::on(shelf, fake(Way::Pipe), |_| {});
        setup.offer(&Context { principal: Principal::anonymous(), ..able }).await;
        assert_eq!(setup.fake.count("tools/list"), 1);
        setup.offer(&bare()).await;
        assert_eq!(setup.fake.count("tools/list"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_offers_something_else_than_remembered_says_so_once_it_runs() {
    let shelf = Arc::<Shelf>::default();
    Setup::on(Arc::clone(&shelf), legacy(Way::Pipe), |_| {}).offer(&bare()).await;
    settle().await;
    let listed = Arc::new(Mutex::new(vec!["t", "u"]));
    let setup = Setup::on(shelf, changing(&listed, announcing()), |_| {});
    assert_eq!(names(&setup.offer(&bare()).await), ["t"]);
    setup.call(&bare()).await.unwrap();
    setup.announced(Change::Tools).await;
    assert_eq!(setup.changes(), [Change::Tools]);
    assert_eq!(names(&setup.offer(&bare()).await), ["t", "u"]);
}

#[tokio::test(start_paused = true)]
async fn an_announced_change_is_listed_first_and_passed_on_also_when_nothing_is_different() {
    let listed = Arc::new(Mutex::new(vec!["t"]));
    let setup = Setup::new(changing(&listed, announcing()));
    assert_eq!(setup.offer(&bare()).await.ttl, None, "until it says otherwise");
    settle().await;
    setup.changes();
    tokio::time::sleep(Duration::from_hours(9)).await;
    setup.offer(&bare()).await;
    assert_eq!(setup.fake.count("tools/list"), 1);

    *listed.lock().unwrap() = vec!["t", "u"];
    setup.fake.say(0, note("notifications/tools/list_changed", json!({})));
    setup.announced(Change::Tools).await;
    assert_eq!(names(&setup.offer(&bare()).await), ["t", "u"]);
    assert_eq!((setup.changes(), setup.fake.count("tools/list")), (vec![Change::Tools], 2));
    setup.fake.say(0, note("notifications/tools/list_changed", json!({})));
    setup.fake.say(0, note("notifications/prompts/list_changed", json!({})));
    setup.announced(Change::Prompts).await;
    assert_eq!(setup.changes(), [Change::Tools, Change::Prompts]);
    assert_eq!(setup.fake.count("tools/list"), 3, "both at once");
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_listing_leads_to_another_and_a_server_that_never_stops_is_slowed_down() {
    let setup = Setup::new(legacy_but(Way::Pipe, |got| match got.method {
        "initialize" => Some(greeting("2025-11-25", announcing())),
        "tools/list" => Some(React::Hold),
        _ => None,
    }));
    let (offer, cx) = (Arc::clone(&setup.server), bare());
    let waiting = async { names(&offer.offer(&cx).await).len() };
    let server = async {
        let held = setup.fake.held("tools/list").await;
        setup.fake.say(0, note("notifications/tools/list_changed", json!({})));
        held.react(tools(&["t"]));
    };
    let (offered, ()) = tokio::join!(waiting, server);
    assert_eq!(offered, 1, "the first list is offered while the second is fetched");
    let before = tokio::time::Instant::now();
    for _ in 0..10 {
        let held = setup.fake.held("tools/list").await;
        setup.fake.say(0, note("notifications/tools/list_changed", json!({})));
        held.react(tools(&["t"]));
    }
    assert!(before.elapsed() >= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn an_old_list_is_served_while_a_new_one_is_fetched() {
    let ttl = |milliseconds: u64| {
        modern_but(Way::Http, move |got| {
            (got.method == "tools/list").then(|| {
                React::Result(json!({
                    "ttlMs": milliseconds, "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
                }))
            })
        })
    };
    let (minute, second) = (Duration::from_mins(1), Duration::from_secs(1));
    for (fake, current) in
        [(legacy(Way::Http), minute), (ttl(5_000), 5 * second), (ttl(0), second), (modern(Way::Http), second)]
    {
        let setup = Setup::new(fake);
        assert_eq!(setup.offer(&bare()).await.ttl, Some(current));
        settle().await;
        tokio::time::advance(current.saturating_sub(Duration::from_millis(10))).await;
        setup.offer(&bare()).await;
        settle().await;
        assert_eq!(setup.fake.count("tools/list"), 1);
        tokio::time::advance(Duration::from_millis(20)).await;
        let before = tokio::time::Instant::now();
        assert_eq!(names(&setup.offer(&bare()).await), ["t"]);
        assert_eq!(before.elapsed(), Duration::ZERO);
        setup.fake.counted("tools/list", 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_is_believed_to_announce_only_what_it_acknowledged() {
    let listening = |listen: React| {
        modern_but(Way::Http, move |got| match got.method {
            "server/discover" => Some(discovered(announcing())),
            "subscriptions/listen" => Some(listen.clone()),
            _ => None,
        })
    };
    let setup = Setup::new(listening(React::Hold));
    let (server, cx) = (Arc::clone(&setup.server), bare());
    let acknowledged = async {
        let held = setup.fake.held("subscriptions/listen").await;
        held.say(note(
            "notifications/subscriptions/acknowledged",
            json!({"notifications": {"toolsListChanged": true}}),
        ));
        held
    };
    let (offer, listen) = tokio::join!(server.offer(&cx), acknowledged);
    assert_eq!(offer.ttl, None);
    setup.changes();
    listen.say(note("notifications/tools/list_changed", json!({})));
    setup.announced(Change::Tools).await;

    let deaf = Setup::new(listening(refused(-32601, "no such method")));
    assert_eq!(deaf.offer(&bare()).await.ttl, Some(Duration::from_secs(1)));
    let slow = Setup::new(listening(React::Hold));
    assert_eq!(slow.offer(&bare()).await.ttl, Some(Duration::from_secs(1)));
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_is_asked_for_the_lists_of_each_kind_of_client() {
    let setup = Setup::new(modern_but(Way::Http, |got| {
        let capabilities = &got.params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        let able = capabilities.get("elicitation").is_some();
        (got.method == "tools/list").then(|| if able { tools(&["t", "ask"]) } else { tools(&["t"]) })
    }));
    let able = client(Version::V2026_07_28, json!({"elicitation": {}}), "s");
    for _ in 0..2 {
        assert_eq!(names(&setup.offer(&able).await), ["t", "ask"]);
        assert_eq!(names(&setup.offer(&bare()).await), ["t"]);
    }
    assert_eq!((setup.fake.dials(), setup.fake.count("tools/list")), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn what_the_server_did_not_declare_is_not_asked_for() {
    let setup = Setup::new(legacy_but(Way::Pipe, |got| {
        (got.method == "initialize").then(|| greeting("2025-11-25", json!({"tools": {}, "prompts": null})))
    }));
    setup.offer(&bare()).await;
    assert_eq!(setup.fake.methods(), ["server/discover", "initialize", "tools/list"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_does_not_take_the_others_with_it() {
    let fails = Arc::new(Mutex::new(false));
    let now = Arc::clone(&fails);
    let setup = Setup::new(legacy_but(Way::Pipe, move |got| match got.method {
        "initialize" => Some(greeting("2025-11-25", json!({"tools": {"listChanged": true}, "prompts": {}}))),
        "prompts/list" => Some(refused(-32603, "broken")),
        "tools/list" if *now.lock().unwrap() => Some(refused(-32603, "broken")),
        _ => None,
    }));
    let offer = setup.offer(&bare()).await;
    assert_eq!((names(&offer), offer.prompts.len()), (vec!["t"], 0));
    assert_eq!(offer.ttl, Some(Duration::from_mins(1)), "it is asked again for what it did not list");
    settle().await;
    *fails.lock().unwrap() = true;
    setup.changes();
    setup.fake.say(0, note("notifications/tools/list_changed", json!({})));
    setup.announced(Change::Tools).await;
    assert_eq!(names(&setup.offer(&bare()).await), ["t"], "what was there stays");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_lost_while_listing_leaves_the_old_list() {
    let setup = Setup::new(legacy(Way::Pipe));
    setup.offer(&bare()).await;
    settle().await;
    setup.fake.end(0, Fault::Lost("killed".into()));
    settle().await;
    setup.fake.refuse_dial(Fault::Unreached("no".into()));
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(names(&setup.offer(&bare()).await), ["t"]);
    settle().await;
    assert_eq!(names(&setup.offer(&bare()).await), ["t"]);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_tools_are_offered_and_remembered() {
    let setup = Setup::new(legacy_but(Way::Pipe, |got| {
        let tools =
            || (0..10_000).map(|n| json!({"name": format!("t{n}"), "inputSchema": {}})).collect::<Vec<_>>();
        (got.method == "tools/list").then(|| React::Result(json!({"tools": tools()})))
    }));
    assert_eq!(setup.offer(&bare()).await.tools.len(), 10_000);
    settle().await;
    assert_eq!(setup.shelf.keys("upstream_lists").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_goes_by_itself_unless_it_is_used() {
    let days = |days: u64| Duration::from_hours(24 * days);
    let setup = Setup::new(legacy(Way::Pipe));
    setup.offer(&bare()).await;
    setup.announced(Change::Tools).await;
    let first = ["upstream_lists", "upstream_verdict"].map(|kind| setup.shelf.expiries(kind));
    let start = 1_000_000 * 3600 * 1000;
    let after = |days: u64| vec![Some(start + days * 24 * 3600 * 1000)];
    assert_eq!(first, [after(90), after(90)]);

    for (age, expires) in [(0, after(90)), (2, after(92))] {
        let again = Setup::on(Arc::clone(&setup.shelf), legacy(Way::Pipe), |_| {});
        again.clock.advance(days(age));
        again.offer(&bare()).await;
        assert_eq!(setup.shelf.expiries("upstream_lists"), expires, "{age} days");
    }

    // A gateway that runs on for long keeps what it uses.
    setup.clock.advance(days(3));
    tokio::time::sleep(days(3)).await;
    setup.offer(&bare()).await;
    setup.fake.counted("tools/list", 2).await;
    settle().await;
    assert_eq!(setup.shelf.expiries("upstream_lists"), after(93));
}
