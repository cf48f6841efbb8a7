//! Why a tool is not there. Pure: the configuration, what servers offer, and what the caller is offered.

use moongate_config::{Config, Effect, Rule, nearest};
use moongate_proxy::naming::{self, SEPARATOR};

use super::report::Finding;
use crate::{
    find::Upstream,
    shown::{self, Shown},
};

const AREA: &str = "tool";

/// What is known.
pub(super) struct Facts<'a> {
    pub(super) config: &'a Config,
    pub(super) upstreams: &'a [Upstream],
    /// What the caller is offered without a profile.
    pub(super) offered: &'a [String],
    pub(super) profile: Option<&'a str>,
    /// What the caller is offered under the profile.
    pub(super) in_profile: &'a [String],
    /// The variable that says who calls, where that is not the user itself.
    pub(super) token: Option<&'a str>,
}

impl Facts<'_> {
    /// Says whose the tool called `name` is, or why there is none.
    pub(super) fn explain(&self, name: &str) -> Finding {
        let all = shown::all(self.config, self.upstreams);
        if has(self.in_profile, name) {
            return offered(name, &all);
        }
        if let Some(profile) = self.profile.filter(|_| has(self.offered, name)) {
            let advice = format!("add it to profiles.{profile}: its server to upstreams, its name to tools");
            return problem(format!("{name} is left out by the profile {profile}"), advice);
        }
        self.kept_back(name, &all)
            .or_else(|| self.renamed(name, &all))
            .or_else(|| self.left_out(name))
            .or_else(|| self.hidden(name))
            .or_else(|| self.of_server(name))
            .unwrap_or_else(|| self.unknown(name))
    }

    /// A server offers it under this name, and the gateway does not.
    fn kept_back(&self, name: &str, all: &[Shown<'_>]) -> Option<Finding> {
        let shown = all.iter().find(|shown| *shown.name == *name)?;
        let owner = shown.upstream;
        if let Some(route) = shown.route.filter(|route| route.hide) {
            return Some(hidden_by(name, route.pattern.as_str()));
        }
        if !naming::is_usable(shown.tool) {
            let advice = format!("ask the makers of {owner} for a name without blanks");
            return Some(problem(format!("{owner} gives {name} a name that cannot be called"), advice));
        }
        if let Some(finding) = self.denied(name, &format!("{owner}{SEPARATOR}{}", shown.tool)) {
            return Some(finding);
        }
        let configured = self.config.upstreams.iter().find(|upstream| upstream.name == owner)?;
        let scope = shown.route.and_then(|route| route.scope.as_ref()).unwrap_or(&configured.scope);
        Some(match self.token {
            Some(variable) => problem(
                format!("{name} needs the scope {scope}, which the token in {variable} lacks"),
                format!("`moongate token issue --scopes {scope} …` makes a token that has it"),
            ),
            None => problem(
                format!("{owner} offers {name}, and the gateway has not listed it yet"),
                "try again in a moment".to_owned(),
            ),
        })
    }

    fn denied(&self, name: &str, canonical: &str) -> Option<Finding> {
        let security = &self.config.security;
        let applies = |rule: &Rule| rule.tools.matches(name) || rule.tools.matches(canonical);
        let first = security.rules.iter().enumerate().find(|(_, rule)| applies(rule));
        match first {
            Some((at, rule)) if rule.effect == Effect::Deny => Some(problem(
                format!("{name} is denied by a rule"),
                format!("change rule number {} of security.rules, or allow it before that", at + 1),
            )),
            None if security.default == Effect::Deny => Some(problem(
                format!("{name} is allowed by no rule"),
                "add an allow to security.rules".to_owned(),
            )),
            _ => None,
        }
    }

    /// It is there under another name.
    fn renamed(&self, name: &str, all: &[Shown<'_>]) -> Option<Finding> {
        let same = |shown: &&Shown<'_>| *shown.usual == *name || shown.tool == name;
        let shown = all.iter().filter(same).find(|shown| has(self.in_profile, &shown.name))?;
        let text = format!("{name} of {} is offered as {}", shown.upstream, shown.name);
        Some(problem(text, format!("call {}", shown.name)))
    }

    /// A server lists it in a way that no client could use.
    fn left_out(&self, name: &str) -> Option<Finding> {
        self.upstreams.iter().find_map(|upstream| {
            let configured = self.config.upstreams.iter().find(|known| known.name == upstream.name)?;
            let of_tool = |sentence: &str| {
                let (tool, why) = sentence.strip_prefix("tool ")?.split_once(": ")?;
                let meant = tool == name || *shown::one(self.config, configured, tool).name == *name;
                meant.then(|| why.to_owned())
            };
            let why = upstream.left_out.iter().find_map(|sentence| of_tool(sentence))?;
            let advice = format!("tell the makers of {}", upstream.name);
            Some(problem(format!("{name} of {} is left out: {why}", upstream.name), advice))
        })
    }

    fn hidden(&self, name: &str) -> Option<Finding> {
        let route = self.config.routes.iter().find(|route| route.pattern.matches(name))?;
        route.hide.then(|| hidden_by(name, route.pattern.as_str()))
    }

    /// The server it would belong to does not offer it.
    fn of_server(&self, name: &str) -> Option<Finding> {
        let (prefix, tool) = name.split_once(SEPARATOR)?;
        let configured = self.config.upstreams.iter();
        let Some(upstream) = configured.clone().find(|known| known.prefix.as_str() == Some(prefix)) else {
            let names = configured.filter(|known| known.enabled).filter_map(|known| known.prefix.as_str());
            let advice = nearest(prefix, names).map_or_else(
                || format!("add upstreams.{prefix}"),
                |near| format!("did you mean {near}{SEPARATOR}{tool}?"),
            );
            return Some(problem(format!("there is no upstream called {prefix}"), advice));
        };
        let owner = &upstream.name;
        if !upstream.enabled {
            let advice = format!("set upstreams.{owner}.enabled to true");
            return Some(problem(format!("upstream {owner} is switched off"), advice));
        }
        let seen = self.upstreams.iter().find(|seen| seen.name == *owner)?;
        if seen.offers.is_none() {
            let error = seen.last_error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
            let text = format!("upstream {owner} is {} and has not said what it offers{error}", seen.state);
            return Some(problem(text, format!("`moongate doctor` tells more about {owner}")));
        }
        let advice = nearest(tool, seen.tools.iter().map(String::as_str)).map_or_else(
            || format!("`moongate tools list` has its {} tools", seen.tools.len()),
            |near| format!("did you mean {}?", shown::one(self.config, upstream, near).name),
        );
        Some(problem(format!("upstream {owner} offers no tool called {tool}"), advice))
    }

    fn unknown(&self, name: &str) -> Finding {
        let near = nearest(name, self.in_profile.iter().map(String::as_str));
        let silent = self.upstreams.iter().find(|seen| seen.offers.is_none());
        let off = self.config.backends.iter().filter(|(_, backend)| !backend.enabled);
        let off: Vec<&str> = off.map(|(backend, _)| backend).collect();
        let advice = match (near, silent) {
            (Some(near), _) => format!("did you mean {near}?"),
            (None, Some(seen)) => {
                format!("it may be one of {}, which has not said what it offers", seen.name)
            }
            (None, None) if off.is_empty() => "`moongate tools list` has those there are".to_owned(),
            (None, None) => format!("it may be one of {}, switched off under backends:", off.join(", ")),
        };
        problem(format!("nobody offers a tool called {name}"), advice)
    }
}

fn offered(name: &str, all: &[Shown<'_>]) -> Finding {
    let mut owners = all.iter().filter(|shown| *shown.name == *name);
    let Some(first) = owners.next() else {
        return Finding::fine(AREA, format!("{name} is offered: built in"));
    };
    let text = format!("{name} is offered: {} of {}", first.tool, first.upstream);
    match owners.next() {
        None => Finding::fine(AREA, text),
        Some(second) => {
            let second = second.upstream;
            let clash = format!("{text}; {second} has one of the same name, which cannot be called");
            problem(clash, format!("give {second} a prefix: upstreams.{second}.prefix"))
        }
    }
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|known| known == name)
}

fn hidden_by(name: &str, pattern: &str) -> Finding {
    problem(format!("{name} is hidden by a route"), format!("change the route that matches {pattern}"))
}

fn problem(text: String, advice: String) -> Finding {
    Finding::problem(AREA, text, advice)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const YAML: &str = r#"
upstreams:
  github: {command: github-mcp}
  gitlab: {command: gitlab-mcp}
  off: {command: off-mcp, enabled: false}
  search: {url: "https://example.com/mcp", prefix: none}
  second: {url: "https://example.org/mcp", prefix: none}
routes:
  - {match: "github__delete_*", hide: true}
  - {match: web, upstream: search, rename: find}
security:
  rules: [{deny: {tools: ["github__secret"]}}]
profiles:
  review: {tools: ["github__list_*"]}
backends: {ui: {enabled: false}}
"#;

    fn upstream(name: &str, state: &str, tools: &[&str]) -> Upstream {
        Upstream {
            name: name.into(),
            state: state.into(),
            tools: tools.iter().map(|&tool| tool.into()).collect(),
            offers: (!tools.is_empty()).then_some([tools.len(), 0, 0, 0]),
            ..Upstream::default()
        }
    }

    #[test]
    fn every_reason_is_told_apart() {
        let loaded = moongate_config::load(YAML, Path::new("x.yaml"), &|_| None, &|path| {
            std::fs::read_to_string(path)
        });
        let config = loaded.unwrap().config;
        let mut github = upstream("github", "up", &["get_me", "delete_all", "secret", "needs"]);
        github.left_out = vec!["tool bare: it has no inputSchema".into()];
        let mut gitlab = upstream("gitlab", "down", &[]);
        gitlab.last_error = Some("gitlab-mcp was not found".into());
        let upstreams = [
            github,
            gitlab,
            upstream("search", "up", &["find", "same"]),
            upstream("second", "up", &["same"]),
        ];
        let offered = ["create_goal", "github__get_me", "web", "same"].map(str::to_owned);
        let facts = |token, profile: Option<&'static str>| Facts {
            config: &config,
            upstreams: &upstreams,
            offered: &offered,
            profile,
            in_profile: if profile.is_some() { &[] } else { &offered },
            token,
        };
        let mut told = String::new();
        for (name, token, profile) in [
            ("create_goal", None, None),
            ("github__get_me", None, None),
            ("same", None, None),
            ("github__get_me", None, Some("review")),
            ("github__delete_all", None, None),
            ("github__delete_none", None, None),
            ("github__secret", None, None),
            ("github__needs", Some("MOONGATE_TOKEN"), None),
            ("github__needs", None, None),
            ("find", None, None),
            ("get_me", None, None),
            ("github__bare", None, None),
            ("github__get_mee", None, None),
            ("gitlab__get_me", None, None),
            ("off__get_me", None, None),
            ("githb__get_me", None, None),
            ("nowhere__get_me", None, None),
            ("creat_goal", None, None),
            ("zzz", None, None),
        ] {
            let finding = facts(token, profile).explain(name);
            let advice = finding.advice.map(|advice| format!("\n    {advice}")).unwrap_or_default();
            told.extend([name, ": ", &finding.text, &advice, "\n"]);
        }
        insta::assert_snapshot!(told);
    }
}
