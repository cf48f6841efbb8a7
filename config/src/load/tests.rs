//! Whole files: what loads, what does not, and what is said about it.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    glob::Glob,
    model::{
        context::{Eviction, ExpiredStatus, Sources},
        security::{Effect, RootKey},
        server::Listen,
    },
    schema::json_schema,
    units::{Per, Rate, Size},
};

mod upstreams;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

fn env(name: &str) -> Option<String> {
    match name {
        "HOME" => Some("/home/me".to_owned()),
        "PORT" => Some("4000".to_owned()),
        "YES" => Some("true".to_owned()),
        "SECRET" => Some("hunter2-the-secret".to_owned()),
        _ => None,
    }
}

fn file(path: &Path) -> io::Result<String> {
    match path.to_str() {
        Some("/etc/moongate/key") => Ok(format!("{KEY}\n")),
        Some("/home/me/short") => Ok("hunter2-the-secret\n".to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn try_load(text: impl AsRef<[u8]>) -> Result<Loaded, Problems> {
    load(text, Path::new("/etc/moongate/moongate.yaml"), &env, &file)
}

fn config(text: &str) -> Config {
    try_load(text).unwrap_or_else(|problems| panic!("{text}\n{problems}")).config
}

fn problems(text: impl AsRef<[u8]>) -> Problems {
    try_load(text).expect_err("a file with problems")
}

/// `path @line:column message` for each problem.
fn lines(text: impl AsRef<[u8]>) -> Vec<String> {
    let line = |p: &Problem| format!("{} @{}:{} {}", p.path, p.line, p.column, p.message);
    problems(text).iter().map(line).collect()
}

#[test]
fn an_empty_file_gives_the_defaults_of_the_user() {
    let directories = Directories::from_env(&env);
    for text in ["", "# nothing\n", "---\n", "server:\nsecurity:\n  limits:\nroutes:\n", "{}", "\u{feff}"] {
        assert_eq!(try_load(text).unwrap(), Loaded { config: Config::defaults(&directories), files: vec![] });
    }
    let security = config("").security;
    assert_eq!(security.token_file, Path::new("/home/me/.local/state/moongate/token"));
    assert_eq!(security.key, RootKey::File("/home/me/.local/state/moongate/key".into()));
}

#[test]
fn every_example_loads() {
    let directory = Path::new("examples");
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read(&path).unwrap();
        load(&text, &path, &env, &file).unwrap_or_else(|problems| panic!("{problems}"));
        names.insert(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    let expected = ["everything.yaml", "minimal.yaml", "team.yaml"].map(str::to_owned);
    assert_eq!(names, BTreeSet::from(expected));
}

#[test]
fn the_example_of_everything_has_every_key() {
    let text = include_str!("../../examples/everything.yaml");
    let schema: serde_json::Value = serde_json::from_str(&json_schema()).unwrap();
    let sections = std::iter::once(&schema).chain(schema["$defs"].as_object().unwrap().values());
    for key in sections.flat_map(|section| section["properties"].as_object().unwrap().keys()) {
        assert!(text.contains(&format!("{key}:")), "everything.yaml lacks {key}");
    }
}

#[test]
fn every_key_reaches_the_configuration() {
    let config = config(include_str!("../../examples/everything.yaml"));
    assert_eq!(config.server.listen, Listen::exact(([127, 0, 0, 1], 3847).into()));
    assert_eq!(config.server.public_url.unwrap().base, "https://mcp.example.com");
    assert_eq!(config.server.trusted_proxies.len(), 2);
    assert_eq!(config.server.tls.unwrap().cert, Path::new("/etc/moongate/cert.pem"));
    assert_eq!(config.context.trust.local, Sources { headers: true, meta: true });
    assert_eq!(config.security.hosts, ["mcp.internal.example.com"]);
    assert_eq!(config.security.origins, ["https://ide.example.com"]);
    assert!(config.security.scopes.contains("dev") && config.security.scopes.contains("rules.write"));
    assert_eq!(config.security.limits.of_tool("get_goal"), None);
    assert_eq!(config.security.limits.of_tool("add_goal"), Some(Rate::new(300, Per::Minute)));
    let effects = config.security.rules.iter().map(|rule| rule.effect).collect::<Vec<_>>();
    assert_eq!(effects, [Effect::Deny, Effect::Allow, Effect::Deny]);
    assert_eq!(config.security.rules[0].unless_scope.as_deref(), Some("admin"));
    assert!(
        config.security.rules[1].principals.matches("issued:x")
            && !config.security.rules[1].principals.matches("x")
    );
    assert_eq!(config.routes[1].pattern, Glob::new("remember").unwrap());
    assert_eq!(config.routes[1].rename.as_deref(), Some("add_memo"));
    assert_eq!(config.routes[2].timeout, Some(Duration::from_secs(20)));
    assert!(config.routes[0].hide && config.profiles["review"].upstreams.matches("playbook"));
    assert!(!config.profiles["review"].upstreams.matches("ui"));
    assert_eq!(config.storage.path, Path::new("/var/lib/moongate/moongate.db"));
}

#[test]
fn values_replace_defaults() {
    let config = config(concat!(
        "server: {listen: '127.0.0.1:0', max_body: 512KiB}\n",
        "sessions: {idle_timeout: 250ms, expired_status: 401, poll_after: 25s}\n",
        "context: {eviction: ttl+lru, lru_max: 7, trust: {local: [], anonymous: [meta]}}\n",
        "security: {limits: {per_address: off, calls: off, connections: 5}, scopes: []}\n",
        "storage: {url: 'sqlite:data/x.db', durability: relaxed}\n",
        "backends: {content: {enabled: false, roots: [texts, /srv], retention: off, limits: {contents: 7, file: 1MiB}}}\n",
    ));
    assert_eq!((config.server.listen.ports, config.server.max_body), (0..=0, 512 << 10));
    assert_eq!(config.sessions.idle_timeout, Duration::from_millis(250));
    assert_eq!(config.sessions.expired_status, ExpiredStatus::Unauthorized);
    assert_eq!(config.sessions.poll_after, Some(Duration::from_secs(25)));
    assert_eq!((config.context.eviction, config.context.lru_max.get()), (Eviction::TtlLru, 7));
    assert_eq!(config.context.trust.local, Sources::default());
    assert_eq!(config.context.trust.anonymous, Sources { headers: false, meta: true });
    assert_eq!((config.security.limits.per_address, config.security.limits.calls), (None, None));
    assert_eq!(config.security.limits.connections.map(std::num::NonZero::get), Some(5));
    assert_eq!(config.storage.path, Path::new("/etc/moongate/data/x.db"));
    let content = &config.backends.content;
    assert!(!content.backend.enabled && content.retention.is_none());
    assert_eq!(content.roots, [Path::new("/etc/moongate/texts"), Path::new("/srv")]);
    assert_eq!((content.limits.contents.get(), content.limits.file), (7, Size(1 << 20)));
    assert_eq!(content.limits.text, Size(4 << 20), "what is not given stays");
}

#[test]
fn ten_problems_are_reported_at_once() {
    let text = concat!(
        "server:\n",
        "  lisen: 127.0.0.1:3847\n",
        "  max_body: 4MB\n",
        "  tls: {cert: cert.pem}\n",
        "sessions: {idle_timeout: 30, expired_status: 410}\n",
        "context: {eviction: lur}\n",
        "security:\n",
        "  jwt: [{issuer: https://login.example.com/}]\n",
        "  token_file: ${env:TOKEN_FILE}\n",
        "  anonymous: yes\n",
        "  rules:\n",
        "    - allow: {tools: ['a b']}\n",
        "routes:\n",
        "  - {match: 'get_*', upstream: plannin, rename: x}\n",
        "storage: {url: postgres://me:hunter2@db/moongate}\n",
        "server: {}\n",
    );
    let found = problems(text);
    insta::assert_snapshot!("ten_problems_text", found.render(false));
    insta::assert_snapshot!("ten_problems_json", found.to_json());
    assert!(found.render(true).contains("\u{1b}[") && !found.render(false).contains('\u{1b}'));
}

#[test]
fn unknown_keys_and_keys_of_later_versions_are_told_apart() {
    assert_eq!(
        lines("upstream: {}\naudit: {file: x}\nsecurity: {jwt: [], jwtt: []}\n"),
        [
            "upstream @1:1 unknown key `upstream`",
            "audit @2:1 `audit` is not available in this version",
            "security.jwt @3:12 `jwt` is not available in this version",
            "security.jwtt @3:21 unknown key `jwtt`",
        ]
    );
    for later in [
        "state: {url: memory}",
        "audit: {file: x}",
        "telemetry: {otlp: x}",
        "server: {tls: {client_ca: x, cert: x, key: x}}",
        "context: {claims: {}}",
        "context: {trust: {jwt: []}}",
        "backends: {memory: {enabled: true}}",
        "storage: {url: 'postgres://x'}",
    ] {
        let found = problems(later);
        let kinds = found.iter().map(|problem| problem.kind).collect::<Vec<_>>();
        assert_eq!(kinds, [ProblemKind::NotAvailable], "{found}");
    }
}

#[test]
fn placeholders_are_resolved_and_their_files_named() {
    let text = concat!(
        "server: {listen: '127.0.0.1:${env:PORT}'}\n",
        "security: {key: '${file:key}', anonymous: '${env:YES}'}\n",
        "routes: [{match: x, description: 'costs $${env:MONEY}'}]\n",
    );
    let loaded = try_load(text).unwrap();
    assert_eq!(loaded.files, [Path::new("/etc/moongate/key")]);
    let config = loaded.config;
    assert_eq!(config.server.listen, Listen::exact(([127, 0, 0, 1], 4000).into()));
    assert!(config.security.anonymous);
    assert_eq!(config.routes[0].description.as_deref(), Some("costs ${env:MONEY}"));
    assert!(matches!(&config.security.key, RootKey::Given(key) if key.expose() == KEY));
    assert!(!format!("{config:?}").contains(KEY));
    assert_eq!(
        lines("security: {key: '${file:none}', token_file: '${env:NONE}', hosts: ['${x}']}"),
        [
            "security.key @1:17 cannot read the file `none`: entity not found",
            "security.token_file @1:45 the environment variable `NONE` is not set",
            "security.hosts[0] @1:68 `${x}` is neither `${env:NAME}` nor `${file:PATH}`",
        ]
    );
    assert_eq!(problems("security: {key: '${file:none}'}").files(), [Path::new("/etc/moongate/none")]);
}

#[test]
fn no_problem_repeats_a_secret() {
    let text = concat!(
        "server: {listen: '${env:SECRET}', public_url: '${env:SECRET}', max_body: '${env:SECRET}'}\n",
        "sessions: {idle_timeout: '${env:SECRET}', expired_status: '${env:SECRET}'}\n",
        "context: {eviction: '${env:SECRET}', lru_max: '${env:SECRET}', trust: {local: ['${env:SECRET}']}}\n",
        "security:\n",
        "  key: ${file:~/short}\n",
        "  scopes: []\n",
        "  anonymous: ${env:SECRET}\n",
        "  anonymous_scopes: ['${env:SECRET}']\n",
        "  limits: {per_address: '${env:SECRET}', calls: '${env:SECRET}'}\n",
        "routes: [{match: x, upstream: '${env:SECRET}', scope: '${env:SECRET}', timeout: '${env:SECRET}'}]\n",
        "profiles: {p: {upstreams: ['${env:SECRET}']}}\n",
        "storage: {url: 'x://${env:SECRET}'}\n",
        "telemetry: {log_level: '${env:SECRET}'}\n",
    );
    let found = problems(text);
    assert_eq!(found.count(), 19, "{found}");
    for shown in [found.render(false), found.to_json(), format!("{found:?}")] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    // A secret under a misspelt or unavailable key, on the very line that is shown.
    let text = concat!(
        "audit: {github: {command: npx, env: {GITHUB_TOKEN: hunter2}}}\n",
        "security: {key: hunter2, tokn: hunter2}\n",
        "sessions: {sweep_interval: 1s, sweep_interval: hunter2}\n",
        "server: {public_url: 'https://me:hunter2@example.com'}\n",
    );
    let found = problems(text);
    assert_eq!(found.count(), 4, "{found}");
    for shown in [found.render(false), found.to_json(), format!("{found:?}")] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_key_in_the_file_itself_is_refused_and_not_repeated() {
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    let found = problems(format!("security: {{key: {key}}}"));
    let text = found.render(false);
    assert!(text.contains("this is the key itself") && text.contains("${file:…}"), "{text}");
    for shown in [text, found.to_json(), format!("{found:?}")] {
        assert!(!shown.contains(key), "{shown}");
    }
}

#[test]
fn an_admin_listener_for_others_needs_a_word_and_is_warned_about() {
    assert_eq!(problems("admin: {listen: '0.0.0.0:1'}").count(), 1);
    assert_eq!(problems("server: {tls: {cert: a, key: b}}\nadmin: {listen: '0.0.0.0:1'}").count(), 1);
    let allowed = config("server: {allow_insecure: true}\nadmin: {listen: '0.0.0.0:1'}");
    assert_eq!(allowed.warnings(), ["the admin listener on 0.0.0.0:1 can be reached from elsewhere"]);
    config("admin: {enabled: false, listen: '0.0.0.0:1'}");
}

#[test]
fn a_listener_for_others_without_a_name_is_warned_about() {
    let nameless = "server: {listen: '0.0.0.0:1', tls: {cert: a, key: b}}";
    let warning = "every request to 0.0.0.0:1 will be refused: neither `server.public_url` nor `security.hosts` names it";
    assert_eq!(config(nameless).warnings(), [warning]);
    assert!(config(&format!("{nameless}\nsecurity: {{hosts: [a.example]}}")).warnings().is_empty());
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (text, expected) in [
        (
            "server: {listen: '0.0.0.0:1'}",
            "server.listen @1:18 this address can be reached from elsewhere, and tokens would travel in the clear",
        ),
        (
            "admin: {listen: '[::]:1'}",
            "admin.listen @1:17 this address can be reached from elsewhere, and the admin listener has no TLS",
        ),
        (
            "server: {listen: '10.0.0.1:1', allow_insecure: true}\nsecurity: {anonymous: true}",
            "security.anonymous @2:23 `server.listen` can be reached from elsewhere, and callers would need no token",
        ),
        (
            "server: {trusted_proxies: [127.0.0.1]}\nsecurity: {anonymous: true}",
            "security.anonymous @2:23 callers behind `server.trusted_proxies` come from elsewhere, and would need no token",
        ),
        (
            "server: {public_url: 'https://x.example'}\nsecurity: {anonymous: true}",
            "security.anonymous @2:23 callers of `server.public_url` would need no token",
        ),
        ("server: {tls: {key: x}}", "server.tls @1:15 the key `cert` is missing"),
        ("server: {max_body: 1B}", "server.max_body @1:20 `1B` is too small or too large"),
        ("sessions: {sweep_interval: 0s}", "sessions.sweep_interval @1:28 `0s` is no time at all"),
        ("backends: {content: {retention: 0s}}", "backends.content.retention @1:33 `0s` is no time at all"),
        ("sessions: {poll_after: 0s}", "sessions.poll_after @1:24 `0s` is no time at all"),
        (
            "security: {limits: {call_timeout: 11m}}",
            "security.limits.call_timeout @1:35 `call_timeout` is longer than `max_timeout`",
        ),
        (
            "security: {limits: {max_timeout: 1s}}",
            "security.limits.max_timeout @1:34 `call_timeout` is longer than `max_timeout`",
        ),
        (
            "security: {limits: {call_timeout: off}}",
            "security.limits.call_timeout @1:35 `off` does not begin with a whole number",
        ),
        ("security: {limits: {calls: 0}}", "security.limits.calls @1:28 found `0`"),
        (
            "security: {limits: {per_tool: {'a b': 1/s}}}",
            "security.limits.per_tool[\"a b\"] @1:32 `a b` is not a pattern: the pattern contains ' ', which no name can contain",
        ),
        ("security: {rules: [{}]}", "security.rules[0] @1:20 this rule neither allows nor denies"),
        (
            "security: {rules: [{allow: {}, deny: {}}]}",
            "security.rules[0] @1:20 this rule both allows and denies",
        ),
        (
            "security: {rules: [{deny: {}}, {allow: {tools: [a]}}]}",
            "security.rules[1] @1:32 this rule is never reached: security.rules[0] always matches",
        ),
        (
            "security: {rules: [{deny: {tools: []}}]}",
            "security.rules[0].deny.tools @1:35 an empty list matches nothing",
        ),
        (
            "security: {scopes: [dev], anonymous_scopes: [dve]}",
            "security.anonymous_scopes[0] @1:46 there is no scope called `dve`",
        ),
        ("security: {origins: ['*']}", "security.origins[0] @1:22 `*` is not an origin"),
        ("routes: [{upstream: ui}]", "routes[0] @1:10 the key `match` is missing"),
        (
            "routes: [{match: 'a*', upstream: ui, rename: b}]",
            "routes[0].rename @1:46 `rename` needs an exact `match`, and `a*` is a pattern",
        ),
        ("routes: [{match: a, rename: b}]", "routes[0] @1:10 the key `upstream` is missing"),
        (
            "routes: [{match: a, upstream: memory}]",
            "routes[0].upstream @1:31 there is no upstream called `memory`",
        ),
        (
            "routes: [{match: a, upstream: ui}]\nbackends: {ui: {enabled: false}}",
            "routes[0].upstream @1:31 `ui` is not enabled",
        ),
        (
            "routes: [{match: a}, {match: a, hide: true}]",
            "routes[1].match @1:30 this route is never reached: routes[0] matches the same",
        ),
        (
            "routes: [{match: a, timeout: 1h}]",
            "routes[0].timeout @1:30 `1h` is longer than `security.limits.max_timeout`",
        ),
        ("profiles: {a/b: {}}", "profiles[\"a/b\"] @1:12 `a/b` cannot be part of a path"),
        (
            "profiles: {p: {upstreams: [github]}}",
            "profiles.p.upstreams[0] @1:28 there is no upstream called `github`",
        ),
        ("storage: {url: 'mysql://x'}", "storage.url @1:16 found `mysql://x`"),
        ("storage: {url: 'sqlite://x'}", "storage.url @1:16 found `sqlite://x`"),
        ("context: {default_session: 123}", "context.default_session @1:28 found a number without quotes"),
        ("security: []", "security @1:11 found a list"),
        ("routes: {match: a}", "routes @1:9 found a mapping"),
        ("just text", " @1:1 found `just text`"),
        ("7: x", "7 @1:1 unknown key `7`"),
        ("<<: {a: 1}", "[\"<<\"] @1:1 merge keys are not supported"),
    ] {
        assert_eq!(lines(text), [expected], "{text}");
    }
}

#[test]
fn what_goes_together_is_accepted() {
    for text in [
        "server: {listen: '0.0.0.0:1', tls: {cert: a, key: b}}",
        "server: {listen: '0.0.0.0:1', allow_insecure: true}",
        "admin: {listen: '0.0.0.0:1', enabled: false}",
        "security: {anonymous: true}",
        "server: {public_url: 'http://localhost:3847'}\nsecurity: {anonymous: true}",
        "security: {rules: [{allow: {scope: anything}}]}",
        "routes: [{match: add_memo}, {match: '*', hide: true}]",
        "security: &s {anonymous: false}\ncontext: {trust: {local: &l [meta], issued: *l}}",
    ] {
        config(text);
    }
}

#[test]
fn the_command_line_can_ask_again() {
    let mut config = config("security: {anonymous: true}");
    assert!(config.refusals().is_empty() && config.warnings().len() == 1);
    config.server.listen = Listen::exact(([0, 0, 0, 0], 1).into());
    let paths = config.refusals().iter().map(|refusal| refusal.path).collect::<Vec<_>>();
    assert_eq!(paths, ["server.listen", "security.anonymous"]);
    assert_eq!(config.warnings().len(), 3);
}

#[test]
fn unreadable_files_are_a_problem() {
    let large = " ".repeat(MAX_FILE + 1);
    for (bytes, expected) in [
        (&b"server: {listen\n"[..], " @1:9 not valid YAML: "),
        (b"a: b: c", " @1:5 not valid YAML: "),
        (b"server: *none", " @1:9 not valid YAML: "),
        (b"a: 1\n---\nb: 2\n", " @3:1 not valid YAML: the file holds more than one document"),
        (b"server: !secret x", " @1:17 not valid YAML: "),
        (b"a: \xff", " @1:1 the file is not UTF-8, from byte 3 on"),
        (b"a: \0", " @1:4 not valid YAML: "),
        (large.as_bytes(), " @1:1 the file is larger than 1 MiB"),
    ] {
        let found = lines(bytes);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?} should be {expected}");
    }
}

#[test]
fn only_the_first_hundred_problems_are_shown() {
    let text = (0..250).map(|i| format!("key{i}: 1")).collect::<Vec<_>>().join("\n");
    let found = problems(&text);
    assert_eq!((found.count(), found.iter().count()), (250, 100));
    assert!(found.to_string().ends_with("250 problems in /etc/moongate/moongate.yaml\n"));
}

#[test]
fn a_file_of_nothing_but_mistakes_is_refused() {
    let text = (0..5_000).map(|i| format!("key{i}: hunter2")).collect::<Vec<_>>().join("\n");
    assert!(text.len() < MAX_FILE);
    let found = problems(&text);
    assert_eq!(found.count(), 5_000);
    assert!(!found.to_string().contains("hunter2"));
}

#[test]
fn problems_as_json_have_a_fixed_shape() {
    let found = problems("server: {lisen: x}");
    let value: serde_json::Value = serde_json::from_str(&found.to_json()).unwrap();
    assert_eq!(value["file"], "/etc/moongate/moongate.yaml");
    assert_eq!(value["count"], 1);
    let problem = &value["problems"][0];
    assert_eq!(problem["nearest"], "listen");
    assert_eq!(problem["kind"], "unknown_key");
    assert_eq!([&problem["line"], &problem["column"]], [&json!(1), &json!(10)]);
    assert_eq!(problem["path"], "server.lisen");
}

/// Text that looks enough like YAML, and like our keys, to get far.
fn yamlish() -> impl Strategy<Value = String> {
    const WORDS: [&str; 49] = [
        "server",
        "listen",
        "security",
        "limits",
        "rules",
        "routes",
        "match",
        "profiles",
        "context",
        "trust",
        "tls",
        "per_tool",
        "upstreams",
        "command",
        "env",
        "headers",
        "args",
        "set",
        "key",
        "storage",
        "url",
        "127.0.0.1:0",
        "${env:PORT}",
        "${file:key}",
        "${",
        "}",
        "$$",
        "off",
        "30s",
        "4MiB",
        "600/min",
        "*",
        "&a",
        "*a",
        "<<",
        "!!binary",
        "!x",
        "|",
        ">-",
        "'",
        "\"",
        "é",
        "\u{feff}",
        "\u{0}",
        "\t",
        "\r",
        "99999999999999999999",
        "~",
        "true",
    ];
    const GLUE: [&str; 12] = [": ", ":\n  ", "\n", "\n  - ", ", ", "{", "}", "[", "]", " ", " # ", "\n    "];
    let piece = prop_oneof![prop::sample::select(&WORDS[..]), prop::sample::select(&GLUE[..])];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn shown_without_panic(text: &[u8]) -> Result<(), TestCaseError> {
    if let Err(problems) = try_load(text) {
        prop_assert!(problems.count() > 0);
        for problem in problems.iter() {
            prop_assert!(problem.line >= 1 && problem.column >= 1 && !problem.message.is_empty());
        }
        prop_assert!(!problems.render(true).is_empty() && !problems.to_json().is_empty());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn text_like_yaml_never_panics(text in yamlish()) {
        shown_without_panic(text.as_bytes())?;
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,60}|(.|\n){0,60}") {
        shown_without_panic(text.as_bytes())?;
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        shown_without_panic(&bytes)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_broken_example_never_panics(cut in 0_usize..6_000, length in 0_usize..40, text in "[a-z:{}\\[\\]\n ]{0,8}") {
        let example = include_str!("../../examples/everything.yaml");
        let cut = example.floor_char_boundary(cut.min(example.len()));
        let end = example.floor_char_boundary((cut + length).min(example.len()));
        let broken = [&example[..cut], &text, &example[end.max(cut)..]].concat();
        shown_without_panic(broken.as_bytes())?;
    }
}
