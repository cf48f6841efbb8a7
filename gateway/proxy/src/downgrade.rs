//! What newer versions say, in the words of older ones.
//!
//! Pure functions of a text and a version, used on what upstreams list, answer and ask. Where nothing has to change the
//! text is passed on as it is, without copying it; a search for the one word that matters comes first.
//!
//! | version      | knows first                                                                    |
//! |--------------|--------------------------------------------------------------------------------|
//! | 2025-03-26   | tool annotations, audio, progress with a message                               |
//! | 2025-06-18   | titles, structured output (objects only), resource links, elicitation by forms |
//! | 2025-11-25   | elicitation by pages and choices with titles, sampling with tools, `execution` |
//! | 2026-07-28   | structured output of any type; no `execution`, no ids of questions             |

use moongate_wire::{Era, Version};

pub mod content;
pub mod definition;
pub mod question;

/// How much of a tool's definition a version understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Face {
    /// 2024-11-05: name, description, input.
    First,
    /// 2025-03-26: annotations as well.
    Annotated,
    /// 2025-06-18 and 2025-11-25: titles, and output that is an object.
    Structured,
    /// 2026-07-28: everything, but for what it dropped.
    Modern,
}

impl Face {
    /// Every face, oldest first.
    pub const ALL: [Self; 4] = [Self::First, Self::Annotated, Self::Structured, Self::Modern];

    /// The face a client of `version` is shown.
    pub fn of(version: Version) -> Self {
        match version {
            Version::V2024_11_05 => Self::First,
            Version::V2025_03_26 => Self::Annotated,
            Version::V2025_06_18 | Version::V2025_11_25 => Self::Structured,
            Version::V2026_07_28 => Self::Modern,
        }
    }
}

/// Whether structured output must be an object to be understood.
fn objects_only(version: Version) -> bool {
    version.era() == Era::Legacy
}
