//! A configuration that changes while the gateway runs: all of it or nothing, and what is open stays open.

use std::{path::Path, sync::Arc};

use anyhow::Result;
use moongate_test_integration::waiting::{eventually, metric};
use moongate_test_support::{Gateway, Home, LegacySession, ModernClient, Protocol};
use rustix::process::Signal;
use serde_json::{Value, json};

const APPLIED: &str = "moongate_config_reloads_total{outcome=\"applied\"}";
const REFUSED: &str = "moongate_config_reloads_total{outcome=\"refused\"}";

async fn tools(gateway: &Gateway) -> Result<Vec<String>> {
    let listed = ModernClient::new(&gateway.client()).list("tools/list").await?;
    let tools = listed.get("tools").and_then(Value::as_array).into_iter().flatten();
    Ok(tools.filter_map(|tool| tool.get("name")?.as_str()).map(str::to_owned).collect())
}

async fn readiness(gateway: &Gateway) -> Result<Value> {
    gateway.admin_client()?.get("/readyz").send().await?.json()
}

#[tokio::test]
async fn a_new_configuration_is_in_force_and_sessions_go_on() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let session = LegacySession::open(&gateway.client(), "2025-11-25").await?;
    session.call("create_goal", json!({"goal": "stay"})).await?;
    assert!(tools(&gateway).await?.contains(&"create_goal".to_owned()));
    gateway.write_config("routes: [{match: clear_goal, hide: true}]")?;
    metric(&gateway, APPLIED, 1.0).await?;
    let now = tools(&gateway).await?;
    assert!(now.contains(&"create_goal".to_owned()) && !now.contains(&"clear_goal".to_owned()), "{now:?}");
    let goals = session.call("list_goals", json!({})).await?;
    assert!(goals.to_string().contains("stay"), "{goals}");
    assert_eq!(readiness(&gateway).await?["details"]["reload"]["outcome"], "applied");
    Ok(())
}

#[tokio::test]
async fn a_bad_configuration_changes_nothing_and_is_told() -> Result<()> {
    let gateway = Gateway::start("routes: [{match: clear_goal, hide: true}]").await?;
    let before = tools(&gateway).await?;
    gateway.write_config("rotes: []")?;
    metric(&gateway, REFUSED, 1.0).await?;
    assert_eq!(tools(&gateway).await?, before);
    let told = readiness(&gateway).await?;
    assert_eq!((&told["ready"], &told["details"]["reload"]["outcome"]), (&json!(true), &json!("refused")));
    assert!(told.to_string().contains("rotes"), "{told}");
    // The same file as before, mended: no difference, and no refusal any more.
    gateway.write_config("routes: [{match: clear_goal, hide: true}]")?;
    metric(&gateway, APPLIED, 1.0).await?;
    assert_eq!(readiness(&gateway).await?["details"]["reload"]["outcome"], "applied");
    Ok(())
}

#[tokio::test]
async fn what_needs_a_restart_is_refused_by_name() -> Result<()> {
    let gateway = Gateway::start("").await?;
    gateway.write_config("routes: [{match: clear_goal, hide: true}]\nstorage: {url: other.db}")?;
    metric(&gateway, REFUSED, 1.0).await?;
    gateway.logged("needs a restart: storage").await?;
    assert!(tools(&gateway).await?.contains(&"clear_goal".to_owned()), "all or nothing");
    Ok(())
}

#[tokio::test]
async fn a_signal_reloads_and_an_unchanged_file_is_no_reload() -> Result<()> {
    let gateway = Gateway::start("").await?;
    gateway.signal(Signal::HUP)?;
    gateway.write_config("routes: [{match: clear_goal, hide: true}]")?;
    gateway.signal(Signal::HUP)?;
    metric(&gateway, APPLIED, 1.0).await
}

#[tokio::test]
async fn a_secret_in_a_file_of_its_own_is_watched() -> Result<()> {
    let home = Arc::new(Home::create()?);
    let name = home.path().join("origin");
    std::fs::write(&name, "https://one.example.com")?;
    let yaml = "security: {origins: [\"${file:origin}\"]}";
    let gateway = Gateway::builder().home(&home).config(yaml).start().await?;
    let client = gateway.client();
    let allowed = async |origin: &str| -> Result<bool> {
        Ok(client.get("/healthz").header("origin", origin).send().await?.status == 200)
    };
    assert!(allowed("https://one.example.com").await? && !allowed("https://two.example.com").await?);
    std::fs::write(&name, "https://two.example.com")?;
    metric(&gateway, APPLIED, 1.0).await?;
    assert!(!allowed("https://one.example.com").await? && allowed("https://two.example.com").await?);
    Ok(())
}

/// A new certificate and key for `localhost` in `home`, and a client configuration that trusts it.
fn certificate(home: &Path) -> Result<Arc<rustls::ClientConfig>> {
    let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    std::fs::write(home.join("server.key"), generated.signing_key.serialize_pem())?;
    std::fs::write(home.join("server.crt"), generated.cert.pem())?;
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
async fn a_new_certificate_is_shown_to_new_connections_only() -> Result<()> {
    let home = Arc::new(Home::create()?);
    let first = certificate(home.path())?;
    let yaml = "server: {tls: {cert: server.crt, key: server.key}}";
    let gateway = Gateway::builder().home(&home).config(yaml).start().await?;
    assert!(gateway.endpoint().starts_with("https://"), "{}", gateway.endpoint());
    let client = |config: &Arc<rustls::ClientConfig>| -> Result<_> {
        let client = moongate_test_support::Client::new(gateway.address()?, Protocol::Http1);
        Ok(client.with_tls(Arc::clone(config), "localhost".try_into()?))
    };
    let old = client(&first)?;
    let mut open = old.connect().await?;
    assert_eq!(old.get("/healthz").send_over(&mut open).await?.status, 200);
    let second = certificate(home.path())?;
    let new = client(&second)?;
    let trusted = async || Ok(new.connect().await.ok().map(drop));
    eventually("the new certificate", trusted).await?;
    assert!(old.connect().await.is_err(), "the old certificate is not shown any more");
    assert_eq!(old.get("/healthz").send_over(&mut open).await?.status, 200, "an open connection stays");
    Ok(())
}
