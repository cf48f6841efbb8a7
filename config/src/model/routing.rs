//! Which tool goes where, and which subset of them has its own path.

use std::time::Duration;

use crate::{
    glob::{Glob, Patterns},
    units::Rate,
};

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
    /// How often one principal may call it, beside the limits for all tools.
    pub limit: Option<Rate>,
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
