//! `${env:NAME}` and `${file:PATH}`: what a configuration takes from elsewhere.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::model::server::Directories;

/// Larger than any token, key or certificate that someone would put into one value.
const MAX_FILE: usize = 64 << 10;

/// Resolves placeholders through the functions that `load` was given, and remembers which files it asked for.
pub(crate) struct Expander<'a> {
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) file: &'a dyn Fn(&Path) -> io::Result<String>,
    pub(crate) directories: Directories,
    /// Where relative paths begin.
    pub(crate) base: PathBuf,
    pub(crate) files: Vec<PathBuf>,
}

/// A text without placeholders.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expanded {
    pub(crate) value: String,
    /// Whether a part of it came from elsewhere.
    pub(crate) secret: bool,
}

/// Why a placeholder stands for nothing. The messages hold names, never contents.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExpandError {
    #[error("`${{` is never closed (`$${{` stands for the characters themselves)")]
    Open,
    #[error("`${{{0}}}` is neither `${{env:NAME}}` nor `${{file:PATH}}`")]
    Unknown(String),
    #[error("the environment variable `{0}` is not set")]
    Unset(String),
    #[error("cannot read the file `{0}`: {1}")]
    Unreadable(String, io::ErrorKind),
    #[error("the file `{0}` is larger than {max} KiB", max = MAX_FILE >> 10)]
    Large(String),
}

impl Expander<'_> {
    /// Whether `text` has anything to expand.
    pub(crate) fn applies(text: &str) -> bool {
        text.contains("${")
    }

    /// Whether `text` is one placeholder and nothing else.
    pub(crate) fn is_placeholder(text: &str) -> bool {
        let inside = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        inside.is_some_and(|inside| !inside.contains(['{', '}']))
    }

    /// Replaces every placeholder; `$${` becomes `${`. Replacements are not expanded again.
    pub(crate) fn expand(&mut self, text: &str) -> Result<Expanded, ExpandError> {
        let mut expanded = Expanded { value: String::new(), secret: false };
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                expanded.value += before;
                expanded.value += "${";
                rest = after;
                continue;
            }
            let (name, after) = after.split_once('}').ok_or(ExpandError::Open)?;
            expanded.value += before;
            expanded.value += &self.resolve(name)?;
            expanded.secret = true;
            rest = after;
        }
        expanded.value += rest;
        Ok(expanded)
    }

    fn resolve(&mut self, name: &str) -> Result<String, ExpandError> {
        match name.split_once(':') {
            Some(("env", name)) if is_variable(name) => {
                (self.env)(name).ok_or_else(|| ExpandError::Unset(name.to_owned()))
            }
            Some(("file", path)) if !path.is_empty() => self.read(path),
            _ => Err(ExpandError::Unknown(name.to_owned())),
        }
    }

    /// The content of a file, without the line break that editors end it with.
    fn read(&mut self, path: &str) -> Result<String, ExpandError> {
        let full = self.directories.resolve(path, &self.base);
        let content = (self.file)(&full);
        if !self.files.contains(&full) {
            self.files.push(full);
        }
        let mut content = content.map_err(|error| ExpandError::Unreadable(path.to_owned(), error.kind()))?;
        if content.len() > MAX_FILE {
            return Err(ExpandError::Large(path.to_owned()));
        }
        if content.ends_with('\n') {
            content.pop();
            if content.ends_with('\r') {
                content.pop();
            }
        }
        Ok(content)
    }
}

fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<Expanded, ExpandError> {
        let env = |name: &str| (name == "NAME").then(|| "value ${env:NAME}".to_owned());
        let file = |path: &Path| match path.to_str() {
            Some("/home/me/.secret") => Ok("s3cret\r\n".to_owned()),
            Some("/etc/moongate/near") => Ok("near\n\n".to_owned()),
            Some("/large") => Ok("x".repeat(MAX_FILE + 1)),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        let directories = Directories { home: "/home/me".into(), ..Directories::default() };
        let base = "/etc/moongate".into();
        Expander { env: &env, file: &file, directories, base, files: Vec::new() }.expand(text)
    }

    #[test]
    fn placeholders_are_replaced_once() {
        for (text, value, secret) in [
            ("plain $ {x}", "plain $ {x}", false),
            ("a ${env:NAME} b", "a value ${env:NAME} b", true),
            ("${file:~/.secret}!", "s3cret!", true),
            ("${file:near}", "near\n", true),
            ("$${env:NAME}", "${env:NAME}", false),
            ("", "", false),
        ] {
            assert_eq!(expand(text), Ok(Expanded { value: value.to_owned(), secret }), "{text}");
        }
    }

    #[test]
    fn what_stands_for_nothing_is_named() {
        for (text, message) in [
            ("${env:NONE}", "the environment variable `NONE` is not set"),
            ("${file:none}", "cannot read the file `none`: entity not found"),
            ("${file:/large}", "the file `/large` is larger than 64 KiB"),
            ("${HOME}", "`${HOME}` is neither `${env:NAME}` nor `${file:PATH}`"),
            ("${env:A-B}", "`${env:A-B}` is neither `${env:NAME}` nor `${file:PATH}`"),
            ("${env:NAME", "`${` is never closed (`$${` stands for the characters themselves)"),
        ] {
            assert_eq!(expand(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn only_a_lone_placeholder_is_one() {
        assert!(Expander::is_placeholder("${file:x}") && Expander::is_placeholder("${env:X}"));
        assert!(!Expander::is_placeholder("${env:X}/key") && !Expander::is_placeholder("${env:X}${env:Y}"));
    }
}
