//! `moongate doctor`: why is it not working?
//!
//! Looks at everything a call needs, from the configuration to the servers behind the gateway, and says of each problem
//! what to do. Nothing is repaired.

use std::time::Duration;

use anyhow::Context as _;
use moongate_config::{Config, RootKey};
use moongate_core::{Changes, Clock};
use moongate_telemetry::log;
use serde_json::json;

use self::{
    missing::Facts,
    report::{Finding, Report},
};
use crate::{
    Extra,
    args::Doctor,
    assemble::open_store,
    check::Verdict,
    fetch,
    find::{self, Found},
    output, pipe, ready,
    runfile::Record,
    settings::{Settings, Unusable},
};

mod files;
mod missing;
mod report;
mod upstreams;
mod workspace;

/// How long the gateway may take to list its tools: it waits for slow servers itself, but not for ever.
const LISTING: Duration = Duration::from_mins(1);

/// Looks, and says what it has seen. The verdict is wrong if something is.
pub(crate) fn run(
    doctor: &Doctor,
    extra: impl FnOnce(&Changes) -> Vec<Extra> + Send + 'static,
) -> anyhow::Result<Verdict> {
    // What is logged at lower levels is in the report, in better order.
    log::init(log::Format::Text, "error")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(Box::pin(examine(doctor, extra)));
    if doctor.json {
        output::json(&report)?;
    } else {
        output::line(report.render().trim_end())?;
    }
    Ok(if report.problems().next().is_none() { Verdict::Right } else { Verdict::Wrong })
}

async fn examine(doctor: &Doctor, extra: impl FnOnce(&Changes) -> Vec<Extra> + Send + 'static) -> Report {
    let mut report = Report::default();
    let running = find::running(doctor.config.as_deref()).unwrap_or_else(|error| {
        let advice = "make that directory usable, or set XDG_RUNTIME_DIR";
        report.add(Finding::problem("gateway", format!("{error:#}"), advice));
        None
    });
    let settings = find::settings(doctor.config.clone(), running.as_ref());
    let config = configuration(&settings, &mut report);
    let answers = gateway(running.as_ref(), &mut report).await;
    if let Some(config) = &config {
        secrets(config, running.as_ref(), &mut report);
        storage(config, &mut report);
        if let Some(finding) = workspace::finding(&config.backends.workspace).await {
            report.add(finding);
        }
    }
    if !answers {
        return report;
    }
    let Some(found) = reach(running, config.as_ref(), extra, &mut report).await else { return report };
    servers(doctor, &found, config.as_ref(), &mut report).await;
    found.end().await;
    report
}

fn configuration(settings: &Settings, report: &mut Report) -> Option<Config> {
    let file = settings.file();
    let name = file.map_or_else(|| "no file, the defaults".to_owned(), |file| file.display().to_string());
    match settings.load() {
        Ok(loaded) => {
            report.add(Finding::fine("configuration", name));
            for warning in loaded.config.warnings() {
                report.add(Finding::note("configuration", warning));
            }
            return Some(loaded.config);
        }
        Err(Unusable::Wrong(problems)) => {
            for problem in problems.iter() {
                let place = format!("{name}:{}:{}: {}", problem.line, problem.column, problem.message);
                let advice = match (&problem.nearest, &problem.expected) {
                    (Some(nearest), _) => format!("did you mean `{nearest}`?"),
                    (None, Some(expected)) => format!("expected {expected}"),
                    (None, None) => format!("`moongate check {name}` shows the place"),
                };
                report.add(Finding::problem("configuration", place, advice));
            }
        }
        Err(error) => {
            let text = format!("{:#}", anyhow::Error::from(error));
            let advice = "correct the file, or name another with --config";
            report.add(Finding::problem("configuration", text, advice));
        }
    }
    None
}

