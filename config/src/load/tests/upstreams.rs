//! Files with upstreams, and with routes that lead to them.

use serde_json::json;

use super::*;
use crate::{
    diff::diff,
    model::{
        routing::ContextFields,
        upstreams::{
            EraChoice, Prefix, Reach, Upstream,
            process::{Argument, Process, Share, Start},
            remote::{Remote, RemoteTransport},
        },
    },
};

/// The one upstream of a file, called `x`, with these keys.
fn upstream(keys: &str) -> Upstream {
    let mut config = config(&format!("upstreams: {{x: {{{keys}}}}}"));
    assert_eq!(config.upstreams.len(), 1);
    config.upstreams.remove(0)
}

fn process(keys: &str) -> Process {
    match upstream(keys).reach {
        Reach::Process(process) => process,
        Reach::Remote(remote) => panic!("{remote:?}"),
    }
}

fn remote(keys: &str) -> Remote {
    match upstream(keys).reach {
        Reach::Remote(remote) => remote,
        Reach::Process(process) => panic!("{process:?}"),
    }
}

#[test]
fn what_ides_write_can_be_pasted_and_keeps_its_order() {
    let config = config(
        r#"{"upstreams": {
            "time": {"command": "uvx", "args": ["mcp-server-time"], "type": "stdio"},
            "Context7": {"url": "https://mcp.context7.example/mcp", "type": "http", "headers": {"KEY": "a b"}},
            "files": {"command": "npx", "args": ["-y", "server", "~/x"], "env": {"A": "1", "B": ""}},
            "old": {"url": "http://localhost:9/sse", "type": "sse"},
            "also": {"url": "https://x.example", "type": "streamable-http"}
        }}"#,
    );
    let names = config.upstreams.iter().map(|upstream| upstream.name.as_str()).collect::<Vec<_>>();
    assert_eq!(names, ["time", "Context7", "files", "old", "also"]);
    assert_eq!(config.upstream("files"), config.upstreams.get(2));
    assert_eq!(config.upstream("planning"), None);
    let Reach::Process(files) = &config.upstreams[2].reach else { panic!("a process") };
    // Only paths of the file itself are resolved, not what a program makes of its arguments.
    assert_eq!(files.args.iter().map(Argument::expose).collect::<Vec<_>>(), ["-y", "server", "~/x"]);
    assert_eq!((files.env["A"].expose(), files.env["B"].expose()), ("1", ""));
    assert!(config.warnings().is_empty());
}

#[test]
fn the_defaults_that_the_schema_states_are_those_of_an_upstream() {
    let schema: serde_json::Value = serde_json::from_str(&json_schema()).unwrap();
    let keys = schema["$defs"]["Upstream"]["properties"].as_object().unwrap();
    let stated = |own: &[&str]| {
        let keys = keys.iter().filter(|(key, _)| own.contains(&key.as_str()));
        let stated = keys.map(|(key, schema)| format!(", {key}: {}", schema["default"])).collect::<Vec<_>>();
        assert_eq!(stated.len(), own.len(), "{own:?}");
        stated.concat()
    };
    let both = ["enabled", "era", "scope", "list_timeout", "forward_unlisted", "max_message", "instructions"];
    let process = ["args", "env", "inherit_env", "start", "share", "idle_timeout", "max_processes"];
    let remote = ["headers", "transport", "allow_insecure"];
    for (reach, own) in [("command: npx", &process[..]), ("url: 'https://x.example'", &remote)] {
        let all = stated(&[own, &both].concat());
        assert_eq!(upstream(&format!("{reach}{all}")), upstream(reach), "{all}");
    }
    let process = upstream("command: npx");
    assert_eq!(process.reach, Reach::Process(Process::new("npx")));
    assert_eq!((process.prefix, process.scope.as_str()), (Prefix::Name("x".to_owned()), "write"));
    assert_eq!((process.timeout, process.roots), (None, None));
}

