//! What a client may send in each version: requests and notifications by name.
//!
//! Tasks are left out of all: a client may use them only where the server declares them, which `tasks` knows.

use crate::Version::{self, July2026, November2024, November2025};

/// Each request with the first and the last version that has it.
const REQUESTS: [(&str, Version, Version); 15] = [
    ("initialize", November2024, November2025),
    ("ping", November2024, November2025),
    ("server/discover", July2026, July2026),
    ("tools/list", November2024, July2026),
    ("tools/call", November2024, July2026),
    ("prompts/list", November2024, July2026),
    ("prompts/get", November2024, July2026),
    ("resources/list", November2024, July2026),
    ("resources/templates/list", November2024, July2026),
    ("resources/read", November2024, July2026),
    ("resources/subscribe", November2024, November2025),
    ("resources/unsubscribe", November2024, November2025),
    ("subscriptions/listen", July2026, July2026),
    ("completion/complete", November2024, July2026),
    ("logging/setLevel", November2024, November2025),
];

const NOTIFICATIONS: [(&str, Version, Version); 4] = [
    ("notifications/initialized", November2024, November2025),
    ("notifications/cancelled", November2024, July2026),
    ("notifications/progress", November2024, November2025),
    ("notifications/roots/list_changed", November2024, November2025),
];

/// Whether a client of `version` may send this request.
pub(crate) fn has_request(version: Version, method: &str) -> bool {
    has(&REQUESTS, version, method)
}

/// Whether a client of `version` may send this notification.
pub(crate) fn has_notification(version: Version, method: &str) -> bool {
    has(&NOTIFICATIONS, version, method)
}

fn has(table: &[(&str, Version, Version)], version: Version, method: &str) -> bool {
    table.iter().any(|(name, first, last)| *name == method && (*first..=*last).contains(&version))
}
