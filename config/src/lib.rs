//! The configuration file: two shapes, every problem at once.
//!
//! ```text
//! bytes ─parse→ Node ─read→ Raw* ─check→ Config
//!           ╰──────────┴────────────┴──→ Problems, all of them, with line and column
//! ```
//! `parse` knows YAML, `read` knows keys, types and placeholders, `check` knows what makes sense together. Only `read`
//! looks outside, for `${env:…}` and `${file:…}`, and only through the two functions that [`load`] is given. Applying a
//! configuration, watching its files and choosing where it lies are left to the program.

mod check;
mod diff;
mod glob;
mod load;
mod model;
mod problem;
mod schema;
mod secret;
mod units;

pub use crate::{
    check::exposure::Refusal,
    diff::{Diff, diff},
    glob::{Glob, InvalidGlob, Patterns},
    load::{Loaded, load},
    model::{
        Config,
        admin::Admin,
        backends::{
            Backend, Backends, Durability, Storage, ToolErrors,
            content::{Content, ContentLimits},
            workspace::{Callers, Confine, Network, Workspace, WorkspaceLimits},
        },
        context::{Context, DurableSession, Eviction, ExpiredStatus, Sessions, Source, Sources, Trust},
        routing::{Cache, ContextFields, Profile, Route, RouteArgs},
        security::{Effect, Limits, RootKey, Rule, Security, ToolLimit},
        server::{Directories, Listen, PublicUrl, Server, Tls},
        telemetry::{LogFormat, LogLevel, Telemetry},
        upstreams::{
            EraChoice, Prefix, Reach, Upstream,
            process::{Argument, Process, ProcessLimits, Share, Start},
            remote::{Endpoint, Remote, RemoteTransport},
        },
    },
    problem::{Problem, ProblemKind, Problems, nearest},
    schema::json_schema,
    secret::Secret,
    units::{Per, Rate, Size, UnitError},
};