#[test]
fn every_key_of_a_process_reaches_the_configuration() {
    let config = config(include_str!("../../../examples/everything.yaml"));
    let github = config.upstream("github").unwrap();
    let Reach::Process(process) = &github.reach else { panic!("{github:?}") };
    assert_eq!((process.command.as_str(), process.args.len()), ("npx", 2));
    assert_eq!(process.env["LOG_LEVEL"].expose(), "info");
    assert_eq!(process.inherit_env, ["GITHUB_PERSONAL_ACCESS_TOKEN"]);
    assert_eq!(process.cwd.as_deref(), Some(Path::new("/tmp")));
    assert_eq!(process.limits.memory, Some(512 << 20));
    assert_eq!(process.limits.cpu, Some(Duration::from_mins(5)));
    assert_eq!(process.limits.open_files.map(std::num::NonZero::get), Some(1024));
    assert_eq!(process.limits.processes.map(std::num::NonZero::get), Some(64));
    assert_eq!(github.timeout, Some(Duration::from_mins(1)));
    let roots = ["file:///home/me/projects", "file:///srv/shared"].map(str::to_owned);
    assert_eq!(github.roots.as_deref(), Some(&roots[..]));

    let process = super::config(concat!(
        "security: {limits: {max_timeout: 1h}}\n",
        "upstreams: {x: {command: a, start: eager, share: session, idle_timeout: off, max_processes: 64, ",
        "enabled: false, era: legacy, prefix: y, scope: fly, timeout: 20m, list_timeout: 1s, roots: [], ",
        "max_message: 64KiB, instructions: false}}",
    ))
    .upstreams
    .remove(0);
    assert!(!process.enabled && !process.instructions);
    assert_eq!((process.era, process.prefix.as_str()), (EraChoice::Legacy, Some("y")));
    assert_eq!((process.scope.as_str(), process.timeout), ("fly", Some(Duration::from_mins(20))));
    assert_eq!((process.list_timeout, process.max_message), (Duration::from_secs(1), 64 << 10));
    assert_eq!(process.roots, Some(vec![]));
    let Reach::Process(process) = process.reach else { panic!("a process") };
    assert_eq!((process.start, process.share, process.idle_timeout), (Start::Eager, Share::Session, None));
    assert_eq!(process.max_processes.get(), 64);
}

#[test]
fn every_key_of_a_remote_server_reaches_the_configuration() {
    let config = config(include_str!("../../../examples/everything.yaml"));
    let search = config.upstream("search").unwrap();
    let Reach::Remote(remote) = &search.reach else { panic!("{search:?}") };
    assert_eq!(remote.url.uri().to_string(), "https://search.example.com/mcp");
    assert_eq!(remote.headers[0].0, "x-team");
    assert_eq!(remote.headers[0].1.expose(), "platform");
    assert_eq!(remote.ca, [Path::new("/etc/moongate/company.pem")]);
    assert!(search.forward_unlisted && search.prefix == Prefix::None);

    let remote = self::remote("url: 'http://x.example', transport: sse, allow_insecure: true");
    assert_eq!((remote.transport, remote.allow_insecure), (RemoteTransport::Sse, true));
    let remote = self::remote("url: 'https://x.example', tls: {ca: [a.pem, /b.pem]}, transport: streamable");
    assert_eq!(remote.ca, [Path::new("/etc/moongate/a.pem"), Path::new("/b.pem")]);
    assert_eq!(remote.transport, RemoteTransport::Streamable);
}

#[test]
fn commands_with_a_slash_are_paths() {
    for (command, program) in [
        ("npx", "npx"),
        ("~/bin/server", "/home/me/bin/server"),
        ("bin/server", "/etc/moongate/bin/server"),
        ("/opt/My Server/run", "/opt/My Server/run"),
        ("${env:HOME}/server", "/home/me/server"),
    ] {
        assert_eq!(process(&format!("command: '{command}'")).command, program);
    }
}

