//! The resources: two that never change, one to watch, and a template.

use std::{sync::Arc, time::Duration};

use moongate_core::{CallError, Raw, Reply, Resource, Template, call::Freshness};
use serde_json::{Value, json};

use crate::content::PNG;

/// The resource to subscribe to.
pub(crate) const WATCHED: &str = "test://watched-resource";
/// The template whose `id` can be completed.
pub(crate) const TEMPLATE: &str = "test://template/{id}/data";

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";

/// What never changes may be kept, by anybody.
const FOREVER: Freshness = Freshness { ttl: Duration::from_hours(1), public: true };

/// Every resource, the template's aside.
pub(crate) fn all() -> Vec<Arc<Resource>> {
    vec![
        resource(TEXT, "Static text", "Text that never changes", "text/plain"),
        resource(BINARY, "Static binary", "An image that never changes", "image/png"),
        resource(WATCHED, "Watched resource", "Something to subscribe to", "text/plain"),
    ]
}

/// The one template.
pub(crate) fn templates() -> Vec<Arc<Template>> {
    let definition = Raw::of(&json!({
        "uriTemplate": TEMPLATE,
        "name": "Template data",
        "description": "Data made from the id",
        "mimeType": "application/json",
    }));
    vec![Arc::new(Template { uri_template: TEMPLATE.into(), definition })]
}

/// The contents of `uri`.
pub(crate) fn read(uri: &str) -> Result<Reply, CallError> {
    let (content, freshness) = match uri {
        TEXT => (words(uri, "text/plain", "This is the content of the static text resource."), Some(FOREVER)),
        BINARY => (json!({"uri": uri, "mimeType": "image/png", "blob": PNG}), Some(FOREVER)),
        WATCHED => (words(uri, "text/plain", "Watched resource content"), None),
        _ => (made(uri).ok_or_else(|| CallError::unknown_resource(uri))?, None),
    };
    Ok(Reply { freshness, ..Raw::of(&json!({"contents": [content]})).into() })
}

/// What the template makes of `uri`, if it is one of the template's.
fn made(uri: &str) -> Option<Value> {
    let (before, after) = TEMPLATE.split_once("{id}")?;
    let id = uri.strip_prefix(before)?.strip_suffix(after)?;
    let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")}).to_string();
    (!id.is_empty() && !id.contains('/')).then(|| words(uri, "application/json", &data))
}

fn words(uri: &str, mime_type: &str, text: &str) -> Value {
    json!({"uri": uri, "mimeType": mime_type, "text": text})
}

fn resource(uri: &str, name: &str, description: &str, mime_type: &str) -> Arc<Resource> {
    let definition = json!({"uri": uri, "name": name, "description": description, "mimeType": mime_type});
    Arc::new(Resource { uri: uri.into(), definition: Raw::of(&definition) })
}
