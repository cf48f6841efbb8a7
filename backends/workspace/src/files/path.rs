//! Paths that callers write: relative to their room, plain and short.
//!
//! This refuses what could never be right, with a reason. That a path stays inside is not decided here but by `beneath`,
//! while it is opened: a check of the text knows nothing of symbolic links.

use std::path::Path;

use super::error::Error;

/// The longest path in characters.
pub(crate) const MAX_PATH: usize = 1000;

/// The longest component in bytes, as file systems have it.
const MAX_NAME: usize = 255;

/// A path without `..`, `.`, doubled or outer slashes; `.` alone is the room itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RelativePath(String);

impl RelativePath {
    /// Reads what a caller wrote.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::Path("must not be empty"));
        }
        if text.chars().count() > MAX_PATH {
            return Err(Error::Path("has at most 1000 characters"));
        }
        if text.contains('\0') {
            return Err(Error::Path("must not contain a NUL character"));
        }
        let mut start = text.chars();
        let (first, second) = (start.next(), start.next());
        let drive = first.is_some_and(|letter| letter.is_ascii_alphabetic()) && second == Some(':');
        if drive || matches!(first, Some('/' | '\\')) {
            return Err(Error::Path("must be relative to the workspace, not absolute"));
        }
        let components: Vec<&str> =
            text.split('/').filter(|component| !matches!(*component, "" | ".")).collect();
        if components.contains(&"..") {
            return Err(Error::Path("must not contain .. components"));
        }
        if components.iter().any(|component| component.len() > MAX_NAME) {
            return Err(Error::Path("has names of at most 255 bytes"));
        }
        Ok(Self(if components.is_empty() { ".".to_owned() } else { components.join("/") }))
    }

    /// The path `name` below this one.
    pub(crate) fn join(&self, name: &str) -> Self {
        Self(if self.is_room() { name.to_owned() } else { format!("{}/{name}", self.0) })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// Whether this is the room itself.
    pub(crate) fn is_room(&self) -> bool {
        self.0 == "."
    }

    /// The components from the room on; none for the room itself.
    pub(crate) fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|component| *component != ".")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_are_taken_in_their_shortest_form() {
        for (text, expected) in [
            ("a", "a"),
            ("a/b.txt", "a/b.txt"),
            ("./a//b/", "a/b"),
            (".", "."),
            ("./", "."),
            ("..a/b..", "..a/b.."),
            ("é ü", "é ü"),
            (r"a\b", r"a\b"),
            ("ab:c", "ab:c"),
        ] {
            assert_eq!(RelativePath::parse(text).unwrap().as_str(), expected, "{text}");
        }
        let longest = ["x".repeat(MAX_NAME), "y".repeat(MAX_NAME), "z".repeat(MAX_NAME)].join("/");
        let longest = format!("{longest}/{}", "v".repeat(MAX_PATH - longest.len() - 1));
        assert_eq!(RelativePath::parse(&longest).unwrap().as_str(), longest);
    }

    #[test]
    fn paths_that_cannot_be_inside_are_refused() {
        let (long, name) = ("x/".repeat(MAX_PATH), format!("a/{}", "é".repeat(128)));
        let texts = ["", "/", "/etc/passwd", "//x", r"\\server\x", "C:", r"C:\x", "c:/x", "a\0b"];
        for text in texts.iter().chain(&["..", "../x", "a/../b", "a/..", "./..", &*long, &*name]) {
            assert!(matches!(RelativePath::parse(text), Err(Error::Path(_))), "{text:?}");
        }
    }

    #[test]
    fn paths_are_joined_and_taken_apart() {
        let path = |text: &str| RelativePath::parse(text).unwrap();
        assert_eq!(path(".").join("a"), path("a"));
        assert_eq!(path("a").join("b"), path("a/b"));
        assert_eq!(path("a/b").components().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(path(".").components().count(), 0);
    }
}
