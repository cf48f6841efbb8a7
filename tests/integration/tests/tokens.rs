//! `moongate token`: what it prints, how it ends, and that a running gateway takes it up.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Output,
    sync::Arc,
};

use anyhow::{Context as _, Result};
use moongate_test_integration::waiting::eventually;
use moongate_test_support::{Client, Gateway, Home, LegacySession, ModernClient};
use serde_json::{Value, json};

const UNLIMITED: &str = "security: {limits: {per_address: off, per_principal: off}}";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Standard output of a command that went well and had nothing to complain about.
fn printed(output: &Output) -> String {
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout)
}

async fn run(home: &Home, arguments: &[&str]) -> Result<String> {
    Ok(printed(&home.run(arguments).await?))
}

async fn run_json(home: &Home, arguments: &[&str]) -> Result<Value> {
    Ok(serde_json::from_str(&run(home, &[arguments, &["--json"]].concat()).await?)?)
}

/// A command that fails: its exit status and what it says on standard error.
async fn fail(home: &Home, arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let output = home.run(arguments).await?;
    assert!(output.stdout.is_empty(), "a failure prints no data: {}", text(&output.stdout));
    Ok((output.status.code(), text(&output.stderr)))
}

fn token_path(home: &Home) -> PathBuf {
    home.path().join("state/moongate/token")
}

fn key_path(home: &Home) -> PathBuf {
    home.path().join("state/moongate/key")
}

fn mode(path: &Path) -> Result<u32> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o777)
}

/// The status a modern caller with this token gets.
async fn status(gateway: &Gateway, token: &str) -> Result<u16> {
    let client = gateway.anonymous_client().with_token(token);
    let request = ModernClient::new(&client).prepare("tools/list", &json!({}));
    Ok(request.over(&client).send().await?.status)
}

// The local token.

#[tokio::test]
async fn show_makes_a_token_once_and_prints_it_from_then_on() -> Result<()> {
    let home = Home::create()?;
    assert!(!token_path(&home).exists());
    let token = run(&home, &["token", "show"]).await?;
    assert_eq!(token, fs::read_to_string(token_path(&home))?.trim());
    assert!(token.len() >= 43 && token.bytes().all(|byte| byte.is_ascii_graphic()), "256 bits: {token}");
    assert_eq!(
        (mode(&token_path(&home))?, mode(token_path(&home).parent().context("a directory")?)?),
        (0o600, 0o700)
    );
    assert_eq!(run(&home, &["token", "show"]).await?, token);
    let shown = run_json(&home, &["token", "show"]).await?;
    assert_eq!(shown, json!({"token": token, "file": token_path(&home)}));
    Ok(())
}

#[tokio::test]
async fn a_configured_file_is_the_one_shown_and_used() -> Result<()> {
    let home = Arc::new(Home::create()?);
    let config = home.write_config("security: {token_file: elsewhere/token}")?;
    let config = config.to_str().context("a path")?;
    let token = run(&home, &["token", "show", "--config", config]).await?;
    assert_eq!(token, fs::read_to_string(home.path().join("elsewhere/token"))?.trim());
    let gateway =
        Gateway::builder().home(&home).config("security: {token_file: elsewhere/token}").start().await?;
    assert_eq!(status(&gateway, &token).await?, 200);
    let other = Gateway::builder().home(&home).arg("--http-token-path").arg("third/token").start().await?;
    assert!(other.field("token").ends_with("third/token"), "{}", other.field("token"));
    assert_eq!((status(&other, &other.token()?).await?, status(&other, &token).await?), (200, 401));
    Ok(())
}

#[tokio::test]
async fn rotate_is_taken_up_at_once_and_sessions_of_the_old_token_go_on_with_the_new() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let old = gateway.token()?;
    let session = LegacySession::open(&gateway.client(), "2025-11-25").await?;
    session.call("create_goal", json!({"goal": "kept"})).await?;
    let new = run(gateway.home(), &["token", "rotate"]).await?;
    assert_ne!(new, old);
    assert_eq!(status(&gateway, &new).await?, 200, "the first request with the new token");
    assert_eq!(status(&gateway, &old).await?, 401, "the next with the old one");
    // The principal is the same user, so its session is too.
    let client = session.client().clone().with_token(&new);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_goals"}});
    assert!(client.post(&list).send().await?.text()?.contains("kept"));
    let third = run_json(gateway.home(), &["token", "rotate"]).await?;
    assert_eq!(third["file"], json!(token_path(gateway.home())));
    assert_eq!(third["token"], json!(gateway.token()?));
    // Nobody presents the new one here: the old one must go by itself.
    let gone = async || Ok((status(&gateway, &new).await? == 401).then_some(()));
    eventually("the old token to be refused", gone).await?;
    assert_eq!(mode(&token_path(gateway.home()))?, 0o600);
    Ok(())
}

