//! Patterns for names: `*` is any run of characters, `?` is one, everything else is itself.
//!
//! Matching is a simulation of all positions at once in the bits of one integer: time grows with the name alone, so no
//! pattern can be made slow by a name that a caller picks.

use std::fmt;

/// How many characters other than `*` a pattern with wildcards may have: one bit each, and one for "all matched".
const MAX_ATOMS: usize = 127;

/// A pattern for names. Two globs are equal if they are written alike.
#[derive(Clone)]
pub struct Glob {
    text: String,
    matcher: Matcher,
}

/// Why a text is no [`Glob`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGlob {
    /// Nothing at all; `*` is what matches everything.
    #[error("the pattern is empty")]
    Empty,
    /// White space or a control character, which no name has.
    #[error("the pattern contains {0:?}, which no name can contain")]
    Character(char),
    /// More than 127 characters and a wildcard.
    #[error("a pattern with wildcards has at most {MAX_ATOMS} other characters")]
    Long,
}

#[derive(Clone)]
enum Matcher {
    Exact,
    Wild(Wild),
}

/// The pattern as bits. Bit `i` of a state means: the first `i` atoms have matched. An atom is a character or `?`.
#[derive(Clone)]
struct Wild {
    /// Bit `i`: a star stands before atom `i`, so the state stays whatever comes.
    loops: u128,
    /// Bit `i`: atom `i` is `?`.
    any: u128,
    /// Bit `i` of the second: atom `i` is the first. Sorted by character.
    literal: Vec<(char, u128)>,
    /// The one bit that means the whole pattern has matched.
    accept: u128,
}

impl Glob {
    /// Reads a pattern.
    pub fn new(text: &str) -> Result<Self, InvalidGlob> {
        if text.is_empty() {
            return Err(InvalidGlob::Empty);
        }
        if let Some(bad) = text.chars().find(|c| c.is_whitespace() || c.is_control()) {
            return Err(InvalidGlob::Character(bad));
        }
        let wild = text.contains(['*', '?']);
        let matcher = if wild { Matcher::Wild(Wild::new(text)?) } else { Matcher::Exact };
        Ok(Self { text: text.to_owned(), matcher })
    }

    /// `*`, which matches every name.
    pub fn any() -> Self {
        let wild = Wild { loops: 1, any: 0, literal: Vec::new(), accept: 1 };
        Self { text: "*".to_owned(), matcher: Matcher::Wild(wild) }
    }

    /// Whether `name` matches, as a whole.
    pub fn matches(&self, name: &str) -> bool {
        match &self.matcher {
            Matcher::Exact => self.text == name,
            Matcher::Wild(wild) => wild.matches(name),
        }
    }

    /// The one name that matches, if the pattern has no wildcard.
    pub fn exact(&self) -> Option<&str> {
        matches!(self.matcher, Matcher::Exact).then_some(&self.text)
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Wild {
    fn new(text: &str) -> Result<Self, InvalidGlob> {
        let mut wild = Self { loops: 0, any: 0, literal: Vec::new(), accept: 1 };
        let mut atoms = 0;
        for c in text.chars() {
            if c == '*' {
                wild.loops |= wild.accept;
                continue;
            }
            atoms += 1;
            if atoms > MAX_ATOMS {
                return Err(InvalidGlob::Long);
            }
            wild.atom(c);
        }
        Ok(wild)
    }

    fn atom(&mut self, c: char) {
        if c == '?' {
            self.any |= self.accept;
        } else {
            match self.literal.binary_search_by_key(&c, |entry| entry.0) {
                Ok(at) => self.literal.get_mut(at).into_iter().for_each(|entry| entry.1 |= self.accept),
                Err(at) => self.literal.insert(at, (c, self.accept)),
            }
        }
        self.accept <<= 1;
    }

    fn matches(&self, name: &str) -> bool {
        let mut state = 1;
        for c in name.chars() {
            state = ((state & self.accepting(c)) << 1) | (state & self.loops);
            if state == 0 {
                return false;
            }
        }
        state & self.accept != 0
    }

    /// The atoms that accept `c`.
    fn accepting(&self, c: char) -> u128 {
        let found =
            self.literal.binary_search_by_key(&c, |entry| entry.0).ok().and_then(|at| self.literal.get(at));
        self.any | found.map_or(0, |entry| entry.1)
    }
}

impl PartialEq for Glob {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Glob {}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Glob({})", self.text)
    }
}

/// Several patterns, of which one has to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patterns(Vec<Glob>);

impl Patterns {
    /// Matches every name.
    pub fn any() -> Self {
        Self(vec![Glob::any()])
    }

