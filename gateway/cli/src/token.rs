//! `moongate token`: the local token and the issued ones, without a running gateway.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::ensure;
use moongate_config::Config;
use moongate_core::{Clock, Scope, Scopes};
use moongate_security::{Claims, IssuedTokens, TokenFile};
use moongate_telemetry::log;
use serde::Serialize;
use serde_json::json;

use crate::{
    args::{Token, TokenAction},
    assemble::{open_keyring, open_store, open_token, tell},
    output,
    settings::Settings,
};

/// What `list` and `issue` say about a token.
#[derive(Serialize)]
struct Described<'a> {
    id: &'a str,
    subject: &'a str,
    scopes: &'a Scopes,
    issued: String,
    expires: String,
    revoked: bool,
}

/// What `issue` prints for programs.
#[derive(Serialize)]
struct WithToken<'a> {
    token: &'a str,
    #[serde(flatten)]
    described: Described<'a>,
}

/// Does what was asked for.
pub(crate) fn run(token: Token) -> anyhow::Result<()> {
    let config = Settings::of(token.config).load()?.config;
    // What is printed here goes into scripts: the log is for warnings.
    log::init(log::Format::Text, "warn")?;
    match token.action {
        TokenAction::Show => show(&config, token.json),
        TokenAction::Rotate { key } => rotate(&config, key, token.json),
        TokenAction::Issue { subject, scopes, ttl } => issue(&config, &subject, &scopes, ttl, token.json),
        TokenAction::List => list(&config, token.json),
        TokenAction::Revoke { id } => revoke(&config, &id, token.json),
    }
}

fn show(config: &Config, json: bool) -> anyhow::Result<()> {
    let file = open_token(&config.security.token_file)?;
    print_local(file.path(), file.token()?.expose(), json)
}

fn rotate(config: &Config, key: bool, json: bool) -> anyhow::Result<()> {
    if key {
        open_keyring(config)?.rotate()?;
    }
    let path = &config.security.token_file;
    // Whatever is there now: this is the way out of a file that cannot be used.
    let (token, warnings) = TokenFile::write_new(path)?;
    tell(&warnings);
    print_local(path, token.expose(), json)
}

fn print_local(file: &Path, token: &str, json: bool) -> anyhow::Result<()> {
    if json { output::json(&json!({ "token": token, "file": file })) } else { output::line(token) }
}

fn issue(config: &Config, subject: &str, names: &[String], ttl: Duration, json: bool) -> anyhow::Result<()> {
    for name in names {
        config.security.check_scope(name).map_err(anyhow::Error::msg)?;
    }
    let scopes = names.iter().map(|name| Scope::new(name)).collect();
    let issued = with_tokens(config, async |tokens| Ok(tokens.issue(subject, scopes, ttl).await?))?;
    let token = issued.token.expose();
    if json {
        output::json(&WithToken { token, described: describe(&issued.claims, false) })
    } else {
        output::line(token)
    }
}

fn list(config: &Config, json: bool) -> anyhow::Result<()> {
    let listed = with_tokens(config, async |tokens| Ok(tokens.list().await?))?;
    let described: Vec<_> = listed.iter().map(|token| describe(&token.claims, token.revoked)).collect();
    if json {
        return output::json(&described);
    }
    if described.is_empty() {
        return output::line("no token was issued, or all have expired");
    }
    output::line(&format!("{:<16}  {:<20}  {:<20}  SCOPES", "ID", "SUBJECT", "EXPIRES"))?;
    for token in &described {
        let scopes = token.scopes.iter().map(Scope::as_str).collect::<Vec<_>>().join(",");
        let state = if token.revoked { "revoked" } else { &token.expires };
        output::line(&format!("{:<16}  {:<20}  {state:<20}  {scopes}", token.id, token.subject))?;
    }
    Ok(())
}

fn revoke(config: &Config, id: &str, json: bool) -> anyhow::Result<()> {
    let found = with_tokens(config, async |tokens| Ok(tokens.revoke(id).await?))?;
    ensure!(found, "no issued token has the id {id:?}; `moongate token list` shows them");
    if json { output::json(&json!({ "revoked": id })) } else { output::line(&format!("{id} is revoked")) }
}

/// Runs `work` with the issued tokens of `config`.
fn with_tokens<T>(
    config: &Config,
    work: impl AsyncFnOnce(IssuedTokens) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let clock = Clock::system();
    let stores = open_store(config, &clock)?;
    let keyring = Arc::new(open_keyring(config)?);
    runtime.block_on(work(IssuedTokens::new(keyring, &stores, clock)))
}

fn describe(claims: &Claims, revoked: bool) -> Described<'_> {
    Described {
        id: &claims.jti,
        subject: &claims.sub,
        scopes: &claims.scopes,
        issued: moment(claims.iat),
        expires: moment(claims.exp),
        revoked,
    }
}

/// Seconds since 1970 as people and programs read them.
fn moment(seconds: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}
