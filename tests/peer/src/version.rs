//! The protocol versions, oldest first, and what each has that others lack.

use clap::ValueEnum;

/// A protocol version. Later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum)]
pub enum Version {
    /// HTTP with two endpoints.
    #[value(name = "2024-11-05")]
    November2024,
    /// Streamable HTTP; the only one with batches.
    #[value(name = "2025-03-26")]
    March2025,
    /// Elicitation and structured results.
    #[value(name = "2025-06-18")]
    June2025,
    /// The last with a handshake.
    #[value(name = "2025-11-25")]
    November2025,
    /// Stateless: every request says who asks.
    #[value(name = "2026-07-28")]
    July2026,
}

impl Version {
    /// All of them, oldest first.
    pub const ALL: [Self; 5] =
        [Self::November2024, Self::March2025, Self::June2025, Self::November2025, Self::July2026];

    /// As it is written on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::November2024 => "2024-11-05",
            Self::March2025 => "2025-03-26",
            Self::June2025 => "2025-06-18",
            Self::November2025 => "2025-11-25",
            Self::July2026 => "2026-07-28",
        }
    }

    /// The version of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == name)
    }

    /// Whether it has no handshake.
    pub fn is_modern(self) -> bool {
        self == Self::July2026
    }

    /// Whether a frame may hold several messages.
    pub fn has_batches(self) -> bool {
        self == Self::March2025
    }

    /// Whether a server may ask a person.
    pub fn has_elicitation(self) -> bool {
        self >= Self::June2025
    }

    /// Whether a legacy client repeats the version in a header once it is agreed.
    pub fn has_version_header(self) -> bool {
        self >= Self::June2025
    }
}