/// Whether the gateway answers that says it runs; one of our own will.
async fn gateway(running: Option<&Record>, report: &mut Report) -> bool {
    let Some(record) = running else {
        report.add(Finding::note("gateway", "none runs with this configuration; trying one now"));
        return true;
    };
    let who = format!("pid {} at {}", record.pid, record.endpoint);
    // Over TLS the list of tools, which comes later, tells as much.
    let healthy = if record.tls {
        Ok(())
    } else {
        fetch::page(ready::reachable(record.address), "/healthz", None).await.map(drop)
    };
    let answers = healthy.is_ok();
    report.add(match healthy {
        Ok(()) => Finding::fine("gateway", who),
        Err(error) => {
            let advice = format!("look at its log; if it hangs, `kill {}` and start it again", record.pid);
            Finding::problem("gateway", format!("{who} does not answer: {error:#}"), advice)
        }
    });
    answers
}

fn secrets(config: &Config, running: Option<&Record>, report: &mut Report) {
    let recorded = running.and_then(|record| record.own.token_file.as_ref());
    let token = recorded.unwrap_or(&config.security.token_file);
    report.add(files::secret("token", token, "`moongate token rotate` makes a new one"));
    if let RootKey::File(path) = &config.security.key {
        report.add(files::secret("key", path, "remove it, and the next start makes a new one"));
    }
}

fn storage(config: &Config, report: &mut Report) {
    let path = config.storage.path.display();
    report.add(match open_store(config, &Clock::system()) {
        Ok(_) => Finding::fine("storage", path.to_string()),
        Err(error) => {
            let advice = "make the file and its directory writable, or name another place under storage.url";
            Finding::problem("storage", format!("{error:#}"), advice)
        }
    });
}

/// The running gateway, or one of our own.
async fn reach(
    running: Option<Record>,
    config: Option<&Config>,
    extra: impl FnOnce(&Changes) -> Vec<Extra> + Send + 'static,
    report: &mut Report,
) -> Option<Found> {
    let found = match (running, config) {
        (Some(record), config) => Found::at(record, config),
        (None, Some(config)) => Box::pin(Found::own(config.clone(), extra)).await,
        (None, None) => return None,
    };
    let advice = "it cannot be asked for more; mend this first";
    found.map_err(|error| report.add(Finding::problem("gateway", format!("{error:#}"), advice))).ok()
}

async fn servers(doctor: &Doctor, found: &Found, config: Option<&Config>, report: &mut Report) {
    match found.examined().await {
        Ok(upstreams) => {
            for upstream in &upstreams {
                report.extend(upstreams::findings(upstream));
            }
            report.upstreams = upstreams;
        }
        Err(error) => report.add(Finding::note("upstreams", format!("cannot be seen: {error:#}"))),
    }
    let offered = match offered(found, None).await {
        Ok(offered) => offered,
        Err(error) => {
            let text = format!("cannot be listed: {error:#}");
            let advice = if text.contains("TLS") {
                "give server.tls a certificate that clients believe, for the name or address of the endpoint"
            } else {
                "compare the token it was started with and that of `moongate token show`"
            };
            return report.add(Finding::problem("tools", text, advice));
        }
    };
    report.add(Finding::fine("tools", format!("{} offered", offered.len())));
    let (Some(tool), Some(config)) = (&doctor.tool, config) else { return };
    let in_profile = match &doctor.profile {
        None => offered.clone(),
        Some(profile) => match self::offered(found, Some(profile)).await {
            Ok(offered) => offered,
            Err(error) => {
                let advice = "`profiles:` in the configuration has those there are";
                return report.add(Finding::problem("tool", format!("profile {profile}: {error:#}"), advice));
            }
        },
    };
    let token = std::env::var_os(pipe::TOKEN).is_some();
    let facts = Facts {
        config,
        upstreams: &report.upstreams,
        offered: &offered,
        profile: doctor.profile.as_deref(),
        in_profile: &in_profile,
        token: token.then_some(pipe::TOKEN),
    };
    let finding = facts.explain(tool);
    report.add(finding);
}

async fn offered(found: &Found, profile: Option<&str>) -> anyhow::Result<Vec<String>> {
    let client = found.client(profile, json!({})).await?;
    let listed = tokio::time::timeout(LISTING, client.tools()).await;
    let listed = listed.with_context(|| format!("no answer within {} s", LISTING.as_secs()))??;
    Ok(listed.into_iter().map(|tool| tool.name).collect())
}