#[tokio::test]
async fn rotating_the_key_voids_every_issued_token_and_new_ones_are_good() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let home = gateway.home();
    let issue = ["token", "issue", "--subject", "ci", "--scopes", "read", "--ttl", "1h"];
    let (first, second) = (run(home, &issue).await?, run(home, &issue).await?);
    assert_eq!((status(&gateway, &first).await?, status(&gateway, &second).await?), (200, 200));
    let (key, old) = (fs::read_to_string(key_path(home))?, gateway.token()?);
    let local = run(home, &["token", "rotate", "--key"]).await?;
    assert_ne!(fs::read_to_string(key_path(home))?, key);
    assert_eq!((status(&gateway, &local).await?, status(&gateway, &old).await?), (200, 401));
    let third = run(home, &issue).await?;
    assert_eq!(status(&gateway, &third).await?, 200, "signed with the new key");
    for voided in [&first, &second] {
        let gone = async || Ok((status(&gateway, voided).await? == 401).then_some(()));
        eventually("a token of the old key to be refused", gone).await?;
    }
    assert_eq!(mode(&key_path(home))?, 0o600);
    Ok(())
}

#[tokio::test]
async fn rotate_alone_leaves_issued_tokens_good() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let issue = ["token", "issue", "--subject", "ci", "--scopes", "read", "--ttl", "1h"];
    let issued = run(gateway.home(), &issue).await?;
    let new = run(gateway.home(), &["token", "rotate"]).await?;
    assert_eq!((status(&gateway, &new).await?, status(&gateway, &issued).await?), (200, 200));
    Ok(())
}

// Issued tokens.

#[tokio::test]
async fn an_issued_token_says_what_it_is_and_a_list_never_holds_it() -> Result<()> {
    let home = Home::create()?;
    assert_eq!(run_json(&home, &["token", "list"]).await?, json!([]));
    assert!(run(&home, &["token", "list"]).await?.contains("no token was issued"));
    let issue = ["token", "issue", "--subject", "build machine 7", "--scopes", "read,write", "--ttl", "30d"];
    let issued = run_json(&home, &issue).await?;
    let keys: Vec<_> = issued.as_object().context("an object")?.keys().map(String::as_str).collect();
    assert_eq!(keys, ["expires", "id", "issued", "revoked", "scopes", "subject", "token"]);
    assert_eq!((&issued["subject"], &issued["revoked"]), (&json!("build machine 7"), &json!(false)));
    assert_eq!(issued["scopes"], json!(["read", "write"]));
    for moment in ["issued", "expires"] {
        let written = issued[moment].as_str().context("a moment")?;
        assert!(written.ends_with('Z') && written.len() == 20, "{moment}: {written}");
    }
    let token = issued["token"].as_str().context("a token")?;
    let id = issued["id"].as_str().context("an id")?;
    let plain = run(&home, &issue).await?;
    assert!(
        plain.matches('.').count() == 2 && !plain.contains(char::is_whitespace),
        "the token alone: {plain}"
    );
    let listed = run_json(&home, &["token", "list"]).await?;
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    let shown = run(&home, &["token", "list"]).await?;
    assert!(
        shown.contains(id) && shown.contains("build machine 7") && shown.contains("read,write"),
        "{shown}"
    );
    let signature = token.rsplit('.').next().context("a signature")?;
    assert!(!shown.contains(signature) && !listed.to_string().contains(signature), "a secret is listed");
    Ok(())
}

async fn issue(home: &Home, subject: &str) -> Result<(String, String)> {
    let arguments = ["token", "issue", "--subject", subject, "--scopes", "read", "--ttl", "1h"];
    let issued = run_json(home, &arguments).await?;
    let part = |key: &str| Ok::<_, anyhow::Error>(issued[key].as_str().context("text")?.to_owned());
    Ok((part("id")?, part("token")?))
}

