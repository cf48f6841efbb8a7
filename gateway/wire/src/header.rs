//! HTTP headers that repeat parts of a message: their names, how values are written in them, and which arguments a
//! tool's schema asks to have repeated.
//!
//! Whether `Mcp-Method` and `Mcp-Name` agree with the body is decided in [`crate::ladder`]; the arguments of the called
//! tool are compared here, because that needs the tool's schema and comes later.

use std::{borrow::Cow, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use crate::{Raw, RpcError, code};

/// The version a request is written in.
pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
/// The message's `method`.
pub const METHOD: &str = "mcp-method";
/// The tool, prompt or resource the message names.
pub const NAME: &str = "mcp-name";
/// What the names of headers that repeat an argument begin with.
pub const PARAM_PREFIX: &str = "mcp-param-";
/// A legacy session.
pub const SESSION_ID: &str = "mcp-session-id";
/// The last event a client saw of a stream that it resumes.
pub const LAST_EVENT_ID: &str = "last-event-id";

/// The schema keyword that asks for an argument to be repeated.
const ANNOTATION: &str = "x-mcp-header";
const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";
/// The largest integer that every JSON implementation holds exactly: 2^53 − 1.
const MAX_SAFE: f64 = 9_007_199_254_740_991.0;

/// A header value that is neither plain text nor well-formed Base64 of UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header value is neither visible ASCII nor well-formed base64 of UTF-8")]
pub struct BadEncoding;

/// Writes `value` so that it survives as a header value: as it is if possible, else as `=?base64?…?=`.
pub fn encode(value: &str) -> Cow<'_, str> {
    let visible = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let padded = value.starts_with(' ') || value.ends_with(' ');
    let disguised = value.starts_with(PREFIX) && value.ends_with(SUFFIX);
    if visible && !padded && !disguised {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{PREFIX}{}{SUFFIX}", STANDARD.encode(value)))
}

/// Reads a header value back. Blanks around it belong to HTTP, not to the value.
pub fn decode(value: &[u8]) -> Result<Cow<'_, str>, BadEncoding> {
    let text = std::str::from_utf8(trim(value)).map_err(|_| BadEncoding)?;
    if let Some(encoded) = text.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX)) {
        let bytes = STANDARD.decode(encoded).map_err(|_| BadEncoding)?;
        return String::from_utf8(bytes).map(Cow::Owned).map_err(|_| BadEncoding);
    }
    if text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~')) {
        Ok(Cow::Borrowed(text))
    } else {
        Err(BadEncoding)
    }
}

/// Whether a header value certainly stands for itself: nothing to trim, nothing encoded.
pub(crate) fn is_literal(value: &[u8]) -> bool {
    value.iter().all(u8::is_ascii_graphic) && !value.starts_with(PREFIX.as_bytes())
}

/// `value` without the blanks HTTP allows around it.
pub(crate) fn trim(value: &[u8]) -> &[u8] {
    let mut value = value;
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// The arguments that `input_schema` wants repeated: each header's name after `Mcp-Param-` with the path of property
/// names from the arguments' root.
///
/// The error explains the first annotation that breaks a rule. Such a tool must not be offered to HTTP clients.
pub fn header_params(input_schema: &Raw) -> Result<Vec<(String, Vec<String>)>, String> {
    // Nearly every schema: nothing is annotated, so nothing is parsed.
    if !input_schema.may_name(ANNOTATION) {
        return Ok(Vec::new());
    }
    // serde_json's own depth limit bounds the recursion below.
    let schema: Value =
        input_schema.parse().map_err(|error| format!("the schema cannot be read: {error}"))?;
    let mut found = Vec::new();
    find(&schema, Some(&mut Vec::new()), &mut found)?;
    Ok(found)
}

/// Collects annotations of `schema` and below. `path` is there as long as only `properties` lead here.
fn find(
    schema: &Value,
    mut path: Option<&mut Vec<String>>,
    found: &mut Vec<(String, Vec<String>)>,
) -> Result<(), String> {
    let Value::Object(keywords) = schema else { return Ok(()) };
    if let Some(annotation) = keywords.get(ANNOTATION) {
        let path = path.as_deref().filter(|path| !path.is_empty());
        let path =
            path.ok_or_else(|| format!("{ANNOTATION} {annotation} is not reached by properties alone"))?;
        let name = header_name(annotation, keywords)?;
        if found.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            return Err(format!("{ANNOTATION} {annotation} appears twice"));
        }
        found.push((name.to_owned(), path.clone()));
    }
    for (keyword, value) in keywords {
        match (keyword.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (name, property) in properties {
                    if let Some(path) = path.as_deref_mut() {
                        path.push(name.clone());
                        find(property, Some(path), found)?;
                        path.pop();
                    } else {
                        find(property, None, found)?;
                    }
                }
            }
            (
                "patternProperties" | "dependentSchemas" | "dependencies" | "$defs" | "definitions",
                Value::Object(schemas),
            ) => {
                schemas.values().try_for_each(|schema| find(schema, None, found))?;
            }
            // Data, not schemas: what looks like an annotation in there is none.
            ("const" | "default" | "enum" | "example" | "examples" | "properties", _) => {}
            (_, Value::Array(schemas)) => schemas.iter().try_for_each(|schema| find(schema, None, found))?,
            _ => find(value, None, found)?,
        }
    }
    Ok(())
}

