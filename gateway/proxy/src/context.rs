//! Context fields: which session, assistant and thread a call is for, and how that travels in arguments.
//!
//! [`strip`] takes out what a caller put there, so that nobody can forge a field; [`resolve`] finds the ids in the
//! sources that may name them; [`inject`] writes them for a backend that asks for arguments. `strip` undoes `inject`.
//! [`clean_schema`] keeps the fields out of what a model sees. All four are pure: warning about a defaulted session,
//! and deciding who may claim ids, are left to the caller.

use std::sync::Arc;

use moongate_config as config;
use moongate_core::{ContextIds, Raw, principal::Kind};
use moongate_wire::{
    Meta,
    edit::{self, Edit},
    params::MARK,
    scan, write,
};

/// The spellings that always belong to the gateway; of each pair the first wins.
pub const RESERVED: [&str; 6] =
    ["__sessionId", "__session_id", "__assistantId", "__assistant_id", "__threadId", "__thread_id"];

/// Session, assistant and thread, in this order, as far as one source names them.
pub type Ids = [Option<Arc<str>>; 3];

/// The ids a caller wrote into its arguments. They count only for callers that hold `context.write`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// From `__sessionId` or its alias.
    pub session: Option<Arc<str>>,
    /// From `__assistantId` or its alias.
    pub assistant: Option<Arc<str>>,
    /// From `__threadId` or its alias.
    pub thread: Option<Arc<str>>,
}

/// Where ids may come from, the strongest first.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The arguments, for callers that may write context.
    pub claimed: Option<&'a Claimed>,
    /// Signed claims of the caller's token.
    pub token: Option<&'a Ids>,
    /// `X-Session-Id`, `X-Assistant-Id`, `X-Thread-Id`; believed as far as the caller's kind is trusted.
    pub headers: &'a Ids,
    /// The request's `_meta`, believed likewise.
    pub meta: Meta<'a>,
    /// The legacy session or the stdio connection.
    pub transport: Option<&'a Arc<str>>,
}

/// The ids of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The ids.
    pub ids: ContextIds,
    /// No source named a session, so it is the default one, which deserves a warning.
    pub defaulted: bool,
}

/// Removes context fields from a caller's arguments and tells which ids were in them.
///
/// The six reserved spellings always go; any other top-level name that begins with `__` goes unless the tool's own
/// schema has it (`declared`). The rest stays byte for byte; with nothing to remove it is not even copied. `marked` says
/// whether there may be such a name, which the scan of a frame knows; whoever does not know says yes.
pub fn strip(arguments: Raw, marked: bool, declared: &dyn Fn(&str) -> bool) -> (Raw, Claimed) {
    if marked { strip_marked(&arguments, declared) } else { (arguments, Claimed::default()) }
}

fn strip_marked(arguments: &Raw, declared: &dyn Fn(&str) -> bool) -> (Raw, Claimed) {
    let mut found: [Option<Arc<str>>; RESERVED.len()] = Default::default();
    let stripped = edit::remove(arguments, |name, value| {
        if !name.starts_with(MARK) {
            return false;
        }
        let reserved = RESERVED.iter().position(|reserved| *reserved == name);
        if let Some(slot) = reserved.and_then(|at| found.get_mut(at)) {
            *slot = value.text().and_then(|text| id_from(&text));
            return true;
        }
        !declared(name)
    });
    let [session, session_alias, assistant, assistant_alias, thread, thread_alias] = found;
    let claimed = Claimed {
        session: session.or(session_alias),
        assistant: assistant.or(assistant_alias),
        thread: thread.or(thread_alias),
    };
    (stripped, claimed)
}

/// Adds the ids to arguments that went through [`strip`], after the caller's own members.
pub fn inject(arguments: &Raw, ids: &ContextIds) -> Raw {
    // As they are written, from the end of the member before up to the id.
    const SESSION: &str = r#","__sessionId":""#;
    const ASSISTANT: &str = r#"","__assistantId":""#;
    const THREAD: &str = r#"","__threadId":""#;
    let room = |start: &str, id: &Option<Arc<str>>| id.as_ref().map_or(0, |id| start.len() + id.len());
    let others = room(ASSISTANT, &ids.assistant) + room(THREAD, &ids.thread);
    edit::append_written(arguments, SESSION.len() + ids.session.len() + others + 1, |members| {
        members.raw(SESSION).text(&ids.session);
        if let Some(id) = &ids.assistant {
            members.raw(ASSISTANT).text(id);
        }
        if let Some(id) = &ids.thread {
            members.raw(THREAD).text(id);
        }
        members.raw("\"");
    })
}

