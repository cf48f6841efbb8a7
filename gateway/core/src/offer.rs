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
    /// A few sentences for the model.
    pub instructions: Option<Arc<str>>,
    /// How long this offer stays good when nothing is announced.
    pub ttl: Option<Duration>,
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

fn matches_template(template: &str, uri: &str) -> bool {
    let Some((literal, rest)) = template.split_once('{') else { return template == uri };
    let Some(tail) = uri.strip_prefix(literal) else { return false };
    let Some((expression, after)) = rest.split_once('}') else { return false };
    let spans_segments = expression.starts_with('+');
    // The shortest match first: templates are short and carry one or two expressions.
    tail.char_indices()
        .map(|(at, _)| at)
        .chain([tail.len()])
        .skip(1)
        .take_while(|&end| spans_segments || !tail.get(..end).is_some_and(|part| part.contains('/')))
        .any(|end| tail.get(end..).is_some_and(|left| matches_template(after, left)))
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
        ] {
            assert_eq!(matches_template(template, uri), expected, "{template} {uri}");
        }
    }
}
