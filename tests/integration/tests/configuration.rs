//! The configuration file, from outside: what is wrong with it, what starts with it, and what changes while it runs.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio as Pipe,
    sync::Arc,
};

use anyhow::{Context as _, Result, ensure};
use moongate_test_integration::{
    fixture,
    waiting::{eventually, metric},
};
use moongate_test_support::{
    Client, Gateway, Home, LegacySession, ModernClient, PATIENCE, Process, Protocol, patiently,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpListener;

const APPLIED: &str = "moongate_config_reloads_total{outcome=\"applied\"}";
const REFUSED: &str = "moongate_config_reloads_total{outcome=\"refused\"}";
const LATEST_LEGACY: &str = "2025-11-25";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of the project's `config` directory.
fn shipped(name: &str) -> PathBuf {
    std::path::absolute("../../config").expect("tests run in their package").join(name)
}

// `check` and `schema`.

/// One problem of every kind a person makes, each on a line of its own.
const WRONG: &str = "\
server:
  lisen: 127.0.0.1:3847
  max_body: 4 apples
sessions: {idle_timeout: 5, idle_timeout: 6m}
security:
  origins: [\"*\"]
  limits: {per_address: 600/fortnight}
  key: ${env:MOONGATE_NO_SUCH_VARIABLE}
  jwt: []
profiles:
  review: {upstreams: [plannign]}
routes:
  - {match: \"add_*\", rename: memo}
";

#[tokio::test]
async fn check_tells_every_problem_at_once_with_its_place() -> Result<()> {
    let home = Home::create()?;
    let file = home.path().join("wrong.yaml");
    fs::write(&file, WRONG)?;
    let name = file.to_str().context("a path")?;
    let output = home.run(&["check", name, "--json"]).await?;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(report["file"], name);
    let problems = report["problems"].as_array().context("problems")?;
    assert_eq!(report["count"], problems.len());
    for (line, path, kind, nearest) in [
        (2, "server.lisen", "unknown_key", Some("listen")),
        (3, "server.max_body", "invalid_value", None),
        (4, "sessions.idle_timeout", "duplicate_key", None),
        (6, "security.origins[0]", "invalid_value", None),
        (7, "security.limits.per_address", "invalid_value", None),
        (8, "security.key", "unresolved", None),
        (9, "security.jwt", "not_available", None),
        (11, "profiles.review.upstreams[0]", "unknown_name", Some("planning")),
    ] {
        let problem = problems.iter().find(|problem| problem["line"] == line && problem["kind"] == kind);
        let problem = problem.with_context(|| format!("line {line} {kind}: {report:#}"))?;
        assert_eq!(problem["path"], path, "{problem}");
        assert!(problem["column"].as_u64().is_some_and(|column| column > 1), "{problem}");
        assert_eq!(problem.get("nearest").and_then(Value::as_str), nearest, "{problem}");
        assert!(problem["message"].as_str().is_some_and(|message| !message.is_empty()), "{problem}");
    }
    assert!(problems.iter().any(|problem| problem["line"] == 13), "a rename needs an exact name: {report:#}");
    let plain = home.run(&["check", name]).await?;
    assert_eq!(plain.status.code(), Some(1));
    let shown = text(&plain.stdout);
    for problem in problems {
        let place = format!("wrong.yaml:{}:{}", problem["line"], problem["column"]);
        assert!(shown.contains(&place), "{place}: {shown}");
    }
    assert!(shown.contains(&format!("{} problems", problems.len())), "{shown}");
    assert!(!shown.contains('\u{1b}'), "no colours without a terminal");
    // The gateway says the same, and does not start.
    let served = home.run(&["serve", "--config", name, "--http-port", "0"]).await?;
    assert_eq!((served.status.code(), served.stdout.len()), (Some(1), 0));
    assert_eq!(text(&served.stderr).trim(), shown.trim());
    Ok(())
}

#[tokio::test]
async fn check_leaves_nothing_behind_and_finds_the_usual_file() -> Result<()> {
    let home = Home::create()?;
    let before = files(home.path())?;
    let output = home.run(&["check"]).await?;
    assert!(output.status.success(), "without a file the defaults are checked: {}", text(&output.stderr));
    fs::write(home.path().join("moongate.yaml"), "srver: {}")?;
    let output = home.run(&["check"]).await?;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("did you mean `server`?"), "{}", text(&output.stdout));
    fs::remove_file(home.path().join("moongate.yaml"))?;
    fs::create_dir(home.path().join("config/moongate"))?;
    fs::write(home.path().join("config/moongate/moongate.yaml"), "telemtry: {}")?;
    assert!(text(&home.run(&["check"]).await?.stdout).contains("telemetry"));
    fs::remove_dir_all(home.path().join("config/moongate"))?;
    assert_eq!(files(home.path())?, before, "checking writes nothing");
    Ok(())
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        }
        found.push(path);
    }
    found.sort();
    Ok(found)
}

