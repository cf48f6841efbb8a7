//! Forged fields, sources of ids, and the property that strip undoes inject.

use std::collections::BTreeMap;

use moongate_config::{DurableSession, Sources as Believed, Trust};
use moongate_wire::Params;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn raw(text: &str) -> Raw {
    Raw::from_text(text.to_owned()).unwrap()
}

fn ids(session: &str, assistant: Option<&str>, thread: Option<&str>) -> ContextIds {
    ContextIds {
        session: session.into(),
        durable_session: "unused".into(),
        assistant: assistant.map(Into::into),
        thread: thread.map(Into::into),
    }
}

fn claimed(session: Option<&str>, assistant: Option<&str>, thread: Option<&str>) -> Claimed {
    Claimed {
        session: session.map(Into::into),
        assistant: assistant.map(Into::into),
        thread: thread.map(Into::into),
    }
}

#[test]
fn marked_members_go_and_everything_else_stays_byte_for_byte() {
    for (arguments, expected) in [
        (r#"{"a":1}"#, r#"{"a":1}"#),
        (r#"{ "__sessionId" : "x", "a" : 1.50 }"#, r#"{ "a" : 1.50 }"#),
        (r#"{"a":1,"__thread_id":"x"}"#, r#"{"a":1}"#),
        (
            r#"{"__sessionId":1,"__session_id":2,"__assistantId":3,"__assistant_id":4,"__threadId":5,"__thread_id":6}"#,
            "{}",
        ),
        (r#"{"_\u005fsessionId":"x","\u005f\u005F":0,"b":1e400}"#, r#"{"b":1e400}"#),
        (r#"{"__other":1,"__mine":2,"_one":3,"a__":4}"#, r#"{"__mine":2,"_one":3,"a__":4}"#),
        (r#"{"a":{"__sessionId":"kept"}}"#, r#"{"a":{"__sessionId":"kept"}}"#),
        (r#"[{"__sessionId":"kept"}]"#, r#"[{"__sessionId":"kept"}]"#),
    ] {
        let (stripped, _) = strip(raw(arguments), true, &|name| name == "__mine");
        assert_eq!(stripped.as_str(), expected, "{arguments}");
    }
}

#[test]
fn a_reserved_name_goes_even_if_the_tool_declares_it() {
    let (stripped, _) = strip(raw(r#"{"__sessionId":"forged","__thread_id":"t"}"#), true, &|_| true);
    assert_eq!(stripped.as_str(), "{}");
}

#[test]
fn arguments_without_fields_are_not_copied() {
    let arguments = raw(r#"{"goal":"Learn Rust"}"#);
    for marked in [false, true] {
        let (stripped, found) = strip(arguments.clone(), marked, &|_| false);
        assert_eq!(stripped.as_bytes().as_ptr(), arguments.as_bytes().as_ptr());
        assert_eq!(found, Claimed::default());
    }
}

#[test]
fn claims_are_read_in_both_spellings() {
    for (arguments, expected) in [
        (
            r#"{"__sessionId":"s","__assistantId":"a","__threadId":"t"}"#,
            claimed(Some("s"), Some("a"), Some("t")),
        ),
        (
            r#"{"__session_id":"s","__assistant_id":"a","__thread_id":"t"}"#,
            claimed(Some("s"), Some("a"), Some("t")),
        ),
        (r#"{"__session_id":"alias","__sessionId":"camel"}"#, claimed(Some("camel"), None, None)),
        (r#"{"__sessionId":"","__session_id":"alias"}"#, claimed(Some("alias"), None, None)),
        (r#"{"__sessionId":" \t","__session_id":"alias"}"#, claimed(Some("alias"), None, None)),
        (r#"{"__sessionId":7,"__session_id":" alias "}"#, claimed(Some("alias"), None, None)),
        (r#"{"__sessionId":null,"__assistantId":["a"],"__threadId":{}}"#, Claimed::default()),
        (r#"{"__session":"x"}"#, Claimed::default()),
    ] {
        assert_eq!(strip(raw(arguments), true, &|_| false).1, expected, "{arguments}");
    }
}

#[test]
fn ids_follow_the_callers_own_members() {
    for (arguments, ids, expected) in [
        (
            r#"{"goal":"Learn Rust"}"#,
            ids("s", Some("a"), None),
            r#"{"goal":"Learn Rust","__sessionId":"s","__assistantId":"a"}"#,
        ),
        ("{ }", ids("s", None, Some("t\"")), r#"{"__sessionId":"s","__threadId":"t\"" }"#),
        ("null", ids("s", None, None), r#"{"__sessionId":"s"}"#),
        (
            "{}",
            ids(&"s".repeat(65), Some("\u{1}한"), Some(r"back\slash")),
            &format!(
                r#"{{"__sessionId":"{}","__assistantId":"\u0001한","__threadId":"back\\slash"}}"#,
                "s".repeat(65)
            ),
        ),
    ] {
        assert_eq!(inject(&raw(arguments), &ids).as_str(), expected, "{arguments}");
    }
}

/// What one test sets; the rest is absent.
#[derive(Clone, Default)]
struct Given {
    claimed: Option<Claimed>,
    token: Option<Ids>,
    headers: Ids,
    params: Params,
    transport: Option<Arc<str>>,
}

impl Given {
    fn resolve(&self, kind: Kind, config: &config::Context) -> Resolved {
        let sources = Sources {
            claimed: self.claimed.as_ref(),
            token: self.token.as_ref(),
            headers: &self.headers,
            meta: self.params.meta(),
            transport: self.transport.as_ref(),
        };
        resolve(&sources, kind, config)
    }
}

fn session_in_meta(id: &Value) -> Params {
    Params::read(Raw::of(&json!({"_meta": {"dev.moongate/sessionId": id}}))).unwrap()
}

fn everything() -> Given {
    Given {
        claimed: Some(claimed(Some("claimed"), None, None)),
        token: Some([id_from("token"), id_from("token-assistant"), None]),
        headers: [id_from("header"), id_from("header-assistant"), id_from("header-thread")],
        params: session_in_meta(&json!("meta")),
        transport: id_from("transport"),
    }
}

#[test]
fn the_first_source_that_names_an_id_wins_for_that_id() {
    let config = config::Context::default();
    let mut given = everything();
    let resolved = given.resolve(Kind::Local, &config);
    let expected = ContextIds {
        session: "claimed".into(),
        durable_session: "claimed".into(),
        assistant: id_from("token-assistant"),
        thread: id_from("header-thread"),
    };
    assert_eq!(resolved, Resolved { ids: expected, defaulted: false });

    let session = |given: &Given| given.resolve(Kind::Local, &config).ids.session;
    given.claimed = None;
    assert_eq!(&*session(&given), "token");
    given.token = None;
    assert_eq!(&*session(&given), "header");
    given.headers = [Some("  ".into()), None, None];
    assert_eq!(&*session(&given), "meta");
    given.params = session_in_meta(&json!(7));
    assert_eq!(&*session(&given), "transport");
    given.transport = None;
    assert_eq!(&*session(&given), "default");
    assert!(given.resolve(Kind::Local, &config).defaulted);
}

#[test]
fn headers_and_meta_count_only_from_callers_that_are_trusted() {
    let given = Given { claimed: None, token: None, ..everything() };
    let open = Trust {
        local: Believed::default(),
        issued: Believed { headers: true, meta: false },
        anonymous: Believed { headers: false, meta: true },
    };
    for (trust, kind, expected) in [
        (Trust::default(), Kind::Local, "header"),
        (Trust::default(), Kind::Issued, "transport"),
        (Trust::default(), Kind::Anonymous, "transport"),
        (open, Kind::Local, "transport"),
        (open, Kind::Issued, "header"),
        (open, Kind::Anonymous, "meta"),
        (open, Kind::Jwt, "transport"),
        (open, Kind::Mtls, "transport"),
    ] {
        let config = config::Context { trust, ..config::Context::default() };
        assert_eq!(&*given.resolve(kind, &config).ids.session, expected, "{kind:?} {trust:?}");
    }
}

#[test]
fn durable_data_follows_a_named_session_and_a_transport_only_on_request() {
    let named = Given {
        headers: [id_from("named"), None, None],
        transport: id_from("transport"),
        ..Given::default()
    };
    let unnamed = Given { transport: id_from("transport"), ..Given::default() };
    for (given, durable_session, expected) in [
        (&named, DurableSession::Named, ("named", "named")),
        (&named, DurableSession::Transport, ("named", "named")),
        (&unnamed, DurableSession::Named, ("transport", "default")),
        (&unnamed, DurableSession::Transport, ("transport", "transport")),
        (&Given::default(), DurableSession::Transport, ("default", "default")),
    ] {
        let config = config::Context { durable_session, ..config::Context::default() };
        let ids = given.resolve(Kind::Local, &config).ids;
        assert_eq!((&*ids.session, &*ids.durable_session), expected);
    }
}

#[test]
fn the_default_session_is_the_configured_one() {
    let config = config::Context { default_session: "lobby".into(), ..config::Context::default() };
    let resolved = Given::default().resolve(Kind::Local, &config);
    assert_eq!((&*resolved.ids.session, resolved.defaulted), ("lobby", true));
}

#[test]
fn schemas_lose_their_marked_properties_on_every_level() {
    for (schema, expected) in [
        (r#"{"properties":{"__sessionId":{},"a":{}}}"#, r#"{"properties":{"a":{}}}"#),
        (r#"{"properties":{"\u005f_x":{},"a":{}}}"#, r#"{"properties":{"a":{}}}"#),
        (
            r#"{"properties": {"o":{"properties":{"__x":{"type":"string"}, "y":{}}, "required":["__x","y"]}},"required":["o"]}"#,
            r#"{"properties": {"o":{"properties":{"y":{}}, "required":["y"]}},"required":["o"]}"#,
        ),
        (r#"{"items":{"properties":{"__x":{}}}}"#, r#"{"items":{"properties":{}}}"#),
        (
            r#"{"anyOf":[{"required":["__x"]},{"properties":{"__x":{}}},true]}"#,
            r#"{"anyOf":[{"required":[]},{"properties":{}},true]}"#,
        ),
        (r#"{"$defs":{"__d":{"properties":{"__x":{}}}}}"#, r#"{"$defs":{"__d":{"properties":{}}}}"#),
        (r#"{"dependentRequired":{"__x":["a"],"a":["__x","b"]}}"#, r#"{"dependentRequired":{"a":["b"]}}"#),
        // A property called `required` or `properties` is no keyword, and data is no schema.
        (
            r#"{"properties":{"required":{"enum":["__x"]},"properties":{"properties":{"__x":{}}}}}"#,
            r#"{"properties":{"required":{"enum":["__x"]},"properties":{"properties":{}}}}"#,
        ),
        (r#"{"default":{"properties":{"__x":1}}}"#, r#"{"default":{"properties":{"__x":1}}}"#),
    ] {
        let definition =
            |schema: &str| raw(&format!(r#"{{"name":"__n", "inputSchema" : {schema},"_meta":{{"__m":1}}}}"#));
        assert_eq!(clean_schema(&definition(schema)).as_str(), definition(expected).as_str(), "{schema}");
    }
}

#[test]
fn a_definition_without_marked_properties_is_not_copied() {
    for text in [
        r#"{"name":"a","inputSchema":{"type":"object", "properties":{"x":{"maximum":1e400}}}}"#,
        r#"{"name":"a","description":"not a __field","inputSchema":{"anyOf":[{"items": [ {} ]}],"properties":{"x__":{}}}}"#,
        r#"{"name":"a__b","inputSchema":true}"#,
    ] {
        let definition = raw(text);
        assert_eq!(clean_schema(&definition).as_bytes().as_ptr(), definition.as_bytes().as_ptr(), "{text}");
    }
}

#[test]
fn a_schema_of_absurd_depth_is_survived() {
    let schema = r#"{"not":"#.repeat(10_000) + r#"{"properties":{"__x":{}}}"# + &"}".repeat(10_000);
    let definition = raw(&format!(r#"{{"inputSchema":{schema}}}"#));
    assert_eq!(clean_schema(&definition), definition);
}

fn unmarked_object() -> impl Strategy<Value = String> {
    let name = any::<String>().prop_filter("unmarked", |name| !name.starts_with(MARK));
    let members = prop::collection::btree_map(name, any::<Option<bool>>(), 0..5);
    (members, "[ \n\t]{0,2}").prop_map(|(members, blank): (BTreeMap<String, Option<bool>>, String)| {
        let member = |(name, value)| {
            format!("{blank}{}{blank}:{}{blank}", Raw::of(name).as_str(), Raw::of(value).as_str())
        };
        format!("{{{blank}{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
    })
}

proptest! {
    #[test]
    fn strip_undoes_inject(
        arguments in unmarked_object(),
        session in any::<String>(),
        assistant in prop::option::of(any::<String>()),
        thread in prop::option::of(any::<String>()),
    ) {
        let injected = inject(&raw(&arguments), &ids(&session, assistant.as_deref(), thread.as_deref()));
        prop_assert!(Raw::from_text(injected.clone().into_bytes()).is_ok());
        let (stripped, found) = strip(injected, true, &|_| false);
        prop_assert_eq!(stripped.as_str(), arguments);
        prop_assert_eq!(found.session, id_from(&session));
        prop_assert_eq!(found.assistant, assistant.as_deref().and_then(id_from));
        prop_assert_eq!(found.thread, thread.as_deref().and_then(id_from));
    }

    /// A caller cannot choose the ids a backend sees, whatever it writes.
    #[test]
    fn forged_fields_never_survive(
        arguments in unmarked_object(),
        forged in prop::sample::subsequence(RESERVED.to_vec(), 0..=6),
    ) {
        let attack = edit::append(&raw(&arguments), forged.into_iter().map(|name| (name, "forged")));
        let (stripped, _) = strip(attack, true, &|_| true);
        let seen = inject(&stripped, &ids("real", None, None));
        let (_, found) = strip(seen, true, &|_| false);
        prop_assert_eq!(found, claimed(Some("real"), None, None));
    }
}
