//! What a server announces, and what is watched at it.

use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::{
    testing::{note, settle},
    transport::Fault,
};

fn uri(text: &str) -> Arc<str> {
    text.into()
}

fn acknowledge(filter: Value) -> moongate_wire::Message {
    note("notifications/subscriptions/acknowledged", json!({"notifications": filter}))
}

fn announcing() -> Value {
    json!({"tools": {"listChanged": true}, "prompts": {}, "resources": {"listChanged": true, "subscribe": true}})
}

const LISTEN: &str = "subscriptions/listen";

#[tokio::test(start_paused = true)]
async fn changes_are_news_wherever_they_are_said() {
    let all = [
        ("notifications/tools/list_changed", json!({}), News::Tools),
        ("notifications/prompts/list_changed", json!({}), News::Prompts),
        ("notifications/resources/list_changed", json!({}), News::Resources),
        ("notifications/resources/updated", json!({"uri": "x://1"}), News::Updated(uri("x://1"))),
    ];
    let line = Line::to(legacy(Way::Pipe)).await;
    for (method, params, news) in all.clone() {
        line.fake.say(0, note(method, params));
        assert_eq!(line.news.lock().unwrap().pop(), Some(news));
    }
    line.fake.say(0, note("notifications/resources/updated", json!({})));
    assert_eq!(line.news(), []);

    // Servers without another stream say it on that of the call that caused it.
    let line = Line::to(legacy(Way::Http)).await;
    let call = line.call(&legacy_client(&Caller::willing()));
    let held = line.fake.held("tools/call").await;
    for (method, params, _) in all.clone() {
        held.say(note(method, params));
    }
    held.answer(json!({}));
    call.result().await;
    assert_eq!(line.news(), all.clone().map(|(_, _, news)| news));

    let line = Line::to(modern(Way::Http, announcing())).await;
    let listen = line.fake.held(LISTEN).await;
    listen.say(acknowledge(json!({"toolsListChanged": true})));
    for (method, params, _) in all.clone() {
        listen.say(note(method, params));
    }
    settle().await;
    assert_eq!(line.news(), all.map(|(_, _, news)| news));
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_hears_of_the_first_and_of_the_last_who_watch() {
    let fake = Fake::new(Way::Pipe, |got| match got.method {
        "initialize" => greeting("2025-06-18", json!({"resources": {"subscribe": true}})),
        "resources/subscribe" if got.params["uri"] == "x://none" => refused(-32002, "no such resource"),
        "resources/subscribe" | "resources/unsubscribe" => React::Result(json!({})),
        _ => refused(-32601, "no such method"),
    });
    let line = Line::to(fake).await;
    let one = uri("x://1");
    line.connection.subscribe(&one).await.unwrap();
    line.connection.subscribe(&one).await.unwrap();
    assert_eq!(line.connection.watched().await, [(Arc::clone(&one), 2)]);
    assert!(line.connection.is_busy());
    line.connection.unsubscribe(&one).await.unwrap();
    assert_eq!((line.fake.count("resources/subscribe"), line.fake.count("resources/unsubscribe")), (1, 0));
    line.connection.unsubscribe(&one).await.unwrap();
    line.connection.unsubscribe(&one).await.unwrap();
    assert_eq!(line.fake.count("resources/unsubscribe"), 1);
    assert!(!line.connection.is_busy());
    let refused = line.connection.subscribe(&uri("x://none")).await;
    assert!(matches!(refused, Err(Failure::Rpc(error)) if error.code == -32002));
    assert_eq!(line.connection.watched().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_is_listened_to_for_what_it_announces() {
    let line = Line::to(modern(Way::Pipe, announcing())).await;
    let listen = line.fake.held(LISTEN).await;
    let filter = json!({"toolsListChanged": true, "resourcesListChanged": true});
    assert_eq!(listen.got.params["notifications"], filter);
    assert!(!line.connection.announces("tools"), "not before it said so");
    listen.say(acknowledge(json!({"toolsListChanged": true})));
    soon(line.connection.acknowledged()).await;
    assert!(line.connection.announces("tools") && !line.connection.announces("prompts"));
    assert!(!line.connection.announces("resources"), "it did not acknowledge these");

    let quiet = Line::to(modern(Way::Pipe, json!({"tools": {}}))).await;
    quiet.connection.acknowledged().await;
    settle().await;
    assert_eq!((quiet.fake.count(LISTEN), quiet.connection.announces("tools")), (0, false));
}

#[tokio::test(start_paused = true)]
async fn the_old_listen_is_dropped_only_when_the_new_one_is_acknowledged() {
    let line = Line::to(modern(Way::Http, announcing())).await;
    let first = line.fake.held(LISTEN).await;
    first.say(acknowledge(json!({"toolsListChanged": true})));
    let (one, two) = (uri("x://1"), uri("x://2"));
    let server = async {
        let second = line.fake.held(LISTEN).await;
        let wanted = json!({"toolsListChanged": true, "resourcesListChanged": true, "resourceSubscriptions": ["x://1"]});
        assert_eq!(second.got.params["notifications"], wanted);
        first.say(note("notifications/tools/list_changed", json!({})));
        settle().await;
        assert_eq!((line.news(), line.fake.is_given_up(first.got.id)), (vec![News::Tools], false));
        second.say(acknowledge(json!({"toolsListChanged": true, "resourceSubscriptions": ["x://1"]})));
        line.fake.given_up(first.got.id).await;
        second
    };
    let (subscribed, second) = tokio::join!(line.connection.subscribe(&one), server);
    subscribed.unwrap();

    let server = async {
        let third = line.fake.held(LISTEN).await;
        assert_eq!(third.got.params["notifications"]["resourceSubscriptions"], json!(["x://1", "x://2"]));
        third.say(acknowledge(json!({"resourceSubscriptions": ["x://1"]})));
        // It does not honour the second, which is then not asked for any more.
        let fourth = line.fake.held(LISTEN).await;
        assert_eq!(fourth.got.params["notifications"]["resourceSubscriptions"], json!(["x://1"]));
        fourth.say(acknowledge(json!({"resourceSubscriptions": ["x://1"]})));
        line.fake.given_up(second.got.id).await;
        line.fake.given_up(third.got.id).await;
        fourth
    };
    let (subscribed, fourth) = tokio::join!(line.connection.subscribe(&two), server);
    let error = subscribed.unwrap_err().into_call_error("git");
    assert_eq!(error.kind, moongate_core::Kind::UnknownResource { uri: two });

    line.connection.subscribe(&one).await.unwrap();
    line.connection.unsubscribe(&one).await.unwrap();
    settle().await;
    assert_eq!(line.fake.count(LISTEN), 4, "the second who watches costs nothing");
    let server = async {
        let fifth = line.fake.held(LISTEN).await;
        assert!(fifth.got.params["notifications"].get("resourceSubscriptions").is_none());
        fifth.say(acknowledge(json!({"toolsListChanged": true})));
        fifth
    };
    let (unsubscribed, _fifth) = tokio::join!(line.connection.unsubscribe(&one), server);
    unsubscribed.unwrap();
    line.fake.given_up(fourth.got.id).await;
    assert_eq!(line.news(), [News::Tools], "nothing was missed meanwhile");
}

#[tokio::test(start_paused = true)]
async fn a_listen_that_is_refused_leaves_the_old_one_as_it_is() {
    let line = Line::to(modern(Way::Http, announcing())).await;
    let first = line.fake.held(LISTEN).await;
    first.say(acknowledge(json!({"toolsListChanged": true})));
    let one = uri("x://1");
    let server = async {
        line.fake.held(LISTEN).await.react(refused(-32602, "no such resource"));
        let again = line.fake.held(LISTEN).await;
        again.say(acknowledge(json!({"toolsListChanged": true})));
        again
    };
    let (subscribed, _again) = tokio::join!(line.connection.subscribe(&one), server);
    assert!(subscribed.is_err());
    settle().await;
    assert!(line.connection.announces("tools"));
    assert_eq!(line.news(), [], "somebody listened all the time");
}

#[tokio::test(start_paused = true)]
async fn a_lost_listen_is_made_again_and_everything_counts_as_changed() {
    let line = Line::to(modern(Way::Http, announcing())).await;
    let first = line.fake.held(LISTEN).await;
    first.say(acknowledge(json!({"toolsListChanged": true})));
    let server = async {
        let listen = line.fake.held(LISTEN).await;
        listen.say(acknowledge(json!({"toolsListChanged": true, "resourceSubscriptions": ["x://1"]})));
        listen
    };
    let one = uri("x://1");
    let (subscribed, mut listen) = tokio::join!(line.connection.subscribe(&one), server);
    subscribed.unwrap();
    let all = [News::Tools, News::Prompts, News::Resources, News::Updated(uri("x://1"))];
    // A result ends a listen as well as a broken stream.
    for end in [React::Lost(Fault::Lost("reset".into())), React::Result(json!({"resultType": "complete"}))] {
        listen.react(end);
        let before = Instant::now();
        listen = line.fake.held(LISTEN).await;
        assert_eq!(before.elapsed(), Duration::from_millis(500));
        settle().await;
        assert_eq!(line.news(), []);
        listen.say(acknowledge(json!({"toolsListChanged": true, "resourceSubscriptions": ["x://1"]})));
        settle().await;
        assert_eq!(std::mem::take(&mut *line.news.lock().unwrap()), all);
    }
    // It stays away: the pauses grow, and what was good until told is not any more.
    listen.react(React::Lost(Fault::Lost("reset".into())));
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let before = Instant::now();
        let again = line.fake.held(LISTEN).await;
        pauses.push(before.elapsed().as_millis());
        again.react(refused(-32603, "not now"));
    }
    assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
    assert!(!line.connection.announces("tools"));
    assert_eq!(line.news(), all);
}

#[tokio::test(start_paused = true)]
async fn an_old_listen_that_ends_before_the_new_one_is_acknowledged_is_not_asked_again() {
    let line = Line::to(modern(Way::Http, announcing())).await;
    let first = line.fake.held(LISTEN).await;
    first.say(acknowledge(json!({"toolsListChanged": true})));
    let one = uri("x://1");
    let server = async {
        let second = line.fake.held(LISTEN).await;
        first.react(React::Lost(Fault::Lost("reset".into())));
        settle().await;
        // What comes before the acknowledgement makes the client look at both again.
        for _ in 0..3 {
            second.say(note("notifications/tools/list_changed", json!({})));
            settle().await;
        }
        second.say(acknowledge(json!({"toolsListChanged": true, "resourceSubscriptions": ["x://1"]})));
        second
    };
    let (subscribed, _second) = tokio::join!(line.connection.subscribe(&one), server);
    subscribed.unwrap();
    settle().await;
    assert_eq!(line.news().len(), 3 + 4, "for a moment nobody listened");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_listened_to_announces_nothing() {
    let line = Line::to(modern(Way::Http, announcing())).await;
    line.fake.held(LISTEN).await.react(refused(-32601, "no such method"));
    soon(line.connection.acknowledged()).await;
    assert!(!line.connection.announces("tools"));
    let subscribed = soon(line.connection.subscribe(&uri("x://1"))).await;
    assert!(subscribed.is_err());
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(line.fake.count(LISTEN), 1, "it would say the same again");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_an_acknowledgement_that_will_not_come() {
    let line = Line::to(modern(Way::Http, announcing())).await;
    let _unanswered = line.fake.held(LISTEN).await;
    let before = Instant::now();
    line.connection.acknowledged().await;
    assert_eq!(before.elapsed(), Duration::from_secs(2));
    let (one, close) = (uri("x://1"), async {
        settle().await;
        line.connection.close(Duration::ZERO).await;
    });
    let (subscribed, ()) = tokio::join!(soon(line.connection.subscribe(&one)), close);
    assert!(subscribed.is_err());

    let line = Line::to(modern(Way::Http, announcing())).await;
    let _unanswered = line.fake.held(LISTEN).await;
    let end = async {
        settle().await;
        line.tasks.cancel();
    };
    let (subscribed, ()) = tokio::join!(soon(line.connection.subscribe(&one)), end);
    assert!(subscribed.is_err());
}
