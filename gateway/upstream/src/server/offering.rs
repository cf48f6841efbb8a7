//! From the lists of a server to what the gateway offers of it. Pure.

use std::{sync::Arc, time::Duration};

use moongate_core::{Offer, Prompt, Raw, Resource, Scope, Template, Tool, offer::HeaderParam};
use moongate_wire::header;
use serde::{Deserialize, Serialize};

use crate::transport::Way;

/// A definition larger than this is left out: every client would carry it in every list.
const MAX_DEFINITION: usize = 1 << 20;

/// The lists of a server, as it wrote them; also how they are remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lists {
    pub(crate) tools: Vec<Raw>,
    pub(crate) prompts: Vec<Raw>,
    pub(crate) resources: Vec<Raw>,
    pub(crate) templates: Vec<Raw>,
    pub(crate) instructions: Option<Arc<str>>,
}

/// An offer, and what of the lists is not in it.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) offer: Offer,
    /// One sentence for each definition that was left out.
    pub(crate) left_out: Vec<String>,
}

/// Makes an offer of `lists`. Tools need `scope`; the offer stays good for `ttl` unless a change is announced.
pub(crate) fn make(lists: &Lists, scope: &Scope, way: Way, ttl: Option<Duration>) -> Made {
    let mut left_out = Vec::new();
    let mut keep = |what: &str, kept: Result<(), String>| {
        if let Err(why) = &kept {
            left_out.push(format!("{what}: {why}"));
        }
        kept.is_ok()
    };
    let mut offer = Offer { instructions: lists.instructions.clone(), ttl, ..Offer::default() };
    for (at, definition) in lists.tools.iter().enumerate() {
        let tool = small(definition).and_then(|()| tool(definition, scope, way));
        let what = naming(definition, "name", "tool", at);
        if keep(&what, tool.as_ref().map(drop).map_err(Clone::clone)) {
            offer.tools.extend(tool.ok().map(Arc::new));
        }
    }
    for (at, definition) in lists.prompts.iter().enumerate() {
        let name = small(definition).and_then(|()| text(definition, "name"));
        if keep(&naming(definition, "name", "prompt", at), name.as_ref().map(drop).map_err(Clone::clone)) {
            let prompt = |name| Arc::new(Prompt { name, definition: definition.clone() });
            offer.prompts.extend(name.ok().map(prompt));
        }
    }
    for (at, definition) in lists.resources.iter().enumerate() {
        let uri = small(definition).and_then(|()| text(definition, "uri"));
        if keep(&naming(definition, "uri", "resource", at), uri.as_ref().map(drop).map_err(Clone::clone)) {
            let resource = |uri| Arc::new(Resource { uri, definition: definition.clone() });
            offer.resources.extend(uri.ok().map(resource));
        }
    }
    for (at, definition) in lists.templates.iter().enumerate() {
        let uri = small(definition).and_then(|()| text(definition, "uriTemplate"));
        let what = naming(definition, "uriTemplate", "resource template", at);
        if keep(&what, uri.as_ref().map(drop).map_err(Clone::clone)) {
            let template = |uri_template| Arc::new(Template { uri_template, definition: definition.clone() });
            offer.templates.extend(uri.ok().map(template));
        }
    }
    Made { offer, left_out }
}

fn small(definition: &Raw) -> Result<(), String> {
    if definition.len() > MAX_DEFINITION {
        return Err(format!("its definition of {} bytes is larger than 1 MiB", definition.len()));
    }
    Ok(())
}

fn tool(definition: &Raw, scope: &Scope, way: Way) -> Result<Tool, String> {
    let name = text(definition, "name")?;
    let schema = definition.member("inputSchema").filter(Raw::is_object);
    let schema = schema.ok_or("it has no inputSchema, which every tool must have")?;
    let header_params = match header::header_params(&schema) {
        Ok(found) => found.into_iter().map(header_param).collect(),
        // On a pipe nothing is repeated in headers, so that what is wrong about it does no harm.
        Err(_) if way == Way::Pipe => Vec::new(),
        Err(why) => return Err(why),
    };
    Ok(Tool {
        name,
        aliases: Vec::new(),
        definition: definition.clone(),
        scope: scope.clone(),
        header_params,
    })
}

fn header_param((header, path): (String, Vec<String>)) -> HeaderParam {
    HeaderParam { header: header.into(), path: path.into_iter().map(Into::into).collect() }
}

