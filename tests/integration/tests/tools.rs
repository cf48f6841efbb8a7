//! `moongate tools`: what the gateway offers, and calls of it, through a running gateway and without one.

use std::process::{Output, Stdio};

use anyhow::{Context as _, Result};
use moongate_test_integration::caller;
use moongate_test_support::{Gateway, Home, Peer};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Standard output of a command that went well.
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Standard error of a command that did not.
fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    text(&output.stderr)
}

/// A server of each era, and a profile that shows a few tools.
fn two_eras() -> Result<String> {
    let old = Peer::stdio_yaml("old", "2025-06-18", &[])?;
    let new = Peer::stdio_yaml("new", "2026-07-28", &[])?;
    let profile = "profiles: {few: {tools: [create_goal, old__add, new__echo]}}\n";
    Ok(format!("upstreams:\n{old}{new}{profile}"))
}

#[tokio::test]
async fn the_running_gateway_is_asked_and_without_one_each_command_has_its_own() -> Result<()> {
    let gateway = Gateway::start(&two_eras()?).await?;
    let home = gateway.home();
    for expected in ["1", "2"] {
        assert_eq!(printed(&home.run(&["tools", "call", "old__count"]).await?), expected);
    }
    // Another file is another gateway, which ends with the command.
    let other = home.path().join("other.yaml");
    std::fs::copy(home.config_path(), &other)?;
    let other = other.to_string_lossy();
    for _ in 0..2 {
        let call = ["tools", "call", "old__count", "--config", &other];
        assert_eq!(printed(&home.run(&call).await?), "1");
    }
    let same = home.config_path();
    let call = ["tools", "call", "old__count", "--config", &same.to_string_lossy()];
    assert_eq!(printed(&home.run(&call).await?), "3");
    Ok(())
}

#[tokio::test]
async fn tools_are_listed_with_their_servers_and_shown_with_their_schemas() -> Result<()> {
    let gateway = Gateway::start(&two_eras()?).await?;
    let home = gateway.home();
    insta::assert_snapshot!(printed(&home.run(&["tools", "list", "--profile", "few"]).await?));
    insta::assert_snapshot!(printed(&home.run(&["tools", "show", "old__add"]).await?));
    let listed = home.run(&["tools", "list", "--json", "--profile", "few"]).await?;
    let listed: Vec<Value> = serde_json::from_str(&printed(&listed))?;
    let names: Vec<&Value> = listed.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["create_goal", "old__add", "new__echo"]);
    let shown: Value =
        serde_json::from_str(&printed(&home.run(&["tools", "show", "old__add", "--json"]).await?))?;
    assert_eq!(shown, listed[1]);
    let nowhere = complaint(&home.run(&["tools", "list", "--profile", "nowhere"]).await?);
    assert!(nowhere.contains("no profile of that name"), "{nowhere}");
    Ok(())
}