#[test]
fn placeholders_stand_in_every_value_and_are_shown_in_none() {
    let text = concat!(
        "upstreams:\n",
        "  a: {command: npx, args: [--token, '${env:SECRET}'], env: {A: '${env:SECRET}', B: 'x${file:~/short}'}}\n",
        "  b: {url: 'https://x.example/${env:SECRET}?k=${env:SECRET}', headers: {Authorization: 'Bearer ${file:~/short}'}}\n",
        "routes: [{match: x, args: {set: {key: ['${env:SECRET}']}, default: {other: '$${env:X}'}}}]\n",
    );
    let loaded = try_load(text).unwrap();
    assert_eq!(loaded.files, [Path::new("/home/me/short")]);
    let config = loaded.config;
    let Reach::Process(process) = &config.upstreams[0].reach else { panic!("a process") };
    assert_eq!(process.args[1].expose(), "hunter2-the-secret");
    assert!(matches!(process.args[..], [Argument::Plain(_), Argument::Secret(_)]));
    assert_eq!(process.env["B"].expose(), "xhunter2-the-secret");
    let Reach::Remote(remote) = &config.upstreams[1].reach else { panic!("a remote server") };
    assert_eq!(remote.url.uri().query(), Some("k=hunter2-the-secret"));
    assert_eq!(remote.headers[0].1.expose(), "Bearer hunter2-the-secret");
    assert_eq!(config.routes[0].args.set["key"], json!(["hunter2-the-secret"]));
    assert_eq!(config.routes[0].args.default["other"], "${env:X}");
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter2") && shown.contains("***") && shown.contains("--token"), "{shown}");
}

#[test]
fn no_problem_shows_the_value_of_a_variable_or_a_header() {
    for (text, expected) in [
        ("a: {command: x, env: {T: hunter2, T: hunter2}}", "the key `T` is here a second time"),
        ("a: {command: x, env: {T: hunter2, 'U V': hunter2}}", "`U V` cannot name a variable"),
        ("a: {command: x, env: 'T=hunter2'}", "found text"),
        ("a: {command: x, env: ['T=hunter2']}", "found a list"),
        ("a: {command: x, env: {T: [hunter2]}}", "found a list"),
        ("a: {command: x, env: {T: 4242}}", "found a number"),
        ("a: {command: x, env: {T: true, U: hunter2}}", "found `true` or `false`"),
        ("a: {command: x, env: {T: }}", "found nothing"),
        ("a: {command: x, env: {T: \"hunter2\\0\"}}", "this value does not fit"),
        ("a: {command: x, enviroment: {T: hunter2}}", "unknown key `enviroment`"),
        ("a: {url: 'https://x', env: {T: hunter2}}", "`env` belongs to a process; this upstream has a url"),
        ("a: {url: 'https://x', headers: {A: \"hunter2\\n\"}}", "this value does not fit"),
        ("a: {url: 'https://x', headers: {A: \"${env:SECRET}\\r\"}}", "this value does not fit"),
        ("a: {url: 'https://x', headers: {'A B': hunter2}}", "`A B` cannot name a header"),
        ("a: {url: 'https://x', headers: 'A: hunter2'}", "found text"),
        (
            "a: {command: x, headers: {A: hunter2}}",
            "`headers` belongs to a remote server; this upstream has a command",
        ),
        (
            "a: {url: 'https://me:hunter2@x'}",
            "`https://**********@x` holds a user or a password, which belong in `headers`",
        ),
        ("a: {url: '${env:SECRET}'}", "the value of `${env:SECRET}` does not fit"),
    ] {
        let found = problems(format!("upstreams: {{{text}}}"));
        let messages = found.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>();
        assert_eq!(messages, [expected], "{text}");
        for shown in [found.render(false), found.to_json(), format!("{found:?}")] {
            assert!(!shown.contains("hunter2") && !shown.contains("4242"), "{shown}");
        }
    }
}

