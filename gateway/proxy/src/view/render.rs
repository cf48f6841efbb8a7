//! What a view writes itself: definitions under their shown names, and instructions that do not grow without end.

use std::sync::Arc;

use moongate_config::Route;
use moongate_wire::{
    Raw,
    edit::{self, Edit},
};

use super::{Offered, ToolEntry};
use crate::{
    context,
    extras::{Inject, RouteExtras},
};

/// What one member may tell the model, and all of them.
pub(super) const MAX_INSTRUCTIONS: usize = 8 * 1024;
pub(super) const MAX_ALL_INSTRUCTIONS: usize = 32 * 1024;

/// The definition as it is listed: byte for byte the backend's, but for name and description.
pub(super) fn definition(entry: &ToolEntry, route: Option<&Route>) -> Raw {
    let ToolEntry { shown, tool, member, extras: RouteExtras { inject, .. }, .. } = entry;
    // Fields that the gateway fills in are not the model's business; any others are the upstream's own.
    let fills = *inject == Inject::Fields || !member.is_upstream;
    let clean = if fills { context::clean_schema(&tool.definition) } else { tool.definition.clone() };
    let named = renamed(&clean, &tool.name, shown);
    let Some(description) = route.and_then(|route| route.description.as_deref()) else { return named };
    let mut described = false;
    let replaced = edit::members(&named, |key, _| match key {
        "description" => {
            described = true;
            Edit::Replace(Raw::of(description))
        }
        _ => Edit::Keep,
    });
    if described { replaced } else { edit::append(&replaced, [("description", description)]) }
}

/// A definition whose name is the one clients see.
pub(super) fn renamed(definition: &Raw, name: &Arc<str>, shown: &Arc<str>) -> Raw {
    if name == shown {
        return definition.clone();
    }
    edit::members(definition, |key, _| match key {
        "name" => Edit::Replace(Raw::of(&**shown)),
        _ => Edit::Keep,
    })
}

/// Top-level arguments with a leading `__` that a tool declares for itself, the gateway's own excepted.
pub(super) fn reserved_properties(definition: &Raw) -> Vec<String> {
    let properties = definition.member("inputSchema").and_then(|schema| schema.member("properties"));
    let names = properties
        .map(|properties| properties.members())
        .unwrap_or_default()
        .into_iter()
        .map(|(name, _)| name);
    names.filter(|name| name.starts_with("__") && !context::RESERVED.contains(&name.as_str())).collect()
}

pub(super) fn instructions(offers: &[&Offered]) -> Option<String> {
    let parts: Vec<String> = offers
        .iter()
        .filter_map(|Offered { member, offer }| {
            let text = offer.instructions.as_deref()?;
            Some(format!("## {}\n{}", member.name, cut(text.to_owned(), MAX_INSTRUCTIONS)))
        })
        .collect();
    (!parts.is_empty()).then(|| cut(parts.join("\n\n"), MAX_ALL_INSTRUCTIONS))
}

/// At most `most` bytes of `text`, which then say that there was more.
fn cut(mut text: String, most: usize) -> String {
    const MORE: &str = "…";
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most - MORE.len()));
        text.push_str(MORE);
    }
    text
}
