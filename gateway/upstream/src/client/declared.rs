//! What a client can do for a server behind the gateway: the capabilities we declare on its behalf.
//!
//! Never more than the client declared and its version has, so that no server asks for what cannot be answered.

use std::collections::BTreeMap;

use moongate_core::{Ask, CallError, Client, Raw, TASKS, abilities::is_url};
use moongate_wire::Era;
use serde_json::{Map, Value, json};

/// The extension for interactive views, which is passed on as the client declared it.
const UI: &str = "io.modelcontextprotocol/ui";

/// Extensions that the gateway passes on, or not, by rules of their own.
const KNOWN: [&str; 2] = [UI, TASKS];
/// Other extensions that one client may have a server told of, and their bytes; who declares more has none passed on.
const MAX_OTHERS: usize = 32;
const MAX_OTHER_BYTES: usize = 16 << 10;

/// The extensions that a client declared and the gateway does not know, as it wrote them. A legacy client could not be given
/// what comes of them.
pub(crate) fn other_extensions(client: &Client) -> BTreeMap<String, Raw> {
    if client.version.era() == Era::Legacy {
        return BTreeMap::new();
    }
    let declared = client.capability("extensions").map(|all| all.members()).unwrap_or_default();
    let others = declared.into_iter().filter(|(name, _)| !KNOWN.contains(&&**name));
    let others: BTreeMap<_, _> = others.collect();
    let bytes: usize = others.iter().map(|(name, settings)| name.len() + settings.len()).sum();
    if others.len() > MAX_OTHERS || bytes > MAX_OTHER_BYTES { BTreeMap::new() } else { others }
}

/// What one client can do. Equal abilities may share a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability of the protocol")]
pub(crate) struct Declared {
    /// `sampling`
    pub(crate) sampling: bool,
    /// `sampling.tools`
    pub(crate) sampling_tools: bool,
    /// `sampling.context`
    pub(crate) sampling_context: bool,
    /// `elicitation`, by form
    pub(crate) form: bool,
    /// `elicitation.url`
    pub(crate) url: bool,
    /// `roots`
    pub(crate) roots: bool,
    /// The settings of the extension for interactive views, if the client has it.
    pub(crate) ui: Option<Raw>,
}

impl Declared {
    /// What `client` can do.
    pub(crate) fn of(client: &Client) -> Self {
        // As most clients have it, with every call.
        if client.capabilities.as_bytes() == b"{}" {
            return Self::default();
        }
        let able = client.abilities();
        let extensions = able.has_extensions().then(|| client.capability("extensions")).flatten();
        Self {
            sampling: able.samples(),
            sampling_tools: able.samples_with_tools(),
            sampling_context: able.samples_with_context(),
            form: able.shows_forms(),
            url: able.opens_urls(),
            roots: able.tells_roots(),
            ui: extensions.and_then(|all| all.member(UI)).map(|settings| settings.detached()),
        }
    }

    /// Whether `question` can be answered.
    pub(crate) fn can(&self, question: &Ask) -> bool {
        match question {
            Ask::Elicit { params } if is_url(params) => self.url,
            Ask::Elicit { .. } => self.form,
            Ask::Sample { .. } => self.sampling,
            Ask::Roots => self.roots,
        }
    }

    /// The same as `ClientCapabilities`.
    pub(crate) fn capabilities(&self) -> Raw {
        // As most clients have it, with every call.
        if *self == Self::default() {
            return Raw::empty_object();
        }
        let mut all = Map::new();
        if self.sampling {
            let mut inner = Map::new();
            inner.extend(self.sampling_tools.then(|| ("tools".to_owned(), json!({}))));
            inner.extend(self.sampling_context.then(|| ("context".to_owned(), json!({}))));
            all.insert("sampling".to_owned(), Value::Object(inner));
        }
        let elicitation = match (self.form, self.url) {
            // Servers of 2025-06-18 know no modes, and later ones take an empty object for this one.
            (true, false) => Some(json!({})),
            (true, true) => Some(json!({"form": {}, "url": {}})),
            (false, true) => Some(json!({"url": {}})),
            (false, false) => None,
        };
        all.extend(elicitation.map(|modes| ("elicitation".to_owned(), modes)));
        all.extend(self.roots.then(|| ("roots".to_owned(), json!({}))));
        let ui = self.ui.as_ref().and_then(|settings| settings.parse::<Value>().ok());
        all.extend(ui.map(|settings| ("extensions".to_owned(), json!({UI: settings}))));
        Raw::of(&all)
    }