/// Each of these, as the section `upstreams`, has this one problem.
fn assert_each(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(lines(format!("upstreams: {{{text}}}")), [*expected], "{text}");
    }
}

#[test]
fn what_is_wrong_with_an_upstream_is_said() {
    assert_each(&[
        ("planning: {command: x}", "upstreams.planning @1:13 `planning` is the name of a built-in backend"),
        ("memory: {command: x}", "upstreams.memory @1:13 `memory` is the name of a built-in backend"),
        ("a__b: {command: x}", "upstreams.a__b @1:13 `a__b` cannot name an upstream"),
        ("a: {}", "upstreams.a @1:13 this upstream has neither a command nor a url"),
        ("a: ", "upstreams.a @1:14 found nothing"),
        ("a: npx", "upstreams.a @1:16 found `npx`"),
        (
            "a: {command: x, url: 'https://x'}",
            "upstreams.a.url @1:34 this upstream has both a command and a url",
        ),
        ("a: {comand: x, command: y}", "upstreams.a.comand @1:17 unknown key `comand`"),
        ("a: {command: x, prefix: 'a b'}", "upstreams.a.prefix @1:37 `a b` cannot name an upstream"),
        ("a: {command: x, prefix: ui}", "upstreams.a.prefix @1:37 `ui` is the name of a built-in backend"),
        ("a: {command: x, scope: Fly}", "upstreams.a.scope @1:36 `Fly` is not the name of a scope"),
        (
            "a: {command: x, timeout: 1h}",
            "upstreams.a.timeout @1:38 `1h` is longer than `security.limits.max_timeout`",
        ),
        ("a: {command: x, timeout: 0s}", "upstreams.a.timeout @1:38 `0s` is no time at all"),
        ("a: {command: x, list_timeout: 0s}", "upstreams.a.list_timeout @1:43 `0s` is no time at all"),
        ("a: {command: x, roots: ['https://x']}", "upstreams.a.roots[0] @1:37 found `https://x`"),
        ("a: {command: x, roots: ['file://x']}", "upstreams.a.roots[0] @1:37 found `file://x`"),
        (
            "a: {command: x, max_message: 1KiB}",
            "upstreams.a.max_message @1:42 `1KiB` is too small or too large",
        ),
        (
            "a: {command: x, max_message: 1GiB}",
            "upstreams.a.max_message @1:42 `1GiB` is too small or too large",
        ),
        (
            "a: {command: x, forward_unlisted: true}",
            "upstreams.a.forward_unlisted @1:47 `forward_unlisted` needs bare names",
        ),
    ]);
}

#[test]
fn what_is_wrong_with_a_process_is_said() {
    assert_each(&[
        (
            "a: {command: npx -y @scope/server}",
            "upstreams.a.command @1:26 `npx -y @scope/server` is a program with arguments",
        ),
        ("a: {command: 'npx '}", "upstreams.a.command @1:26 `npx ` is a program with a blank"),
        ("a: {command: ''}", "upstreams.a.command @1:26 found ``"),
        ("a: {command: [npx]}", "upstreams.a.command @1:26 found a list"),
        ("a: {command: x, args: -y}", "upstreams.a.args @1:35 found `-y`"),
        ("a: {command: x, args: [3000]}", "upstreams.a.args[0] @1:36 found `3000`"),
        ("a: {command: x, args: [\"a\\0\"]}", "upstreams.a.args[0] @1:36 found `a\\u{0}`"),
        (
            "a: {command: x, inherit_env: ['A=b']}",
            "upstreams.a.inherit_env[0] @1:43 `A=b` cannot name a variable",
        ),
        ("a: {command: x, inherit_env: [A, A]}", "upstreams.a.inherit_env[1] @1:46 `A` is listed twice"),
        (
            "a: {command: x, env: {A: b}, inherit_env: [A]}",
            "upstreams.a.inherit_env[0] @1:56 `A` has a value of its own in `env`",
        ),
        ("a: {command: x, start: laxy}", "upstreams.a.start @1:36 found `laxy`"),
        ("a: {command: x, max_processes: 0}", "upstreams.a.max_processes @1:44 found `0`"),
        (
            "a: {command: x, max_processes: 65}",
            "upstreams.a.max_processes @1:44 `65` processes are more than one caller may have",
        ),
        ("a: {command: x, idle_timeout: 0s}", "upstreams.a.idle_timeout @1:43 `0s` is no time at all"),
        (
            "a: {command: x, limits: {memory: 4KiB}}",
            "upstreams.a.limits.memory @1:46 `4KiB` is too small for any program",
        ),
        ("a: {command: x, limits: {cpu: 0s}}", "upstreams.a.limits.cpu @1:43 `0s` is no time at all"),
        ("a: {command: x, limits: {memry: 1MiB}}", "upstreams.a.limits.memry @1:38 unknown key `memry`"),
    ]);
}

