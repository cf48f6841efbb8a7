//! The configuration file: two shapes, every problem at once.
//!
//! ```text
//! bytes ─parse→ Node ─expand→ Node ─read→ Raw* ─check→ Config
//!          ╰─────────┴───────────┴─────────┴──→ Problems, all of them, with line and column
//! ```
//! `parse` knows YAML, `expand` knows `${env:…}` and `${file:…}`, `read` knows keys and types, `check` knows what makes
//! sense together. Only `expand` looks outside, and only through the two functions that [`load`] is given. Applying a
//! configuration, watching its files and choosing where it lies are left to the program.

mod glob;
mod model;
mod secret;
mod units;

pub use crate::{
    glob::{Glob, InvalidGlob, Patterns},
    model::{
        Config,
        admin::Admin,
        backends::{Backend, Backends, Durability, Storage, ToolErrors},
        context::{Context, DurableSession, Eviction, ExpiredStatus, Sessions, Source, Sources, Trust},
        routing::{Profile, Route},
        security::{Effect, Limits, RootKey, Rule, Security, ToolLimit},
        server::{Directories, Listen, PublicUrl, Server, Tls},
        telemetry::{LogFormat, LogLevel, Telemetry},
    },
    secret::Secret,
    units::{Per, Rate, Size, UnitError},
};