#[tokio::test]
async fn a_revoked_token_is_refused_by_every_process_that_shares_the_store() -> Result<()> {
    let first = Gateway::start(UNLIMITED).await?;
    let second = Gateway::builder().home(first.home()).config(UNLIMITED).start().await?;
    let home = first.home();
    let ((id, token), (_, other)) = (issue(home, "leaver").await?, issue(home, "stayer").await?);
    for gateway in [&first, &second] {
        assert_eq!((status(gateway, &token).await?, status(gateway, &other).await?), (200, 200));
    }
    assert_eq!(run_json(home, &["token", "revoke", &id]).await?, json!({"revoked": id}));
    for gateway in [&first, &second] {
        let gone = async || Ok((status(gateway, &token).await? == 401).then_some(()));
        eventually("the revocation", gone).await?;
        assert_eq!(status(gateway, &other).await?, 200, "another token is not concerned");
    }
    let client = first.anonymous_client().with_token(&token);
    let answer = client.post_text("{}").send().await?;
    assert!(
        answer.header("www-authenticate").contains("revoked"),
        "its holder is told: {:?}",
        answer.headers
    );
    let third = Gateway::builder().home(home).config(UNLIMITED).start().await?;
    assert_eq!(status(&third, &token).await?, 401, "it is written down, not remembered");
    let listed = run_json(home, &["token", "list"]).await?;
    let of = |subject: &str| {
        listed.as_array().and_then(|all| all.iter().find(|token| token["subject"] == subject).cloned())
    };
    assert_eq!(of("leaver").context("leaver")?["revoked"], true);
    assert_eq!(of("stayer").context("stayer")?["revoked"], false);
    Ok(())
}

#[tokio::test]
async fn revoking_twice_is_fine_and_the_unknown_is_an_error() -> Result<()> {
    let home = Home::create()?;
    let (id, _) = issue(&home, "ci").await?;
    for _ in 0..2 {
        assert_eq!(run(&home, &["token", "revoke", &id]).await?, format!("{id} is revoked"));
    }
    let (code, said) = fail(&home, &["token", "revoke", "0123456789abcdef"]).await?;
    assert_eq!(code, Some(1));
    assert!(said.contains("0123456789abcdef") && said.contains("token list"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_token_ends_by_itself() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let short = ["token", "issue", "--subject", "brief", "--scopes", "read", "--ttl", "2s"];
    let token = run(gateway.home(), &short).await?;
    assert_eq!(status(&gateway, &token).await?, 200);
    let gone = async || Ok((status(&gateway, &token).await? == 401).then_some(()));
    eventually("the end of a token of two seconds", gone).await?;
    let answer = gateway.anonymous_client().with_token(&token).post_text("{}").send().await?;
    assert!(answer.header("www-authenticate").contains("expired"), "{:?}", answer.headers);
    Ok(())
}

#[tokio::test]
async fn a_token_of_another_gateway_or_with_changed_claims_is_refused() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let foreign = issue(&Home::create()?, "ci").await?.1;
    let own = issue(gateway.home(), "ci").await?.1;
    assert_eq!((status(&gateway, &foreign).await?, status(&gateway, &own).await?), (401, 200));
    let parts: Vec<_> = own.split('.').collect();
    let other: Vec<_> = foreign.split('.').collect();
    let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0";
    for forged in [
        format!("{}.{}.{}", parts[0], other[1], parts[2]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{none}.{}.", parts[1]),
        format!("{none}.{}.{}", parts[1], parts[2]),
        format!("{own}."),
        own[1..].to_owned(),
    ] {
        assert_eq!(status(&gateway, &forged).await?, 401, "{forged}");
    }
    Ok(())
}

#[tokio::test]
async fn a_subject_cannot_pass_for_another_kind_of_caller() -> Result<()> {
    let yaml = "security: {rules: [{allow: {principals: [local]}}], default: deny}";
    let gateway = Gateway::start(yaml).await?;
    let tools = async |client: &Client| -> Result<usize> {
        let listed = ModernClient::new(client).list("tools/list").await?;
        Ok(listed["tools"].as_array().context("tools")?.len())
    };
    assert!(tools(&gateway.client()).await? > 0);
    for subject in ["local", "anonymous", "x local", "*"] {
        let token = issue(gateway.home(), subject).await?.1;
        let client = gateway.anonymous_client().with_token(&token);
        assert_eq!(tools(&client).await?, 0, "{subject}");
    }
    Ok(())
}

// Files.

#[tokio::test]
async fn a_gateway_closes_files_that_others_could_read_and_says_so() -> Result<()> {
    let home = Arc::new(Home::create()?);
    let token = run(&home, &["token", "show"]).await?;
    issue(&home, "ci").await?;
    for path in [token_path(&home), key_path(&home)] {
        fs::set_permissions(&path, Permissions::from_mode(0o644))?;
    }
    let gateway = Gateway::builder().home(&home).start().await?;
    for path in [token_path(&home), key_path(&home)] {
        let warning = gateway.logged(&format!("{} had mode 0644", path.display())).await?;
        assert!(warning.contains("WARN"), "{warning}");
        assert_eq!(mode(&path)?, 0o600);
    }
    assert_eq!(status(&gateway, &token).await?, 200, "the token itself stays");
    Ok(())
}

#[tokio::test]
async fn a_command_closes_the_files_too_and_its_output_stays_clean() -> Result<()> {
    let home = Home::create()?;
    let token = run(&home, &["token", "show"]).await?;
    fs::set_permissions(token_path(&home), Permissions::from_mode(0o666))?;
    let output = home.run(&["token", "show"]).await?;
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), token, "the warning is not on standard output");
    assert!(text(&output.stderr).contains("had mode 0666"), "{}", text(&output.stderr));
    assert_eq!(mode(&token_path(&home))?, 0o600);
    assert_eq!(run(&home, &["token", "show"]).await?, token, "and it is said once");
    Ok(())
}

