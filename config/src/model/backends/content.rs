//! The backend that keeps texts: what may be read into it, and how much for how long.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use super::{Backend, ToolErrors};
use crate::{
    load::{
        declare::section,
        read::{At, OrOff},
    },
    units::{Period, Size},
};

/// A text that nobody has used for so long is gone.
const RETENTION: Duration = Duration::from_hours(30 * 24);
/// As much as a request may carry by default.
const TEXT: Size = Size(4 << 20);
/// A long book as PDF.
const FILE: Size = Size(10 << 20);
/// Lists are made of this many rows at most.
const CONTENTS: NonZeroUsize = NonZeroUsize::new(1000).expect("not zero");
/// What a session that searches may take in memory grows with it.
const TOTAL: Size = Size(64 << 20);

section! {
    /// Texts of a session, kept and searched.
    #[schemars(rename = "Content")]
    struct RawContent {
        /// Whether it is there.
        #[schemars(extend("default" = true))]
        enabled: bool,
        /// How its tools report failure: as a result, which the model sees, or as a JSON-RPC error, which the client sees.
        #[schemars(extend("default" = "result"))]
        tool_errors: ToolErrors,
        /// The directories whose files callers may have read, by `file_url`.
        #[schemars(extend("default" = []))]
        roots: Vec<At<PathBuf>>,
        /// How long a text stays that nobody uses.
        #[schemars(extend("default" = "30d"))]
        retention: OrOff<Period>,
        /// How much is taken.
        limits: RawContentLimits,
    }
}

section! {
    /// How much content is taken.
    #[schemars(rename = "ContentLimits")]
    struct RawContentLimits {
        /// A text that comes with the call.
        #[schemars(extend("default" = "4MiB"))]
        text: Size,
        /// A file, and the text in it.
        #[schemars(extend("default" = "10MiB"))]
        file: Size,
        /// Texts of one session.
        #[schemars(extend("default" = 1000))]
        contents: NonZeroUsize,
        /// All texts of one session together.
        #[schemars(extend("default" = "64MiB"))]
        total: Size,
    }
}

/// Texts of a session, kept and searched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// What every backend has.
    pub backend: Backend,
    /// The directories whose files callers may have read.
    pub roots: Vec<PathBuf>,
    /// How long a text stays that nobody uses; `None` is `off`.
    pub retention: Option<Duration>,
    /// How much is taken.
    pub limits: ContentLimits,
}

/// How much content is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentLimits {
    /// A text that comes with the call.
    pub text: Size,
    /// A file, and the text in it.
    pub file: Size,
    /// Texts of one session.
    pub contents: NonZeroUsize,
    /// All texts of one session together.
    pub total: Size,
}

impl Default for Content {
    fn default() -> Self {
        let limits = ContentLimits { text: TEXT, file: FILE, contents: CONTENTS, total: TOTAL };
        Self { backend: Backend::default(), roots: Vec::new(), retention: Some(RETENTION), limits }
    }
}
