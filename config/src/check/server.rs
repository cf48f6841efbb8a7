//! The gateway listener.

use super::{Check, set};
use crate::{
    load::read::At,
    model::server::{RawServer, RawTls, Server, Tls},
    units::Size,
};

/// Less than this could not hold a tool call with its envelope; more could not be held in memory for many callers.
const BODY: std::ops::RangeInclusive<Size> = Size(1 << 10)..=Size(1 << 30);

pub(super) fn server(raw: RawServer, check: &mut Check<'_>) -> Server {
    let mut server = Server::default();
    set(&mut server.listen, raw.listen);
    set(&mut server.allow_insecure, raw.allow_insecure);
    server.public_url = raw.public_url.map(|url| url.value);
    server.trusted_proxies =
        raw.trusted_proxies.into_iter().flat_map(|list| list.value).map(|network| network.value.0).collect();
    server.tls = raw.tls.and_then(|raw| tls(raw, check));
    if let Some(At { value, place }) = raw.max_body {
        match usize::try_from(value.0) {
            Ok(bytes) if BODY.contains(&value) => server.max_body = bytes,
            _ => {
                let expected = format!("a size from {} to {}", BODY.start(), BODY.end());
                check.conflict(&place, format!("{} is too small or too large", place.found), expected);
            }
        }
    }
    server
}

fn tls(raw: At<RawTls>, check: &mut Check<'_>) -> Option<Tls> {
    let At { value, place } = raw;
    if value.cert.is_none() {
        check.missing(&place, "cert");
    }
    if value.key.is_none() {
        check.missing(&place, "key");
    }
    Some(Tls { cert: value.cert?.value, key: value.key?.value })
}