#[tokio::test]
async fn what_is_no_configuration_at_all_is_told() -> Result<()> {
    let home = Home::create()?;
    let file = home.path().join("odd.yaml");
    let name = file.to_str().context("a path")?;
    for (contents, part) in [
        (&b"server: {listen: ["[..], "odd.yaml:1"),
        (b"server:\n\t- x", "odd.yaml:2"),
        (b"- a\n- b", "odd.yaml:1"),
        (b"just text", "odd.yaml:1"),
        (b"\xff\xfe\x00", "odd.yaml"),
        (b"a: &a [*a]", "odd.yaml"),
    ] {
        fs::write(&file, contents)?;
        let output = home.run(&["check", name]).await?;
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{shown}");
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let missing = home.run(&["check", "absent.yaml"]).await?;
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("absent.yaml"));
    let directory = home.run(&["serve", "--config", home.path().to_str().context("a path")?]).await?;
    assert_eq!(directory.status.code(), Some(1));
    Ok(())
}

/// Keys of the design whose features are not built: refused by name, so that nobody believes to be protected by them.
#[tokio::test]
async fn keys_of_later_versions_are_refused() -> Result<()> {
    let home = Home::create()?;
    let file = home.path().join("later.yaml");
    let name = file.to_str().context("a path")?;
    for (yaml, path) in [
        ("audit: {file: audit.jsonl}", "audit"),
        ("state: {url: \"redis://localhost\"}", "state"),
        ("security: {jwt: [{issuer: \"https://x\"}]}", "security.jwt"),
        ("context: {claims: {session: sid}}", "context.claims"),
        ("server: {tls: {cert: a, key: b, client_ca: c}}", "server.tls.client_ca"),
        ("telemetry: {otlp: \"http://127.0.0.1:4318\"}", "telemetry.otlp"),
        ("backends: {inspect: {enabled: false}}", "backends.inspect"),
        ("backends: {memory: {rest_listen: 127.0.0.1:6789}}", "backends.memory"),
        ("storage: {url: \"postgres://localhost/x\"}", "storage.url"),
    ] {
        fs::write(&file, yaml)?;
        let output = home.run(&["check", "--json", name]).await?;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        assert_eq!(output.status.code(), Some(1), "{yaml}");
        let problem = &report["problems"][0];
        assert_eq!(
            (&problem["kind"], &problem["path"]),
            (&json!("not_available"), &json!(path)),
            "{report:#}"
        );
        let message = problem["message"].as_str().unwrap_or_default();
        assert!(message.contains("not available in this version"), "{message}");
        let served = home.run(&["serve", "--config", name, "--http-port", "0"]).await?;
        assert_eq!(served.status.code(), Some(1), "{yaml}: it does not start");
    }
    Ok(())
}

#[tokio::test]
async fn the_schema_is_the_committed_one() -> Result<()> {
    let home = Home::create()?;
    let output = home.run(&["schema"]).await?;
    assert!(output.status.success() && output.stderr.is_empty());
    let committed = fs::read_to_string(shipped("moongate.schema.json"))?;
    assert_eq!(
        text(&output.stdout),
        committed,
        "`moongate schema > config/moongate.schema.json` brings it up to date"
    );
    Ok(())
}

// Starting.

