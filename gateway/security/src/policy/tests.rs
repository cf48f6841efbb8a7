//! Rules as tables: first match, both names, scopes.

use moongate_core::Scopes;
use proptest::prelude::*;

use super::*;
use crate::gate::tests::admitted;

/// A pattern as the configuration writes it: `*` at either end.
fn glob(text: &str) -> Pattern {
    let inner = text.trim_matches('*').to_owned();
    match (text.starts_with('*'), text.ends_with('*')) {
        (true, true) => Pattern::new(text, move |name| name.contains(&inner)),
        (true, false) => Pattern::new(text, move |name| name.ends_with(&inner)),
        (false, true) => Pattern::new(text, move |name| name.starts_with(&inner)),
        (false, false) => Pattern::exact(text),
    }
}

fn globs(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().copied().map(glob).collect()
}

fn rule(effect: Effect, tools: &[&str]) -> Rule {
    Rule { effect, principals: Vec::new(), tools: globs(tools), scope: None, unless_scope: None }
}

fn caller(subject: &str, scopes: &[&str]) -> Admitted {
    admitted(Principal::issued(subject), scopes.iter().copied().map(Scope::new).collect())
}

fn rules(rules: Vec<Rule>, default: Effect) -> Rules {
    Rules { rules, default }
}

fn ask(caller: &Admitted, shown: &str, canonical: &str, needs: &str, rules: &Rules) -> Decision {
    let scope = Scope::new(needs);
    let target = Target {
        kind: Kind::Tool,
        profile: None,
        shown,
        canonical,
        upstream: "github",
        scope: &scope,
        hidden: false,
    };
    decide(caller, &target, rules)
}

const NEEDS_WRITE: &str = "write";

#[test]
fn without_rules_scopes_decide() {
    let none = Rules::default();
    for (scopes, expected) in [
        (&["write"][..], Decision::Allow),
        (&["admin"], Decision::Allow),
        (&["read"], Decision::NeedsScope(Scope::write())),
        (&[], Decision::NeedsScope(Scope::write())),
    ] {
        assert_eq!(ask(&caller("a", scopes), "t", "github__t", NEEDS_WRITE, &none), expected, "{scopes:?}");
    }
}

#[test]
fn what_is_hidden_stays_hidden_whatever_the_rules_say() {
    let everything = rules(vec![rule(Effect::Allow, &[])], Effect::Allow);
    let scope = Scope::read();
    let target = Target {
        kind: Kind::Tool,
        profile: Some("review"),
        shown: "t",
        canonical: "github__t",
        upstream: "github",
        scope: &scope,
        hidden: true,
    };
    assert_eq!(decide(&caller("a", &["admin"]), &target, &everything), Decision::Hidden);
}

#[test]
fn the_example_of_the_configuration_does_what_it_says() {
    let example = rules(
        vec![
            Rule { unless_scope: Some(Scope::new("admin")), ..rule(Effect::Deny, &["*__delete_*"]) },
            Rule { scope: Some(Scope::new("dev")), ..rule(Effect::Allow, &["github__*"]) },
        ],
        Effect::Deny,
    );
    for (scopes, tool, expected) in [
        (&["dev", "write"][..], "github__get_issue", Decision::Allow),
        (&["dev", "write"], "github__delete_branch", Decision::Hidden),
        (&["admin"], "github__delete_branch", Decision::Allow),
        (&["dev"], "github__get_issue", Decision::NeedsScope(Scope::write())),
        (&["write"], "github__get_issue", Decision::Hidden),
        (&["dev", "write"], "list_goals", Decision::Hidden),
    ] {
        assert_eq!(
            ask(&caller("a", scopes), tool, tool, NEEDS_WRITE, &example),
            expected,
            "{scopes:?} {tool}"
        );
    }
}

#[test]
fn the_first_rule_that_matches_a_name_decides() {
    let allow_first = rules(vec![rule(Effect::Allow, &["a*"]), rule(Effect::Deny, &["*"])], Effect::Allow);
    let deny_first = rules(vec![rule(Effect::Deny, &["*"]), rule(Effect::Allow, &["a*"])], Effect::Allow);
    let alice = caller("alice", &["write"]);
    assert_eq!(ask(&alice, "ab", "ab", NEEDS_WRITE, &allow_first), Decision::Allow);
    assert_eq!(ask(&alice, "b", "b", NEEDS_WRITE, &allow_first), Decision::Hidden);
    assert_eq!(ask(&alice, "ab", "ab", NEEDS_WRITE, &deny_first), Decision::Hidden);
}

