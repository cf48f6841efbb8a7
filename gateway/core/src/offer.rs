//! What a backend offers: definitions as the text clients will see, plus what the gateway needs to know about them.

use std::{sync::Arc, time::Duration};

use moongate_wire::Raw;

use crate::Scope;

/// Everything one backend offers one caller, in the order it is listed.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// `tools/list`
    pub tools: Vec<Arc<Tool>>,
    /// `prompts/list`
    pub prompts: Vec<Arc<Prompt>>,
    /// `resources/list`
    pub resources: Vec<Arc<Resource>>,
    /// `resources/templates/list`
    pub templates: Vec<Arc<Template>>,
    /// Whether callers have resources of their own ([`crate::Backend::resources`]) beside these.
    pub has_own_resources: bool,
    /// A few sentences for the model.
    pub instructions: Option<Arc<str>>,
    /// How long this offer stays good when nothing is announced.
    pub ttl: Option<Duration>,
    /// Why the backend's own offer is not known, where that is so. Who calls something of it is told.
    pub missing: Option<Arc<str>>,
}

/// A tool.
#[derive(Clone, Debug)]
pub struct Tool {
    /// The name as the backend knows it.
    pub name: Arc<str>,
    /// Other names that call it; resolved before policy, never listed.
    pub aliases: Vec<Arc<str>>,
    /// The definition object, byte for byte as it is listed.
    pub definition: Raw,
    /// What a caller needs to hold.
    pub scope: Scope,
    /// Arguments that a modern HTTP request repeats in a header (`x-mcp-header`).
    pub header_params: Vec<HeaderParam>,
}

impl Tool {
    /// What a caller who said `name` called: an alias, or else the tool's own name, whatever a route shows it as.
    pub fn called(&self, name: &str) -> &Arc<str> {
        self.aliases.iter().find(|alias| ***alias == *name).unwrap_or(&self.name)
    }
}

/// An argument that a header repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderParam {
    /// The part after `Mcp-Param-`.
    pub header: Arc<str>,
    /// The path of property names from the arguments' root.
    pub path: Vec<Arc<str>>,
}

/// A prompt.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// The name as the backend knows it.
    pub name: Arc<str>,
    /// The definition object.
    pub definition: Raw,
}

/// A resource.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The address.
    pub uri: Arc<str>,
    /// The definition object.
    pub definition: Raw,
}

/// Some of the resources that are one caller's own, which no shared offer holds.
#[derive(Clone, Debug, Default)]
pub struct ResourcePage {
    /// In the order they are listed.
    pub resources: Vec<Resource>,
    /// Where the next page begins, unless this is the last.
    pub next: Option<String>,
}

/// A resource template.
#[derive(Clone, Debug)]
pub struct Template {
    /// An RFC 6570 template; `{name}` and `{+name}` are understood.
    pub uri_template: Arc<str>,
    /// The definition object.
    pub definition: Raw,
}

impl Template {
    /// Whether `uri` could come from this template. `{name}` matches one segment, `{+name}` anything.
    pub fn matches(&self, uri: &str) -> bool {
        matches_template(&self.uri_template, uri)
    }
}

/// No address is that long; a longer one matches nothing, so that nobody makes us read a book per template.
const MAX_URI: usize = 8 * 1024;

/// Reads `uri` once per expression and keeps every place where the template so far may end. Trying one end after the
/// other instead takes time that grows with a power of the length.
fn matches_template(template: &str, uri: &str) -> bool {
    if uri.len() > MAX_URI {
        return false;
    }
    let mut parts = template.split('{');
    let Some(tail) = parts.next().and_then(|literal| uri.strip_prefix(literal)) else { return false };
    let mut ends = vec![0];
    for part in parts {
        let Some((expression, literal)) = part.split_once('}') else { return false };
        ends = ends_after(tail, &ends, expression.starts_with('+'), literal);
        if ends.is_empty() {
            return false;
        }
    }
    ends.last() == Some(&tail.len())
}