/// A gateway that is started with a command line of the test's own.
struct Launched {
    process: Process,
    address: SocketAddr,
    ready: String,
}

impl Launched {
    /// Starts `moongate serve` and waits until it is ready.
    async fn start(home: &Home, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let mut command = home.command("moongate")?;
        command.arg("serve").args(arguments).envs(environment.iter().copied());
        let process = Process::spawn(command.stdin(Pipe::null()).stdout(Pipe::null()))?;
        let line = process.stderr().line(|line| line.starts_with("moongate ready"));
        let ready = patiently("the ready line", line).await?;
        let ready = ready.with_context(|| process.stderr().text())?;
        // The endpoint may be the address of a proxy; the run file has our own.
        let record = fs::read_to_string(home.path().join("run/moongate/gateway.json"))?;
        let record: Value = serde_json::from_str(&record)?;
        ensure!(record["pid"] == process.pid(), "{record}");
        let address = record["address"].as_str().context("an address")?.parse()?;
        Ok(Self { process, address, ready })
    }

    fn client(&self) -> Result<Client> {
        let path = self.ready.split_once(" token=").context("a token file")?.1;
        let token = fs::read_to_string(path)?;
        Ok(Client::new(self.address, Protocol::Http1).with_token(token.trim()))
    }
}

/// An example with every part replaced that a test cannot have: ports, certificates, system directories.
fn adapted(name: &str, home: &Path, changes: &[(&str, &str)]) -> Result<PathBuf> {
    let mut yaml = fs::read_to_string(shipped("examples").join(name))?;
    for (from, to) in changes {
        ensure!(yaml.contains(from), "{name} has no {from}");
        yaml = yaml.replace(from, to);
    }
    if !yaml.contains("admin:") {
        yaml.push_str("\nadmin: {listen: 127.0.0.1:0}\n");
    }
    let path = home.join(name);
    fs::write(&path, yaml)?;
    Ok(path)
}

