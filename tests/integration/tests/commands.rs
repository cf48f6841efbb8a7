//! Commands that print something and end: exit status, output for people and for programs.

use std::process::Output;

use anyhow::Result;
use moongate_test_support::{Gateway, Home, Stdio};
use serde_json::{Value, json};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Standard output of a command that went well.
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[tokio::test]
async fn check_shows_every_problem_with_its_place_and_fails() -> Result<()> {
    let home = Home::create()?;
    let file = home.path().join("wrong.yaml");
    std::fs::write(&file, "server: {lisen: 127.0.0.1:1}\nsessions: {idle_timeout: 5}\n")?;
    let name = file.to_string_lossy();
    let output = home.run(&["check", &name]).await?;
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(shown.contains("lisen") && shown.contains("listen") && shown.contains("idle_timeout"), "{shown}");
    let output = home.run(&["check", "--json", &name]).await?;
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!((&report["count"], &report["problems"][0]["line"]), (&json!(2), &json!(1)));
    let serving = home.run(&["serve", "--config", &name]).await?;
    assert_eq!(serving.status.code(), Some(1));
    assert!(text(&serving.stderr).contains("idle_timeout"), "serve shows the same problems");
    Ok(())
}

#[tokio::test]
async fn check_of_a_good_file_says_so() -> Result<()> {
    let home = Home::create()?;
    let file = home.write_config("")?;
    let name = file.to_string_lossy();
    assert!(printed(&home.run(&["check", &name]).await?).contains("no problems"));
    let report: Value = serde_json::from_str(&printed(&home.run(&["check", "--json", &name]).await?))?;
    assert_eq!(report["count"], 0);
    let absent = home.run(&["check", "absent.yaml"]).await?;
    assert_eq!(absent.status.code(), Some(1));
    assert!(text(&absent.stderr).contains("absent.yaml"));
    Ok(())
}

#[tokio::test]
async fn schema_and_completions_are_what_they_say() -> Result<()> {
    let home = Home::create()?;
    let schema: Value = serde_json::from_str(&printed(&home.run(&["schema"]).await?))?;
    assert!(schema["properties"]["server"].is_object());
    for shell in ["bash", "zsh", "fish"] {
        assert!(printed(&home.run(&["completions", shell]).await?).contains("moongate"));
    }
    assert_eq!(home.run(&["completions", "tcl"]).await?.status.code(), Some(2));
    Ok(())
}

#[tokio::test]
async fn a_rotated_token_is_taken_up_at_once() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let old = gateway.client();
    assert_eq!(printed(&gateway.home().run(&["token", "show"]).await?), gateway.token()?);
    assert_ne!(old.get("/mcp").send().await?.status, 401);
    let output = gateway.home().run(&["token", "rotate", "--json"]).await?;
    let rotated: Value = serde_json::from_str(&printed(&output))?;
    assert_eq!(rotated["token"], json!(gateway.token()?));
    assert_ne!(gateway.client().get("/mcp").send().await?.status, 401);
    assert_eq!(old.get("/mcp").send().await?.status, 401);
    Ok(())
}

#[tokio::test]
async fn an_issued_token_is_good_until_it_is_revoked() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let home = gateway.home();
    let issue = ["token", "issue", "--subject", "ci", "--scopes", "read", "--ttl", "1h", "--json"];
    let issued: Value = serde_json::from_str(&printed(&home.run(&issue).await?))?;
    let (token, id) =
        (issued["token"].as_str().unwrap_or_default(), issued["id"].as_str().unwrap_or_default());
    let client = gateway.anonymous_client().with_token(token);
    assert_ne!(client.get("/mcp").send().await?.status, 401);
    let listed: Value = serde_json::from_str(&printed(&home.run(&["token", "list", "--json"]).await?))?;
    assert_eq!((&listed[0]["subject"], &listed[0]["scopes"]), (&json!("ci"), &json!(["read"])));
    assert!(!listed.to_string().contains(token), "a list never holds the tokens");
    printed(&home.run(&["token", "revoke", id]).await?);
    let refused = async || Ok((client.get("/mcp").send().await?.status == 401).then_some(()));
    moongate_test_integration::waiting::eventually("the revocation", refused).await?;
    assert_eq!(home.run(&["token", "revoke", "nothing"]).await?.status.code(), Some(1));
    let unknown = ["token", "issue", "--subject", "ci", "--scopes", "to fly", "--ttl", "1h"];
    assert!(text(&home.run(&unknown).await?.stderr).contains("is not the name of a scope"));
    Ok(())
}

#[tokio::test]
async fn a_rotated_key_voids_issued_tokens() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let issue = ["token", "issue", "--subject", "ci", "--scopes", "read", "--ttl", "1h"];
    let token = printed(&gateway.home().run(&issue).await?);
    let client = gateway.anonymous_client().with_token(&token);
    assert_ne!(client.get("/mcp").send().await?.status, 401);
    printed(&gateway.home().run(&["token", "rotate", "--key"]).await?);
    let refused = async || Ok((client.get("/mcp").send().await?.status == 401).then_some(()));
    moongate_test_integration::waiting::eventually("the new key", refused).await
}

#[tokio::test]
async fn options_of_a_port_are_ignored_on_a_pipe_with_one_warning() -> Result<()> {
    let home = Home::create()?;
    let arguments = ["serve", "--transport", "stdio", "--http-port", "1", "--http-bind", "::1"];
    let output = home.run(&arguments).await?;
    assert!(output.status.success() && output.stdout.is_empty());
    let warnings: Vec<_> =
        text(&output.stderr).lines().filter(|line| line.contains("ignored")).map(String::from).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("--http-bind, --http-port"), "{warnings:?}");
    Ok(())
}

#[tokio::test]
async fn a_pipe_belongs_to_whoever_the_token_names() -> Result<()> {
    let home = std::sync::Arc::new(Home::create()?);
    let mut refused = Stdio::start_with_env(&home, "", &[], &[("MOONGATE_TOKEN", "forged")])?;
    assert_eq!(refused.process().wait(moongate_test_support::PATIENCE).await?.code(), Some(1));
    assert!(refused.process().stderr().text().contains("MOONGATE_TOKEN"));
    Ok(())
}

#[tokio::test]
async fn warnings_are_said_at_every_start() -> Result<()> {
    let gateway = Gateway::start("security: {anonymous: true}").await?;
    gateway.logged("callers without a token are let in").await?;
    Ok(())
}

#[tokio::test]
async fn the_ready_text_shows_where_everything_is_but_no_token() -> Result<()> {
    let mut gateway = Gateway::start("").await?;
    gateway.logged("\"mcpServers\"").await?;
    let token = gateway.token()?;
    let said = gateway.process().stderr().text();
    assert!(said.contains(gateway.endpoint()) && said.contains("Token file"), "{said}");
    assert!(!said.contains(&token), "a secret was printed");
    Ok(())
}
