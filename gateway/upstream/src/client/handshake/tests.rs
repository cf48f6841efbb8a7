//! The handshake against servers of every temper.

use moongate_core::Client;
use moongate_wire::RpcError;
use serde_json::Value;

use super::{
    super::{Open, Request},
    *,
};
use crate::testing::{Dialled as Dials, Fake, Got, React, discovered, greeting, refused, settle};

/// What became of an attempt.
struct Outcome {
    connected: Result<(Arc<Connection>, Verdict), Fault>,
    /// How long it took.
    took: Duration,
}

impl Outcome {
    fn verdict(&self) -> (Version, bool) {
        let (connection, verdict) = self.connected.as_ref().unwrap();
        assert_eq!(verdict.modern, connection.version().era() == Era::Modern);
        (connection.version(), verdict.old_sse)
    }

    fn fault(self) -> Fault {
        self.connected.unwrap_err()
    }
}

fn hearing() -> Hearing {
    Hearing::new("fake".into(), Open::default(), Group::new(), |_| {})
}

async fn attempt(main: &Arc<Fake>, old: Option<&Arc<Fake>>, known: Option<Verdict>) -> Outcome {
    attempt_with(main, old, known, &Declared::default()).await
}

async fn attempt_with(
    main: &Arc<Fake>,
    old: Option<&Arc<Fake>>,
    known: Option<Verdict>,
    abilities: &Declared,
) -> Outcome {
    let (main, old) = (Dials(Arc::clone(main)), old.map(|old| Dials(Arc::clone(old))));
    let ways = Ways { main: &main, old: old.as_ref().map(|old| old as &dyn Dial) };
    let began = tokio::time::Instant::now();
    let connected = connect(ways, known.as_ref(), abilities, hearing, &Group::new()).await;
    Outcome { connected, took: began.elapsed() }
}

/// A server that takes `discover` and `initialize` so.
fn server(way: Way, discover: React, initialize: React) -> Arc<Fake> {
    Fake::new(way, move |got| match got.method {
        "server/discover" => discover.clone(),
        "initialize" => initialize.clone(),
        _ => React::Hold,
    })
}

fn latest() -> React {
    greeting("2025-11-25", json!({"tools": {}}))
}

fn status(status: u16) -> React {
    React::Lost(Fault::Status { status, detail: String::new() })
}

const LEGACY: (Version, bool) = (Version::V2025_11_25, false);
const MODERN: (Version, bool) = (Version::V2026_07_28, false);