    /// Whether one of the patterns matches `name`.
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(name))
    }

    /// The patterns in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Glob> {
        self.0.iter()
    }
}

impl FromIterator<Glob> for Patterns {
    fn from_iter<I: IntoIterator<Item = Glob>>(globs: I) -> Self {
        Self(globs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("add_goal", "add_goal", true),
            ("add_goal", "add_goals", false),
            ("add_*", "add_", true),
            ("add_*", "add_goal", true),
            ("add_*", "readd_goal", false),
            ("*_goal", "add_goal_goal", true),
            ("*__delete_*", "github__delete_repo", true),
            ("*__delete_*", "github_delete_repo", false),
            ("a?c", "abc", true),
            ("a?c", "a🌙c", true),
            ("a?c", "ac", false),
            ("**", "", true),
            ("?*?", "ab", true),
            ("?*?", "a", false),
            ("*", "anything at all", true),
            ("*ü*", "grün", true),
            ("A*", "abc", false),
        ] {
            assert_eq!(Glob::new(pattern).unwrap().matches(name), expected, "{pattern} on {name}");
        }
        assert_eq!(Glob::any(), Glob::new("*").unwrap());
        assert!(Glob::any().matches("") && Glob::any().matches("x"));
    }

    #[test]
    fn only_patterns_without_wildcards_are_exact() {
        assert_eq!(Glob::new("web").unwrap().exact(), Some("web"));
        assert_eq!(Glob::new("web*").unwrap().exact(), None);
    }

    #[test]
    fn what_cannot_match_a_name_is_refused() {
        assert_eq!(Glob::new("").unwrap_err(), InvalidGlob::Empty);
        assert_eq!(Glob::new("a b").unwrap_err(), InvalidGlob::Character(' '));
        assert_eq!(Glob::new("a\u{0}").unwrap_err(), InvalidGlob::Character('\0'));
        assert_eq!(Glob::new(&format!("*{}", "x".repeat(128))).unwrap_err(), InvalidGlob::Long);
    }

    #[test]
    fn the_longest_pattern_matches() {
        let longest = format!("*{}*", "x".repeat(MAX_ATOMS));
        let glob = Glob::new(&longest).unwrap();
        assert!(glob.matches(&"x".repeat(MAX_ATOMS)) && glob.matches(&"x".repeat(MAX_ATOMS + 1)));
        assert!(!glob.matches(&"x".repeat(MAX_ATOMS - 1)));
        assert!(Glob::new(&"x".repeat(1000)).unwrap().matches(&"x".repeat(1000)));
    }

    /// The definition, by recursion: exponential, but plainly right.
    fn by_definition(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            (['*', rest @ ..], _) => {
                by_definition(rest, name) || (!name.is_empty() && by_definition(pattern, &name[1..]))
            }
            (['?', rest @ ..], [_, name @ ..]) => by_definition(rest, name),
            ([c, rest @ ..], [d, name @ ..]) => c == d && by_definition(rest, name),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn matches_what_the_definition_says(pattern in "[ab*?]{1,8}", name in "[abc]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = by_definition(&chars(&pattern), &chars(&name));
            prop_assert_eq!(Glob::new(&pattern).unwrap().matches(&name), expected);
        }

        #[test]
        fn never_panics(pattern in any::<String>(), name in any::<String>()) {
            if let Ok(glob) = Glob::new(&pattern) {
                glob.matches(&name);
            }
        }
    }
}
