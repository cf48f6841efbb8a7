//! The admin listener.

use std::ops::RangeInclusive;

use super::server::Listen;
use crate::load::declare::section;

/// The ports tried in turn when none is configured, beside those of the gateway.
const ADMIN_PORTS: RangeInclusive<u16> = 3860..=3869;

section! {
    /// The admin listener: metrics and health.
    #[schemars(rename = "Admin")]
    struct RawAdmin {
        /// Whether there is an admin listener.
        #[schemars(extend("default" = true))]
        enabled: bool,
        /// Address and port. Absent: port 3860 of this machine, or the first free one up to 3869.
        listen: Listen,
    }
}

/// Metrics and health, apart from the tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Whether there is an admin listener at all.
    pub enabled: bool,
    /// Where it listens.
    pub listen: Listen,
}

impl Default for Admin {
    fn default() -> Self {
        Self { enabled: true, listen: Listen::search(ADMIN_PORTS) }
    }
}
