//! Which tool goes where, and which subset of them has its own path.

use std::time::Duration;

use crate::{
    glob::{Glob, Patterns},
    load::{
        declare::{section, text},
        read::{NonEmpty, OrOff},
    },
    model::security::names::ScopeName,
    units::{Period, Rate},
};

section! {
    /// An exception for the tools whose name matches.
    #[schemars(rename = "Route")]
    struct RawRoute {
        /// The name clients see, or a pattern with `*` and `?`.
        #[schemars(required)]
        r#match: Glob,
        /// The backend that answers. Absent: the tool's own.
        upstream: String,
        /// The tool's name at `upstream`, which is then no longer listed; `match` has to be exact.
        rename: ToolName,
        /// The description clients see.
        description: String,
        /// The scope a caller needs.
        scope: ScopeName,
        /// How often one principal may call it.
        limit: OrOff<Rate>,
        /// How long a call may take.
        timeout: Period,
        /// Neither listed nor callable.
        #[schemars(extend("default" = false))]
        hide: bool,
    }
    later: ["args", "cache", "context"]
}

section! {
    /// A subset with its own path, `/mcp/{name}`: what its upstreams and its patterns both let through.
    #[schemars(rename = "Profile")]
    struct RawProfile {
        /// Names of backends. Absent: all.
        upstreams: NonEmpty<String>,
        /// Patterns of tool names, as clients see them. Absent: all.
        tools: NonEmpty<Glob>,
        /// Patterns of prompt names. Absent: all.
        prompts: NonEmpty<Glob>,
        /// Patterns of resource URIs. Absent: all.
        resources: NonEmpty<Glob>,
    }
}

/// The name of a tool in the file.
#[derive(Clone, Debug)]
pub(crate) struct ToolName(pub(crate) String);

text!(Glob, "a name, or a pattern such as `get_*`", r"\S+", |text| Glob::new(text)
    .map_err(|error| format!("is not a pattern: {error}")));
text!(ToolName, "the name of a tool", r"[^\s*?]{1,128}", ToolName::parse);

impl ToolName {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '*' | '?');
        let fits = (1..=128).contains(&text.chars().count()) && !text.contains(bad);
        if fits { Ok(Self(text.to_owned())) } else { Err("is not the name of a tool") }
    }
}

/// An exception for the tools whose shown name matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The name clients see.
    pub pattern: Glob,
    /// The backend that answers; `None`: the tool's own.
    pub upstream: Option<String>,
    /// The tool's name at the backend, if it is another. Then `pattern` is exact and `upstream` is set.
    pub rename: Option<String>,
    /// The description clients see, instead of the tool's own.
    pub description: Option<String>,
    /// The scope a caller needs, instead of the tool's own.
    pub scope: Option<String>,
    /// How often one principal may call it, instead of `security.limits.per_tool`; the inner `None` is `off`.
    pub limit: Option<Option<Rate>>,
    /// How long a call may take, instead of `security.limits.call_timeout`.
    pub timeout: Option<Duration>,
    /// Neither listed nor callable.
    pub hide: bool,
}

/// A named subset: what its upstreams and its patterns both let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Which backends.
    pub upstreams: Patterns,
    /// Which of their tools, by the name clients see.
    pub tools: Patterns,
    /// Which of their prompts.
    pub prompts: Patterns,
    /// Which of their resources, by URI.
    pub resources: Patterns,
}

/// The subset that is everything.
impl Default for Profile {
    fn default() -> Self {
        Self {
            upstreams: Patterns::any(),
            tools: Patterns::any(),
            prompts: Patterns::any(),
            resources: Patterns::any(),
        }
    }
}