#[test]
fn what_is_wrong_with_a_remote_server_is_said() {
    assert_each(&[
        ("a: {url: x.example}", "upstreams.a.url @1:22 `x.example` is not a URL"),
        ("a: {url: 'ws://x'}", "upstreams.a.url @1:22 `ws://x` is neither `http` nor `https`"),
        ("a: {url: 'https://x#y'}", "upstreams.a.url @1:22 `https://x#y` has a fragment"),
        (
            "a: {url: 'http://x.example'}",
            "upstreams.a.url @1:22 what is sent to this address could be read on the way",
        ),
        (
            "a: {url: 'https://x', headers: {host: y}}",
            "upstreams.a.headers.host @1:45 `host` is set by the gateway itself",
        ),
        (
            "a: {url: 'https://x', headers: {MCP-Protocol-Version: y}}",
            "upstreams.a.headers.MCP-Protocol-Version @1:45 `MCP-Protocol-Version` is set by the gateway itself",
        ),
        (
            "a: {url: 'https://x', headers: {Last-Event-ID: y}}",
            "upstreams.a.headers.Last-Event-ID @1:45 `Last-Event-ID` is set by the gateway itself",
        ),
        (
            "a: {url: 'https://x', headers: {Key: y, key: z}}",
            "upstreams.a.headers.key @1:53 the header `key` is here a second time",
        ),
        ("a: {url: 'https://x', tls: {}}", "upstreams.a.tls @1:40 the key `ca` is missing"),
        ("a: {url: 'https://x', tls: {ca: []}}", "upstreams.a.tls.ca @1:45 found a list"),
        (
            "a: {url: 'http://[::1]', tls: {ca: x}}",
            "upstreams.a.tls @1:43 `tls` has no effect on a plain `http` address",
        ),
    ]);
}

#[test]
fn a_process_and_a_remote_server_are_not_mixed_up() {
    assert_each(&[
        (
            "a: {url: 'https://x', args: []}",
            "upstreams.a.args @1:41 `args` belongs to a process; this upstream has a url",
        ),
        (
            "a: {url: 'https://x', share: gateway}",
            "upstreams.a.share @1:42 `share` belongs to a process; this upstream has a url",
        ),
        (
            "a: {command: x, transport: sse}",
            "upstreams.a.transport @1:40 `transport` belongs to a remote server; this upstream has a command",
        ),
        (
            "a: {command: x, type: sse}",
            "upstreams.a.type @1:35 the type `sse` contradicts the other keys of this upstream",
        ),
        (
            "a: {url: 'https://x', type: stdio}",
            "upstreams.a.type @1:41 the type `stdio` contradicts the other keys of this upstream",
        ),
        (
            "a: {url: 'https://x', type: http, transport: sse}",
            "upstreams.a.type @1:41 the type `http` contradicts the other keys of this upstream",
        ),
        (
            "a: {url: 'https://x', type: sse, transport: streamable}",
            "upstreams.a.type @1:41 the type `sse` contradicts the other keys of this upstream",
        ),
        ("a: {command: x, type: docker}", "upstreams.a.type @1:35 found `docker`"),
    ]);
}