/// A certificate for `name` in `directory`, and a client configuration that trusts it.
fn certificate(directory: &Path, name: &str) -> Result<Arc<rustls::ClientConfig>> {
    let generated = rcgen::generate_simple_self_signed([name.to_owned()])?;
    fs::write(directory.join("key.pem"), generated.signing_key.serialize_pem())?;
    fs::write(directory.join("cert.pem"), generated.cert.pem())?;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(generated.cert.der().clone())?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[tokio::test]
async fn every_example_is_checked() -> Result<()> {
    let home = Home::create()?;
    let mut names = Vec::new();
    for entry in fs::read_dir(shipped("examples"))? {
        let path = entry?.path();
        let output = home.run(&["check", path.to_str().context("a path")?]).await?;
        assert!(output.status.success(), "{}: {}", path.display(), text(&output.stdout));
        names.push(path.file_name().unwrap_or_default().to_string_lossy().into_owned());
    }
    names.sort();
    assert_eq!(names, ["everything.yaml", "minimal.yaml", "team.yaml"], "each has a test below");
    Ok(())
}

#[tokio::test]
async fn the_minimal_example_starts_and_serves() -> Result<()> {
    let home = Home::create()?;
    let config = adapted("minimal.yaml", home.path(), &[("127.0.0.1:3847", "127.0.0.1:0")])?;
    let gateway = Launched::start(&home, &["--config", config.to_str().context("a path")?], &[]).await?;
    let client = ModernClient::new(&gateway.client()?);
    let tools = client.list("tools/list").await?.to_string();
    for tool in ["create_goal", "create_playbook", "prompt_user"] {
        assert!(tools.contains(&format!("\"{tool}\"")), "{tool} of every backend: {tools}");
    }
    client.call("create_goal", json!({"goal": "start small"})).await?;
    Ok(())
}

#[tokio::test]
async fn the_team_example_starts_and_serves() -> Result<()> {
    let home = Home::create()?;
    let trust = certificate(home.path(), "mcp.example.com")?;
    let changes = [
        ("0.0.0.0:8443", "127.0.0.1:0"),
        ("/etc/moongate/tls/cert.pem", "cert.pem"),
        ("/etc/moongate/tls/key.pem", "key.pem"),
    ];
    let config = adapted("team.yaml", home.path(), &changes)?;
    let config = config.to_str().context("a path")?;
    let gateway = Launched::start(&home, &["--config", config], &[]).await?;
    assert!(gateway.ready.contains("endpoint=https://mcp.example.com:8443/mcp"), "{}", gateway.ready);
    let name = || rustls_name("mcp.example.com");
    let client = gateway.client()?.with_tls(Arc::clone(&trust), name()?);
    let host = |client: Client| client.with_header("host", "mcp.example.com:8443");
    ModernClient::new(&host(client.clone())).call("create_goal", json!({"goal": "together"})).await?;
    let review = ModernClient::new(&host(client.with_path("/mcp/review"))).list("tools/list").await?;
    let names = names_of(&review)?;
    assert!(names.contains(&"list_goals".to_owned()), "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("get_") || name.starts_with("list_")), "{names:?}");
    // Build machines only look.
    let issue =
        ["token", "issue", "--config", config, "--subject", "ci-7", "--scopes", "write", "--ttl", "1h"];
    let token = text(&home.run(&issue).await?.stdout);
    let machine =
        host(Client::new(gateway.address, Protocol::Http1).with_tls(trust, name()?)).with_token(token.trim());
    let theirs = names_of(&ModernClient::new(&machine).list("tools/list").await?)?;
    assert!(
        theirs.contains(&"list_goals".to_owned()) && !theirs.contains(&"add_memo".to_owned()),
        "{theirs:?}"
    );
    Ok(())
}

fn rustls_name(name: &str) -> Result<rustls::pki_types::ServerName<'static>> {
    Ok(rustls::pki_types::ServerName::try_from(name.to_owned())?)
}

fn names_of(listed: &Value) -> Result<Vec<String>> {
    let tools = listed["tools"].as_array().context("tools")?;
    tools.iter().map(|tool| Ok(tool["name"].as_str().context("a name")?.to_owned())).collect()
}

#[tokio::test]
async fn the_example_with_everything_starts_and_serves() -> Result<()> {
    let home = Home::create()?;
    let trust = certificate(home.path(), "mcp.example.com")?;
    let database = format!("sqlite://{}/moongate.db", home.path().display());
    let changes = [
        ("127.0.0.1:3847", "127.0.0.1:0"),
        ("127.0.0.1:3860", "127.0.0.1:0"),
        ("sqlite:///var/lib/moongate/moongate.db", database.as_str()),
    ];
    let config = adapted("everything.yaml", home.path(), &changes)?;
    let gateway = Launched::start(&home, &["--config", config.to_str().context("a path")?], &[]).await?;
    let client = gateway.client()?.with_tls(trust, rustls_name("mcp.example.com")?);
    let client = client.with_header("host", "mcp.example.com");
    let modern = ModernClient::new(&client);
    let names = names_of(&modern.list("tools/list").await?)?;
    assert!(names.contains(&"remember".to_owned()) && !names.contains(&"add_memo".to_owned()), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("clear_")), "hidden: {names:?}");
    let noted = modern.call("remember", json!({"memo": "everything works"})).await?;
    assert_ne!(noted["isError"], true, "{noted}");
    assert!(home.path().join("moongate.db").is_file());
    assert!(home.path().join(".local/state/moongate/token").is_file());
    Ok(())
}

