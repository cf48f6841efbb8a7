//! What a client can do for a server, as far as a server must be told the truth about it.
//!
//! Read from the capabilities a client declared and the version it speaks: what its version does not have it cannot do,
//! whatever it declared. Small enough to be part of a key: callers that differ here must not share what an upstream
//! offers or runs for them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use moongate_wire::{Raw, Version};

use crate::{Ask, Client};

/// The extension by which a modern client says that a call may be answered with a task.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Abilities {
    /// The version it speaks.
    pub version: Version,
    flags: u8,
    /// The hash of the extensions it declared, as it wrote them; the same in every process.
    extensions: u64,
}

const SAMPLING: u8 = 1;
const SAMPLING_TOOLS: u8 = 1 << 1;
const SAMPLING_CONTEXT: u8 = 1 << 2;
const FORMS: u8 = 1 << 3;
const URLS: u8 = 1 << 4;
const ROOTS: u8 = 1 << 5;
const EXTENSIONS: u8 = 1 << 6;

impl Abilities {
    /// What `client` can do. Reads its capabilities once, without building them.
    pub fn of(client: &Client) -> Self {
        let version = client.version;
        let (mut flags, mut extensions) = (0, 0);
        for (name, value) in client.capabilities.members() {
            match name.as_str() {
                _ if value.is_null() => {}
                "sampling" => flags |= sampling(&value, version),
                "elicitation" => flags |= elicitation(&value, version),
                "roots" => flags |= ROOTS,
                "extensions" if value.as_bytes() != b"{}" => {
                    let mut hasher = DefaultHasher::new();
                    value.as_bytes().hash(&mut hasher);
                    extensions = hasher.finish();
                    flags |= EXTENSIONS;
                }
                _ => {}
            }
        }
        Self { version, flags, extensions }
    }

    /// What a client of `version` can do that declared nothing.
    pub fn none(version: Version) -> Self {
        Self { version, flags: 0, extensions: 0 }
    }

    /// Whether its model can be asked.
    pub fn samples(self) -> bool {
        self.has(SAMPLING)
    }

    /// Whether a question to its model may bring tools.
    pub fn samples_with_tools(self) -> bool {
        self.has(SAMPLING_TOOLS)
    }

    /// Whether a question to its model may ask for context of other servers.
    pub fn samples_with_context(self) -> bool {
        self.has(SAMPLING_CONTEXT)
    }

    /// Whether its user can be shown a form.
    pub fn shows_forms(self) -> bool {
        self.has(FORMS)
    }

    /// Whether its user can be sent to a page.
    pub fn opens_urls(self) -> bool {
        self.has(URLS)
    }

    /// Whether it says which directories are open.
    pub fn tells_roots(self) -> bool {
        self.has(ROOTS)
    }

    /// Whether it declared any extension.
    pub fn has_extensions(self) -> bool {
        self.has(EXTENSIONS)
    }