#[test]
fn every_problem_of_an_upstream_is_said_at_once() {
    let text = concat!(
        "upstreams:\n",
        "  a:\n",
        "    command: npx -y server\n",
        "    limits: {memory: 1B}\n",
        "    url: ftp://x\n",
        "  b:\n",
        "    url: http://x.example\n",
        "    headers: {Host: hunter2, Mcp-Name: hunter2}\n",
        "    args: [-y]\n",
        "    prefix: a\n",
        "    scope: dev\n",
        "security: {scopes: []}\n",
        "routes: [{match: x, upstream: a}, {match: y, upstream: bb}]\n",
    );
    insta::assert_snapshot!("problems_of_upstreams", problems(text).render(false));
}

#[test]
fn upstreams_go_together() {
    for (text, expected) in [
        (
            "{a: {command: x, prefix: b}, b: {command: x}}",
            Some("upstreams.b @1:41 `b` is the prefix of `a` too"),
        ),
        (
            "{a: {command: x, prefix: p}, b: {command: x, prefix: p}}",
            Some("upstreams.b.prefix @1:65 `p` is the prefix of `a` too"),
        ),
        (
            "{a: {command: x, prefix: b}, b: {command: x, prefix: none}}",
            Some("upstreams.a.prefix @1:37 `b` is the name of another upstream"),
        ),
        (
            "{a: &f {command: x, prefix: none, forward_unlisted: true}, b: *f}",
            Some("upstreams.b.forward_unlisted @1:74 `a` forwards what is unlisted already"),
        ),
        ("{a: {command: x, prefix: none}, b: {command: x, prefix: none}}", None),
        ("{a: {command: x, prefix: a}, b: {command: x, prefix: c}}", None),
        // What is not enabled is in nobody's way.
        ("{a: {command: x, prefix: b}, b: {command: x, enabled: false}}", None),
        ("{a: {command: x, prefix: b}, b: {command: x, prefix: none, enabled: false}}", None),
        (
            "{a: {command: x, prefix: none, forward_unlisted: true}, b: {command: x, prefix: none, forward_unlisted: true, enabled: false}}",
            None,
        ),
    ] {
        let text = format!("upstreams: {text}");
        match expected {
            Some(expected) => assert_eq!(lines(&text), [expected], "{text}"),
            None => assert_eq!(config(&text).upstreams.len(), 2),
        }
    }
}

#[test]
fn routes_and_profiles_name_upstreams() {
    let upstreams = "upstreams: {github: {command: x}, off: {command: x, enabled: false}}";
    let text = "routes: [{match: web, upstream: github, rename: search, context: meta}]\n\
                profiles: {p: {upstreams: [github, ui]}}";
    let found = config(&format!("{upstreams}\n{text}"));
    assert_eq!(found.routes[0].upstream.as_deref(), Some("github"));
    assert_eq!(found.routes[0].context, ContextFields::Meta);
    assert!(found.profiles["p"].upstreams.matches("github") && !found.profiles["p"].upstreams.matches("off"));
    for (text, expected) in [
        (
            "routes: [{match: x, upstream: githb}]",
            "routes[0].upstream @2:31 there is no upstream called `githb`",
        ),
        (
            "profiles: {p: {upstreams: [gihtub]}}",
            "profiles.p.upstreams[0] @2:28 there is no upstream called `gihtub`",
        ),
        ("routes: [{match: x, upstream: off}]", "routes[0].upstream @2:31 `off` is not enabled"),
        ("profiles: {p: {upstreams: [off]}}", "profiles.p.upstreams[0] @2:28 `off` is not enabled"),
    ] {
        assert_eq!(lines(format!("{upstreams}\n{text}")), [expected], "{text}");
    }
    let found = problems(format!("{upstreams}\nroutes: [{{match: x, upstream: githb}}]"));
    let problem = found.iter().next().unwrap();
    assert_eq!(problem.nearest.as_deref(), Some("github"));
    let names = "one of planning, playbook, ui, content, workspace, github, off";
    assert_eq!(problem.expected.as_deref(), Some(names));
}

