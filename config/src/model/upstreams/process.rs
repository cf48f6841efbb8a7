//! An upstream that the gateway starts: its command, its environment and what it may take of the machine.

use std::{collections::BTreeMap, num::NonZeroUsize, path::PathBuf, time::Duration};

use crate::{
    load::{
        declare::{section, text, words},
        node::Node,
        read::{FromNode, Reader},
    },
    secret::Secret,
    units::{Period, Size},
};

/// How long a process is kept that nobody uses: longer than a pause for thought, shorter than lunch.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);
/// How many processes serve calls without a session: enough for a few agents that ask at once, few enough for a laptop.
const MAX_PROCESSES: NonZeroUsize = NonZeroUsize::new(4).expect("it is not zero");

section! {
    /// How much of the machine a process may take, with all that it starts. What is absent has no limit.
    #[schemars(rename = "ProcessLimits")]
    struct RawProcessLimits {
        /// Memory, of all together.
        memory: Size,
        /// Time on a processor, of each.
        cpu: Period,
        /// Open files, of each.
        open_files: NonZeroUsize,
        /// Processes and threads, of all together.
        processes: NonZeroUsize,
    }
}

/// The program in the file: a name, or a path that begins at the root.
#[derive(Clone, Debug)]
pub(crate) struct Command(pub(crate) String);

/// The name of an environment variable in the file.
#[derive(Clone, Debug)]
pub(crate) struct VariableName(pub(crate) String);

/// The value of one.
#[derive(Debug)]
pub(crate) struct VariableValue(pub(crate) Secret);

words!(Start { "lazy" => Lazy, "eager" => Eager });
words!(Share { "gateway" => Gateway, "principal" => Principal, "session" => Session });
text!(VariableName, VariableName::EXPECTED, r"[^=\s]+", |text| {
    if VariableName::fits(text) { Ok(VariableName(text.to_owned())) } else { Err("cannot name a variable") }
});

/// An upstream that the gateway starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// The program: a name to look for in the `PATH`, or a path.
    pub command: String,
    /// Its arguments.
    pub args: Vec<Argument>,
    /// Variables beside those of the clean environment.
    pub env: BTreeMap<String, Secret>,
    /// Names of variables that it gets from the gateway's own environment. None of them is in `env`.
    pub inherit_env: Vec<String>,
    /// Its working directory; `None`: that of the gateway.
    pub cwd: Option<PathBuf>,
    /// When it is started.
    pub start: Start,
    /// Who shares one process.
    pub share: Share,
    /// How long it is kept when nobody uses it; `None` is `off`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How many serve the calls of one principal without a session, where it asks questions; at most 64.
    pub max_processes: NonZeroUsize,
    /// How much of the machine it may take.
    pub limits: ProcessLimits,
}

/// An argument of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// As the file spells it.
    Plain(String),
    /// A part of it came from `${env:…}` or `${file:…}`.
    Secret(Secret),
}

/// When a process is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// On first use.
    #[default]
    Lazy,
    /// With the gateway, for the local user's clients. Who cannot share it, or calls after an idle stop, starts one with the
    /// call.
    Eager,
}

/// Who shares one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// Everyone. The upstream is then told of no client capabilities.
    Gateway,
    /// The clients of one principal that can do the same.
    #[default]
    Principal,
    /// The calls of one session.
    Session,
}

/// How much of the machine a process may take, with all that it starts. `None`: no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Memory of all together, in bytes.
    pub memory: Option<u64>,
    /// Time on a processor, of each; never zero.
    pub cpu: Option<Duration>,
    /// Open files, of each.
    pub open_files: Option<NonZeroUsize>,
    /// Processes and threads, of all together.
    pub processes: Option<NonZeroUsize>,
}

impl Process {
    /// One that is started as `command`, without arguments, with every default.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            inherit_env: Vec::new(),
            cwd: None,
            start: Start::default(),
            share: Share::default(),
            idle_timeout: Some(IDLE_TIMEOUT),
            max_processes: MAX_PROCESSES,
            limits: ProcessLimits::default(),
        }
    }

    /// Whether a process that runs as `self` may go on as `other`.
    pub(super) fn same(&self, other: &Self) -> bool {
        // Every field is named, so that a new one has to be thought about here.
        let Self {
            command,
            args,
            env,
            inherit_env,
            cwd,
            share,
            limits,
            start: _,
            idle_timeout: _,
            max_processes: _,
        } = self;
        *command == other.command
            && *args == other.args
            && *env == other.env
            && *inherit_env == other.inherit_env
            && *cwd == other.cwd
            && *share == other.share
            && *limits == other.limits
    }
}

impl Argument {
    /// The text itself. That of a secret is to be handed on, never to be written anywhere.
    pub fn expose(&self) -> &str {
        match self {
            Self::Plain(text) => text,
            Self::Secret(text) => text.expose(),
        }
    }
}

impl VariableName {
    pub(crate) const EXPECTED: &str = "the name of an environment variable";

    pub(crate) fn fits(text: &str) -> bool {
        !text.is_empty() && !text.contains(|c: char| c == '=' || c.is_whitespace() || c.is_control())
    }
}

impl FromNode for VariableValue {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        reader.hidden(node, "text without a null character", |text| !text.contains('\0')).map(Self)
    }
}

impl FromNode for Argument {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.text(node, "text (put it in quotes)")?;
        if text.value.contains('\0') {
            return reader.wrong(node, "text without a null character");
        }
        Some(if text.secret { Self::Secret(Secret::new(text.value)) } else { Self::Plain(text.value) })
    }
}

/// A name stays as it is; a path, which has a slash, is one like any other in the file.
impl FromNode for Command {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        const EXPECTED: &str = "the name or the path of a program";
        let text = reader.text(node, EXPECTED)?.value;
        if text.is_empty() || text.contains('\0') {
            return reader.wrong(node, EXPECTED);
        }
        // A path may well have blanks; a name with blanks is a line for a shell, and there is none.
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((&text, ""));
        if first.len() < text.len() && !first.contains('/') {
            let blank = if rest.trim().is_empty() { "a blank" } else { "arguments" };
            let message = format!("{} is a program with {blank}", node.describe());
            return reader.unfit(node, message, "the program alone: put the arguments into `args`");
        }
        if !text.contains('/') {
            return Some(Self(text));
        }
        let path = reader.expander.directories.resolve(&text, &reader.expander.base);
        match path.into_os_string().into_string() {
            Ok(path) => Some(Self(path)),
            Err(_) => reader.wrong(node, "a path in UTF-8"),
        }
    }
}

impl schemars::JsonSchema for Command {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Command".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1 })
    }
}

impl schemars::JsonSchema for Argument {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Argument".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}
