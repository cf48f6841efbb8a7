//! The methods a client may call, and the versions that have them.

use crate::{Version, version::Era};

/// A request method we know; anything else is -32601.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `initialize`
    Initialize,
    /// `ping`
    Ping,
    /// `server/discover`
    Discover,
    /// `tools/list`
    ListTools,
    /// `tools/call`
    CallTool,
    /// `prompts/list`
    ListPrompts,
    /// `prompts/get`
    GetPrompt,
    /// `resources/list`
    ListResources,
    /// `resources/templates/list`
    ListTemplates,
    /// `resources/read`
    ReadResource,
    /// `resources/subscribe`
    Subscribe,
    /// `resources/unsubscribe`
    Unsubscribe,
    /// `completion/complete`
    Complete,
    /// `logging/setLevel`
    SetLevel,
    /// `subscriptions/listen`
    Listen,
    /// `tasks/get`, of the extension for tasks
    GetTask,
    /// `tasks/update`, of the extension for tasks
    UpdateTask,
    /// `tasks/cancel`, of the extension for tasks
    CancelTask,
}

impl Method {
    /// Every method.
    pub const ALL: [Self; 18] = [
        Self::Initialize,
        Self::Ping,
        Self::Discover,
        Self::ListTools,
        Self::CallTool,
        Self::ListPrompts,
        Self::GetPrompt,
        Self::ListResources,
        Self::ListTemplates,
        Self::ReadResource,
        Self::Subscribe,
        Self::Unsubscribe,
        Self::Complete,
        Self::SetLevel,
        Self::Listen,
        Self::GetTask,
        Self::UpdateTask,
        Self::CancelTask,
    ];

    /// The method's name on the wire; also the value of the metric label `mcp_method_name`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Ping => "ping",
            Self::Discover => "server/discover",
            Self::ListTools => "tools/list",
            Self::CallTool => "tools/call",
            Self::ListPrompts => "prompts/list",
            Self::GetPrompt => "prompts/get",
            Self::ListResources => "resources/list",
            Self::ListTemplates => "resources/templates/list",
            Self::ReadResource => "resources/read",
            Self::Subscribe => "resources/subscribe",
            Self::Unsubscribe => "resources/unsubscribe",
            Self::Complete => "completion/complete",
            Self::SetLevel => "logging/setLevel",
            Self::Listen => "subscriptions/listen",
            Self::GetTask => "tasks/get",
            Self::UpdateTask => "tasks/update",
            Self::CancelTask => "tasks/cancel",
        }
    }

    /// The method called `name`, if `version` has it.
    pub fn parse(name: &str, version: Version) -> Option<Self> {
        Self::named(name.as_bytes()).filter(|method| method.exists_in(version.era()))
    }

    /// The method called `name`, if some version has it.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"initialize" => Self::Initialize,
            b"ping" => Self::Ping,
            b"server/discover" => Self::Discover,
            b"tools/list" => Self::ListTools,
            b"tools/call" => Self::CallTool,
            b"prompts/list" => Self::ListPrompts,
            b"prompts/get" => Self::GetPrompt,
            b"resources/list" => Self::ListResources,
            b"resources/templates/list" => Self::ListTemplates,
            b"resources/read" => Self::ReadResource,
            b"resources/subscribe" => Self::Subscribe,
            b"resources/unsubscribe" => Self::Unsubscribe,
            b"completion/complete" => Self::Complete,
            b"logging/setLevel" => Self::SetLevel,
            b"subscriptions/listen" => Self::Listen,
            b"tasks/get" => Self::GetTask,
            b"tasks/update" => Self::UpdateTask,
            b"tasks/cancel" => Self::CancelTask,
            _ => return None,
        })
    }

    /// Whether the era has this method. Within an era every version has the same ones of this list.
    pub fn exists_in(self, era: Era) -> bool {
        match self {
            Self::Initialize | Self::Ping | Self::Subscribe | Self::Unsubscribe | Self::SetLevel => {
                era == Era::Legacy
            }
            // The 2025-11-25 methods of the same names are others, which are not offered.
            Self::Discover | Self::Listen | Self::GetTask | Self::UpdateTask | Self::CancelTask => {
                era == Era::Modern
            }
            Self::ListTools
            | Self::CallTool
            | Self::ListPrompts
            | Self::GetPrompt
            | Self::ListResources
            | Self::ListTemplates
            | Self::ReadResource
            | Self::Complete => true,
        }
    }

    /// The parameter that `Mcp-Name` repeats for this method.
    pub fn named_by(self) -> Option<&'static str> {
        match self {
            Self::CallTool | Self::GetPrompt => Some("name"),
            Self::ReadResource => Some("uri"),
            Self::GetTask | Self::UpdateTask | Self::CancelTask => Some("taskId"),
            _ => None,
        }
    }

    /// Whether a modern answer may be `input_required`.
    pub fn may_ask(self) -> bool {
        matches!(self, Self::CallTool | Self::GetPrompt | Self::ReadResource)
    }

    /// Whether a complete modern result must carry `ttlMs` and `cacheScope`.
    pub fn is_cacheable(self) -> bool {
        matches!(
            self,
            Self::Discover
                | Self::ListTools
                | Self::ListPrompts
                | Self::ListResources
                | Self::ListTemplates
                | Self::ReadResource
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_era_has_its_methods_and_no_others() {
        for (name, legacy, modern) in [
            ("initialize", true, false),
            ("ping", true, false),
            ("logging/setLevel", true, false),
            ("resources/subscribe", true, false),
            ("resources/unsubscribe", true, false),
            ("server/discover", false, true),
            ("subscriptions/listen", false, true),
            ("tools/list", true, true),
            ("tools/call", true, true),
            ("prompts/list", true, true),
            ("prompts/get", true, true),
            ("resources/list", true, true),
            ("resources/templates/list", true, true),
            ("resources/read", true, true),
            ("completion/complete", true, true),
            ("tasks/get", false, true),
            ("tasks/update", false, true),
            ("tasks/cancel", false, true),
            ("tasks/result", false, false),
            ("tasks/list", false, false),
            ("Tools/List", false, false),
            ("", false, false),
        ] {
            for version in Version::ALL {
                let expected = if version.era() == Era::Legacy { legacy } else { modern };
                assert_eq!(Method::parse(name, version).is_some(), expected, "{name} {version}");
            }
        }
    }

    #[test]
    fn every_method_reads_back_what_it_writes() {
        for method in Method::ALL {
            assert!(
                Version::ALL
                    .into_iter()
                    .any(|version| Method::parse(method.as_str(), version) == Some(method))
            );
        }
    }
}
