//! What the gateway says about itself.

use crate::load::declare::{section, words};

section! {
    /// Logs.
    #[schemars(rename = "Telemetry")]
    struct RawTelemetry {
        /// How log lines are written: for people, or one JSON object per line.
        #[schemars(extend("default" = "text"))]
        log_format: LogFormat,
        /// The least important lines that are written.
        #[schemars(extend("default" = "info"))]
        log_level: LogLevel,
    }
    later: ["otlp"]
}

words!(LogFormat { "text" => Text, "json" => Json });
words!(LogLevel { "error" => Error, "warn" => Warn, "info" => Info, "debug" => Debug, "trace" => Trace });

/// Logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// How log lines are written.
    pub log_format: LogFormat,
    /// The least important lines that are written.
    pub log_level: LogLevel,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The importance of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something is broken.
    Error,
    /// Something needs attention.
    Warn,
    /// What an operator wants to know.
    #[default]
    Info,
    /// Every call.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The level's name, as `tracing` spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}
