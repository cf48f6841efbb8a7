//! What an operator relies on: an upgrade that refuses what it must, reloads that do what they say, commands that help.

use std::{
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::Stdio as Pipe,
    sync::Arc,
};

use anyhow::{Context as _, Result};
use moongate_test_integration::waiting::{eventually, metric};
use moongate_test_support::{Client, Gateway, Home, PATIENCE, Process, Protocol, Stdio};
use rustix::process::Signal;

const APPLIED: &str = "moongate_config_reloads_total{outcome=\"applied\"}";
const REFUSED: &str = "moongate_config_reloads_total{outcome=\"refused\"}";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

async fn is_well(gateway: &Gateway) -> Result<bool> {
    Ok(gateway.anonymous_client().get("/healthz").send().await?.status == 200)
}

/// A configuration file beside that of the running gateway.
fn another_config(home: &Home, yaml: &str) -> Result<PathBuf> {
    let path = home.path().join("another.yaml");
    std::fs::write(&path, yaml)?;
    Ok(path)
}

#[tokio::test]
async fn an_upgrade_that_asks_for_another_listener_is_refused_before_anything_happens() -> Result<()> {
    let mut gateway = Gateway::start("").await?;
    for yaml in [
        "server: {listen: 127.0.0.1:1}",
        "server: {tls: {cert: server.crt, key: server.key}}",
        "admin: {listen: 127.0.0.1:1}",
    ] {
        let config = another_config(gateway.home(), yaml)?;
        let output =
            gateway.home().run(&["serve", "--upgrade", "--config", &config.to_string_lossy()]).await?;
        assert_eq!(output.status.code(), Some(1), "{yaml}");
        let said = text(&output.stderr);
        assert!(said.contains("asks for") && said.contains("without --upgrade"), "{yaml}: {said}");
    }
    assert!(is_well(&gateway).await?);
    let said = gateway.process().stderr().text();
    assert!(!said.contains("handing over") && !said.contains("handed over"), "{said}");
    Ok(())
}

#[tokio::test]
async fn only_the_recorded_gateway_hands_over() -> Result<()> {
    let recorded = Gateway::start("").await?;
    let second = Gateway::builder().home(recorded.home()).start().await?;
    second.logged("this one is not recorded").await?;
    // Somebody waits for the listeners of the first.
    let _waiting = UnixListener::bind(recorded.home().path().join("run/moongate/upgrade.sock"))?;
    second.signal(Signal::QUIT)?;
    second.logged("not handing over, serving on").await?;
    assert!(is_well(&second).await? && is_well(&recorded).await?);
    Ok(())
}

#[tokio::test]
async fn a_successor_that_waits_obeys_a_signal() -> Result<()> {
    let gateway = Gateway::start("").await?;
    // It answers nobody until it may go on.
    gateway.signal(Signal::STOP)?;
    let mut command = gateway.home().command("moongate")?;
    let config = gateway.home().config_path();
    command.args(["serve", "--upgrade", "--config"]).arg(config).stdin(Pipe::null()).stdout(Pipe::null());
    let mut successor = Process::spawn(&mut command)?;
    let socket = gateway.home().path().join("run/moongate/upgrade.sock");
    eventually("the successor", async || Ok(socket.exists().then_some(()))).await?;
    successor.signal(Signal::TERM)?;
    let status = successor.wait(PATIENCE).await;
    gateway.signal(Signal::CONT)?;
    // One that waits for the listeners until they do not come ends with an error.
    assert!(status?.success(), "{}", successor.stderr().text());
    assert!(is_well(&gateway).await?);
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_cannot_be_recorded_ends_in_order() -> Result<()> {
    let home = Home::create()?;
    std::fs::create_dir_all(home.path().join("run/moongate/gateway.json"))?;
    let output = home.run(&["serve", "--http-port", "0"]).await?;
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("cannot write the run file"), "{said}");
    assert!(said.contains("ended"), "what ran was not finished: {said}");
    Ok(())
}