/// Finds each id in the first source that names it.
pub fn resolve(sources: &Sources<'_>, kind: Kind, config: &config::Context) -> Resolved {
    let trust = trust(config.trust, kind);
    let claimed = sources.claimed.map(|claimed| [&claimed.session, &claimed.assistant, &claimed.thread]);
    let token = sources.token.map(Ids::each_ref);
    let headers = trust.headers.then(|| sources.headers.each_ref());
    let meta = if trust.meta { sources.meta.context_ids() } else { [const { None }; 3] };
    let [named, assistant, thread] = std::array::from_fn(|which| {
        let claimed = || claimed?.get(which).copied().cloned().flatten();
        let said =
            || [token, headers].into_iter().flatten().find_map(|ids| usable(ids.get(which)?.as_ref()?));
        claimed().or_else(said).or_else(|| id_from(meta.get(which)?.as_ref()?))
    });

    let default = || Arc::clone(&config.default_session);
    let session = named.clone().or_else(|| sources.transport.cloned());
    let durable = match config.durable_session {
        config::DurableSession::Named => named,
        config::DurableSession::Transport => session.clone(),
    };
    let defaulted = session.is_none();
    let session = session.unwrap_or_else(default);
    let durable_session = durable.unwrap_or_else(default);
    Resolved { ids: ContextIds { session, durable_session, assistant, thread }, defaulted }
}

fn trust(trust: config::Trust, kind: Kind) -> config::Sources {
    match kind {
        Kind::Local => trust.local,
        Kind::Issued => trust.issued,
        Kind::Anonymous => trust.anonymous,
        // What such a caller may say comes signed, in its token or certificate.
        Kind::Jwt | Kind::Mtls => config::Sources::default(),
    }
}

/// An id as by [`id_from`]. Most come as they are used, and are shared.
fn usable(id: &Arc<str>) -> Option<Arc<str>> {
    let trimmed = id.trim();
    if trimmed.len() == id.len() && !id.is_empty() { Some(Arc::clone(id)) } else { id_from(trimmed) }
}

/// The longest id: it becomes a key in memory, a column on disk and a field in every log line.
pub const MAX_ID: usize = 256;

/// The field whose id cannot be used, if one cannot: too long, or with characters that forge log lines.
pub fn unusable(ids: &ContextIds) -> Option<&'static str> {
    let controls = |id: &str| {
        // All of them, not up to the first: that goes many at a time.
        let ascii = id.bytes().fold(false, |found, byte| found | byte.is_ascii_control());
        ascii || (!id.is_ascii() && id.chars().any(char::is_control))
    };
    let bad = |id: &str| id.len() > MAX_ID || controls(id);
    let fields = [
        ("session", Some(&ids.session)),
        ("assistant", ids.assistant.as_ref()),
        ("thread", ids.thread.as_ref()),
    ];
    fields.into_iter().find_map(|(name, id)| id.is_some_and(|id| bad(id)).then_some(name))
}

/// An id without blanks around it, unless nothing is left.
fn id_from(text: &str) -> Option<Arc<str>> {
    Some(text.trim()).filter(|id| !id.is_empty()).map(Arc::from)
}

/// A tool's definition without the properties of its input schema that begin with `__`, on every level and also in
/// `required`. A definition that has none is returned as it is.
pub fn clean_schema(definition: &Raw) -> Raw {
    if !definition.may_name(MARK) {
        return definition.clone();
    }
    edit::members(definition, |name, value| match name {
        "inputSchema" => replaced(value, clean(value, scan::MAX_DEPTH)),
        _ => Edit::Keep,
    })
}

/// Cleans one schema, or each of an array of schemas. What is nested deeper than any sane schema stays as it is.
fn clean(schema: &Raw, depth: usize) -> Raw {
    let Some(depth) = depth.checked_sub(1) else { return schema.clone() };
    if !schema.is_object() {
        let Ok(schemas) = schema.parse::<Vec<Raw>>() else { return schema.clone() };
        let cleaned: Vec<_> = schemas.iter().map(|schema| clean(schema, depth)).collect();
        return if cleaned == schemas { schema.clone() } else { write::array(&cleaned) };
    }
    edit::members(schema, |keyword, value| match keyword {
        "required" => replaced(value, unmarked(value)),
        "properties" | "dependentRequired" | "dependentSchemas" | "dependencies" => {
            replaced(value, clean_named(value, true, depth))
        }
        "patternProperties" | "$defs" | "definitions" => replaced(value, clean_named(value, false, depth)),
        // Data, not schemas.
        "const" | "default" | "enum" | "example" | "examples" => Edit::Keep,
        _ => replaced(value, clean(value, depth)),
    })
}

/// Cleans schemas, or lists of names, that are found under names; `properties` says whether those are property names.
fn clean_named(schemas: &Raw, properties: bool, depth: usize) -> Raw {
    edit::members(schemas, |name, value| {
        if properties && name.starts_with(MARK) {
            return Edit::Drop;
        }
        replaced(value, if value.is_object() { clean(value, depth) } else { unmarked(value) })
    })
}

/// A list of property names without the marked ones.
fn unmarked(names: &Raw) -> Raw {
    let Ok(all) = names.parse::<Vec<String>>() else { return names.clone() };
    if all.iter().any(|name| name.starts_with(MARK)) {
        return Raw::of(&all.iter().filter(|name| !name.starts_with(MARK)).collect::<Vec<_>>());
    }
    names.clone()
}

fn replaced(old: &Raw, new: Raw) -> Edit {
    if new == *old { Edit::Keep } else { Edit::Replace(new) }
}

#[cfg(test)]
mod tests;
