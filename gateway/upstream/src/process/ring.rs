//! The last words of a process: what it wrote to standard error, with the secrets it was given masked.

use std::{collections::VecDeque, ffi::OsString};

use memchr::memmem;

use super::{Secret, Spec};

/// How many lines are kept.
const LINES: usize = 64;
/// How much of a line is kept.
const LONGEST: usize = 8 << 10;
/// Shorter values are no secrets: a line would lose every `true`.
const SHORTEST_SECRET: usize = 6;
const MASK: &str = "***";
/// What the name of a variable has in it whose value is a secret.
const TELLING: [&str; 5] = ["TOKEN", "KEY", "SECRET", "PASSWORD", "CREDENTIAL"];

/// Hides secrets in lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Mask {
    secrets: Vec<Secret>,
}

impl Mask {
    /// Hides what `spec` says is secret, and what of `ours` the process inherits under a name that tells so.
    pub(super) fn of(spec: &Spec, ours: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let inherited: Vec<Secret> = ours
            .filter(|(name, _)| {
                spec.inherit_env
                    .iter()
                    .any(|inherited| name == inherited.as_str() && tells_of_secret(inherited))
            })
            .map(|(_, value)| Secret::new(value.to_string_lossy()))
            .collect();
        let listed = spec.env.iter().map(|(_, value)| value);
        Self::new(listed.chain(&spec.secrets).chain(&inherited))
    }

    /// Hides each of `values`; of one with several lines, each line.
    pub(super) fn new<'a>(values: impl IntoIterator<Item = &'a Secret>) -> Self {
        let lines = values.into_iter().flat_map(|value| value.expose().lines().map(str::trim));
        let mut secrets: Vec<_> =
            lines.filter(|line| line.len() >= SHORTEST_SECRET).map(Secret::new).collect();
        // The longer of two that begin at the same place hides both.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.expose().len()));
        Self { secrets }
    }

    /// How much of a line must be seen to know the part that is kept: a secret may begin in it and end behind it.
    pub(super) fn reach(&self) -> usize {
        LONGEST + self.secrets.first().map_or(0, |longest| longest.expose().len())
    }

    /// The part of `line` that is kept, without control characters and secrets.
    pub(super) fn apply(&self, line: &[u8]) -> String {
        let text = String::from_utf8_lossy(line);
        // Before secrets are looked for: one with a bell in the middle would not be found, and yet be read.
        let text: String = text.chars().filter(|letter| !letter.is_control() || *letter == '\t').collect();
        let end = text.floor_char_boundary(LONGEST);
        let mut kept = String::new();
        let mut rest = 0;
        while let Some((start, length)) = self.find(&text, rest).filter(|(start, _)| *start < end) {
            kept.push_str(text.get(rest..start).unwrap_or_default());
            kept.push_str(MASK);
            rest = start + length;
        }
        kept.push_str(text.get(rest..end).unwrap_or_default());
        kept
    }

    /// The first secret at or after `from`: where it begins, and its length.
    fn find(&self, text: &str, from: usize) -> Option<(usize, usize)> {
        let rest = text.as_bytes().get(from..)?;
        let places = self.secrets.iter().filter_map(|secret| {
            let secret = secret.expose().as_bytes();
            Some((from + memmem::find(rest, secret)?, secret.len()))
        });
        // The first of equals, which is the longest.
        places.min_by_key(|(start, _)| *start)
    }
}

fn tells_of_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    TELLING.iter().any(|word| name.contains(word))
}

/// The last lines.
#[derive(Debug, Default)]
pub(super) struct Ring {
    lines: VecDeque<String>,
}

impl Ring {
    pub(super) fn push(&mut self, line: String) {
        if self.lines.len() == LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }

    /// The last line with something in it.
    pub(super) fn last(&self) -> Option<&str> {
        self.lines.iter().rev().map(|line| line.trim()).find(|line| !line.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(values: &[&str]) -> Mask {
        let values: Vec<_> = values.iter().map(|value| Secret::new(*value)).collect();
        Mask::new(&values)
    }

    #[test]
    fn secrets_are_masked_and_short_values_are_not() {
        let mask = mask(&["hunter2!", "hunter2!hunter3!", "true", "-----BEGIN KEY-----\nabcdefgh\n"]);
        for (line, expected) in [
            ("key=hunter2! again hunter2!", "key=*** again ***"),
            ("hunter2!hunter3!", "***"),
            ("it is true", "it is true"),
            ("a line abcdefgh of a key", "a line *** of a key"),
            ("hun\x1bter2!", "***"),
            ("tab\tstays\r", "tab\tstays"),
        ] {
            assert_eq!(mask.apply(line.as_bytes()), expected, "{line}");
        }
        assert_eq!(mask.apply(b"\xffhunter2!"), "\u{fffd}***");
    }

    #[test]
    fn secret_arguments_and_inherited_secrets_are_masked_and_other_variables_are_not() {
        let mut spec = Spec::new("test", "sh", "launcher");
        spec.env = vec![("LISTED".to_owned(), Secret::new("from-the-list"))];
        spec.secrets = vec![Secret::new("--token=argument")];
        spec.inherit_env = ["HOME", "github_token", "DB_PASSWORD"].map(str::to_owned).to_vec();
        let ours = [
            ("HOME", "/home/somebody"),
            ("github_token", "ghp-inherited"),
            ("DB_PASSWORD", "hunter22"),
            ("OTHER_KEY", "not-given-to-it"),
        ];
        let mask = Mask::of(&spec, ours.into_iter().map(|(name, value)| (name.into(), value.into())));
        for (line, expected) in [
            ("from-the-list", "***"),
            ("sh --token=argument", "sh ***"),
            ("ghp-inherited and hunter22", "*** and ***"),
            ("/home/somebody", "/home/somebody"),
            ("not-given-to-it", "not-given-to-it"),
        ] {
            assert_eq!(mask.apply(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn no_part_of_a_secret_is_left_where_a_line_is_cut() {
        let mask = mask(&["0123456789"]);
        for before in LONGEST - 12..LONGEST + 2 {
            let mut line = "x".repeat(before) + "0123456789";
            line.truncate(mask.reach());
            let kept = mask.apply(line.as_bytes());
            assert!(!kept.contains('0'), "{before}");
            assert!(kept.len() <= LONGEST + MASK.len());
        }
    }

    #[test]
    fn the_last_lines_are_kept() {
        let mut ring = Ring::default();
        assert_eq!(ring.last(), None);
        for number in 0..100 {
            ring.push(number.to_string());
        }
        ring.push("  ".to_owned());
        assert_eq!(ring.lines().len(), LINES);
        assert_eq!(ring.lines()[0], "37");
        assert_eq!(ring.last(), Some("99"));
    }
}
