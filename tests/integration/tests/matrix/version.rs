//! The protocol versions as clients of the matrix speak them, by their names: later ones are greater.

use serde_json::{Value, json};

/// All of them, oldest first.
pub(crate) const VERSIONS: [&str; 5] = ["2024-11-05", MARCH, JUNE, NOVEMBER, MODERN];

/// Audio, annotations, and progress with a message.
pub(crate) const MARCH: &str = "2025-03-26";
/// Elicitation, structured results, links and titles.
pub(crate) const JUNE: &str = "2025-06-18";
/// The last with a handshake.
pub(crate) const NOVEMBER: &str = "2025-11-25";
/// The first without one.
pub(crate) const MODERN: &str = "2026-07-28";

/// What the protocol itself puts into `_meta` begins so.
pub(crate) const PREFIX: &str = "io.modelcontextprotocol/";

/// What a client that can do everything its version has declares.
pub(crate) fn capabilities(version: &str) -> Value {
    let mut declared = json!({"roots": {}, "sampling": {}});
    if version < MODERN {
        declared["roots"]["listChanged"] = json!(true);
    }
    if version >= JUNE {
        declared["elicitation"] = if version < NOVEMBER { json!({}) } else { json!({"form": {}}) };
    }
    declared
}
