//! From the bytes of a file to a configuration, or to all that is wrong with it.

use std::{
    io,
    path::{Path, PathBuf},
    str,
};

use self::{
    expand::Expander,
    node::{Node, Value},
    read::{FromNode, Reader, Report},
};
use crate::{
    check::check,
    model::{Config, RawConfig, server::Directories},
    problem::{Problem, ProblemKind, Problems, offset},
};

pub(crate) mod declare;
pub(crate) mod expand;
pub(crate) mod node;
pub(crate) mod read;
mod values;

/// Thousands of routes fit; a file that is larger is something else.
const MAX_FILE: usize = 1 << 20;

/// A configuration without problems.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// The files that `${file:…}` named, to be watched beside the configuration itself.
    pub files: Vec<PathBuf>,
}

/// Reads a configuration.
///
/// `text` is what the file `origin` holds; paths in it are relative to the directory of `origin`. Environment variables
/// are looked up through `env`, files that placeholders name are read through `file`; nothing else is touched. An empty
/// text gives the defaults for the user that `env` describes.
///
/// # Errors
/// Everything that is wrong, at once. Nothing makes it panic, whatever the text.
pub fn load(
    text: impl AsRef<[u8]>,
    origin: &Path,
    env: &dyn Fn(&str) -> Option<String>,
    file: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<Loaded, Problems> {
    let refuse = |source: &str, at: usize, message: String| {
        let problem = Problem::new(ProblemKind::Syntax, "", at..at, message);
        Err(Problems::new(origin.display().to_string(), source, vec![problem], &[], Vec::new()))
    };
    let source = match decode(text.as_ref()) {
        Ok(source) => source,
        Err(message) => return refuse("", 0, message),
    };
    let node = match Node::parse(source) {
        Ok(node) => node,
        Err(error) => {
            let at = offset(source, error.line, error.column);
            return refuse(source, at, format!("not valid YAML: {}", error.message));
        }
    };
    let directories = Directories::from_env(env);
    let base = origin.parent().map(Path::to_owned).unwrap_or_default();
    let expander = Expander { env, file, directories: directories.clone(), base, files: Vec::new() };
    let (raw, mut report, files) = read(&node, expander);
    let config = check(raw, &directories, &mut report);
    if report.problems.is_empty() {
        return Ok(Loaded { config, files });
    }
    Err(Problems::new(origin.display().to_string(), source, report.problems, &report.masked, files))
}

fn read(node: &Node, expander: Expander<'_>) -> (RawConfig, Report, Vec<PathBuf>) {
    let mut reader = Reader::new(expander);
    let raw = match node.value {
        Value::Null => None,
        _ => RawConfig::read(node, &mut reader),
    };
    (raw.unwrap_or_default(), reader.report, reader.expander.files)
}

/// The text without a byte order mark.
fn decode(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() > MAX_FILE {
        return Err(format!("the file is larger than {} MiB", MAX_FILE >> 20));
    }
    let text = str::from_utf8(bytes)
        .map_err(|error| format!("the file is not UTF-8, from byte {} on", error.valid_up_to()))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

#[cfg(test)]
mod tests;
