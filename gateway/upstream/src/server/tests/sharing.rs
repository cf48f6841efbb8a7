//! Who shares a connection.

use super::*;

fn asking() -> Value {
    json!({"sampling": {}, "elicitation": {}})
}

const LEGACY: Version = Version::V2025_11_25;

#[tokio::test(start_paused = true)]
async fn connections_are_shared_as_configured_and_by_what_clients_can_do() {
    let other = |cx: Context| Context { principal: Principal::anonymous(), ..cx };
    for (share, dials) in [(Share::Gateway, 1), (Share::Principal, 3), (Share::Session, 4)] {
        let setup = Setup::with(legacy(Way::Pipe), |settings| settings.share = share);
        let callers = [
            client(LEGACY, json!({}), "a"),
            client(LEGACY, json!({}), "b"),
            client(LEGACY, asking(), "b"),
            other(client(LEGACY, json!({}), "b")),
        ];
        for _ in 0..2 {
            for cx in &callers {
                setup.call(cx).await.unwrap();
            }
        }
        assert_eq!(setup.fake.dials(), dials, "{share:?}");
        assert_eq!(setup.server.status().connections, dials);
    }
}

#[tokio::test(start_paused = true)]
async fn what_happens_at_a_server_concerns_those_who_share_it() {
    let cx = client(LEGACY, json!({}), "a");
    let own = Audience::Principal(cx.principal.clone());
    for (share, updated, listed) in [
        (Share::Gateway, Audience::Everybody, Audience::Everybody),
        (Share::Principal, own.clone(), own.clone()),
        (Share::Session, Audience::Session(session(&cx)), own),
    ] {
        let setup = Setup::with(legacy(Way::Pipe), |settings| settings.share = share);
        setup.perform(subscribe(), &cx).await.unwrap();
        setup.fake.say(0, note("notifications/resources/updated", json!({"uri": "x://1"})));
        setup.fake.say(0, note("notifications/tools/list_changed", json!({})));
        assert_eq!(setup.announced(Change::Updated { uri: "x://1".into() }).await, updated);
        assert_eq!(setup.announced(Change::Tools).await, listed, "nobody has seen a list");
        setup.changes();
        setup.offer(&cx).await;
        setup.fake.say(0, note("notifications/tools/list_changed", json!({})));
        assert_eq!(setup.announced(Change::Tools).await, listed);
        setup.changes();
        setup.fake.end(0, Fault::Lost("killed".into()));
        assert_eq!(setup.announced(Change::Updated { uri: "x://1".into() }).await, updated, "watched again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_is_told_what_its_clients_can_do_and_nothing_when_all_share_it() {
    for (share, told) in
        [(Share::Principal, json!({"sampling": {}, "elicitation": {}})), (Share::Gateway, json!({}))]
    {
        let setup = Setup::with(legacy(Way::Pipe), |settings| settings.share = share);
        setup.call(&client(LEGACY, asking(), "s")).await.unwrap();
        let initialize = setup.fake.requests().into_iter().find(|got| got.method == "initialize").unwrap();
        assert_eq!(initialize.params["capabilities"], told);
    }
}

#[tokio::test(start_paused = true)]
async fn configured_roots_are_declared_for_clients_that_have_none() {
    for fake in [legacy(Way::Pipe), modern(Way::Pipe)] {
        let setup = Setup::with(fake, |settings| settings.roots = Some(vec!["file:///srv".to_owned()]));
        setup.call(&client(LEGACY, json!({}), "s")).await.unwrap();
        setup.call(&client(LEGACY, json!({"roots": {}}), "s")).await.unwrap();
        assert_eq!(setup.fake.dials(), 1, "nobody is asked, so it does not matter who has any");
        let declared = |got: &Got| match got.method {
            "initialize" => Some(got.params["capabilities"].clone()),
            "tools/call" => got.params["_meta"].get("io.modelcontextprotocol/clientCapabilities").cloned(),
            _ => None,
        };
        let declared: Vec<_> = setup.fake.requests().iter().filter_map(declared).collect();
        assert!(!declared.is_empty() && declared.iter().all(|all| all["roots"] == json!({})), "{declared:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_of_all_kinds_share_a_modern_server_and_each_request_tells_its_own() {
    for era in [EraChoice::Auto, EraChoice::Modern] {
        let setup = Setup::with(modern(Way::Http), |settings| settings.era = era);
        let callers = [
            client(LEGACY, asking(), "a"),
            client(LEGACY, json!({}), "b"),
            client(LEGACY, json!({"roots": {}}), "a"),
        ];
        for cx in &callers {
            setup.call(cx).await.unwrap();
        }
        assert_eq!((setup.fake.dials(), setup.fake.count("server/discover")), (1, 1));
        let calls = setup.fake.requests().into_iter().filter(|got| got.method == "tools/call");
        let told: Vec<_> = calls
            .map(|got| got.params["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone())
            .collect();
        assert_eq!(told, [asking(), json!({}), json!({"roots": {}})]);
        let status = setup.server.status();
        assert_eq!((status.connections, status.starts, status.era), (1, 1, Some("modern")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_that_all_share_is_told_of_nothing() {
    let setup = Setup::with(modern(Way::Http), |settings| settings.share = Share::Gateway);
    setup.call(&client(LEGACY, asking(), "a")).await.unwrap();
    let got = setup.fake.requests().pop().unwrap();
    assert_eq!(got.params["_meta"]["io.modelcontextprotocol/clientCapabilities"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn after_a_question_that_says_not_whose_it_is_sessions_are_kept_apart_also_after_a_restart() {
    let setup = Setup::new(legacy_but(Way::Pipe, |got| {
        (got.method == "tools/call" && got.line == 0).then_some(React::Hold)
    }));
    let (one, two) = (client(LEGACY, asking(), "one"), client(LEGACY, asking(), "two"));
    let running = setup.begin(tool(), &one);
    let held = setup.fake.held("tools/call").await;
    setup.fake.ask(0, json!(1), "roots/list", json!({}));
    setup.fake.response(json!(1)).await;
    setup.fake.ask(0, json!(2), "elicitation/create", json!({"message": "?", "requestedSchema": {}}));
    setup.fake.response(json!(2)).await;
    held.answer(json!({"content": []}));
    soon(running).await.unwrap().unwrap();
    assert_eq!(line(setup.call(&one).await), 1);
    assert_eq!(line(setup.call(&two).await), 2);
    assert_eq!(line(setup.call(&one).await), 1);

    let again = Setup::on(Arc::clone(&setup.shelf), legacy(Way::Pipe), |_| {});
    assert_eq!(line(again.call(&one).await), 0);
    assert_eq!(line(again.call(&two).await), 1);
}

#[tokio::test(start_paused = true)]
async fn asking_for_roots_alone_separates_nobody() {
    let setup = Setup::new(legacy(Way::Pipe));
    let (one, two) =
        (client(LEGACY, json!({"roots": {}}), "one"), client(LEGACY, json!({"roots": {}}), "two"));
    setup.call(&one).await.unwrap();
    setup.fake.ask(0, json!(1), "roots/list", json!({}));
    settle().await;
    assert_eq!(line(setup.call(&two).await), 0);
}

#[tokio::test(start_paused = true)]
async fn a_configured_era_decides_who_shares_whatever_was_found_before() {
    let shelf = Arc::<Shelf>::default();
    Setup::on(Arc::clone(&shelf), modern(Way::Pipe), |_| {}).call(&bare()).await.unwrap();
    let setup = Setup::on(shelf, legacy(Way::Pipe), |settings| settings.era = EraChoice::Legacy);
    setup.call(&client(LEGACY, asking(), "a")).await.unwrap();
    setup.call(&client(LEGACY, json!({}), "a")).await.unwrap();
    assert_eq!((setup.fake.dials(), setup.fake.count("server/discover")), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_session_closes_its_own_connection_and_no_other() {
    for fake in [legacy(Way::Pipe), modern(Way::Pipe)] {
        let setup = Setup::with(fake, |settings| settings.share = Share::Session);
        let (one, two) = (client(LEGACY, asking(), "one"), client(LEGACY, asking(), "two"));
        setup.call(&one).await.unwrap();
        setup.call(&two).await.unwrap();
        setup.server.session_ended(&session(&one));
        setup.fake.closed(0).await;
        assert!(!setup.fake.is_closed(1));
        setup.call(&two).await.unwrap();
        assert_eq!(setup.fake.dials(), 2);
        setup.call(&one).await.unwrap();
        assert_eq!(setup.fake.dials(), 3, "a session of that name may come again");
    }
    let shared = Setup::new(legacy(Way::Pipe));
    let cx = bare();
    shared.call(&cx).await.unwrap();
    shared.server.session_ended(&session(&cx));
    settle().await;
    assert!(!shared.fake.is_closed(0));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_made_for_a_session_that_has_ended_is_closed() {
    let fake = legacy_but(Way::Pipe, |got| (got.method == "initialize").then_some(React::Hold));
    let setup = Setup::with(fake, |settings| settings.share = Share::Session);
    let cx = bare();
    let running = setup.begin(tool(), &cx);
    let held = setup.fake.held("initialize").await;
    setup.server.session_ended(&session(&cx));
    held.react(greeting("2025-11-25", json!({})));
    assert!(soon(running).await.unwrap().is_err());
    setup.fake.closed(0).await;
}

#[tokio::test(start_paused = true)]
async fn clients_that_differ_only_in_the_settings_of_an_extension_share_a_connection_and_lists() {
    let ui = |number: usize| {
        let settings = json!({"extensions": {"io.modelcontextprotocol/ui": {"number": number}}});
        client(Version::V2026_07_28, settings, "s")
    };
    for fake in [legacy(Way::Pipe), modern(Way::Pipe)] {
        let setup = Setup::new(fake);
        setup.call(&client(Version::V2026_07_28, json!({}), "s")).await.unwrap();
        let without = setup.fake.dials();
        for number in 0..10 {
            setup.call(&ui(number)).await.unwrap();
            setup.offer(&ui(number)).await;
        }
        assert!(setup.fake.dials() <= without + 1);
        assert_eq!(setup.shelf.keys("upstream_lists").len(), 1);
        let initialize = setup.fake.requests().into_iter().rfind(|got| got.method == "initialize");
        if let Some(initialize) = initialize {
            let told = &initialize.params["capabilities"]["extensions"]["io.modelcontextprotocol/ui"];
            assert_eq!(*told, json!({"number": 0}), "those of the first");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_caller_has_only_so_many_connections_and_others_have_theirs() {
    let setup = Setup::with(legacy(Way::Pipe), |settings| settings.share = Share::Session);
    let of = |number: usize| client(LEGACY, json!({}), &number.to_string());
    let running: Vec<_> = (0..MAX_CONNECTIONS + 10).map(|number| setup.begin(tool(), &of(number))).collect();
    let mut refused = 0;
    for outcome in running {
        if let Err(error) = soon(outcome).await.unwrap() {
            let wanted = "too many connections of this caller to the upstream git are open";
            assert!(error.public.contains(wanted), "{error}");
            refused += 1;
        }
    }
    assert_eq!((refused, setup.fake.dials()), (10, MAX_CONNECTIONS));
    let offer = setup.offer(&of(MAX_CONNECTIONS + 20)).await;
    assert!(offer.missing.as_deref().is_some_and(|why| why.starts_with("too many connections")));

    let other = Context { principal: Principal::anonymous(), ..of(0) };
    setup.call(&other).await.unwrap();
    setup.call(&of(0)).await.unwrap();
    setup.server.session_ended(&session(&of(0)));
    setup.call(&of(MAX_CONNECTIONS + 20)).await.unwrap();
}
