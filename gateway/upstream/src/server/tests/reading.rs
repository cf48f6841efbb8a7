//! Who reads from the server, and who is given what another read.

use super::*;

const LEGACY: Version = Version::V2025_11_25;

/// Reads what a route keeps for a minute.
fn kept() -> Call {
    Call { keep: Some(Duration::from_mins(1)), ..Call::new(read()) }
}

/// A server that answers reads when it is told to.
fn slow() -> Setup {
    Setup::new(legacy_but(Way::Pipe, |got| (got.method == "resources/read").then_some(React::Hold)))
}

async fn reads(setup: &Setup, call: Call, cx: &Context) -> usize {
    soon(setup.server.call(call, cx)).await.unwrap();
    setup.fake.count("resources/read")
}

#[tokio::test(start_paused = true)]
async fn one_request_serves_all_who_read_the_same_at_a_time() {
    let (setup, cx) = (slow(), bare());
    let all: Vec<_> = (0..3).map(|_| setup.begin_call(kept(), &cx)).collect();
    let held = setup.fake.held("resources/read").await;
    settle().await;
    assert_eq!(setup.fake.count("resources/read"), 1);
    held.answer(json!({"contents": [{"uri": "x://1", "text": "x"}]}));
    for one in all {
        assert_eq!(soon(one).await.unwrap().unwrap()["contents"][0]["text"], "x");
    }
    assert_eq!(reads(&setup, kept(), &cx).await, 1);
    // Without the route nobody waits, and nothing is kept.
    let apart: Vec<_> = (0..2).map(|_| setup.begin(read(), &cx)).collect();
    setup.fake.counted("resources/read", 3).await;
    drop(apart);
}

#[tokio::test(start_paused = true)]
async fn when_the_one_who_reads_goes_away_the_next_reads() {
    let (setup, cx) = (slow(), bare());
    let mut first = setup.server.call(kept(), &cx);
    let _unanswered = tokio::select! {
        _ = &mut first => panic!("nobody answered"),
        held = setup.fake.held("resources/read") => held,
    };
    let second = setup.begin_call(kept(), &cx);
    settle().await;
    assert_eq!(setup.fake.count("resources/read"), 1);
    drop(first);
    setup.fake.held("resources/read").await.answer(json!({"contents": []}));
    soon(second).await.unwrap().unwrap();
    assert_eq!(setup.fake.count("resources/read"), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_updated_is_read_anew_before_anybody_hears_of_it() {
    let (setup, cx) = (Setup::new(legacy(Way::Pipe)), bare());
    for (said, uri) in [
        ("notifications/resources/updated", json!({"uri": "x://1"})),
        ("notifications/resources/list_changed", json!({})),
    ] {
        let before = reads(&setup, kept(), &cx).await;
        assert_eq!(reads(&setup, kept(), &cx).await, before);
        setup.fake.say(0, note(said, uri));
        settle().await;
        assert_eq!(reads(&setup, kept(), &cx).await, before + 1, "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn updates_of_what_only_this_process_has_are_not_told() {
    let (setup, cx) = (Setup::new(legacy(Way::Pipe)), bare());
    reads(&setup, kept(), &cx).await;
    for uri in ["workspace:///a", "Content://1", "x://1"] {
        setup.fake.say(0, note("notifications/resources/updated", json!({"uri": uri})));
    }
    setup.announced(Change::Updated { uri: "x://1".into() }).await;
    let updated = setup.changes().into_iter().filter(|change| matches!(change, Change::Updated { .. }));
    assert_eq!(updated.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_is_asked_on_the_way_reads_for_itself() {
    let setup = slow();
    let cx = client(LEGACY, json!({"elicitation": {}}), "s");
    for count in 1..=2 {
        let reading = setup.begin_call(kept(), &cx);
        let held = setup.fake.held("resources/read").await;
        held.ask(json!(count), "elicitation/create", json!({"message": "?", "requestedSchema": {}}));
        setup.fake.response(json!(count)).await;
        held.answer(json!({"contents": []}));
        soon(reading).await.unwrap().unwrap();
        assert_eq!(setup.fake.count("resources/read"), count);
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_says_how_long_and_hears_what_its_client_can_do() {
    let setup = Setup::new(modern_but(Way::Http, |got| {
        let result =
            json!({"resultType": "complete", "contents": [], "ttlMs": 60_000, "cacheScope": "private"});
        (got.method == "resources/read").then(|| React::Result(result))
    }));
    let cx = bare();
    let other = client(LEGACY, json!({"sampling": {}}), "s");
    let more = |call: Call| Call { meta: Some(Raw::of(&json!({"com.example/tenant": 1}))), ..call };
    assert_eq!(reads(&setup, Call::new(read()), &cx).await, 1);
    assert_eq!(reads(&setup, Call::new(read()), &cx).await, 1);
    assert_eq!(reads(&setup, Call::new(read()), &other).await, 2, "it may answer others otherwise");
    assert_eq!(reads(&setup, more(Call::new(read())), &cx).await, 3, "and other questions");
}
