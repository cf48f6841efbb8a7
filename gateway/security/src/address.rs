//! Where a request really comes from.
//!
//! Behind a balancer the peer of a connection is the balancer. Only proxies that the configuration trusts are believed
//! when they say who is behind them; anybody else could write any address into a header.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use crate::headers::{Headers, text};

const FORWARDED_FOR: &str = "x-forwarded-for";

/// What proxies add to a request, each to say for whom they sent it.
const FORWARDED: [&str; 4] = ["forwarded", FORWARDED_FOR, "x-real-ip", "via"];

/// Whether a proxy says that it sent this for somebody else.
pub(crate) fn is_forwarded(headers: &Headers) -> bool {
    FORWARDED.iter().any(|name| headers.contains(name))
}

/// The client's address: the rightmost address of `X-Forwarded-For` that is not a trusted proxy's, if the peer is one.
///
/// Each proxy appends the address it saw, so the header is read from its end for as long as its writers are trusted. An
/// entry there that is no address leaves the peer as the answer. When all are trusted, the first one is the client.
pub fn client_address(peer: IpAddr, headers: &Headers, trusted: &[IpNet]) -> IpAddr {
    let peer = peer.to_canonical();
    let is_trusted = |address: IpAddr| trusted.iter().any(|net| net.contains(&address));
    if !is_trusted(peer) {
        return peer;
    }
    let mut client = peer;
    for value in headers.get_all(FORWARDED_FOR).rev() {
        let Some(text) = text(value) else { return peer };
        for entry in text.rsplit(',') {
            let Some(address) = parse(entry.trim()) else { return peer };
            if !is_trusted(address) {
                return address;
            }
            client = address;
        }
    }
    client
}

/// An address as proxies write it: bare, in brackets, or with a port.
fn parse(entry: &str) -> Option<IpAddr> {
    let bracketed = || entry.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    let with_port = || entry.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    let address = entry.parse().ok().or_else(bracketed).or_else(with_port)?;
    Some(address.to_canonical())
}

/// The address that counts for limits: of an IPv6 address the network of 64 bits, which one customer has whole.
pub fn fold(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn forwarded(values: &[&str]) -> Headers {
        values.iter().map(|value| (FORWARDED_FOR, value.as_bytes())).collect()
    }

    #[test]
    fn the_rightmost_untrusted_address_is_the_client() {
        let trusted = nets(&["10.0.0.0/8", "fd00::/8"]);
        for (peer, headers, expected) in [
            ("10.0.0.1", &[][..], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["1.1.1.1, 203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["1.1.1.1, 203.0.113.7, 10.9.9.9"], "203.0.113.7"),
            ("10.0.0.1", &["1.1.1.1", "203.0.113.7", "10.9.9.9"], "203.0.113.7"),
            ("10.0.0.1", &["203.0.113.7:4711"], "203.0.113.7"),
            ("10.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
            ("10.0.0.1", &["::ffff:203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
            ("::ffff:10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            ("fd00::1", &["203.0.113.7"], "203.0.113.7"),
            // Garbage where a trusted proxy should have written an address.
            ("10.0.0.1", &["203.0.113.7, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.7,"], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.7, 10.9.9.9.9"], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.7", "bad ä"], "10.0.0.1"),
            // Garbage that the client itself sent does not matter.
            ("10.0.0.1", &["<script>, 203.0.113.7"], "203.0.113.7"),
            // Nobody else is believed.
            ("203.0.113.9", &["127.0.0.1"], "203.0.113.9"),
            ("127.0.0.1", &["203.0.113.7"], "127.0.0.1"),
        ] {
            let found = client_address(peer.parse().unwrap(), &forwarded(headers), &trusted);
            assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{peer} {headers:?}");
        }
    }

    #[test]
    fn limits_count_whole_networks_of_ipv6() {
        for (address, expected) in [
            ("203.0.113.7", "203.0.113.7"),
            ("::ffff:203.0.113.7", "203.0.113.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::"),
        ] {
            assert_eq!(fold(address.parse().unwrap()), expected.parse::<IpAddr>().unwrap(), "{address}");
        }
    }

    proptest! {
        #[test]
        fn no_header_moves_an_untrusted_peer(text in "[ -~]{0,60}", peer in any::<[u8; 4]>()) {
            let peer = IpAddr::from(peer);
            let trusted = nets(&["10.0.0.0/8"]);
            prop_assume!(!trusted[0].contains(&peer));
            prop_assert_eq!(client_address(peer, &forwarded(&[&text]), &trusted), peer);
        }

        #[test]
        fn what_a_client_prepends_never_counts(lie in "[ -~]{0,40}", client in any::<[u8; 4]>()) {
            let client = IpAddr::from(client);
            let trusted = nets(&["10.0.0.0/8"]);
            prop_assume!(!trusted[0].contains(&client));
            let headers = forwarded(&[&format!("{lie}, {client}, 10.0.0.9")]);
            prop_assert_eq!(client_address(IpAddr::from([10, 0, 0, 1]), &headers, &trusted), client);
        }
    }
}
