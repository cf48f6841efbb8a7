//! `moongate tools`: what the gateway offers, and calls of it.

use std::{
    fs,
    io::{self, IsTerminal as _, Read as _},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use moongate_config::{Config, nearest};
use moongate_core::Changes;
use moongate_telemetry::log;
use moongate_wire::{Raw, code};
use serde_json::{Value, json};

use self::call::Calling;
use crate::{
    Extra,
    args::{Tools, ToolsAction},
    check::Verdict,
    client::{Client, Failed, Tool},
    find::{self, Found},
    output::{self, complain},
    shown,
};

mod answer;
mod call;
mod form;
mod table;

/// Does what was asked for.
pub(crate) fn run(
    tools: &Tools,
    extra: impl FnOnce(&Changes) -> Vec<Extra> + Send + 'static,
) -> anyhow::Result<Verdict> {
    // A gateway of our own has nothing to say that the answer does not.
    log::init(log::Format::Text, "error")?;
    let running = find::running(tools.config.as_deref())?;
    let config = find::settings(tools.config.clone(), running.as_ref()).load();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(async {
        let (found, config) = match (running, config) {
            (Some(record), config) => {
                // A file that was broken after the gateway had read it is no reason not to ask the gateway.
                let config = config.ok().map(|loaded| loaded.config);
                (Found::at(record, config.as_ref())?, config)
            }
            (None, config) => {
                let config = config?.config;
                (Box::pin(Found::own(config.clone(), extra)).await?, Some(config))
            }
        };
        let outcome = Box::pin(perform(tools, &found, config.as_ref())).await;
        found.end().await;
        outcome
    });
    // A read of standard input cannot be interrupted: its thread is left behind.
    runtime.shutdown_background();
    outcome
}

async fn perform(tools: &Tools, found: &Found, config: Option<&Config>) -> anyhow::Result<Verdict> {
    let profile = tools.profile.as_deref();
    match &tools.action {
        ToolsAction::List => {
            let listed = found.client(profile, json!({})).await?.tools().await?;
            list(&listed, found, config, tools.json).await?;
            Ok(Verdict::Right)
        }
        ToolsAction::Show { name } => {
            let listed = found.client(profile, json!({})).await?.tools().await?;
            let tool = listed.iter().find(|tool| tool.name == *name);
            let tool = tool.ok_or_else(|| unknown(name, &listed))?;
            show(tool, tools.json)?;
            Ok(Verdict::Right)
        }
        ToolsAction::Call { name, args } => {
            let arguments = arguments(args)?;
            // Nobody is there to be asked when the arguments come in where the answers would.
            let asks = args != "-" && io::stdin().is_terminal() && io::stderr().is_terminal();
            let capabilities = if asks { json!({"elicitation": {"form": {}}}) } else { json!({}) };
            let client = found.client(profile, capabilities).await?;
            match call(&client, name, arguments, tools.json).await {
                Err(error) if needs_answers(&error) => {
                    let advice =
                        if asks { "" } else { "; call it on a terminal, where questions can be asked" };
                    bail!("{name} wants to ask something that cannot be answered here{advice}")
                }
                outcome => outcome,
            }
        }
    }
}

fn needs_answers(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Failed>();
    matches!(refused, Some(Failed::Refused(error)) if error.code == code::MISSING_CAPABILITY)
}

async fn list(listed: &[Tool], found: &Found, config: Option<&Config>, json: bool) -> anyhow::Result<()> {
    if json {
        let definitions: Vec<Value> =
            listed.iter().map(|tool| tool.definition.parse()).collect::<Result<_, _>>()?;
        return output::json(&definitions);
    }
    // Whose a tool is, is for administrators: without it the list is still a list.
    let upstreams = found.upstreams().await.unwrap_or_default();
    for down in upstreams.iter().filter(|upstream| upstream.state == "down" && upstream.offers.is_none()) {
        complain(&format!("{} is down, its tools are missing; `moongate doctor` says why", down.name));
    }
    let of_servers = config.map(|config| shown::all(config, &upstreams)).unwrap_or_default();
    let rows = listed.iter().map(|tool| {
        let owner = of_servers.iter().find(|shown| *shown.name == *tool.name);
        let owner = owner.map_or("built in", |shown| shown.upstream);
        let first = tool.description.lines().map(str::trim).find(|line| !line.is_empty());
        [tool.name.as_str(), owner, first.unwrap_or_default()]
    });
    output::line(table::render(["NAME", "UPSTREAM", "DESCRIPTION"], rows, table::width()).trim_end())
}

fn show(tool: &Tool, json: bool) -> anyhow::Result<()> {
    let definition: Value = tool.definition.parse()?;
    if json {
        return output::json(&definition);
    }
    let mut text = tool.name.clone();
    if let Some(title) = definition.get("title").and_then(Value::as_str).filter(|title| *title != tool.name) {
        text.extend([" (", title, ")"]);
    }
    if !tool.description.is_empty() {
        text.extend(["\n\n", tool.description.trim()]);
    }
    for (member, heading) in
        [("inputSchema", "Arguments"), ("outputSchema", "Structured answer"), ("annotations", "Hints")]
    {
        if let Some(value) = definition.get(member) {
            text.extend(["\n\n", heading, ":\n", &serde_json::to_string_pretty(value)?]);
        }
    }
    output::line(&text)
}

async fn call(client: &Client, name: &str, arguments: Raw, json: bool) -> anyhow::Result<Verdict> {
    let listed = client.tools().await?;
    let tool = listed.iter().find(|tool| tool.name == name);
    let repeated = tool.map(|tool| tool.repeated(&arguments)).unwrap_or_default();
    // Called even if it is not listed: aliases are not, and the gateway knows best.
    let calling = Calling { client, name: name.into(), arguments, repeated };
    let result = match calling.run().await {
        Err(Failed::Refused(error)) if tool.is_none() && error.message.starts_with("Unknown tool") => {
            return Err(unknown(name, &listed));
        }
        result => result?,
    };
    answer::print(&result, json)
}

fn unknown(name: &str, listed: &[Tool]) -> anyhow::Error {
    let names = listed.iter().map(|tool| tool.name.as_str());
    // Somebody who knows what the server calls it may not know what the gateway does.
    let ending = format!("__{name}");
    let nearest = names.clone().find(|known| known.ends_with(&ending)).or_else(|| nearest(name, names));
    match nearest {
        Some(nearest) => anyhow!("there is no tool called {name}; did you mean {nearest}?"),
        None => anyhow!("there is no tool called {name}; `moongate doctor --tool {name}` says why"),
    }
}

/// The arguments of a call: JSON, a file with it, or standard input.
fn arguments(given: &str) -> anyhow::Result<Raw> {
    let (text, source) = match given.strip_prefix('@') {
        Some(file) => {
            (fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?, file.to_owned())
        }
        None if given == "-" => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            (text, "standard input".to_owned())
        }
        None => (given.to_owned(), "--args".to_owned()),
    };
    let arguments = Raw::from_text(text).with_context(|| format!("{source} is not JSON"))?;
    ensure!(arguments.is_object(), "{source} is not a JSON object, such as {{\"name\": \"value\"}}");
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_object_from_wherever_they_come() {
        assert_eq!(arguments(r#"{"a": 1e400}"#).unwrap().as_str(), r#"{"a": 1e400}"#);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("arguments.json");
        fs::write(&file, r#"{"b": 2}"#).unwrap();
        assert_eq!(arguments(&format!("@{}", file.display())).unwrap().as_str(), r#"{"b": 2}"#);
        for (wrong, complaint) in
            [("[1]", "is not a JSON object"), ("{", "is not JSON"), ("@/nowhere/x", "cannot read /nowhere/x")]
        {
            let error = arguments(wrong).unwrap_err().to_string();
            assert!(error.contains(complaint), "{wrong}: {error}");
        }
    }

    #[test]
    fn somebody_who_errs_is_helped() {
        let tool = |name: &str| Tool {
            name: name.to_owned(),
            description: String::new(),
            definition: Raw::empty_object(),
        };
        let listed = [tool("create_goal"), tool("github__get_me")];
        for (name, help) in [
            ("creat_goal", "did you mean create_goal?"),
            ("get_me", "did you mean github__get_me?"),
            ("zzz", "`moongate doctor --tool zzz` says why"),
        ] {
            let error = unknown(name, &listed).to_string();
            assert!(error.ends_with(help), "{error}");
        }
    }
}
