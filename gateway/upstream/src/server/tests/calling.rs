//! What a call becomes, and when it is made once more.

use moongate_core::{Kind, TASKS};

use super::*;

#[tokio::test(start_paused = true)]
async fn each_operation_becomes_its_request() {
    let setup = Setup::new(modern_but(Way::Http, |got| {
        (got.method != "server/discover").then(|| React::Result(json!({"resultType": "complete"})))
    }));
    let (name, arguments) = (Arc::<str>::from("n"), Raw::of(&json!({"a": "b"})));
    let complete =
        json!({"ref": {"type": "ref/prompt", "name": "n"}, "argument": {"name": "a", "value": ""}});
    let mut with_meta = complete.clone();
    with_meta["_meta"] = json!({"progressToken": 1});
    for (operation, method, header, params) in [
        (
            Operation::CallTool { name: Arc::clone(&name), arguments: arguments.clone() },
            "tools/call",
            Some("n"),
            json!({"name": "n", "arguments": {"a": "b"}}),
        ),
        (
            Operation::GetPrompt { name, arguments },
            "prompts/get",
            Some("n"),
            json!({"name": "n", "arguments": {"a": "b"}}),
        ),
        (read(), "resources/read", Some("x://1"), json!({"uri": "x://1"})),
        (Operation::Complete { params: Raw::of(&with_meta) }, "completion/complete", None, complete),
    ] {
        setup.perform(operation, &bare()).await.unwrap();
        let mut got = setup.fake.requests().pop().unwrap();
        assert!(got.params["_meta"].get("progressToken").is_none());
        got.params.as_object_mut().unwrap().remove("_meta");
        assert_eq!((got.method, got.outgoing.name.as_deref(), got.params), (method, header, params));
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_of_the_client_asks_for_progress() {
    let setup = Setup::new(legacy(Way::Pipe));
    for (meta, asks) in
        [(json!({"progressToken": "a"}), true), (json!({"progressToken": null}), false), (json!({}), false)]
    {
        let call = Call { meta: Some(Raw::of(&meta)), ..Call::new(tool()) };
        setup.server.call(call, &bare()).await.unwrap();
        let got = setup.fake.requests().pop().unwrap();
        assert_eq!(got.params["_meta"].get("progressToken").is_some(), asks, "{meta}");
    }
}

/// Answers every call with a result that an extension defines.
fn extended() -> Arc<Fake> {
    let kind = |got: &Got| got.params["arguments"]["kind"].as_str().unwrap_or("x/later").to_owned();
    modern_but(Way::Http, move |got| {
        let result = || json!({"resultType": kind(got), "ttlMs": "own", "x": 1});
        (got.method == "tools/call").then(|| React::Result(result()))
    })
}

#[tokio::test(start_paused = true)]
async fn other_extensions_reach_a_server_that_takes_them_and_their_results_come_back() {
    let declared = json!({"extensions": {"x/y": {"a": 1}}});
    let key = "io.modelcontextprotocol/clientCapabilities";
    for (extensions, share, version, passed) in [
        (true, Share::Principal, Version::V2026_07_28, true),
        (true, Share::Gateway, Version::V2026_07_28, false),
        (true, Share::Principal, Version::V2025_11_25, false),
        (false, Share::Principal, Version::V2026_07_28, false),
    ] {
        let setup = Setup::with(extended(), |settings| {
            (settings.extensions, settings.share) = (extensions, share);
        });
        let cx = client(version, declared.clone(), "s");
        let outcome = setup.server.call(Call::new(tool()), &cx).await;
        let told = setup.fake.requests().pop().unwrap().params["_meta"][key].clone();
        assert_eq!(told, if passed { declared.clone() } else { json!({}) });
        match outcome {
            Ok(reply) => {
                assert_eq!(
                    (value(&reply.result), reply.result_type),
                    (json!({"ttlMs": "own", "x": 1}), Some(Raw::of("x/later")))
                );
                assert!(passed);
            }
            Err(error) => assert!(!passed && error.kind == Kind::Unavailable, "{error}"),
        }
    }
    // Not what the protocol defines itself, and nothing for who declared nothing.
    let setup = Setup::with(extended(), |settings| settings.extensions = true);
    let task = Operation::CallTool { name: "t".into(), arguments: Raw::of(&json!({"kind": "task"})) };
    setup.perform(task, &client(Version::V2026_07_28, declared, "s")).await.unwrap_err();
    setup.call(&client(Version::V2026_07_28, json!({"extensions": {}}), "s")).await.unwrap_err();
}

/// A server whose first request of a method is lost so.
fn failing_once(way: Way, method: &'static str, fault: Fault) -> Arc<Fake> {
    let left = Mutex::new(Some(fault));
    legacy_but(way, move |got| {
        let fault = (got.method == method).then(|| left.lock().unwrap().take()).flatten();
        fault.map(React::Lost)
    })
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_done_is_not_done_twice() {
    let (lost, unreached) = (|| Fault::Lost("reset".into()), || Fault::Unreached("refused".into()));
    for (way, operation, method, fault, again, dials) in [
        (Way::Pipe, tool(), "tools/call", lost(), false, 1),
        (Way::Http, tool(), "tools/call", lost(), false, 1),
        (Way::Pipe, read(), "resources/read", lost(), true, 2),
        // One stream of many: the session is as good as before.
        (Way::Http, read(), "resources/read", lost(), true, 1),
        (Way::Pipe, tool(), "tools/call", unreached(), true, 2),
        (Way::Http, tool(), "tools/call", unreached(), true, 2),
        (Way::Http, tool(), "tools/call", Fault::SessionGone, true, 2),
        (Way::Http, tool(), "tools/call", Fault::Status { status: 500, detail: String::new() }, false, 1),
        (Way::Http, read(), "resources/read", Fault::Garbled("html".into()), false, 1),
    ] {
        let setup = Setup::new(failing_once(way, method, fault.clone()));
        let outcome = setup.perform(operation, &bare()).await;
        assert_eq!((outcome.is_ok(), setup.fake.dials()), (again, dials), "{method} {fault:?}");
        assert_eq!(setup.fake.count(method), 1 + usize::from(again));
        if let Err(error) = outcome {
            assert_eq!(
                (error.kind, &*error.public),
                (Kind::Unavailable, &*format!("The upstream git failed: {fault}"))
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_is_made_again_only_once() {
    for fault in [Fault::SessionGone, Fault::Unreached("refused".into())] {
        let react = fault.clone();
        let setup = Setup::new(legacy_but(Way::Http, move |got| {
            (got.method == "tools/call").then(|| React::Lost(react.clone()))
        }));
        let error = setup.call(&bare()).await.unwrap_err();
        assert_eq!((setup.fake.count("tools/call"), error.kind), (2, Kind::Unavailable));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_begun_is_not_begun_again() {
    let faults = || [Fault::SessionGone, Fault::Unreached("refused".into())].map(React::Lost);
    let mut refusals = vec![refused(-32020, "headers"), refused(-32022, "version")];
    refusals.extend(faults());
    let cx = |version| client(version, json!({"elicitation": {"url": {}}}), "s");
    // Between two rounds of a modern call.
    for react in refusals {
        let setup = Setup::new(modern_but(Way::Http, move |got| match got.method {
            "tools/call" if got.params.get("requestState").is_some() => Some(react.clone()),
            "tools/call" => Some(React::Result(json!({"resultType": "input_required", "requestState": "s"}))),
            _ => None,
        }));
        setup.call(&cx(Version::V2025_11_25)).await.unwrap_err();
        assert_eq!((setup.fake.count("tools/call"), setup.fake.dials()), (2, 1));
    }
    for (way, react) in [Way::Http, Way::Pipe].into_iter().flat_map(|way| faults().map(|react| (way, react)))
    {
        // Between a legacy task and its result.
        let lost = react.clone();
        let setup = Setup::new(legacy_but(way, move |got| match got.method {
            "tools/list" => Some(React::Result(json!({"tools": [
                {"name": "t", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
            ]}))),
            "tools/call" => Some(React::Result(json!({"task": {"taskId": "7", "status": "working"}}))),
            "tasks/result" => Some(lost.clone()),
            _ => None,
        }));
        setup.offer(&bare()).await;
        setup.call(&bare()).await.unwrap_err();
        assert_eq!((setup.fake.count("tools/call"), setup.fake.count("tasks/result")), (1, 1));
        // After an address was visited.
        let visits =
            Mutex::new(Some(json!({"elicitations": [{"url": "https://a.example", "message": "m"}]})));
        let setup = Setup::new(legacy_but(way, move |got| {
            let first = || {
                let addresses = visits.lock().unwrap().take()?;
                Some(React::Error(moongate_wire::RpcError::new(-32042, "visit").with_data(addresses)))
            };
            (got.method == "tools/call").then(|| first().unwrap_or_else(|| react.clone()))
        }));
        setup.call(&cx(Version::V2026_07_28)).await.unwrap_err();
        assert_eq!(setup.fake.count("tools/call"), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_does_not_cut_off_those_beside_it() {
    let setup = Setup::new(legacy_but(Way::Http, |got| {
        let gone = got.method == "resources/read" && got.line == 0;
        match got.method {
            "tools/call" => Some(React::Hold),
            _ => gone.then_some(React::Lost(Fault::Unreached("no free port".into()))),
        }
    }));
    let running = setup.begin(tool(), &bare());
    let held = setup.fake.held("tools/call").await;
    setup.perform(read(), &bare()).await.unwrap();
    settle().await;
    assert_eq!((setup.fake.dials(), setup.fake.is_closed(0)), (2, false));
    held.answer(json!({"content": []}));
    soon(running).await.unwrap().unwrap();
    setup.fake.closed(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_gives_its_request_up() {
    let setup = Setup::new(legacy_but(Way::Pipe, |got| (got.method == "tools/call").then_some(React::Hold)));
    let cx = bare();
    let call = setup.server.call(Call::new(tool()), &cx);
    assert!(tokio::time::timeout(Duration::from_secs(1), call).await.is_err());
    let held = setup.fake.held("tools/call").await;
    assert!(setup.fake.is_given_up(held.got.id));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_does_not_stop_the_start_for_others() {
    let setup = Setup::new(legacy_but(Way::Pipe, |got| (got.method == "initialize").then_some(React::Hold)));
    let cx = bare();
    let impatient = setup.server.call(Call::new(tool()), &cx);
    assert!(tokio::time::timeout(Duration::from_millis(1), impatient).await.is_err());
    let patient = setup.begin(tool(), &cx);
    setup.fake.held("initialize").await.react(greeting("2025-11-25", json!({"tools": {}})));
    soon(patient).await.unwrap().unwrap();
    assert_eq!(setup.fake.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_speaks_another_version_now_is_greeted_again() {
    let changed = Arc::new(Mutex::new(false));
    let now = Arc::clone(&changed);
    let setup = Setup::new(Fake::new(Way::Http, move |got| {
        let legacy = *now.lock().unwrap();
        match got.method {
            "server/discover" if !legacy => discovered(json!({"tools": {}})),
            "initialize" if legacy => greeting("2025-11-25", json!({"tools": {}})),
            "tools/call" if legacy != (got.outgoing.version == Some(Version::V2026_07_28)) => {
                React::Result(json!({"content": []}))
            }
            _ => refused(-32022, "unsupported version"),
        }
    }));
    setup.call(&bare()).await.unwrap();
    *changed.lock().unwrap() = true;
    // It says -32022 to the probe as well, but names nothing that we could speak instead.
    let error = setup.call(&bare()).await.unwrap_err();
    assert!(error.public.contains("git"), "{error}");
    assert_eq!(setup.fake.count("tools/call"), 2);
    assert_eq!(setup.fake.count("server/discover"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_headers_have_changed_is_listed_again() {
    let header = Arc::new(Mutex::new("Old"));
    let now = Arc::clone(&header);
    let setup = Setup::new(modern_but(Way::Http, move |got| {
        let name = *now.lock().unwrap();
        match got.method {
            "tools/list" => {
                Some(React::Result(json!({"ttlMs": 3_600_000, "tools": [{"name": "t", "inputSchema": {
                "type": "object", "properties": {"x": {"type": "integer", "x-mcp-header": name}}}}]})))
            }
            "tools/call" if got.outgoing.param_headers != [(name.into(), "1".to_owned())] => {
                Some(refused(-32020, "header mismatch"))
            }
            _ => None,
        }
    }));
    setup.call(&bare()).await.unwrap();
    assert_eq!(setup.fake.count("tools/call"), 2, "nobody had listed it yet");
    *header.lock().unwrap() = "New";
    setup.call(&bare()).await.unwrap();
    assert_eq!((setup.fake.count("tools/call"), setup.fake.count("tools/list")), (4, 2));
    setup.call(&bare()).await.unwrap();
    assert_eq!(setup.fake.count("tools/call"), 5);
}

/// A modern server that makes tasks, or not.
fn tasking(makes: bool) -> Arc<Fake> {
    modern_but(Way::Http, move |got| {
        let extensions = if makes { json!({TASKS: {}}) } else { json!({}) };
        let greeting = || discovered(json!({"tools": {}, "extensions": extensions}));
        (got.method == "server/discover").then(greeting)
    })
}

#[tokio::test(start_paused = true)]
async fn a_server_that_makes_tasks_hears_of_them_from_clients_that_know_them() {
    let knowing = client(Version::V2026_07_28, json!({"extensions": {TASKS: {}}}), "s");
    let plain = client(Version::V2026_07_28, json!({}), "s");
    for (makes, share, cx, hears) in [
        (true, Share::Principal, &knowing, true),
        (true, Share::Principal, &plain, false),
        (true, Share::Gateway, &knowing, false),
        (false, Share::Principal, &knowing, false),
    ] {
        let setup = Setup::with(tasking(makes), |settings| settings.share = share);
        assert!(!setup.server.offers_tasks(), "nothing is known yet");
        setup.call(cx).await.unwrap();
        let got = setup.fake.requests().into_iter().find(|got| got.method == "tools/call").unwrap();
        let told = &got.params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"][TASKS];
        assert_eq!(told.is_object(), hears, "{makes} {share:?}");
        assert_eq!(setup.server.offers_tasks(), makes && share != Share::Gateway);
    }
}

#[tokio::test(start_paused = true)]
async fn that_a_server_makes_tasks_is_remembered() {
    let first = Setup::new(tasking(true));
    first.call(&bare()).await.unwrap();
    let next = Setup::on(first.shelf, tasking(true), |_| {});
    let (server, tasks) = (Arc::clone(&next.server), Group::new());
    tasks.spawn(async move { server.keep_house().await });
    settle().await;
    assert!(next.server.offers_tasks());
    assert_eq!(next.fake.dials(), 0, "nothing was started for it");
}
#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_server_is_shown_wherever_it_turned_up() {
    let last_error = |setup: &Setup| setup.server.status().last_error;
    // What a server refuses is its right.
    let refusing = Setup::new(legacy_but(Way::Http, |got| {
        (got.method == "tools/call").then(|| React::Error(moongate_wire::RpcError::new(-32602, "no")))
    }));
    assert!(refusing.perform(tool(), &bare()).await.is_err());
    assert_eq!(last_error(&refusing), None);
    // A stream of many that was lost does not end the connection, but is shown.
    let fault = Fault::Lost("half an answer".into());
    let failing = Setup::new(failing_once(Way::Http, "tools/call", fault));
    assert!(failing.perform(tool(), &bare()).await.is_err());
    assert_eq!(last_error(&failing).as_deref(), Some("half an answer"));
    assert_eq!(failing.server.status().state, State::Up);
    // Whoever waits no longer than its deadline has waited in vain; one that leaves before says nothing of the server.
    let silent = Setup::new(legacy_but(Way::Pipe, |got| (got.method == "tools/call").then_some(React::Hold)));
    for (patience, shown) in [(1, None), (3, Some("it did not answer tools/call within 3.0 s"))] {
        let cx = Context { deadline: tokio::time::Instant::now() + Duration::from_secs(3), ..bare() };
        let call = silent.perform(tool(), &cx);
        assert!(tokio::time::timeout(Duration::from_secs(patience), call).await.is_err());
        assert_eq!(last_error(&silent).as_deref(), shown);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_a_legacy_server_lists_as_a_task_only_is_called_as_one() {
    for (support, as_task) in [("required", true), ("optional", false)] {
        let setup = Setup::new(legacy_but(Way::Pipe, move |got| {
            let definition = || json!({"name": "t", "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}});
            (got.method == "tools/list").then(|| React::Result(json!({"tools": [definition()]})))
        }));
        setup.server.offer(&bare()).await;
        // What becomes of it is left to those who test tasks.
        let _outcome = setup.perform(tool(), &bare()).await.is_ok();
        let got = setup.fake.requests().into_iter().find(|got| got.method == "tools/call").unwrap();
        assert_eq!(got.params["task"].is_object(), as_task, "{support}");
    }
}
