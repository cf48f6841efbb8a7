//! The five protocol versions and the two eras they fall into.

use serde::{Deserialize, Serialize};

/// A protocol version Moongate speaks, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Version {
    /// The first published version: stdio, and HTTP+SSE with two endpoints.
    #[serde(rename = "2024-11-05")]
    V2024_11_05,
    /// Streamable HTTP, batches, tool annotations, audio.
    #[serde(rename = "2025-03-26")]
    V2025_03_26,
    /// No batches any more; structured output, elicitation, resource links.
    #[serde(rename = "2025-06-18")]
    V2025_06_18,
    /// URL elicitation, icons, priming events.
    #[serde(rename = "2025-11-25")]
    V2025_11_25,
    /// No handshake and no session: every request carries its own envelope.
    #[serde(rename = "2026-07-28")]
    V2026_07_28,
}

/// How a request is served: inside a session, or on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25: `initialize`, then a session.
    Legacy,
    /// 2026-07-28 and later: each request stands alone.
    Modern,
}

impl Version {
    /// Every version, oldest first.
    pub const ALL: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];
    /// What `initialize` is answered with when the client asks for something else.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;
    /// Versions that a request may claim in its envelope.
    pub const MODERN: [Self; 1] = [Self::V2026_07_28];

    /// The version named by `text`, if we speak it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }

    /// The version as it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The era this version belongs to.
    pub fn era(self) -> Era {
        if self < Self::V2026_07_28 { Era::Legacy } else { Era::Modern }
    }

    /// What a legacy `initialize` that asks for `requested` is answered with: the same version when it is a legacy one
    /// we speak, else our latest legacy one. Never an error; the client leaves if it cannot speak the answer.
    pub fn negotiate(requested: &str) -> Self {
        Self::parse(requested).filter(|version| version.era() == Era::Legacy).unwrap_or(Self::LATEST_LEGACY)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation_answers_legacy_versions_only() {
        for (requested, answered) in [
            ("2024-11-05", Version::V2024_11_05),
            ("2025-03-26", Version::V2025_03_26),
            ("2025-06-18", Version::V2025_06_18),
            ("2025-11-25", Version::V2025_11_25),
            ("2026-07-28", Version::V2025_11_25),
            ("1999-01-01", Version::V2025_11_25),
            ("", Version::V2025_11_25),
        ] {
            assert_eq!(Version::negotiate(requested), answered, "{requested}");
        }
    }

    #[test]
    fn every_version_reads_back_what_it_writes() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.as_str()), Some(version));
        }
    }
}
