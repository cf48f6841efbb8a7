//! Views on fake offers.

use std::time::Duration;

use moongate_config::{
    ContextFields, EraChoice, Glob, Patterns, Prefix, Process, Reach, RouteArgs, Upstream,
};
use moongate_core::{CallError, Offer, Principal, Raw};
use serde_json::{Value, json};

use super::{
    super::render::{MAX_ALL_INSTRUCTIONS, MAX_INSTRUCTIONS},
    *,
};
use crate::{
    Naming,
    downgrade::Face,
    extras::{Inject, RouteExtras},
    fake::{Fake, defined, local, prompt, resource, template, tools},
    member::Callers,
};

fn offered(member: Member, offer: Offer) -> Offered {
    Offered { member: Arc::new(member), offer: Arc::new(offer) }
}

fn upstream(name: &str, offer: Offer) -> Offered {
    offered(Member::upstream(name, Arc::new(Fake::new(Offer::default()))), offer)
}

fn builtin(name: &str, offer: Offer) -> Offered {
    offered(Member::builtin(name, Arc::new(Fake::new(Offer::default()))), offer)
}

fn route(pattern: &str) -> Route {
    Route {
        pattern: Glob::new(pattern).unwrap(),
        upstream: None,
        rename: None,
        description: None,
        scope: None,
        limit: None,
        timeout: None,
        args: RouteArgs::default(),
        context: ContextFields::None,
        hide: false,
    }
}

fn patterns(pattern: &str) -> Patterns {
    [Glob::new(pattern).unwrap()].into_iter().collect()
}

async fn built(offers: &[Offered], config: &Config, profile: Option<&str>) -> View {
    let (admitted, metrics, rules) = (local().await, Metrics::new(), Rules::default());
    Builder { config, rules: &rules, metrics: &metrics, admitted: &admitted, profile }.build(offers)
}

async fn view(offers: &[Offered], config: &Config) -> View {
    built(offers, config, None).await
}

fn page(list: &List) -> Value {
    list.page(None).unwrap().parse().unwrap()
}

fn listed(view: &View, face: Face) -> Vec<Value> {
    page(view.tool_list.of(face))["tools"].as_array().unwrap().clone()
}