#[tokio::test]
async fn a_call_prints_its_text_or_everything() -> Result<()> {
    let gateway = Gateway::start(&two_eras()?).await?;
    let home = gateway.home();
    let echo = ["tools", "call", "new__echo", "--args", r#"{"text": "one\ntwo"}"#];
    assert_eq!(printed(&home.run(&echo).await?), "one\ntwo");
    let add = ["tools", "call", "old__add", "--args", r#"{"a": 1, "b": 2}"#, "--json"];
    let result: Value = serde_json::from_str(&printed(&home.run(&add).await?))?;
    assert_eq!(result["structuredContent"], json!({"sum": 3.0}));
    // A modern tool that wants one of its arguments in a header.
    let route = ["tools", "call", "new__route", "--args", r#"{"region": "süd"}"#];
    assert_eq!(printed(&home.run(&route).await?), "süd");
    let breaches = printed(&home.run(&["tools", "call", "new__breaches"]).await?);
    assert_eq!(breaches, "[]", "the gateway kept every rule");
    Ok(())
}

#[tokio::test]
async fn progress_is_told_while_the_call_runs() -> Result<()> {
    let gateway = Gateway::start(&two_eras()?).await?;
    for tool in ["old__progress", "new__progress"] {
        let output = gateway.home().run(&["tools", "call", tool, "--args", r#"{"steps": 2}"#]).await?;
        assert_eq!(text(&output.stderr), "… 1/2 step 1\n… 2/2 step 2", "{tool}");
        assert_eq!(printed(&output), "done");
    }
    Ok(())
}

#[tokio::test]
async fn what_goes_wrong_is_said_and_is_status_one() -> Result<()> {
    let gateway = Gateway::start(&two_eras()?).await?;
    let home = gateway.home();
    for (arguments, expected) in [
        (&["new__fail"][..], "moongate: the tool failed: failed as asked"),
        (&["old__ech"], "moongate: there is no tool called old__ech; did you mean old__echo?"),
        (&["ping_client"], "moongate: there is no tool called ping_client; did you mean old__ping_client?"),
        (&["zzz"], "moongate: there is no tool called zzz; `moongate doctor --tool zzz` says why"),
        (
            &["new__echo", "--args", "[]"],
            "moongate: --args is not a JSON object, such as {\"name\": \"value\"}",
        ),
        (
            &["new__ask_form", "--args", r#"{"message": "Who?"}"#],
            "moongate: new__ask_form wants to ask something that cannot be answered here; call it on a terminal, \
             where questions can be asked",
        ),
    ] {
        let all: Vec<&str> = ["tools", "call"].into_iter().chain(arguments.iter().copied()).collect();
        assert_eq!(complaint(&home.run(&all).await?), expected);
    }
    let failed = home.run(&["tools", "call", "new__fail", "--json"]).await?;
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(serde_json::from_slice::<Value>(&failed.stdout)?["isError"], json!(true));
    let error = ["tools", "call", "old__error", "--args", r#"{"code": -32000, "message": "out of order"}"#];
    assert!(complaint(&home.run(&error).await?).contains("out of order"));
    assert_eq!(home.run(&["tools", "call"]).await?.status.code(), Some(2));
    Ok(())
}

#[tokio::test]
async fn arguments_come_from_a_file_or_a_pipe_too() -> Result<()> {
    let home = Home::create()?;
    home.write_config(&two_eras()?)?;
    std::fs::write(home.path().join("said.json"), r#"{"text": "from a file"}"#)?;
    let call = ["tools", "call", "new__echo", "--args"];
    assert_eq!(printed(&home.run(&[&call[..], &["@said.json"]].concat()).await?), "from a file");
    let mut command = home.command("moongate")?;
    command.args(call).arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().context("stdin was asked for")?;
    stdin.write_all(br#"{"text": "from a pipe"}"#).await?;
    drop(stdin);
    let output = moongate_test_support::patiently("the answer", child.wait_with_output()).await??;
    assert_eq!(printed(&output), "from a pipe");
    Ok(())
}

#[tokio::test]
async fn the_caller_is_whoever_the_token_names() -> Result<()> {
    let gateway = Gateway::start(&two_eras()?).await?;
    let home = gateway.home();
    let reader = caller::token(home, "reader", "read").await?;
    let call = ["tools", "call", "create_goal", "--args", r#"{"goal": "x"}"#];
    let output = home.command("moongate")?.args(call).env("MOONGATE_TOKEN", &reader).output().await?;
    let said = complaint(&output);
    assert!(said.contains("insufficient scope") && said.contains("write"), "{said}");
    let output = home.command("moongate")?.args(call).env("MOONGATE_TOKEN", "forged").output().await?;
    complaint(&output);
    printed(&home.run(&call).await?);
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_down_is_named_and_costs_its_own_tools_only() -> Result<()> {
    let home = Home::create()?;
    home.write_config("upstreams: {gone: {command: no-such-program}}")?;
    let output = home.run(&["tools", "list"]).await?;
    assert!(printed(&output).contains("create_goal"));
    let expected = "moongate: gone is down, its tools are missing; `moongate doctor` says why";
    assert_eq!(text(&output.stderr), expected);
    Ok(())
}