#[tokio::test(start_paused = true)]
async fn a_modern_server_is_known_by_its_first_answer() {
    for way in [Way::Pipe, Way::Http] {
        let fake = server(way, discovered(json!({"tools": {}})), latest());
        let outcome = attempt(&fake, None, None).await;
        assert_eq!((outcome.verdict(), outcome.took), (MODERN, Duration::ZERO));
        assert_eq!((fake.methods(), fake.sent().len()), (vec!["server/discover"], 0));
        assert_eq!(fake.listened(0), 0);
        let asked = &fake.requests()[0];
        assert_eq!(asked.outgoing.version, Some(Version::V2026_07_28));
        assert_eq!(asked.params["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        let name = outcome.connected.unwrap().0.greeting().name();
        assert_eq!(name.as_deref(), Some("fake 2"));
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_else_a_child_says_to_it_leads_to_initialize_on_the_same_pipe() {
    for discover in [
        refused(-32601, "no such method"),
        refused(-32000, "no session"),
        refused(-32602, "before initialization"),
        React::Result(json!({})),
        React::Result(json!({"supportedVersions": ["2027-01-01"], "capabilities": {}})),
        React::Lost(Fault::Garbled("what?".into())),
    ] {
        let fake = server(Way::Pipe, discover.clone(), latest());
        let outcome = attempt(&fake, None, None).await;
        assert_eq!((outcome.verdict(), outcome.took), (LEGACY, Duration::ZERO), "{discover:?}");
        assert_eq!((fake.methods(), fake.dials()), (vec!["server/discover", "initialize"], 1));
        assert_eq!(
            fake.sent(),
            [json!({"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}})]
        );
        assert_eq!(fake.listened(0), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_says_nothing_is_legacy_after_two_seconds() {
    let fake = server(Way::Pipe, React::Hold, latest());
    let outcome = attempt(&fake, None, None).await;
    assert_eq!((outcome.verdict(), outcome.took, fake.dials()), (LEGACY, PROBE, 1));
    assert!(fake.is_given_up(1), "nobody waits for the answer to the probe any more");
}

#[tokio::test(start_paused = true)]
async fn a_modern_child_that_takes_its_time_to_start_is_still_heard() {
    let fake = server(Way::Pipe, React::Hold, React::Hold);
    let late = async {
        let initialize = fake.held("initialize").await;
        fake.held("server/discover").await.react(discovered(json!({})));
        initialize
    };
    let (outcome, _initialize) = tokio::join!(attempt(&fake, None, None), late);
    assert_eq!((outcome.verdict(), fake.dials()), (MODERN, 1));

    let fake = server(Way::Pipe, React::Hold, refused(-32601, "no such method"));
    let late = async {
        fake.counted("initialize", 1).await;
        settle().await;
        fake.held("server/discover").await.react(discovered(json!({})));
    };
    let (outcome, ()) = tokio::join!(attempt(&fake, None, None), late);
    assert_eq!((outcome.verdict(), fake.dials()), (MODERN, 1));
}

#[tokio::test(start_paused = true)]
async fn a_child_that_ends_or_takes_offence_at_the_probe_is_started_again_for_the_handshake() {
    let ends = Fake::new(Way::Pipe, |got| match (got.method, got.line) {
        ("server/discover", 0) => React::Exit,
        ("initialize", 1) => latest(),
        _ => panic!("{} on {}", got.method, got.line),
    });
    assert_eq!(attempt(&ends, None, None).await.verdict(), LEGACY);
    assert_eq!((ends.dials(), ends.is_closed(0), ends.is_closed(1)), (2, true, false));

    let pinned = Fake::new(Way::Pipe, |got| match (got.method, got.line) {
        ("server/discover", 0) => refused(-32601, "no such method"),
        ("initialize", 0) => refused(-32022, "this pipe is modern"),
        ("initialize", 1) => latest(),
        _ => panic!("{} on {}", got.method, got.line),
    });
    assert_eq!(attempt(&pinned, None, None).await.verdict(), LEGACY);
    assert_eq!((pinned.dials(), pinned.is_closed(0)), (2, true));
}

#[tokio::test(start_paused = true)]
async fn refusals_about_us_say_nothing_about_the_era_of_a_remote_server() {
    let no = |status| React::Status(status, RpcError::new(-32000, "no"));
    for discover in [status(401), status(403), status(503), status(429), no(401), no(403), no(500)] {
        let fake = server(Way::Http, discover.clone(), latest());
        let fault = attempt(&fake, None, None).await.fault();
        assert!(matches!(fault, Fault::Status { .. }), "{fault}");
        assert_eq!(fake.methods(), ["server/discover"], "{discover:?}");
        assert!(fake.is_closed(0));
    }
    for fault in [Fault::Unreached("refused".into()), Fault::Lost("reset".into())] {
        let fake = server(Way::Http, React::Lost(fault.clone()), latest());
        assert_eq!(attempt(&fake, None, None).await.fault(), fault);
        assert_eq!(fake.methods(), ["server/discover"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_remote_server_that_does_not_know_the_question_is_initialised() {
    let no = |status, code| React::Status(status, RpcError::new(code, "no"));
    for discover in [
        status(400),
        status(404),
        status(405),
        no(400, -32000),
        no(404, -32001),
        no(404, -32601),
        refused(-32601, "no such method"),
    ] {
        let fake = server(Way::Http, discover.clone(), latest());
        assert_eq!(attempt(&fake, None, None).await.verdict(), LEGACY, "{discover:?}");
        assert_eq!((fake.dials(), fake.listened(0)), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn old_servers_are_reached_in_the_old_way_when_the_new_one_fails() {
    let old = || server(Way::Http, React::Hold, greeting("2024-11-05", json!({})));
    for (initialize, reached) in [(status(404), true), (status(405), true), (status(401), false)] {
        let (main, old) = (server(Way::Http, status(405), initialize), old());
        let outcome = attempt(&main, Some(&old), None).await;
        assert_eq!(outcome.connected.is_ok(), reached);
        assert_eq!(old.dials(), usize::from(reached));
        if reached {
            assert_eq!(outcome.verdict(), (Version::V2024_11_05, true));
            assert_eq!(old.methods(), ["initialize"], "the old way is never asked for the modern era");
        }
    }
    let (main, nothing) =
        (server(Way::Http, status(405), status(405)), server(Way::Http, status(404), status(404)));
    let fault = attempt(&main, Some(&nothing), None).await.fault();
    assert!(matches!(fault, Fault::Status { status: 405, .. }), "what the main way said: {fault}");
    assert!(nothing.is_closed(0));
}

#[tokio::test(start_paused = true)]
async fn a_server_of_other_versions_names_them_in_the_error() {
    let refuse = |supported: Value| {
        React::Error(
            RpcError::new(-32022, "unsupported").with_data(json!({"supported": supported, "requested": "x"})),
        )
    };
    for way in [Way::Pipe, Way::Http] {
        let fake = server(way, refuse(json!(["2027-01-01", "2028-01-01"])), latest());
        let fault = attempt(&fake, None, None).await.fault().to_string();
        assert!(fault.contains("2027-01-01, 2028-01-01"), "{fault}");
        assert_eq!((fake.methods(), fake.dials()), (vec!["server/discover"], 1));
        let dual = server(way, refuse(json!(["2027-01-01", "2025-11-25"])), latest());
        assert_eq!(attempt(&dual, None, None).await.verdict(), LEGACY);
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_era_is_not_asked_for() {
    let verdict = |modern, old_sse| Some(Verdict { modern, old_sse });
    let fake = server(Way::Pipe, React::Exit, latest());
    assert_eq!(attempt(&fake, None, verdict(false, false)).await.verdict(), LEGACY);
    assert_eq!(fake.methods(), ["initialize"]);

    let fake = server(Way::Http, discovered(json!({})), latest());
    assert_eq!(attempt(&fake, None, verdict(true, false)).await.verdict(), MODERN);
    assert_eq!(fake.methods(), ["server/discover"]);

    let (main, old) = (server(Way::Http, status(404), status(404)), server(Way::Http, status(404), latest()));
    assert_eq!(
        attempt(&main, Some(&old), verdict(false, true)).await.verdict(),
        (Version::V2025_11_25, true)
    );
    assert_eq!(main.dials(), 0);
    assert_eq!(
        attempt(&main, Some(&old), verdict(false, false)).await.verdict(),
        (Version::V2025_11_25, true)
    );
    assert_eq!(main.methods(), ["initialize"], "a legacy server is of either kind");
}

#[tokio::test(start_paused = true)]
async fn a_known_era_that_does_not_hold_is_told_from_other_trouble() {
    let modern = Some(Verdict { modern: true, old_sse: false });
    let legacy = Some(Verdict { modern: false, old_sse: false });
    for (way, react, contradicted) in [
        (Way::Pipe, refused(-32601, "no"), true),
        (Way::Pipe, React::Exit, true),
        (Way::Http, status(404), true),
        (Way::Http, status(401), false),
        (Way::Http, status(502), false),
        (Way::Http, React::Lost(Fault::Lost("reset".into())), false),
        (Way::Http, React::Lost(Fault::Unreached("refused".into())), false),
    ] {
        for known in [&modern, &legacy] {
            let fake = server(way, react.clone(), react.clone());
            let fault = attempt(&fake, None, known.clone()).await.fault();
            assert_eq!(contradicts(&fault, way), contradicted, "{fault:?} {known:?}");
            assert!(fake.is_closed(0), "{react:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_chooses_the_version_among_ours() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let fake = server(Way::Http, status(404), greeting(version, json!({})));
        assert_eq!(attempt(&fake, None, None).await.verdict().0.as_str(), version);
        let asked = &fake.requests()[1];
        assert_eq!((&asked.params["protocolVersion"], asked.outgoing.version), (&json!("2025-11-25"), None));
        assert_eq!(asked.params["clientInfo"]["name"], "moongate");
    }
    for unknown in ["2026-07-28", "2030-01-01", ""] {
        let fake = server(Way::Http, status(404), greeting(unknown, json!({})));
        let fault = attempt(&fake, None, None).await.fault();
        assert!(fault.to_string().contains(&format!("{unknown:?}")), "{fault}");
        assert!(fake.sent().is_empty() && fake.is_closed(0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_that_refuses_our_version_and_names_its_own_is_asked_for_that() {
    let picky = Fake::new(Way::Pipe, |got: &Got| match got.params["protocolVersion"].as_str() {
        None => refused(-32601, "no such method"),
        Some("2024-11-05") => greeting("2024-11-05", json!({})),
        Some(_) => {
            let data = json!({"supported": ["2024-11-05", "2030-01-01"], "requested": "2025-11-25"});
            React::Error(RpcError::new(-32602, "Unsupported protocol version").with_data(data))
        }
    });
    assert_eq!(attempt(&picky, None, None).await.verdict().0, Version::V2024_11_05);
    assert_eq!((picky.count("initialize"), picky.dials()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn both_eras_are_told_exactly_what_the_client_can_do() {
    let declared = json!({"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}});
    let client = Client { capabilities: Raw::of(&declared), ..Client::bare(Version::V2025_11_25) };
    for abilities in [Declared::of(&client), Declared::default()] {
        let told: Value = abilities.capabilities().parse().unwrap();
        let fake = server(Way::Pipe, refused(-32601, "no"), latest());
        attempt_with(&fake, None, None, &abilities).await.verdict();
        let requests = fake.requests();
        assert_eq!(requests[0].params["_meta"]["io.modelcontextprotocol/clientCapabilities"], told);
        assert_eq!(requests[1].params["capabilities"], told);
    }
}

#[tokio::test(start_paused = true)]
async fn ids_are_used_once_on_a_connection() {
    let fake = Fake::new(Way::Pipe, |got| match got.method {
        "server/discover" => refused(-32601, "no"),
        "initialize" => latest(),
        _ => React::Result(json!({"tools": []})),
    });
    let (connection, _) = attempt(&fake, None, None).await.connected.unwrap();
    for _ in 0..3 {
        connection.list(Request::own("tools/list", Raw::empty_object()), "tools").await.unwrap();
    }
    let ids: Vec<_> = fake.requests().iter().map(|got| got.id).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_way_to_speak_by_itself_announces_nothing() {
    for speaks in [true, false] {
        let fake =
            server(Way::Http, status(404), greeting("2025-06-18", json!({"tools": {"listChanged": true}})));
        fake.speaks.store(speaks, Ordering::Relaxed);
        let (connection, _) = attempt(&fake, None, None).await.connected.unwrap();
        assert_eq!(connection.announces("tools"), speaks);
        assert!(!connection.announces("prompts"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_dropped_gives_its_request_up() {
    let fake = server(Way::Http, React::Hold, latest());
    let late = tokio::time::timeout(Duration::from_secs(1), attempt(&fake, None, None)).await;
    assert!(late.is_err() && fake.is_given_up(1));
}

#[tokio::test(start_paused = true)]
async fn a_long_refusal_is_quoted_in_part() {
    let (legacy, long) = (|| refused(-32601, "no such method"), "\u{e4}".repeat(10_000));
    let error = |code| RpcError::new(code, long.clone());
    let unreadable = React::Result(json!({"protocolVersion": {"x": long}, "capabilities": long}));
    for (way, discover, initialize) in [
        (Way::Http, React::Status(503, error(-32000)), latest()),
        (Way::Http, legacy(), React::Status(400, error(-32000))),
        (Way::Pipe, legacy(), React::Error(error(-32000))),
        (Way::Pipe, legacy(), unreadable),
        (Way::Pipe, React::Error(error(-32020)), latest()),
    ] {
        let text = attempt(&server(way, discover, initialize), None, None).await.fault().to_string();
        assert!(text.chars().count() < 300, "{} characters", text.chars().count());
    }
}
