//! Content blocks and the results made of them.

use moongate_core::Raw;
use serde_json::{Value, json};

/// One red pixel.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC";

/// One silent sample.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==";

/// A tool's result of these blocks.
pub(crate) fn blocks(content: &[Value]) -> Raw {
    Raw::of(&json!({"content": content}))
}

/// A tool's result of one text.
pub(crate) fn said(words: impl AsRef<str>) -> Raw {
    blocks(&[text(words.as_ref())])
}

/// A tool's result that says it failed.
pub(crate) fn failed(words: &str) -> Raw {
    Raw::of(&json!({"content": [text(words)], "isError": true}))
}

pub(crate) fn text(words: &str) -> Value {
    json!({"type": "text", "text": words})
}

pub(crate) fn image() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

pub(crate) fn audio() -> Value {
    json!({"type": "audio", "data": WAV, "mimeType": "audio/wav"})
}

pub(crate) fn resource(uri: &str, mime_type: &str, words: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": words}})
}