#[test]
fn routes_change_arguments() {
    let text = concat!(
        "routes:\n",
        "  - match: x\n",
        "    context: fields\n",
        "    args:\n",
        "      set: {a: 1, b: [true, null, 1.5], c: {d: -7, '8': {}}, n: }\n",
        "      default: {e: text}\n",
        "      remove: [f, g]\n",
        "  - {match: y}\n",
    );
    let routes = config(text).routes;
    let args = &routes[0].args;
    let set = json!({"a": 1, "b": [true, null, 1.5], "c": {"d": -7, "8": {}}, "n": null});
    assert_eq!(serde_json::Value::Object(args.set.clone()), set);
    assert_eq!(
        (&args.default["e"], &args.remove[..]),
        (&json!("text"), &["f".to_owned(), "g".to_owned()][..])
    );
    assert_eq!((routes[0].context, routes[1].context), (ContextFields::Fields, ContextFields::None));
    assert!(!args.is_empty() && routes[1].args.is_empty());
    for (args, expected) in [
        (
            "set: {a: 1}, default: {a: 2}",
            "routes[0].args.default.a @1:51 `a` is at routes[0].args.set.a already",
        ),
        ("set: {a: 1}, remove: [a]", "routes[0].args.remove[0] @1:50 `a` is at routes[0].args.set.a already"),
        ("remove: [a, a]", "routes[0].args.remove[1] @1:40 `a` is at routes[0].args.remove[0] already"),
        (
            "set: {__sessionId: 1}",
            "routes[0].args.set.__sessionId @1:34 `__sessionId` is reserved for context fields",
        ),
        ("remove: [__x]", "routes[0].args.remove[0] @1:37 `__x` is reserved for context fields"),
        ("set: [a]", "routes[0].args.set @1:33 found a list"),
        ("set: {a: {b: 1, b: 2}}", "routes[0].args.set.a.b @1:44 the key `b` is here a second time"),
        ("st: {}", "routes[0].args.st @1:28 unknown key `st`"),
    ] {
        assert_eq!(lines(format!("routes: [{{match: x, args: {{{args}}}}}]")), [expected], "{args}");
    }
    assert_eq!(lines("routes: [{match: x, context: all}]"), ["routes[0].context @1:30 found `all`"]);
}

#[test]
fn a_route_with_cache_is_about_resources() {
    let upstreams = "upstreams: {docs: {url: 'http://localhost'}, other: {url: 'http://localhost'}}\n";
    let found = config(&format!(
        "{upstreams}routes: [{{match: 'x://*', upstream: docs, cache: 30s}}, {{match: 'x://*', hide: true}}, \
         {{match: '*', cache: 1m}}]"
    ));
    assert_eq!((found.routes.len(), found.caches.len()), (1, 2));
    for (upstream, uri, keep) in
        [("docs", "x://a/b", Some(30)), ("other", "x://a/b", Some(60)), ("docs", "y://a", Some(60))]
    {
        assert_eq!(found.cache_of(upstream, uri), keep.map(Duration::from_secs), "{upstream} {uri}");
    }
    assert_eq!(config("routes: [{match: 'x://?', cache: 1h}]").cache_of("docs", "x://12"), None);
    for (keys, expected) in [
        ("cache: 0s", "routes[0].cache @2:28 `0s` keeps nothing"),
        ("cache: soon", "routes[0].cache @2:28 `soon` does not begin with a whole number"),
        (
            "cache: 1m, hide: true",
            "routes[0].hide @2:38 `hide` is about tools, and with `cache` a route is about resources",
        ),
        (
            "cache: 1m, upstream: ui",
            "routes[0].upstream @2:42 `ui` is built in, and what is read there is never kept",
        ),
    ] {
        assert_eq!(lines(format!("{upstreams}routes: [{{match: x, {keys}}}]")), [expected], "{keys}");
    }
    let twice = lines("routes: [{match: x, cache: 1m}, {match: x}, {match: x, cache: 2m}]");
    assert_eq!(twice, ["routes[2].match @1:53 this route is never reached: routes[0] matches the same"]);
}

