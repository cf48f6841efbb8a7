//! Glob patterns, as a regular expression that takes time in proportion to what it reads.

use regex::{Regex, RegexBuilder};

use super::error::Error;

/// What a compiled pattern may take, in bytes.
const MAX_COMPILED: usize = 256 * 1024;

/// A pattern for names or for paths.
#[derive(Debug)]
pub(crate) struct Glob {
    regex: Regex,
    /// Whether it has a slash, and so is for paths.
    spans: bool,
}

impl Glob {
    pub(crate) fn parse(pattern: &str) -> Result<Self, Error> {
        let invalid = |why: &str| Error::Invalid(format!("the glob pattern is not valid: {why}"));
        let expression = expression(pattern).map_err(invalid)?;
        let regex = RegexBuilder::new(&expression)
            .dot_matches_new_line(true)
            .size_limit(MAX_COMPILED)
            .build()
            .map_err(|_| invalid("it is too long, or a range in [] runs backwards"))?;
        Ok(Self { regex, spans: pattern.contains('/') })
    }

    /// Whether the pattern fits something called `name` at `path`.
    pub(crate) fn matches(&self, path: &str, name: &str) -> bool {
        self.regex.is_match(if self.spans { path } else { name })
    }
}

fn expression(pattern: &str) -> Result<String, &'static str> {
    let mut out = String::from("^");
    let mut rest = pattern.strip_prefix("./").unwrap_or(pattern).chars().peekable();
    let mut in_choice = false;
    let mut at_start = true;
    while let Some(c) = rest.next() {
        let begins = std::mem::replace(&mut at_start, c == '/');
        match c {
            '*' if rest.next_if_eq(&'*').is_some() => {
                // Between slashes it stands for any number of directories, also none.
                if begins && rest.next_if_eq(&'/').is_some() {
                    out.push_str("(?:.*/)?");
                    at_start = true;
                } else {
                    out.push_str(".*");
                }
            }
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '[' => class(&mut rest, &mut out)?,
            '{' if in_choice => return Err("braces inside braces"),
            '{' => {
                in_choice = true;
                out.push_str("(?:");
            }
            ',' if in_choice => out.push('|'),
            '}' if in_choice => {
                in_choice = false;
                out.push(')');
            }
            '\\' => literal(rest.next().ok_or("it ends with a backslash")?, &mut out),
            c => literal(c, &mut out),
        }
    }
    if in_choice {
        return Err("a { is not closed");
    }
    out.push('$');
    Ok(out)
}

/// `[abc]`, `[a-z]`, `[!abc]`: one character, never a slash.
fn class(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) -> Result<(), &'static str> {
    let negated = rest.next_if(|c| matches!(c, '!' | '^')).is_some();
    out.push_str(if negated { "[^/" } else { "[" });
    let mut members = 0;
    loop {
        match rest.next().ok_or("a [ is not closed")? {
            ']' if members > 0 => break,
            '/' => return Err("a / inside []"),
            // Between two characters it is a range for the expression, too.
            '-' if members > 0 && rest.peek().is_some_and(|c| *c != ']') => out.push('-'),
            '\\' => literal(rest.next().ok_or("a [ is not closed")?, out),
            c => literal(c, out),
        }
        members += 1;
    }
    out.push(']');
    Ok(())
}

fn literal(c: char, out: &mut String) {
    out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_and_paths() {
        for (pattern, path, expected) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "src/deep/a.rs", true),
            ("*.rs", "a.rs.txt", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("?", "é", true),
            ("*", "line\nbreak", true),
            ("[abc].x", "b.x", true),
            ("[a-c].x", "d.x", false),
            ("[!a-c].x", "d.x", true),
            ("[]x].x", "].x", true),
            ("[a-].x", "-.x", true),
            ("[[:x].x", "[.x", true),
            ("[a&&b]", "&", true),
            ("{a,b}*.c", "b1.c", true),
            ("{a,b}*.c", "c1.c", false),
            ("a,b", "a,b", true),
            ("a}", "a}", true),
            (r"\*", "*", true),
            (r"\*", "x", false),
            ("a.c", "abc", false),
            ("a+(b)|c$", "a+(b)|c$", true),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/x/a.rs", false),
            ("./src/*.rs", "src/a.rs", true),
            ("src/**/*.rs", "src/a.rs", true),
            ("src/**/*.rs", "src/x/y/a.rs", true),
            ("**/a.rs", "a.rs", true),
            ("**/a.rs", "x/ba.rs", false),
            ("src/**", "src/x/y", true),
            ("src/?", "src//", false),
            ("src/[!a]", "src//", false),
        ] {
            let name = path.rsplit('/').next().unwrap();
            assert_eq!(Glob::parse(pattern).unwrap().matches(path, name), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn an_invalid_glob_is_refused_with_a_reason() {
        for pattern in ["[", "[]", "[a", "[a/b]", "[z-a]", "{", "{a,b", "{a,{b}}", r"a\", r"[\"] {
            let Err(Error::Invalid(message)) = Glob::parse(pattern) else { panic!("{pattern}") };
            assert!(message.starts_with("the glob pattern is not valid: "), "{message}");
        }
    }

    #[test]
    fn hostile_globs_are_refused_or_take_no_time() {
        let name = "a".repeat(1000);
        for pattern in ["*a".repeat(499), "**/".repeat(333), "?".repeat(1000), "{a,aa}*".repeat(140)] {
            if let Ok(glob) = Glob::parse(&format!("{pattern}b")) {
                assert!(!glob.matches(&name, &name), "{pattern}");
            }
        }
    }
}