/// The annotation's value, if it and the property's type are allowed.
fn header_name<'a>(annotation: &'a Value, property: &Map<String, Value>) -> Result<&'a str, String> {
    let name = annotation.as_str().filter(|name| !name.is_empty() && name.bytes().all(is_token));
    let name = name.ok_or_else(|| format!("{ANNOTATION} {annotation} is not a header name"))?;
    let allowed = |kind: &Value| matches!(kind.as_str(), Some("string" | "integer" | "boolean"));
    let fits = match property.get("type") {
        Some(Value::Array(kinds)) => {
            kinds.iter().any(allowed)
                && kinds.iter().all(|kind| allowed(kind) || kind.as_str() == Some("null"))
        }
        Some(kind) => allowed(kind),
        None => false,
    };
    if fits {
        Ok(name)
    } else {
        Err(format!("{ANNOTATION} {annotation} is not on a string, integer or boolean"))
    }
}

/// `tchar` of RFC 9110.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Compares the headers that repeat arguments with the arguments themselves.
///
/// `params` are a tool's [`header_params`]; `header` is asked for the part after `Mcp-Param-` in lower case. A value
/// without its header, a header without its value and a difference are -32020, which goes with status 400.
pub fn check_params<'p, 'h, P>(
    params: impl IntoIterator<Item = (&'p str, P)>,
    arguments: &Raw,
    header: impl Fn(&str) -> Option<&'h [u8]>,
) -> Result<(), RpcError>
where
    P: IntoIterator<Item = &'p str>,
{
    for (name, path) in params {
        let value = path.into_iter().try_fold(arguments.clone(), |value, step| value.member(step));
        let value = value.filter(|value| !value.is_null());
        let problem = match (value, header(&name.to_ascii_lowercase())) {
            (None, None) => continue,
            (None, Some(_)) => "is there, but the argument is not",
            (Some(_), None) => "is missing",
            (Some(value), Some(header)) => match decode(header) {
                Ok(text) if repeats(&value, &text) => continue,
                Ok(_) => "does not match the argument",
                Err(BadEncoding) => "is not encoded correctly",
            },
        };
        return Err(mismatch(format_args!("Mcp-Param-{name} {problem}")));
    }
    Ok(())
}

/// -32020 with a message that says which header and what about it.
pub(crate) fn mismatch(what: fmt::Arguments<'_>) -> RpcError {
    RpcError::new(code::HEADER_MISMATCH, format!("Header mismatch: {what}"))
}

/// Whether `text` is how a header repeats `value`. Numbers are equal by value: `42.0` repeats `42`.
fn repeats(value: &Raw, text: &str) -> bool {
    match value.as_bytes().first() {
        Some(b'"') => value.parse::<Cow<'_, str>>().is_ok_and(|value| value == text),
        Some(b't' | b'f') => value.as_str() == text,
        Some(b'-' | b'0'..=b'9') => {
            let exact = |text: &str| serde_json::from_str::<i64>(text).ok();
            let close =
                |text: &str| serde_json::from_str::<f64>(text).ok().filter(|number| number.abs() <= MAX_SAFE);
            match (exact(value.as_str()), exact(text)) {
                (Some(value), Some(text)) => value == text,
                #[expect(
                    clippy::float_cmp,
                    reason = "both were written by hand in decimal; equal means equal"
                )]
                _ => close(value.as_str()).zip(close(text)).is_some_and(|(value, text)| value == text),
            }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