#[test]
fn an_upstream_that_is_reached_in_the_clear_is_warned_about() {
    let text = "upstreams: {a: {url: 'http://x.example', allow_insecure: true}, \
                b: {url: 'http://localhost'}, c: {url: 'http://y', allow_insecure: true, enabled: false}}";
    let warning = "the upstream `a` is reached without TLS: what is sent can be read on the way";
    assert_eq!(config(text).warnings(), [warning]);
}

#[test]
fn a_connection_is_kept_while_the_server_would_not_notice() {
    let same = |keys: &str, other: &str| upstream(keys).same_connection(&upstream(other));
    let process = "command: x, cwd: /a, args: [a], env: {A: a}";
    for kept in [
        "start: eager",
        "idle_timeout: off",
        "max_processes: 9",
        "enabled: false",
        "prefix: y",
        "scope: read",
        "timeout: 1s",
        "list_timeout: 1s",
        "prefix: none, forward_unlisted: true",
        "instructions: false",
        "type: stdio",
    ] {
        assert!(same(process, &format!("{process}, {kept}")), "{kept}");
    }
    for replaced in [
        "command: y, cwd: /a, args: [a], env: {A: a}",
        "command: x, cwd: /b, args: [a], env: {A: a}",
        "command: x, cwd: /a, args: [b], env: {A: a}",
        "command: x, cwd: /a, args: [a], env: {A: b}",
        "command: x, cwd: /a, args: [a], env: {A: a}, inherit_env: [B]",
        "command: x, cwd: /a, args: [a], env: {A: a}, limits: {open_files: 9}",
        "command: x, cwd: /a, args: [a], env: {A: a}, share: gateway",
        "command: x, cwd: /a, args: [a], env: {A: a}, era: modern",
        "command: x, cwd: /a, args: [a], env: {A: a}, max_message: 1MiB",
        "command: x, cwd: /a, args: [a], env: {A: a}, roots: [/a]",
        "url: 'https://x'",
    ] {
        assert!(!same(process, replaced) && !same(replaced, process), "{replaced}");
    }
    let remote = "url: 'https://x', headers: {A: a}";
    assert!(same(remote, "url: 'https://x', headers: {a: a}, allow_insecure: true, scope: read, type: http"));
    for replaced in [
        "url: 'https://y', headers: {A: a}",
        "url: 'https://x', headers: {A: b}",
        "url: 'https://x', headers: {A: a}, tls: {ca: x}",
        "url: 'https://x', headers: {A: a}, transport: sse",
        "url: 'https://x', headers: {A: a}, era: legacy",
        "url: 'https://x', headers: {A: a}, max_message: 1MiB",
    ] {
        assert!(!same(remote, replaced), "{replaced}");
    }
}

#[test]
fn upstreams_change_without_a_restart() {
    let old = config("upstreams: {a: {command: x}}");
    for text in ["", "upstreams: {a: {command: y}}", "upstreams: {a: {command: x, scope: read}}"] {
        let diff = diff(&old, &config(text));
        assert_eq!((diff.changed.contains(&"upstreams"), diff.needs_restart.len()), (true, 0), "{text}");
    }
    let order = |text| config(&format!("upstreams: {{{text}}}"));
    let (one, other) = (order("a: {command: x}, b: {command: x}"), order("b: {command: x}, a: {command: x}"));
    assert_eq!(diff(&one, &other).changed, ["upstreams"], "lists keep the order of the file");
}