#[test]
fn a_deny_on_either_name_denies_and_an_allow_on_either_is_enough_otherwise() {
    let alice = caller("alice", &["write"]);
    let deny = rules(vec![rule(Effect::Deny, &["github__delete_repo"])], Effect::Allow);
    assert_eq!(ask(&alice, "tidy_up", "github__delete_repo", NEEDS_WRITE, &deny), Decision::Hidden);
    let deny = rules(vec![rule(Effect::Deny, &["tidy_up"])], Effect::Allow);
    assert_eq!(ask(&alice, "tidy_up", "github__delete_repo", NEEDS_WRITE, &deny), Decision::Hidden);

    let allow = rules(vec![rule(Effect::Allow, &["github__*"])], Effect::Deny);
    assert_eq!(ask(&alice, "web", "github__search", NEEDS_WRITE, &allow), Decision::Allow);
    assert_eq!(ask(&alice, "web", "other__search", NEEDS_WRITE, &allow), Decision::Hidden);

    let both = rules(vec![rule(Effect::Allow, &["web"]), rule(Effect::Deny, &["github__*"])], Effect::Allow);
    assert_eq!(ask(&alice, "web", "github__search", NEEDS_WRITE, &both), Decision::Hidden);
}

#[test]
fn rules_name_principals_by_their_whole_text() {
    let only_ci = rules(
        vec![Rule { principals: globs(&["issued:ci-*", "local"]), ..rule(Effect::Allow, &[]) }],
        Effect::Deny,
    );
    for (principal, expected) in [
        (Principal::issued("ci-7"), Decision::Allow),
        (Principal::local(), Decision::Allow),
        (Principal::issued("local"), Decision::Hidden),
        (Principal::issued("me"), Decision::Hidden),
        (Principal::anonymous(), Decision::Hidden),
        (Principal::jwt("https://issuer", "ci-7"), Decision::Hidden),
    ] {
        let caller = admitted(principal.clone(), Scopes::all());
        assert_eq!(ask(&caller, "t", "t", NEEDS_WRITE, &only_ci), expected, "{principal}");
    }
}

#[test]
fn patterns_for_tools_say_nothing_about_prompts_and_resources() {
    let scope = Scope::read();
    let alice = caller("alice", &["read"]);
    let no_tools = rules(vec![rule(Effect::Deny, &["*"])], Effect::Allow);
    let nothing = rules(vec![rule(Effect::Deny, &[])], Effect::Allow);
    for kind in [Kind::Tool, Kind::Prompt, Kind::Resource, Kind::Completion, Kind::Subscription] {
        let target = Target {
            kind,
            profile: None,
            shown: "x",
            canonical: "u__x",
            upstream: "u",
            scope: &scope,
            hidden: false,
        };
        let expected = if kind == Kind::Tool { Decision::Hidden } else { Decision::Allow };
        assert_eq!(decide(&alice, &target, &no_tools), expected, "{kind:?}");
        assert_eq!(decide(&alice, &target, &nothing), Decision::Hidden, "{kind:?}");
    }
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let effect = prop_oneof![Just(Effect::Allow), Just(Effect::Deny)];
    let names = prop::collection::vec(prop_oneof!["[ab]", "[ab]\\*", "\\*[ab]"], 0..3);
    let scope = prop::option::of(prop_oneof![Just("read"), Just("dev"), Just("admin")]);
    (effect, names, scope.clone(), scope).prop_map(|(effect, names, scope, unless)| Rule {
        effect,
        principals: Vec::new(),
        tools: names.iter().map(|name| glob(name)).collect(),
        scope: scope.map(Scope::new),
        unless_scope: unless.map(Scope::new),
    })
}

proptest! {
    #[test]
    fn no_rule_replaces_a_missing_scope(list in prop::collection::vec(any_rule(), 0..6), shown in "[ab]{1,2}", canonical in "[ab]{1,2}") {
        let rules = rules(list, Effect::Allow);
        let decision = ask(&caller("alice", &["read"]), &shown, &canonical, NEEDS_WRITE, &rules);
        prop_assert_ne!(decision, Decision::Allow);
    }

    #[test]
    fn one_more_deny_at_the_end_or_the_front_never_opens_anything(list in prop::collection::vec(any_rule(), 0..6), deny in any_rule(), shown in "[ab]{1,2}", canonical in "[ab]{1,2}") {
        let deny = Rule { effect: Effect::Deny, ..deny };
        let alice = caller("alice", &["write", "dev"]);
        let before = rules(list.clone(), Effect::Allow);
        if ask(&alice, &shown, &canonical, NEEDS_WRITE, &before) == Decision::Hidden {
            let front = rules([vec![deny.clone()], list.clone()].concat(), Effect::Allow);
            let end = rules([list, vec![deny]].concat(), Effect::Allow);
            prop_assert_eq!(ask(&alice, &shown, &canonical, NEEDS_WRITE, &front), Decision::Hidden);
            prop_assert_eq!(ask(&alice, &shown, &canonical, NEEDS_WRITE, &end), Decision::Hidden);
        }
    }

    #[test]
    fn the_two_names_weigh_the_same(list in prop::collection::vec(any_rule(), 0..6), shown in "[ab]{1,2}", canonical in "[ab]{1,2}") {
        let rules = rules(list, Effect::Deny);
        let alice = caller("alice", &["write"]);
        prop_assert_eq!(
            ask(&alice, &shown, &canonical, NEEDS_WRITE, &rules),
            ask(&alice, &canonical, &shown, NEEDS_WRITE, &rules)
        );
    }
}