#[tokio::test]
async fn placeholders_come_from_the_environment_and_from_files() -> Result<()> {
    let home = Home::create()?;
    let config = home.write_config(
        "security:\n  origins: [\"https://${env:IDE_HOST}\", \"${file:origin}\"]\n  key: ${file:root-key}\n",
    )?;
    let config = config.to_str().context("a path")?;
    fs::write(home.path().join("origin"), "https://file.example.com\n")?;
    let arguments = ["--config", config, "--http-port", "0"];
    let missing = home.run(&["check", config]).await?;
    let shown = text(&missing.stdout);
    assert_eq!(missing.status.code(), Some(1));
    assert!(shown.contains("IDE_HOST") && shown.contains("root-key"), "both are named: {shown}");
    let secret = "bm9ib2R5LW11c3QtZXZlci1zZWUtdGhpcy1rZXktMzI";
    fs::write(home.path().join("root-key"), format!("{secret}\n"))?;
    let gateway = Launched::start(&home, &arguments, &[("IDE_HOST", "env.example.com")]).await?;
    for (origin, status) in [
        ("https://env.example.com", 200),
        ("https://file.example.com", 200),
        ("https://other.example.com", 403),
    ] {
        let answer = gateway.client()?.get("/healthz").header("origin", origin).send().await?;
        assert_eq!(answer.status, status, "{origin}");
    }
    assert!(!gateway.process.stderr().text().contains(secret));
    // A key that was given is used, not a file of our own.
    assert!(!home.path().join("state/moongate/key").exists());
    // A value that does not fit is told without being shown.
    let wrong = home.path().join("wrong.yaml");
    fs::write(&wrong, "server: {max_body: \"${file:root-key}\"}")?;
    let output = home.run(&["check", wrong.to_str().context("a path")?]).await?;
    assert_eq!(output.status.code(), Some(1));
    assert!(!text(&output.stdout).contains(secret), "{}", text(&output.stdout));
    Ok(())
}

/// A loopback address of this test's own, so that the well-known ports are free on it whatever else runs here.
fn own_address() -> String {
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.77.{high}.{low}")
}

