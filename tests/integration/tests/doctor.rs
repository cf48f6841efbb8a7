//! `moongate doctor`, and what it reads: the state of the servers, on the listeners and in full for administrators.

use std::{os::unix::fs::PermissionsExt as _, process::Output};

use anyhow::{Context as _, Result};
use moongate_test_integration::{caller, waiting::eventually};
use moongate_test_support::{Gateway, Home, ModernClient, Peer};
use serde_json::{Value, json};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// What a doctor said who found nothing wrong, or something.
fn said(output: &Output, wrong: bool) -> String {
    let text = text(&output.stdout);
    assert_eq!(output.status.code(), Some(i32::from(wrong)), "{text}");
    text
}

/// A report without what differs from run to run.
fn steady(report: &str, home: &Home) -> String {
    let report = report.replace(&home.path().display().to_string(), "HOME");
    // How commands are confined and limited depends on the machine.
    let is_detail = |line: &&str| line.starts_with("       ") && !line.trim().is_empty();
    let mut lines = report.lines().peekable();
    let mut kept = Vec::new();
    while let Some(line) = lines.next() {
        if line.split_ascii_whitespace().nth(1) == Some("workspace") {
            while lines.next_if(is_detail).is_some() {}
        } else {
            kept.push(line);
        }
    }
    let report = kept.join("\n");
    let words = report.split(' ').map(|word| match word.split_once("://127.0.0.1:") {
        Some((scheme, rest)) => {
            let path = rest.split_once('/').map_or("", |(_, path)| path);
            format!("{scheme}://ADDRESS/{path}")
        }
        None => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn server() -> Result<String> {
    Ok(format!("upstreams:\n{}", Peer::stdio_yaml("peer", "2025-06-18", &[])?))
}

#[tokio::test]
async fn a_gateway_that_is_well_is_told_so() -> Result<()> {
    let mut gateway = Gateway::start(&server()?).await?;
    ModernClient::new(&gateway.client()).call("peer__echo", json!({"text": "x"})).await?;
    let report = said(&gateway.home().run(&["doctor"]).await?, false);
    let pid = gateway.process().pid().to_string();
    insta::assert_snapshot!(steady(&report, gateway.home()).replace(&pid, "PID"));
    let output = gateway.home().run(&["doctor", "--json"]).await?;
    let report: Value = serde_json::from_str(&said(&output, false))?;
    let peer = &report["upstreams"][0];
    assert_eq!(
        (&peer["name"], &peer["state"], &peer["era"]),
        (&json!("peer"), &json!("up"), &json!("legacy"))
    );
    assert_eq!(peer["starts"], 1, "looking starts nothing");
    Ok(())
}

#[tokio::test]
async fn without_a_gateway_every_server_is_tried() -> Result<()> {
    let home = Home::create()?;
    let remote = Peer::http("2026-07-28", &["--misbehave", "http-status=401"]).await?;
    let large = Peer::stdio_yaml("large", "2026-07-28", &["--misbehave", "schema-bytes=1100000"])?;
    let yaml = server()? + &large + &remote.url_yaml("closed") + "  gone: {command: no-such-program}\n";
    home.write_config(&yaml)?;
    let report = said(&home.run(&["doctor"]).await?, true);
    // The machine's own PATH is no part of the report.
    let (before, after) = report.split_once("PATH=").context("it says where it looked")?;
    let after = after.split_once('\n').map_or("", |(_, after)| after);
    let report = format!("{before}PATH=…\n{after}");
    insta::assert_snapshot!(steady(&report, &home));
    Ok(())
}

#[tokio::test]
async fn each_problem_of_the_configuration_is_one() -> Result<()> {
    let home = Home::create()?;
    home.write_config("server: {lisen: 127.0.0.1:1}\nsessions: {idle_timeout: 5}\n")?;
    let report = said(&home.run(&["doctor"]).await?, true);
    assert!(report.contains("moongate.yaml:1:") && report.contains("moongate.yaml:2:"), "{report}");
    assert!(report.contains("did you mean `listen`?"), "{report}");
    // A gateway that read the file before it was broken is still looked at.
    let gateway = Gateway::start(&server()?).await?;
    std::fs::write(gateway.home().config_path(), "server: {lisen: 127.0.0.1:1}\n")?;
    let report = said(&gateway.home().run(&["doctor"]).await?, true);
    assert!(report.contains("lisen") && report.contains("ok     peer"), "{report}");
    Ok(())
}

#[tokio::test]
async fn a_token_that_others_may_read_is_wrong() -> Result<()> {
    let home = Home::create()?;
    home.write_config("")?;
    home.run(&["token", "show"]).await?;
    let token = home.path().join("state/moongate/token");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644))?;
    let report = said(&home.run(&["doctor"]).await?, true);
    assert!(
        report.contains("mode 0644") && report.contains(&format!("chmod 600 {}", token.display())),
        "{report}"
    );
    Ok(())
}

#[tokio::test]
async fn a_missing_tool_is_explained() -> Result<()> {
    let routes = "routes: [{match: peer__fail, hide: true}]\nprofiles: {few: {tools: [create_goal]}}\n";
    let gateway = Gateway::start(&(server()? + routes)).await?;
    ModernClient::new(&gateway.client()).call("peer__echo", json!({"text": "x"})).await?;
    for (arguments, wrong, expected) in [
        (&["peer__echo"][..], false, "peer__echo is offered: echo of peer"),
        (&["create_goal"], false, "create_goal is offered: built in"),
        (&["peer__fail"], true, "peer__fail is hidden by a route"),
        (&["peer__echo", "--profile", "few"], true, "peer__echo is left out by the profile few"),
        (&["echo"], true, "echo of peer is offered as peer__echo"),
        (&["peer__ecko"], true, "did you mean peer__echo?"),
        (&["per__echo"], true, "there is no upstream called per"),
    ] {
        let all: Vec<&str> = ["doctor", "--tool"].into_iter().chain(arguments.iter().copied()).collect();
        let report = said(&gateway.home().run(&all).await?, wrong);
        assert!(report.contains(expected), "{arguments:?}: {report}");
    }
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_hangs_is_told() -> Result<()> {
    let gateway = Gateway::start("").await?;
    gateway.signal(rustix::process::Signal::STOP)?;
    let report = said(&gateway.home().run(&["doctor"]).await?, true);
    gateway.signal(rustix::process::Signal::CONT)?;
    assert!(report.contains("does not answer") && report.contains("kill"), "{report}");
    Ok(())
}

#[tokio::test]
async fn servers_are_shown_in_full_to_administrators_only() -> Result<()> {
    let gateway = Gateway::start(&server()?).await?;
    let admin = gateway.admin_client()?;
    let ask = async |token: &str| admin.clone().with_token(token).get("/api/v1/upstreams").send().await;
    assert_eq!(admin.get("/api/v1/upstreams").send().await?.status, 401);
    assert_eq!(ask("forged").await?.status, 401);
    assert_eq!(ask(&caller::token(gateway.home(), "writer", "write").await?).await?.status, 401);
    for token in [gateway.token()?, caller::token(gateway.home(), "boss", "admin").await?] {
        let answer = ask(&token).await?;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()?[0]["name"], "peer");
    }
    Ok(())
}

#[tokio::test]
async fn readiness_names_the_servers_with_a_word_each() -> Result<()> {
    let gateway = Gateway::start(&(server()? + "  gone: {command: no-such-program}\n")).await?;
    let open = async || gateway.anonymous_client().get("/readyz").send().await?.json();
    let first = json!({"status": "ready", "upstreams": {"peer": "idle", "gone": "idle"}});
    assert_eq!(open().await?, first);
    ModernClient::new(&gateway.client()).list("tools/list").await?;
    let expected = json!({"peer": "up", "gone": "down"});
    let settled = async || Ok((open().await?["upstreams"] == expected).then_some(()));
    eventually("the states of both", settled).await?;
    let answer = gateway.admin_client()?.get("/readyz").send().await?;
    assert_eq!(answer.status, 200, "the gateway takes work all the same");
    assert_eq!(answer.json()?["details"]["upstreams"], expected);
    Ok(())
}