/// Where an expression that begins at one of `starts`, and the literal behind it, may end. Both are in ascending order.
fn ends_after(text: &str, starts: &[usize], spans_segments: bool, literal: &str) -> Vec<usize> {
    let mut starts = starts.iter().peekable();
    let mut ends = Vec::new();
    // Whether an expression has begun before the place looked at and may reach it.
    let mut within = false;
    for (at, next) in text.char_indices().map(|(at, next)| (at, Some(next))).chain([(text.len(), None)]) {
        if within && text.get(at..).is_some_and(|left| left.starts_with(literal)) {
            ends.push(at + literal.len());
        }
        within |= starts.next_if_eq(&&at).is_some();
        within &= spans_segments || next != Some('/');
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_match_by_segment_or_by_path() {
        for (template, uri, expected) in [
            ("test://template/{id}/data", "test://template/123/data", true),
            ("test://template/{id}/data", "test://template/a/b/data", false),
            ("test://template/{id}/data", "test://template//data", false),
            ("content://{id}", "content://abc", true),
            ("workspace:///{+path}", "workspace:///a/b.txt", true),
            ("workspace:///{+path}", "workspace:///", false),
            ("plain://x", "plain://x", true),
            ("plain://x", "plain://y", false),
            ("plain://x", "plain://x/y", false),
            ("x://{a}{b}", "x://ab", true),
            ("x://{a}{b}", "x://a", false),
            ("x://{a}{b}", "x://é", false),
            ("x://{a}{b}", "x://a/b", false),
            ("x://{a}-{b}", "x://a-b-c", true),
            ("x://{a}-{b}", "x://-b", false),
            ("x://{a}/{b}", "x://a/b", true),
            ("x://{a}/{b}", "x://a/b/c", false),
            ("x://{+a}/{b}", "x://a/b/c", true),
            ("x://{+a}x{b}", "x://x1x/2x3", true),
            ("x://{+a}x{b}", "x://x1x/2", false),
            ("x://{+a}x{+b}y", "x://1x2x3y4y", true),
            ("x://{+a}x{+b}y", "x://1y2x3", false),
            ("x://{a", "x://a", false),
            ("x://{", "x://", false),
        ] {
            assert_eq!(matches_template(template, uri), expected, "{template} {uri}");
        }
    }

    #[test]
    fn an_address_longer_than_any_real_one_matches_nothing() {
        let prefix = "x://";
        let longest = format!("{prefix}{}", "a".repeat(MAX_URI - prefix.len()));
        assert!(matches_template("x://{a}", &longest));
        assert!(!matches_template("x://{a}", &format!("{longest}a")));
        assert!(!matches_template("x://{+a}", &format!("x://{}", "a".repeat(80_000))));
    }

    /// The obvious way, fit for short addresses only: tries every end of every expression.
    fn tried(template: &str, uri: &str) -> bool {
        let Some((literal, rest)) = template.split_once('{') else { return template == uri };
        let Some(tail) = uri.strip_prefix(literal) else { return false };
        let (expression, after) = rest.split_once('}').unwrap();
        let fits = |part: &str| !part.is_empty() && (expression.starts_with('+') || !part.contains('/'));
        (0..=tail.len()).any(|end| fits(&tail[..end]) && tried(after, &tail[end..]))
    }

    #[test]
    fn short_addresses_match_as_trying_everything_says() {
        let parts = ["", "a", "/", "{v}", "{+v}"];
        let templates = parts.iter().flat_map(|a| parts.map(|b| format!("{{v}}{a}{b}")));
        let templates: Vec<String> =
            templates.flat_map(|start| parts.map(|end| format!("{start}{end}"))).collect();
        let mut uris = vec![String::new()];
        for length in 0..5 {
            let longer = uris.iter().filter(|uri| uri.len() == length);
            let longer: Vec<_> =
                longer.flat_map(|uri| ["a", "b", "/"].map(|c| format!("{uri}{c}"))).collect();
            uris.extend(longer);
        }
        for template in
            templates.iter().flat_map(|narrow| [narrow.clone(), narrow.replacen("{v}", "{+v}", 1)])
        {
            for uri in &uris {
                assert_eq!(matches_template(&template, uri), tried(&template, uri), "{template} {uri}");
            }
        }
    }

    /// Trying every end takes hours for these.
    #[test]
    fn hostile_addresses_take_no_longer_than_others() {
        for template in ["{a}{b}{c}{d}{e}!", "{+a}x{+b}y{+c}!", "{+a}x{b}{+c}x{d}!", "{a}x{b}x{c}x{d}!"] {
            for piece in ["a", "x", "xy", "x/", "é"] {
                let uri = piece.repeat(MAX_URI / piece.len());
                assert!(!matches_template(template, &uri), "{template} {piece}");
                assert!(!matches_template(template, &piece.repeat(80_000)), "{template} {piece}");
            }
        }
    }
}