fn text(definition: &Raw, member: &str) -> Result<Arc<str>, String> {
    let text = definition.member(member).and_then(|value| value.parse::<String>().ok());
    text.filter(|text| !text.is_empty()).map(Into::into).ok_or_else(|| format!("it has no {member}"))
}

/// How people are told which definition is meant.
fn naming(definition: &Raw, member: &str, kind: &str, at: usize) -> String {
    match text(definition, member) {
        Ok(name) => format!("{kind} {}", name.chars().take(128).collect::<String>()),
        Err(_) => format!("{kind} number {}", at + 1),
    }
}

/// The `Mcp-Param-*` headers of a call with these arguments.
pub(crate) fn param_headers(tool: &Tool, arguments: &Raw) -> Vec<(Arc<str>, String)> {
    let mut headers = Vec::new();
    for param in &tool.header_params {
        let mut value = Some(arguments.clone());
        for step in &param.path {
            value = value.and_then(|value| value.member(step));
        }
        let Some(value) = value.filter(|value| !value.is_null()) else { continue };
        let text = value.parse::<String>().unwrap_or_else(|_| value.as_str().to_owned());
        headers.push((Arc::clone(&param.header), text));
    }
    headers
}

/// What of the headers a client sent beside them `tool` does not declare, if it is known. Those it declares are written by
/// [`param_headers`] alone.
pub(crate) fn undeclared(
    tool: Option<&Arc<Tool>>,
    sent: &[(Arc<str>, Arc<str>)],
) -> Vec<(Arc<str>, Arc<str>)> {
    let declared = |name: &str| {
        let mut declared = tool.into_iter().flat_map(|tool| &tool.header_params);
        declared.any(|param| param.header.eq_ignore_ascii_case(name))
    };
    sent.iter().filter(|(name, _)| !declared(name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_no_client_could_use_is_left_out_and_named() {
        let lists = Lists {
            tools: vec![
                Raw::of(&json!({"name": "good", "inputSchema": {"type": "object"}})),
                Raw::of(&json!({"name": "bare"})),
                Raw::of(&json!({"inputSchema": {}})),
                Raw::of(&json!({"name": "huge", "inputSchema": {"description": "x".repeat(MAX_DEFINITION)}})),
                Raw::of(
                    &json!({"name": "bad", "inputSchema": {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}}),
                ),
            ],
            prompts: vec![Raw::of(&json!({"name": "p"})), Raw::of(&json!({}))],
            resources: vec![Raw::of(&json!({"uri": "x://y"})), Raw::of(&json!(1))],
            templates: vec![Raw::of(&json!({"uriTemplate": "x://{a}"}))],
            instructions: None,
        };
        let names =
            |made: &Made| made.offer.tools.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>();
        let http = make(&lists, &Scope::write(), Way::Http, None);
        assert_eq!(names(&http), ["good"]);
        let pipe = make(&lists, &Scope::write(), Way::Pipe, None);
        assert_eq!(names(&pipe), ["good", "bad"]);
        assert_eq!(
            (pipe.offer.prompts.len(), pipe.offer.resources.len(), pipe.offer.templates.len()),
            (1, 1, 1)
        );
        let left_out: Vec<_> = pipe.left_out.iter().map(|text| text.split(':').next().unwrap()).collect();
        assert_eq!(
            left_out,
            ["tool bare", "tool number 3", "tool huge", "prompt number 2", "resource number 2"]
        );
    }

    #[test]
    fn annotated_arguments_are_repeated_as_headers() {
        let definition = json!({"name": "t", "inputSchema": {"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "deep": {"type": "object", "properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}},
        }}});
        let lists = Lists { tools: vec![Raw::of(&definition)], ..Lists::default() };
        let made = make(&lists, &Scope::write(), Way::Http, None);
        let arguments = Raw::of(&json!({"region": "eu-ü", "count": 3, "deep": {"flag": true}, "other": 1}));
        let mut headers = param_headers(&made.offer.tools[0], &arguments);
        headers.sort();
        let text: Vec<_> = headers.iter().map(|(name, value)| (&**name, value.as_str())).collect();
        assert_eq!(text, [("Count", "3"), ("Flag", "true"), ("Region", "eu-ü")]);
        assert!(param_headers(&made.offer.tools[0], &Raw::of(&json!({"region": null}))).is_empty());
        let sent = ["region", "other", "FLAG"].map(|name| (name.into(), "v".into()));
        assert_eq!(undeclared(made.offer.tools.first(), &sent), [("other".into(), "v".into())]);
        assert_eq!(undeclared(None, &sent), sent);
    }
}