    /// The capability that `question` needs and this client lacks, such as `sampling` or `elicitation.url`.
    pub fn lacks(self, question: &Ask) -> Option<&'static str> {
        let able = match question {
            Ask::Sample { .. } => self.samples(),
            Ask::Roots => self.tells_roots(),
            // A version that has forms only is not asked for more: it would not know how to declare it, and its user's
            // answer is taken to be no.
            Ask::Elicit { .. } if self.version < Version::V2025_11_25 => self.shows_forms(),
            Ask::Elicit { params } if is_url(params) => {
                return (!self.opens_urls()).then_some("elicitation.url");
            }
            Ask::Elicit { .. } => self.shows_forms(),
        };
        (!able).then_some(question.capability())
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Whether the parameters of `elicitation/create` send the user to a page.
pub fn is_url(params: &Raw) -> bool {
    params.may_name("url") && params.member("mode").is_some_and(|mode| mode.is_text("url"))
}

fn sampling(declared: &Raw, version: Version) -> u8 {
    if version < Version::V2025_11_25 {
        return SAMPLING;
    }
    SAMPLING | flag(declared, "tools", SAMPLING_TOOLS) | flag(declared, "context", SAMPLING_CONTEXT)
}

/// Forms came first: who declares nothing more than elicitation means those.
fn elicitation(declared: &Raw, version: Version) -> u8 {
    match version {
        Version::V2024_11_05 | Version::V2025_03_26 => 0,
        Version::V2025_06_18 => FORMS,
        Version::V2025_11_25 | Version::V2026_07_28 => match flag(declared, "url", URLS) {
            0 => FORMS,
            urls => urls | flag(declared, "form", FORMS),
        },
    }
}

fn flag(declared: &Raw, name: &str, flag: u8) -> u8 {
    if declared.member(name).is_some_and(|value| !value.is_null()) { flag } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn abilities(version: Version, capabilities: Value) -> Abilities {
        Abilities::of(&Client { capabilities: capabilities.into(), ..Client::bare(version) })
    }

    #[test]
    fn what_a_version_does_not_have_its_client_cannot_do() {
        let all = || json!({"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}, "roots": {}});
        for (version, forms, urls, tools) in [
            (Version::V2024_11_05, false, false, false),
            (Version::V2025_03_26, false, false, false),
            (Version::V2025_06_18, true, false, false),
            (Version::V2025_11_25, true, true, true),
            (Version::V2026_07_28, true, true, true),
        ] {
            let able = abilities(version, all());
            assert_eq!((able.shows_forms(), able.opens_urls()), (forms, urls), "{version}");
            assert_eq!((able.samples(), able.samples_with_tools()), (true, tools), "{version}");
            assert!(able.tells_roots() && !able.samples_with_context(), "{version}");
        }
    }

    #[test]
    fn an_empty_elicitation_means_forms_and_null_means_nothing() {
        let modern = |value| abilities(Version::V2026_07_28, json!({ "elicitation": value }));
        for (declared, forms, urls) in [
            (json!({}), true, false),
            (json!({"form": {}}), true, false),
            (json!({"url": {}}), false, true),
            (json!({"form": {}, "url": {}}), true, true),
            (json!({"url": null}), true, false),
            (json!(null), false, false),
        ] {
            let able = modern(declared.clone());
            assert_eq!((able.shows_forms(), able.opens_urls()), (forms, urls), "{declared}");
        }
    }

    #[test]
    fn a_question_needs_what_its_mode_needs() {
        let form = Ask::form("?", &Raw::empty_object());
        let url = Ask::Elicit { params: json!({"mode": "url", "url": "https://x", "message": "?"}).into() };
        let (old, new) = (Version::V2025_06_18, Version::V2025_11_25);
        let elicits = || json!({"elicitation": {}});
        assert_eq!(abilities(new, elicits()).lacks(&form), None);
        assert_eq!(abilities(new, elicits()).lacks(&url), Some("elicitation.url"));
        assert_eq!(abilities(new, json!({"elicitation": {"url": {}}})).lacks(&url), None);
        assert_eq!(abilities(old, elicits()).lacks(&url), None, "its user is asked nothing and says no");
        assert_eq!(abilities(old, json!({})).lacks(&url), Some("elicitation"));
        assert_eq!(abilities(Version::V2025_03_26, elicits()).lacks(&form), Some("elicitation"));
        assert_eq!(abilities(new, json!({})).lacks(&Ask::Roots), Some("roots"));
    }

    #[test]
    fn only_what_matters_tells_clients_apart() {
        let modern = |value| abilities(Version::V2026_07_28, value);
        assert_eq!(modern(json!({})), modern(json!({"experimental": {"x": 1}, "extensions": {}})));
        assert_ne!(modern(json!({})), modern(json!({"roots": {}})));
        assert_ne!(modern(json!({"extensions": {"a/b": {}}})), modern(json!({"extensions": {"a/c": {}}})));
        assert_ne!(modern(json!({})), abilities(Version::V2025_11_25, json!({})));
    }
}
