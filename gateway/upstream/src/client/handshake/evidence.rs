//! What the words of a server say about its era. Pure.

use moongate_wire::{Era, RpcError, Version, code};

use crate::{
    client::{connection::Greeting, refusal::quoted},
    transport::{Fault, Way},
};

/// What became of the question who a server is.
pub(super) enum Discovered {
    Modern(Greeting),
    NotModern,
}

/// Whether a failure says something about the era of a server, and not only about credentials, load or the way to it.
pub(crate) fn contradicts(fault: &Fault, way: Way) -> bool {
    match fault {
        Fault::Unreached(_) => false,
        // A child that ends did not like what it was asked; a broken HTTP connection has many reasons.
        Fault::Lost(_) => way == Way::Pipe,
        Fault::Status { status, .. } => !is_about_us(*status),
        Fault::SessionGone | Fault::Garbled(_) => true,
    }
}

/// Whether a status is about credentials, load or our host name.
pub(super) fn is_about_us(status: u16) -> bool {
    matches!(status, 300..=399 | 401 | 403 | 407 | 408 | 429 | 500..)
}

/// What an error to `server/discover` means.
pub(super) fn not_discovered(error: &RpcError) -> Result<Discovered, Fault> {
    match error.code {
        // It has other versions; legacy ones are reached in the legacy way.
        code::UNSUPPORTED_VERSION if supported(error).is_none() => {
            let names = versions(error);
            let names = if names.is_empty() { error.message.to_string() } else { names.join(", ") };
            let text = format!("the server speaks none of our protocol versions, but: {names}");
            Err(Fault::Garbled(text.chars().take(256).collect::<String>().into()))
        }
        // Codes that only modern servers have, about what we sent.
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY => {
            Err(Fault::Garbled(format!("the server refused to say who it is: {}", said(error)).into()))
        }
        _ => Ok(Discovered::NotModern),
    }
}

/// The versions that an error names.
fn versions(error: &RpcError) -> Vec<String> {
    let named = error.data.as_ref().and_then(|data| data.member("supported"));
    named.and_then(|named| named.parse().ok()).unwrap_or_default()
}

/// The latest legacy version among those that an error names, if we speak one.
pub(super) fn supported(error: &RpcError) -> Option<Version> {
    let spoken = versions(error).iter().filter_map(|named| Version::parse(named)).collect::<Vec<_>>();
    spoken.into_iter().filter(|version| version.era() == Era::Legacy).max()
}

pub(super) fn as_status(status: u16, error: &RpcError) -> Fault {
    Fault::Status { status, detail: format!(": {}", quoted(&error.message)) }
}

/// An error as it is told to callers.
pub(super) fn said(error: &RpcError) -> String {
    format!("{} ({})", quoted(&error.message), error.code)
}
