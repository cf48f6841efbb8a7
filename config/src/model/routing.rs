//! Which tool goes where, and which subset of them has its own path.

use std::{fmt, time::Duration};

use serde_json::{Map, Value};

use crate::{
    glob::{Glob, Patterns},
    load::{
        declare::{section, text, words},
        read::{At, Entries, Json, NonEmpty, OrOff},
    },
    model::security::names::ScopeName,
    units::{Period, Rate},
};

section! {
    /// An exception for the tools whose name matches or, with `cache`, for the resources whose address does.
    #[schemars(rename = "Route")]
    struct RawRoute {
        /// The name clients see, or a pattern with `*` and `?`. With `cache`, the address of a resource.
        #[schemars(required)]
        r#match: Glob,
        /// The upstream or built-in backend that answers. Absent: the tool's own.
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
        /// What is done to the arguments before they go on.
        args: RawRouteArgs,
        /// How an upstream is told session, assistant and thread: not at all, as arguments `__sessionId`, …, or in `_meta`.
        /// Built-in backends know them anyway.
        #[schemars(extend("default" = "none"))]
        context: ContextFields,
        /// Neither listed nor callable.
        #[schemars(extend("default" = false))]
        hide: bool,
        /// How long what is read at the resources that match is kept for the caller who read it, where their upstream does
        /// not say itself. An update that the upstream announces ends it. Such a route has only `match` and `upstream`.
        cache: Period,
    }
}

section! {
    /// What is done to the top-level arguments of a call; each name may be in one of the three.
    #[schemars(rename = "RouteArgs")]
    struct RawRouteArgs {
        /// Arguments that always have this value, whatever the caller says.
        #[schemars(extend("default" = {}))]
        set: Entries<Json>,
        /// Arguments that have this value if the caller says nothing.
        #[schemars(extend("default" = {}))]
        default: Entries<Json>,
        /// Arguments that are left out, whatever the caller says.
        #[schemars(extend("default" = []))]
        remove: Vec<At<String>>,
    }
}

section! {
    /// A subset with its own path, `/mcp/{name}`: what its upstreams and its patterns both let through.
    #[schemars(rename = "Profile")]
    struct RawProfile {
        /// Names of upstreams and built-in backends. Absent: all.
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

words!(ContextFields { "none" => None, "fields" => Fields, "meta" => Meta });
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
    /// The upstream or built-in backend that answers; `None`: the tool's own.
    pub upstream: Option<String>,
    /// The tool's name at the backend, if it is another. Then `pattern` is exact and `upstream` is set.
    pub rename: Option<String>,
    /// The description clients see, instead of the tool's own.
    pub description: Option<String>,
    /// The scope a caller needs, instead of the tool's own.
    pub scope: Option<String>,
    /// How often one principal may call it, instead of `security.limits.per_tool`; the inner `None` is `off`.
    pub limit: Option<Option<Rate>>,
    /// How long a call may take, instead of what its upstream or `security.limits.call_timeout` says.
    pub timeout: Option<Duration>,
    /// What is done to the arguments before they go on.
    pub args: RouteArgs,
    /// How an upstream is told session, assistant and thread.
    pub context: ContextFields,
    /// Neither listed nor callable.
    pub hide: bool,
}

/// How long what is read at some resources is kept, where their upstream does not say itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The addresses.
    pub pattern: Glob,
    /// The upstream; `None`: whichever has the resource.
    pub upstream: Option<String>,
    /// How long.
    pub keep: Duration,
}

/// What is done to the top-level arguments of a call. No name is in two of them, and none begins with `__`.
///
/// Values may hold what a placeholder stood for, so its `Debug` names the arguments only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RouteArgs {
    /// Those that always have this value, whatever the caller says.
    pub set: Map<String, Value>,
    /// Those that have this value if the caller says nothing.
    pub default: Map<String, Value>,
    /// Those that are left out, whatever the caller says.
    pub remove: Vec<String>,
}

/// How an upstream is told the session, assistant and thread of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContextFields {
    /// Not at all.
    #[default]
    None,
    /// As the arguments `__sessionId`, `__assistantId` and `__threadId`.
    Fields,
    /// As `_meta` keys.
    Meta,
}

/// A named subset: what its upstreams and its patterns both let through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Which upstreams and built-in backends.
    pub upstreams: Patterns,
    /// Which of their tools, by the name clients see.
    pub tools: Patterns,
    /// Which of their prompts.
    pub prompts: Patterns,
    /// Which of their resources, by URI.
    pub resources: Patterns,
}

impl RouteArgs {
    /// Whether the arguments stay as they are.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.default.is_empty() && self.remove.is_empty()
    }
}

impl fmt::Debug for RouteArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |members: &Map<String, Value>| members.keys().cloned().collect::<Vec<_>>();
        f.debug_struct("RouteArgs")
            .field("set", &names(&self.set))
            .field("default", &names(&self.default))
            .field("remove", &self.remove)
            .finish()
    }
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