#[tokio::test]
async fn a_file_that_cannot_be_a_token_is_an_error_that_names_it() -> Result<()> {
    let home = Home::create()?;
    fs::create_dir_all(token_path(&home))?;
    let (code, said) = fail(&home, &["token", "show"]).await?;
    assert_eq!(code, Some(1));
    assert!(said.contains(&*token_path(&home).to_string_lossy()), "{said}");
    let (code, said) = fail(&home, &["serve", "--http-port", "0"]).await?;
    assert_eq!(code, Some(1));
    assert!(said.contains(&*token_path(&home).to_string_lossy()), "{said}");
    fs::remove_dir(token_path(&home))?;
    fs::write(token_path(&home), "")?;
    assert_eq!(fail(&home, &["token", "show"]).await?.0, Some(1), "an empty file would let everybody in");
    fs::write(token_path(&home), "two words\n")?;
    assert_eq!(fail(&home, &["token", "show"]).await?.0, Some(1));
    Ok(())
}

#[tokio::test]
async fn a_broken_file_locks_nobody_out_of_a_running_gateway() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let token = gateway.token()?;
    fs::write(token_path(gateway.home()), "")?;
    // A wrong token makes the gateway look at the file; what it finds is no reason to let it in.
    assert_eq!(status(&gateway, "wrong").await?, 401);
    assert_eq!(status(&gateway, "").await?, 401);
    gateway.logged("a changed secret cannot be taken up").await?;
    assert_eq!(status(&gateway, &token).await?, 200, "the last good token stays");
    Ok(())
}

// Usage.

#[tokio::test]
async fn wrong_usage_is_two_and_what_cannot_be_done_is_one() -> Result<()> {
    let home = Home::create()?;
    let closed = home.path().join("closed.yaml");
    fs::write(&closed, "security: {scopes: [gardener]}")?;
    let bad = home.path().join("bad.yaml");
    fs::write(&bad, "securty: {}")?;
    let (closed, bad) = (closed.to_str().context("a path")?, bad.to_str().context("a path")?);
    let issue = |rest: &[&'static str]| [&["token", "issue"], rest].concat();
    for (arguments, code, part) in [
        (vec!["token"], 2, "Usage"),
        (vec!["token", "steal"], 2, "steal"),
        (vec!["token", "revoke"], 2, "<ID>"),
        (issue(&["--subject", "a", "--scopes", "read"]), 2, "--ttl"),
        (issue(&["--subject", "a", "--ttl", "1h"]), 2, "--scopes"),
        (issue(&["--scopes", "read", "--ttl", "1h"]), 2, "--subject"),
        (issue(&["--subject", "a", "--scopes", "read", "--ttl", "soon"]), 2, "soon"),
        (issue(&["--subject", "a", "--scopes", "read", "--ttl", "0s"]), 2, "one second"),
        (issue(&["--subject", "", "--scopes", "read", "--ttl", "1h"]), 1, "subject"),
        (issue(&["--subject", "a", "--scopes", "read", "--ttl", "1000y"]), 1, ""),
        (
            [issue(&["--subject", "a", "--scopes", "gardner", "--ttl", "1h"]), vec!["--config", closed]]
                .concat(),
            1,
            "gardner",
        ),
        (vec!["token", "show", "--config", bad], 1, "securty"),
        (vec!["token", "show", "--config", "absent.yaml"], 1, "absent.yaml"),
    ] {
        let (got, said) = fail(&home, &arguments).await?;
        assert_eq!(got, Some(code), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    }
    let known = [issue(&["--subject", "a", "--scopes", "gardener", "--ttl", "1h"]), vec!["--config", closed]]
        .concat();
    run(&home, &known).await?;
    Ok(())
}