fn names(view: &View) -> Vec<String> {
    listed(view, Face::Modern).iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_prefix_is_shown_and_the_upstreams_own_name_is_called() {
    let definition = Raw::from_text(r#"{ "name" : "get" ,"inputSchema":{ "$anchor":"a" }}"#).unwrap();
    let named = Tool { name: "get".into(), definition, ..Tool::clone(&defined(&json!({"name": "get"}))) };
    let tools = Offer { tools: vec![Arc::new(named)], prompts: vec![prompt("ask")], ..Offer::default() };
    let view =
        view(&[builtin("b", crate::fake::tools(&["get"])), upstream("up", tools)], &Config::default()).await;
    assert_eq!(names(&view), ["get", "up__get"]);
    let entry = view.tool("up__get").unwrap();
    assert_eq!((&*entry.tool.name, &*entry.canonical, &*entry.shown), ("get", "up__get", "up__get"));
    let text = view.tool_list.of(Face::Modern).page(None).unwrap();
    assert!(
        text.as_str().contains(r#"{ "name" : "up__get" ,"inputSchema":{ "$anchor":"a" }}"#),
        "{}",
        text.as_str()
    );
    let prompt = view.prompt("up__ask").unwrap();
    assert_eq!((&*prompt.shown, &*prompt.prompt.name), ("up__ask", "ask"));
    assert_eq!(page(&view.prompt_list)["prompts"], json!([{"name": "up__ask"}]));
    let unknown: CallError = view.prompt("ask").unwrap_err();
    assert_eq!(unknown.public, "Unknown prompt: ask");
}

#[tokio::test]
async fn routes_and_profiles_match_the_shown_name_and_a_rename_names_the_upstreams() {
    let renaming = Route { upstream: Some("up".into()), rename: Some("search".into()), ..route("web") };
    let hiding = Route { hide: true, ..route("up__delete_*") };
    let bare = Route { hide: true, ..route("get") };
    let mut config = Config { routes: vec![renaming, hiding, bare], ..Config::default() };
    let narrow = Profile { tools: patterns("up__*"), prompts: patterns("up__a*"), ..Profile::default() };
    config.profiles.insert("narrow".into(), narrow);
    let mut offer = tools(&["search", "delete_all", "get"]);
    offer.prompts = vec![prompt("a"), prompt("b")];
    let offers = [upstream("up", offer)];
    let all = view(&offers, &config).await;
    assert_eq!(names(&all), ["web", "up__get"]);
    assert_eq!(&*all.tool("web").unwrap().tool.name, "search");
    let narrow = built(&offers, &config, Some("narrow")).await;
    assert_eq!(names(&narrow), ["up__get"]);
    assert_eq!(page(&narrow.prompt_list)["prompts"], json!([{"name": "up__a"}]));
}

#[tokio::test]
async fn the_first_of_two_equal_names_is_kept_and_unusable_names_are_left_out() {
    let bare =
        |name: &str| Member::upstream(name, Arc::new(Fake::new(Offer::default()))).with_naming(Naming::Bare);
    let offers = [
        offered(bare("first"), tools(&["same", "", "a b", "x\u{7}"])),
        offered(bare("second"), tools(&["same", "other"])),
    ];
    let view = view(&offers, &Config::default()).await;
    assert_eq!(names(&view), ["same", "other"]);
    assert_eq!(&*view.tool("same").unwrap().member.name, "first");
}

#[tokio::test]
async fn a_bare_name_takes_no_alias_of_an_earlier_member() {
    let bare = Member::upstream("up", Arc::new(Fake::new(Offer::default()))).with_naming(Naming::Bare);
    let aliased = Tool { aliases: vec!["old".into()], ..Tool::clone(&crate::fake::tool("new")) };
    let first = || builtin("b", Offer { tools: vec![Arc::new(aliased.clone())], ..Offer::default() });
    let offers = [first(), offered(bare.clone(), tools(&["old", "own"]))];
    let view = built(&offers, &Config::default(), None).await;
    assert_eq!(names(&view), ["new", "own"]);
    assert_eq!(&*view.tool("old").unwrap().shown, "new");
    // A route says so on purpose, and who comes first has the name anyway.
    let given = Route { upstream: Some("up".into()), rename: Some("old".into()), ..route("old") };
    let config = Config { routes: vec![given], ..Config::default() };
    let given = [first(), offered(bare.clone(), tools(&["old"]))];
    let earlier = [offered(bare, tools(&["old"])), first()];
    for (offers, config) in [(given, config), (earlier, Config::default())] {
        let view = built(&offers, &config, None).await;
        assert_eq!(&*view.tool("old").unwrap().member.name, "up");
    }
}

#[tokio::test]
async fn a_bare_name_does_not_begin_like_those_of_another_upstream() {
    let known = |name: &str, prefix: Option<&str>| Upstream {
        name: name.to_owned(),
        enabled: name != "off",
        reach: Reach::Process(Process::new("true")),
        era: EraChoice::Auto,
        prefix: prefix.map_or(Prefix::None, |prefix| Prefix::Name(prefix.to_owned())),
        scope: "read".to_owned(),
        timeout: None,
        list_timeout: Duration::from_secs(1),
        roots: None,
        forward_unlisted: name == "up",
        max_message: 1 << 20,
        instructions: false,
    };
    let upstreams =
        vec![known("github", Some("gh")), known("chat", None), known("up", None), known("off", Some("off"))];
    let config = Config { upstreams, ..Config::default() };
    let bare = Member::upstream("up", Arc::new(Fake::new(Offer::default())))
        .with_naming(Naming::Bare)
        .with_unlisted(Some(Scope::read()));
    let mut offer = tools(&["gh__a", "github__a", "chat__a", "up__a", "off__a", "ghost__a", "a"]);
    offer.prompts = vec![prompt("gh__p"), prompt("p")];
    let view = view(&[offered(bare.clone(), offer)], &config).await;
    assert_eq!(names(&view), ["up__a", "off__a", "ghost__a", "a"]);
    assert_eq!(page(&view.prompt_list)["prompts"], json!([{"name": "p"}]));

    let (admitted, metrics, rules) = (local().await, Metrics::new(), Rules::default());
    let builder =
        Builder { config: &config, rules: &rules, metrics: &metrics, admitted: &admitted, profile: None };
    let member = Arc::new(bare);
    for (name, taken) in [("gh__b", false), ("github__b", false), ("up__b", true), ("b", true)] {
        assert_eq!(builder.unlisted(name, &member).is_some(), taken, "{name}");
    }
}

#[tokio::test]
async fn the_first_in_order_owns_a_resource_and_lists_come_before_templates() {
    let one = Offer { templates: vec![template("x://{id}")], ..Offer::default() };
    let two = Offer { resources: vec![resource("x://a"), resource("y://a")], ..Offer::default() };
    let three = Offer { resources: vec![resource("y://a")], ..Offer::default() };
    let offers = [upstream("one", one), upstream("two", two), upstream("three", three)];
    let view = view(&offers, &Config::default()).await;
    for (uri, owner) in [("x://a", "two"), ("x://b", "one"), ("y://a", "two")] {
        assert_eq!(&*view.resource(uri).unwrap().name, owner, "{uri}");
    }
    assert!(view.resource("z://a").is_err());
}

#[tokio::test]
async fn each_version_is_listed_what_it_understands() {
    let full = json!({"name": "t", "title": "T", "inputSchema": {"type": "object"},
        "outputSchema": {"type": "array"}, "annotations": {}, "execution": {"taskSupport": "optional"}});
    let offer = Offer { tools: vec![defined(&full)], ..Offer::default() };
    let view = view(&[upstream("up", offer)], &Config::default()).await;
    assert!(view.tool("up__t").unwrap().wraps);
    let shown = |face| {
        let tool = listed(&view, face).remove(0);
        ["title", "outputSchema", "annotations", "execution"].map(|name| tool.get(name).is_some())
    };
    assert_eq!(shown(Face::First), [false, false, false, true]);
    assert_eq!(shown(Face::Annotated), [false, false, true, true]);
    assert_eq!(shown(Face::Structured), [true, true, true, true]);
    assert_eq!(shown(Face::Modern), [true, true, true, false]);
    assert_eq!(listed(&view, Face::Structured)[0]["outputSchema"]["required"], json!(["result"]));
    assert_eq!(listed(&view, Face::Modern)[0]["outputSchema"], json!({"type": "array"}));
}

#[tokio::test]
async fn context_fields_are_cleaned_from_schemas_only_where_the_gateway_fills_them_in() {
    let schema = json!({"type": "object", "properties": {"__sessionId": {}, "a": {}}});
    let offer =
        || Offer { tools: vec![defined(&json!({"name": "t", "inputSchema": schema}))], ..Offer::default() };
    let filling = Route { context: ContextFields::Fields, ..route("filled__*") };
    let config = Config { routes: vec![filling], ..Config::default() };
    let offers = [upstream("filled", offer()), upstream("own", offer()), builtin("b", offer())];
    let view = built(&offers, &config, None).await;
    let shown: Vec<bool> = listed(&view, Face::Modern)
        .iter()
        .map(|tool| tool["inputSchema"]["properties"].get("__sessionId").is_some())
        .collect();
    assert_eq!(shown, [false, true, false]);
    assert_eq!(view.tool("filled__t").unwrap().extras.inject, Inject::Fields);
    assert_eq!(view.tool("own__t").unwrap().extras, RouteExtras::default());
}

#[tokio::test]
async fn instructions_are_cut_at_a_character() {
    let long = |name: &str| {
        upstream(name, Offer { instructions: Some("é".repeat(5000).into()), ..Offer::default() })
    };
    let one = view(&[long("a")], &Config::default()).await.instructions.unwrap();
    assert!(one.starts_with("## a\né") && one.ends_with("é…"), "{}", one.len());
    assert!(one.len() <= "## a\n".len() + MAX_INSTRUCTIONS);
    let offers: Vec<Offered> = ["a", "b", "c", "d", "e"].into_iter().map(long).collect();
    let all = view(&offers, &Config::default()).await.instructions.unwrap();
    assert!(all.len() <= MAX_ALL_INSTRUCTIONS && all.len() > MAX_ALL_INSTRUCTIONS - 4);
    assert!(all.contains("## d") && all.ends_with('…'));
}

#[tokio::test]
async fn a_description_is_replaced_or_added_by_its_route() {
    let described = Route { description: Some("new".into()), ..route("up__*") };
    let config = Config { routes: vec![described], ..Config::default() };
    let bare = defined(&json!({"name": "bare", "inputSchema": {}}));
    let offer = Offer { tools: vec![bare, crate::fake::tool("old")], ..Offer::default() };
    let view = view(&[upstream("up", offer)], &config).await;
    let words: Vec<Value> =
        listed(&view, Face::Modern).iter().map(|tool| tool["description"].clone()).collect();
    assert_eq!(words, ["new", "new"]);
}

fn resources(uris: &[&str], templates: &[&str]) -> Offer {
    Offer {
        resources: uris.iter().map(|uri| resource(uri)).collect(),
        templates: templates.iter().map(|uri| template(uri)).collect(),
        has_own_resources: true,
        ..Offer::default()
    }
}

#[tokio::test]
async fn no_upstream_takes_the_addresses_that_are_reserved() {
    let theirs = || resources(&["content://1", "Workspace:///x", "up://1"], &["content://{id}", "{+any}"]);
    let ours = builtin("content", resources(&[], &["content://{id}"]));
    let config = Config::default();
    for (offers, owner) in
        [(vec![upstream("up", theirs()), ours], Some("content")), (vec![upstream("up", theirs())], None)]
    {
        let view = view(&offers, &config).await;
        assert_eq!(page(&view.resource_list)["resources"], json!([{"uri": "up://1", "name": "up://1"}]));
        assert_eq!(view.resource("content://1").ok().map(|member| &*member.name), owner);
        assert!(view.resource("workspace:///x").is_err());
        assert_eq!(&*view.resource("other://1").unwrap().name, "up");
        assert_eq!((view.upstreams("content://1").count(), view.upstreams("up://2").count()), (0, 1));
        let owners: Vec<&str> = view.owners().iter().map(|member| &*member.name).collect();
        assert_eq!(owners.contains(&"content"), owner.is_some());
    }
}

#[tokio::test]
async fn a_member_is_there_for_its_callers_only() {
    let control = || Scope::new(Scope::CONTROL);
    let run = Tool { scope: control(), ..Tool::clone(&defined(&json!({"name": "run"}))) };
    let offer = || Offer { tools: vec![Arc::new(run.clone())], ..resources(&[], &["workspace:///{+path}"]) };
    let (local, holding) = (Callers::Local, Callers::Holding(control()));
    let (me, other) = (Principal::local(), Principal::issued("other"));
    for (callers, principal, scopes, expected) in [
        (&local, me.clone(), &["admin"][..], "yes"),
        (&local, other.clone(), &["admin"], "hidden"),
        (&local, Principal::anonymous(), &["admin"], "hidden"),
        (&holding, me, &["admin"], "yes"),
        (&holding, other.clone(), &["control"], "yes"),
        (&holding, other, &["read", "write"], "needs a scope"),
        (&holding, Principal::anonymous(), &["admin"], "hidden"),
    ] {
        let admitted = crate::fake::admitted(principal.clone(), scopes).await;
        let (config, metrics, rules) = (Config::default(), Metrics::new(), Rules::default());
        let builder =
            Builder { config: &config, rules: &rules, metrics: &metrics, admitted: &admitted, profile: None };
        let member =
            Member::builtin("w", Arc::new(Fake::new(Offer::default()))).with_callers(callers.clone());
        let view = builder.build(&[offered(member, offer())]);
        let found = match view.tool("run") {
            Ok(_) => "yes",
            Err(error) if matches!(error.kind, moongate_core::Kind::MissingScope { .. }) => "needs a scope",
            Err(_) => "hidden",
        };
        assert_eq!(found, expected, "{callers:?} {principal:?} {scopes:?}");
        // What lies at its addresses is for those who could call it.
        let readable = view.resource("workspace:///a").is_ok();
        assert_eq!((readable, view.owners().len()), (expected == "yes", usize::from(expected == "yes")));
        assert_eq!(listed(&view, Face::Modern).len(), usize::from(expected == "yes"));
    }
}