#[tokio::test]
async fn the_first_free_port_is_used_and_a_port_that_was_asked_for_is_not_searched() -> Result<()> {
    let address = own_address();
    let home = Home::create()?;
    let config = home.write_config("")?;
    let config = config.to_str().context("a path")?;
    let arguments = ["--config", config, "--http-bind", &address];
    let first = Launched::start(&home, &arguments, &[]).await?;
    assert_eq!(first.address.port(), 3847, "the default");
    let mut held = Vec::new();
    for port in [3848, 3850] {
        held.push(TcpListener::bind((address.as_str(), port)).await?);
    }
    let other = Home::create()?;
    let second = Launched::start(&other, &arguments, &[]).await?;
    assert_eq!(second.address.port(), 3849, "the first that is free");
    assert!(second.ready.contains(&format!("endpoint=http://{address}:3849/mcp")), "{}", second.ready);
    let ping = second.client()?.get("/healthz").header("host", "localhost").send().await?;
    assert_eq!(ping.status, 200);
    for port in 3851..=3857 {
        held.push(TcpListener::bind((address.as_str(), port)).await?);
    }
    let third = Home::create()?;
    let run = |more: &'static [&'static str]| [&["serve"], &arguments[..], more].concat();
    let full = third.run(&run(&[])).await?;
    let said = text(&full.stderr);
    assert_eq!(full.status.code(), Some(1), "{said}");
    assert!(said.contains("port in use") && said.contains("3847") && said.contains("3857"), "{said}");
    let taken = third.run(&run(&["--http-port", "3850"])).await?;
    let said = text(&taken.stderr);
    assert_eq!(taken.status.code(), Some(1), "{said}");
    assert!(said.contains("port in use") && said.contains("3850"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_configured_port_that_is_taken_is_an_error() -> Result<()> {
    let held = TcpListener::bind("127.0.0.1:0").await?;
    let taken = held.local_addr()?;
    let home = Home::create()?;
    for (yaml, more) in [
        (format!("server: {{listen: {taken}}}\nadmin: {{enabled: false}}"), &[][..]),
        (format!("admin: {{listen: {taken}}}"), &["--http-port", "0"][..]),
    ] {
        let config = home.write_config(&yaml)?;
        let output =
            home.run(&[&["serve", "--config", config.to_str().context("a path")?], more].concat()).await?;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("port in use") && said.contains(&taken.port().to_string()), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn the_network_is_not_served_by_accident() -> Result<()> {
    let home = Home::create()?;
    for (yaml, more) in [
        ("server: {listen: 0.0.0.0:0}", &[][..]),
        ("", &["--http-bind", "0.0.0.0", "--http-port", "0"][..]),
        ("admin: {listen: 0.0.0.0:0}", &["--http-port", "0"][..]),
        ("security: {anonymous: true}", &["--http-bind", "0.0.0.0", "--http-port", "0"][..]),
    ] {
        let config = home.write_config(yaml)?;
        let output =
            home.run(&[&["serve", "--config", config.to_str().context("a path")?], more].concat()).await?;
        assert_eq!(output.status.code(), Some(1), "{yaml} {more:?}");
        assert!(text(&output.stderr).contains("reached from elsewhere"), "{}", text(&output.stderr));
    }
    let insecure =
        Gateway::builder().config("server: {allow_insecure: true}").arg("--http-bind").arg("0.0.0.0");
    // The ready line names an address that nobody can connect to as such; the warning is what counts.
    let gateway = insecure.start().await?;
    gateway.logged("without TLS").await?;
    Ok(())
}

#[tokio::test]
async fn the_admin_listener_can_be_turned_off() -> Result<()> {
    let gateway = Gateway::start("admin: {enabled: false}").await?;
    assert_eq!(gateway.admin(), "");
    assert_eq!(gateway.client().get("/healthz").send().await?.status, 200);
    Ok(())
}

// Reload.

async fn readiness(gateway: &Gateway) -> Result<Value> {
    let mut answer = gateway.admin_client()?.get("/readyz").send().await?.json()?;
    Ok(answer["details"]["reload"].take())
}

async fn tools(gateway: &Gateway) -> Result<Vec<String>> {
    names_of(&ModernClient::new(&gateway.client()).list("tools/list").await?)
}

#[tokio::test]
async fn a_changed_file_is_taken_up_whole() -> Result<()> {
    let gateway = Gateway::start("").await?;
    assert_eq!(readiness(&gateway).await?, json!({"outcome": "none"}));
    let client = gateway.client();
    let origin =
        async |origin: &str| anyhow::Ok(client.get("/healthz").header("origin", origin).send().await?.status);
    assert_eq!(origin("https://ide.example.com").await?, 403);
    gateway.write_config(
        "security: {origins: [\"https://ide.example.com\"], limits: {per_tool: {create_goal: 1/h}}}\n\
         routes: [{match: clear_goal, hide: true}]\nprofiles: {review: {tools: [list_goals]}}\n\
         backends: {ui: {enabled: false}}\nserver: {max_body: 2KiB}\ntelemetry: {log_level: debug}",
    )?;
    let line = gateway.logged("configuration reloaded").await?;
    for section in ["server", "security", "routes", "profiles", "backends", "telemetry"] {
        assert!(line.contains(section), "{section}: {line}");
    }
    metric(&gateway, APPLIED, 1.0).await?;
    assert_eq!(readiness(&gateway).await?, json!({"outcome": "applied"}));
    assert_eq!(origin("https://ide.example.com").await?, 200);
    let now = tools(&gateway).await?;
    for gone in ["clear_goal", "prompt_user"] {
        assert!(!now.contains(&gone.to_owned()), "{gone}: {now:?}");
    }
    let review = gateway.client().with_path("/mcp/review");
    assert_eq!(names_of(&ModernClient::new(&review).list("tools/list").await?)?, ["list_goals"]);
    assert_eq!(client.post_text(" ".repeat(3000)).send().await?.status, 413);
    let goal = json!({"name": "create_goal", "arguments": {"goal": "x"}});
    let modern = ModernClient::new(&client);
    let call = async || anyhow::Ok(modern.prepare("tools/call", &goal).over(&client).send().await?.status);
    assert_eq!([call().await?, call().await?], [200, 429]);
    gateway.logged("DEBUG").await.context("the log's level changed too")?;
    Ok(())
}

#[tokio::test]
async fn a_bad_file_keeps_the_old_configuration_and_says_so_everywhere() -> Result<()> {
    let good = "routes: [{match: clear_goal, hide: true}]";
    let gateway = Gateway::start(good).await?;
    let session = LegacySession::open(&gateway.client(), LATEST_LEGACY).await?;
    let before = tools(&gateway).await?;
    gateway.write_config("routes: [{match: list_goals, hide: true}]\nsecurty: {}")?;
    let line = gateway.logged("the configuration stays as it was").await?;
    assert!(line.contains("ERROR"), "{line}");
    gateway.logged("did you mean `security`?").await?;
    metric(&gateway, REFUSED, 1.0).await?;
    let told = readiness(&gateway).await?;
    assert_eq!(told["outcome"], "refused", "{told}");
    assert!(told["reason"].as_str().is_some_and(|reason| reason.contains("securty")), "{told}");
    assert_eq!(gateway.admin_client()?.get("/readyz").send().await?.status, 200, "it still takes work");
    assert_eq!(tools(&gateway).await?, before, "not even the good part of it is in force");
    assert_eq!(session.request("ping", &json!({})).await?.result()?, json!({}));
    fs::remove_file(gateway.home().config_path())?;
    metric(&gateway, REFUSED, 2.0).await.context("a file that is gone is bad, too")?;
    assert_eq!(tools(&gateway).await?, before);
    gateway.write_config("routes: [{match: list_goals, hide: true}]")?;
    metric(&gateway, APPLIED, 1.0).await?;
    assert_eq!(readiness(&gateway).await?, json!({"outcome": "applied"}));
    assert!(!tools(&gateway).await?.contains(&"list_goals".to_owned()));
    assert_eq!(session.request("ping", &json!({})).await?.result()?, json!({}));
    Ok(())
}

#[tokio::test]
async fn what_only_a_restart_can_change_is_refused_by_name() -> Result<()> {
    let home = Arc::new(Home::create()?);
    let base = "server: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:0}\n";
    let config = home.write_config(base)?;
    let gateway = Launched::start(&home, &["--config", config.to_str().context("a path")?], &[]).await?;
    let session = LegacySession::open(&gateway.client()?, LATEST_LEGACY).await?;
    for (yaml, key) in [
        ("server: {listen: 127.0.0.1:1}\nadmin: {listen: 127.0.0.1:0}", "server.listen"),
        ("server: {listen: 127.0.0.1:0}\nadmin: {listen: 127.0.0.1:1}", "admin.listen"),
        ("server: {listen: 127.0.0.1:0}\nadmin: {enabled: false, listen: 127.0.0.1:0}", "admin.enabled"),
        (&format!("{base}storage: {{url: \"sqlite:///tmp/never-made.db\"}}"), "storage"),
        (&format!("{base}storage: {{durability: relaxed}}"), "storage"),
        (&format!("{base}security: {{key: another-key}}"), "security.key"),
    ] {
        // With something that could change, to see that it does not.
        home.write_config(&format!("{yaml}\nroutes: [{{match: list_goals, hide: true}}]"))?;
        let wanted = format!("needs a restart: {key}");
        let said = gateway.process.stderr().line(|line| line.contains(&wanted));
        patiently(&wanted, said).await??;
        let listed = session.list("tools/list").await?;
        assert!(names_of(&listed)?.contains(&"list_goals".to_owned()), "{key}: all or nothing");
    }
    assert!(!Path::new("/tmp/never-made.db").exists());
    Ok(())
}

/// The file is reached through a linked directory, as deployments do it that switch from one version to the next: no
/// watched file changes, so only a signal can say that there is another one now.
#[tokio::test]
async fn a_signal_makes_the_gateway_look_again() -> Result<()> {
    let home = Home::create()?;
    let admin = "admin: {listen: 127.0.0.1:0}";
    let hidden = format!("{admin}\nroutes: [{{match: clear_goal, hide: true}}]");
    for (version, yaml) in [("v1", admin), ("v2", &hidden)] {
        fs::create_dir(home.path().join(version))?;
        fs::write(home.path().join(version).join("moongate.yaml"), yaml)?;
    }
    let current = home.path().join("current");
    symlink("v1", &current)?;
    let config = current.join("moongate.yaml");
    let arguments = ["--config", config.to_str().context("a path")?, "--http-port", "0"];
    let mut gateway = Launched::start(&home, &arguments, &[]).await?;
    let client = ModernClient::new(&gateway.client()?);
    let offered = async |tool: &str| {
        Ok::<_, anyhow::Error>(names_of(&client.list("tools/list").await?)?.contains(&tool.to_owned()))
    };
    assert!(offered("clear_goal").await?);
    symlink("v2", home.path().join("next"))?;
    fs::rename(home.path().join("next"), &current)?;
    gateway.process.signal(Signal::HUP)?;
    let reloaded = gateway.process.stderr().line(|line| line.contains("configuration reloaded"));
    patiently("the reload", reloaded).await??;
    assert!(!offered("clear_goal").await? && offered("list_goals").await?);
    // A signal without a change is no harm.
    gateway.process.signal(Signal::HUP)?;
    assert!(offered("list_goals").await?);
    gateway.process.signal(Signal::TERM)?;
    assert!(gateway.process.wait(PATIENCE).await?.success());
    Ok(())
}

#[tokio::test]
async fn a_reload_keeps_sessions_streams_and_running_calls() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let answers = fixture::person("Ada");
    let session =
        LegacySession::open_with(&gateway.client(), LATEST_LEGACY, &fixture::talkative(), answers.clone())
            .await?;
    session.call("create_goal", json!({"goal": "before"})).await?;
    let mut listening = session.listen(None).await?;
    // A call that waits for its client: it runs for as long as the test wants.
    let params = json!({"name": "test_ask_twice", "arguments": {}});
    let mut running = session.prepare("tools/call", &params).open().await?;
    let question = running.message_where(|message| message["method"] == "elicitation/create").await?;
    let modern = ModernClient::new(&gateway.client()).with_answers(&fixture::talkative(), answers.clone());
    let parked = modern.once(&modern.prepare("tools/call", &params)).await?;
    assert_eq!(parked.response["result"]["resultType"], "input_required", "{}", parked.response);

    gateway.write_config("routes: [{match: clear_goal, hide: true}]\nsecurity: {limits: {calls: 7}}")?;
    gateway.logged("configuration reloaded").await?;
    let told =
        listening.message_where(|message| message["method"] == "notifications/tools/list_changed").await?;
    assert_eq!(told["jsonrpc"], "2.0", "the stream is open, and hears what changed");
    assert_eq!(session.respond(&answers.respond(&question)).await?.status, 202);
    let done = session.outcome(running).await?;
    assert!(done.result()?.to_string().contains("Hello, Ada!"), "{}", done.response);
    let retry = modern.retry("tools/call", &params, &parked.response["result"])?;
    let next = modern.once(&retry).await?;
    assert!(next.response.get("error").is_none(), "a parked call is still there: {}", next.response);
    let goals = session.call("list_goals", json!({})).await?;
    assert!(goals.to_string().contains("before"), "{goals}");
    Ok(())
}

#[tokio::test]
async fn a_file_that_a_placeholder_names_is_watched_also_when_it_was_missing() -> Result<()> {
    let gateway = Gateway::start("").await?;
    gateway.write_config("security: {origins: [\"${file:origin}\"]}")?;
    metric(&gateway, REFUSED, 1.0).await?;
    let client = gateway.client();
    let status = async || {
        anyhow::Ok(client.get("/healthz").header("origin", "https://late.example.com").send().await?.status)
    };
    assert_eq!(status().await?, 403);
    fs::write(gateway.home().path().join("origin"), "https://late.example.com")?;
    eventually("the origin to be allowed", async || Ok((status().await? == 200).then_some(()))).await
}

#[tokio::test]
async fn a_limit_that_stays_keeps_its_count_over_a_reload() -> Result<()> {
    let gateway = Gateway::start("security: {limits: {per_principal: 3/h}}").await?;
    let client = gateway.client();
    let list = async || {
        let request = ModernClient::new(&client).prepare("tools/list", &json!({}));
        anyhow::Ok(request.over(&client).send().await?.status)
    };
    assert_eq!([list().await?, list().await?], [200, 200]);
    gateway.write_config(
        "security: {limits: {per_principal: 3/h}}\nroutes: [{match: clear_goal, hide: true}]",
    )?;
    gateway.logged("configuration reloaded").await?;
    assert_eq!([list().await?, list().await?], [200, 429], "nobody gets a fresh count by touching the file");
    Ok(())
}