    /// The same with further extensions.
    pub(crate) fn capabilities_with(&self, others: BTreeMap<String, Raw>) -> Raw {
        let own = self.capabilities();
        if others.is_empty() {
            return own;
        }
        let mut extensions = others;
        extensions.extend(own.member("extensions").map(|known| known.members()).unwrap_or_default());
        let mut all: BTreeMap<_, _> = own.members().into_iter().collect();
        all.insert("extensions".to_owned(), Raw::of(&extensions));
        Raw::of(&all)
    }
}

/// The client did not declare what `question` needs.
pub(crate) fn missing(question: &Ask) -> CallError {
    match question {
        Ask::Elicit { params } if is_url(params) => CallError::missing_capability("elicitation.url"),
        _ => CallError::missing_capability(question.capability()),
    }
}

#[cfg(test)]
mod tests {
    use moongate_core::Version;

    use super::*;

    #[test]
    fn a_server_is_told_what_the_client_can_do_and_no_more() {
        let (a, b) = (Version::V2024_11_05, Version::V2025_06_18);
        let (d, e) = (Version::V2025_11_25, Version::V2026_07_28);
        for (version, declared, told) in [
            (a, json!({}), json!({})),
            (
                a,
                json!({"sampling": {}, "elicitation": {}, "roots": {"listChanged": true}}),
                json!({"sampling": {}, "roots": {}}),
            ),
            (b, json!({"elicitation": {}, "sampling": null}), json!({"elicitation": {}})),
            (b, json!({"elicitation": {"url": {}}}), json!({"elicitation": {}})),
            (b, json!({"sampling": {"tools": {}}}), json!({"sampling": {}})),
            (
                d,
                json!({"sampling": {"tools": {}, "context": {}}}),
                json!({"sampling": {"tools": {}, "context": {}}}),
            ),
            (
                d,
                json!({"elicitation": {"form": {}, "url": {}}}),
                json!({"elicitation": {"form": {}, "url": {}}}),
            ),
            (d, json!({"elicitation": {"url": {}}, "tasks": {}}), json!({"elicitation": {"url": {}}})),
            (
                e,
                json!({"extensions": {UI: {"mimeTypes": ["text/html"]}, "x/y": {}}}),
                json!({"extensions": {UI: {"mimeTypes": ["text/html"]}}}),
            ),
        ] {
            let client = Client { capabilities: Raw::of(&declared), ..Client::bare(version) };
            let abilities = Declared::of(&client);
            assert_eq!(abilities.capabilities().parse::<Value>().unwrap(), told, "{version} {declared}");
        }
    }

    #[test]
    fn other_extensions_of_a_modern_client_are_told_as_it_wrote_them_and_not_too_many() {
        let told = |version, extensions: Value| {
            let declared = Raw::of(&json!({"roots": {}, "extensions": extensions}));
            let client = Client { capabilities: declared, ..Client::bare(version) };
            let all = Declared::of(&client).capabilities_with(other_extensions(&client));
            all.parse::<Value>().unwrap()
        };
        let (modern, legacy) = (Version::V2026_07_28, Version::V2025_11_25);
        let both = json!({UI: {"a": 1}, "x/\"y": {"n": 1.50}, "io.modelcontextprotocol/tasks": {}});
        assert_eq!(
            told(modern, both.clone()),
            json!({"roots": {}, "extensions": {UI: {"a": 1}, "x/\"y": {"n": 1.50}}})
        );
        assert_eq!(told(legacy, both), json!({"roots": {}, "extensions": {UI: {"a": 1}}}));
        let many: Map<_, _> = (0..=MAX_OTHERS).map(|n| (format!("x/{n}"), json!({}))).collect();
        assert_eq!(told(modern, many.into()), json!({"roots": {}}));
        assert_eq!(told(modern, json!({"x/y": "z".repeat(MAX_OTHER_BYTES)})), json!({"roots": {}}));
    }
}