/// A new certificate and key for `localhost`, and a client configuration that trusts nothing else.
fn certificate(directory: &Path) -> Result<Arc<rustls::ClientConfig>> {
    std::fs::create_dir_all(directory)?;
    let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(directory.join("server.key"), generated.signing_key.serialize_pem())?;
    std::fs::write(directory.join("server.crt"), generated.cert.pem())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(generated.cert.der().clone())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    // A resumed connection would not look at the certificate.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

#[tokio::test]
async fn a_certificate_of_other_files_is_shown_or_the_whole_reload_refused() -> Result<()> {
    let home = Arc::new(Home::create()?);
    let first = certificate(&home.path().join("one"))?;
    let yaml = |name: &str| format!("server: {{tls: {{cert: {name}/server.crt, key: {name}/server.key}}}}");
    let gateway = Gateway::builder().home(&home).config(&yaml("one")).start().await?;
    let address = gateway.address()?;
    let connects = async |config: &Arc<rustls::ClientConfig>| -> Result<bool> {
        let client =
            Client::new(address, Protocol::Http1).with_tls(Arc::clone(config), "localhost".try_into()?);
        Ok(client.connect().await.is_ok())
    };
    gateway.write_config(&format!("{}\nroutes: [{{match: clear_goal, hide: true}}]", yaml("absent")))?;
    metric(&gateway, REFUSED, 1.0).await?;
    gateway.logged("absent/server.crt").await?;
    assert!(connects(&first).await?, "the old one stays");

    let second = certificate(&home.path().join("two"))?;
    gateway.write_config(&yaml("two"))?;
    metric(&gateway, APPLIED, 1.0).await?;
    assert!(connects(&second).await? && !connects(&first).await?, "the new one is shown");

    // The new files are the ones that are watched.
    let third = certificate(&home.path().join("two"))?;
    eventually("the renewed certificate", async || Ok(connects(&third).await?.then_some(()))).await
}

#[tokio::test]
async fn a_file_that_a_reload_names_is_watched_from_then_on() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let directory = gateway.home().path().join("elsewhere");
    std::fs::create_dir(&directory)?;
    std::fs::write(directory.join("origin"), "https://one.example.com")?;
    gateway.write_config("security: {origins: [\"${file:elsewhere/origin}\"]}")?;
    metric(&gateway, APPLIED, 1.0).await?;
    std::fs::write(directory.join("origin"), "https://two.example.com")?;
    metric(&gateway, APPLIED, 2.0).await?;
    let answer = gateway.client().get("/healthz").header("origin", "https://two.example.com").send().await?;
    assert_eq!(answer.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_reload_does_not_claim_what_it_cannot_do() -> Result<()> {
    for (yaml, key) in [
        ("security: {limits: {connections: 5}}", "security.limits.connections"),
        ("telemetry: {log_format: json}", "telemetry.log_format"),
    ] {
        let gateway = Gateway::start("").await?;
        gateway.write_config(yaml)?;
        metric(&gateway, REFUSED, 1.0).await?;
        gateway.logged(&format!("needs a restart: {key}")).await?;
        assert!(gateway.metric(APPLIED).await?.abs() < f64::EPSILON, "{yaml}");
    }
    Ok(())
}

#[tokio::test]
async fn an_empty_token_variable_is_nobody() -> Result<()> {
    let home = Arc::new(Home::create()?);
    let mut pipe = Stdio::start_with_env(&home, "", &[], &[("MOONGATE_TOKEN", "")])?;
    assert_eq!(pipe.process().wait(PATIENCE).await?.code(), Some(1));
    assert!(pipe.process().stderr().text().contains("MOONGATE_TOKEN is set and empty"));
    let started = Gateway::builder().arg("--transport").arg("both").env("MOONGATE_TOKEN", "").start().await;
    let error = started.err().context("it started")?.to_string();
    assert!(error.contains("MOONGATE_TOKEN is set and empty"), "{error}");
    Ok(())
}

#[tokio::test]
async fn rotating_replaces_a_token_file_that_cannot_be_used() -> Result<()> {
    let home = Home::create()?;
    let file = home.path().join("state/moongate/token");
    std::fs::create_dir_all(file.parent().context("a directory")?)?;
    for broken in ["", "two tokens\n"] {
        std::fs::write(&file, broken)?;
        assert_eq!(home.run(&["token", "show"]).await?.status.code(), Some(1));
        let rotated = home.run(&["token", "rotate"]).await?;
        assert!(rotated.status.success(), "{}", text(&rotated.stderr));
        let token = text(&rotated.stdout);
        assert_eq!((token.len(), std::fs::read_to_string(&file)?), (43, format!("{token}\n")));
    }
    // What the owner should know goes to standard error, and leaves standard output to scripts.
    let link = home.path().join("link");
    std::os::unix::fs::symlink(&file, &link)?;
    let config = another_config(&home, "security: {token_file: link}")?;
    let rotated = home.run(&["token", "rotate", "--config", &config.to_string_lossy()]).await?;
    assert!(rotated.status.success() && text(&rotated.stdout).len() == 43);
    assert!(text(&rotated.stderr).contains("is a symbolic link"), "{}", text(&rotated.stderr));
    Ok(())
}

#[tokio::test]
async fn a_token_may_hold_any_scope_unless_they_are_listed() -> Result<()> {
    let home = Home::create()?;
    let issue = async |yaml: &str, scope: &str| -> Result<String> {
        let config = another_config(&home, yaml)?;
        let config = config.to_string_lossy();
        let output = home
            .run(&[
                "token",
                "issue",
                "--config",
                &config,
                "--subject",
                "ci",
                "--scopes",
                scope,
                "--ttl",
                "1h",
            ])
            .await?;
        Ok(if output.status.success() { "issued".to_owned() } else { text(&output.stderr) })
    };
    assert_eq!(issue("", "gardener").await?, "issued");
    assert!(issue("", "Gardener!").await?.contains("is not the name of a scope"));
    assert_eq!(issue("security: {scopes: [gardener]}", "gardener").await?, "issued");
    assert!(issue("security: {scopes: []}", "gardener").await?.contains("there is no scope called"));
    Ok(())
}

#[tokio::test]
async fn the_endpoint_of_the_ready_line_is_answered() -> Result<()> {
    let open = "server: {listen: 0.0.0.0:0, allow_insecure: true}\nsecurity: {hosts: [localhost, 127.0.0.1]}";
    for (yaml, arguments, host) in [
        ("", &["--http-bind", "127.0.0.5"][..], "127.0.0.5"),
        (open, &["--http-bind", "0.0.0.0"], "127.0.0.1"),
    ] {
        let builder = Gateway::builder().config(yaml);
        let gateway =
            arguments.iter().fold(builder, |builder, argument| builder.arg(argument)).start().await?;
        assert!(gateway.endpoint().starts_with(&format!("http://{host}:")), "{}", gateway.endpoint());
        assert!(is_well(&gateway).await?, "{}", gateway.endpoint());
    }
    Ok(())
}
