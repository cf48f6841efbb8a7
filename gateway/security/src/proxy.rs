//! The PROXY protocol, version 2: who is behind a balancer that forwards bytes and not requests.
//!
//! A pure function over the first bytes of a connection. Whether the peer may send such a preface at all is decided by
//! the edge, from the trusted proxies; without that, anybody could claim any address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family and protocol, length.
const HEAD: usize = 16;
/// Longest address block and extensions that are read. Extensions may carry a certificate's names, not a whole chain.
const MAX_LENGTH: usize = 4096;

/// A complete preface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preface {
    /// The client; `None` when the balancer speaks for itself (a health check) or names no internet address.
    pub client: Option<SocketAddr>,
    /// How many bytes it took: what follows is the client's.
    pub consumed: usize,
}

/// Why the bytes are no preface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// They do not begin with the signature.
    #[error("the connection does not begin with a PROXY v2 preface")]
    Signature,
    /// Another version, or a command that does not exist.
    #[error("the PROXY preface has an unknown version or command")]
    Version,
    /// It is longer than anything sensible.
    #[error("the PROXY preface is longer than {MAX_LENGTH} bytes")]
    TooLong,
    /// It ends inside the addresses.
    #[error("the PROXY preface is too short for its addresses")]
    TooShort,
}

/// Reads a preface from the beginning of `bytes`; `None` when more bytes are needed to tell.
pub fn parse(bytes: &[u8]) -> Result<Option<Preface>, ProxyError> {
    let known = bytes.len().min(SIGNATURE.len());
    if bytes.get(..known) != SIGNATURE.get(..known) {
        return Err(ProxyError::Signature);
    }
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
    let [.., command, family, high, low] = *head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_LENGTH {
        return Err(ProxyError::TooLong);
    }
    let proxied = match command {
        0x20 => false,
        0x21 => true,
        _ => return Err(ProxyError::Version),
    };
    let Some(block) = rest.get(..length) else { return Ok(None) };
    let client = if proxied { source(family, block)? } else { None };
    Ok(Some(Preface { client, consumed: HEAD + length }))
}

/// The source address of a block: `source destination source-port destination-port`, then extensions.
fn source(family: u8, block: &[u8]) -> Result<Option<SocketAddr>, ProxyError> {
    match family >> 4 {
        1 => {
            let block = block.first_chunk::<12>().ok_or(ProxyError::TooShort)?;
            let [a, b, c, d, _, _, _, _, high, low, ..] = *block;
            Ok(Some(socket(Ipv4Addr::new(a, b, c, d).into(), [high, low])))
        }
        2 => {
            let block = block.first_chunk::<36>().ok_or(ProxyError::TooShort)?;
            let (address, rest) = block.split_first_chunk::<16>().ok_or(ProxyError::TooShort)?;
            let (_, ports) = rest.split_first_chunk::<16>().ok_or(ProxyError::TooShort)?;
            let port = ports.first_chunk::<2>().ok_or(ProxyError::TooShort)?;
            Ok(Some(socket(Ipv6Addr::from(*address).into(), *port)))
        }
        _ => Ok(None),
    }
}

fn socket(address: IpAddr, port: [u8; 2]) -> SocketAddr {
    SocketAddr::new(address.to_canonical(), u16::from_be_bytes(port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn preface(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
        let length = u16::try_from(block.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, block].concat()
    }

    fn v4_block() -> Vec<u8> {
        [&[203, 0, 113, 7], &[10, 0, 0, 1], &4711_u16.to_be_bytes()[..], &443_u16.to_be_bytes()].concat()
    }

    fn v6_block(source: Ipv6Addr) -> Vec<u8> {
        [&source.octets()[..], &[0; 16], &4711_u16.to_be_bytes(), &443_u16.to_be_bytes()].concat()
    }

    #[test]
    fn a_client_is_found_behind_the_preface() {
        let v6 = "2001:db8::1".parse().unwrap();
        let mapped = "::ffff:203.0.113.7".parse().unwrap();
        for (bytes, client) in [
            (preface(0x21, 0x11, &v4_block()), Some("203.0.113.7:4711")),
            (preface(0x21, 0x12, &v4_block()), Some("203.0.113.7:4711")),
            (preface(0x21, 0x11, &[v4_block(), vec![3, 0, 1, 9]].concat()), Some("203.0.113.7:4711")),
            (preface(0x21, 0x21, &v6_block(v6)), Some("[2001:db8::1]:4711")),
            (preface(0x21, 0x21, &v6_block(mapped)), Some("203.0.113.7:4711")),
            (preface(0x21, 0x31, &[0; 216]), None),
            (preface(0x21, 0x00, &[]), None),
            (preface(0x20, 0x00, &[]), None),
            (preface(0x20, 0x11, &v4_block()), None),
        ] {
            let expected =
                Preface { client: client.map(|text| text.parse().unwrap()), consumed: bytes.len() };
            let followed = [&bytes[..], b"GET / HTTP/1.1\r\n"].concat();
            assert_eq!(parse(&bytes), Ok(Some(expected)));
            assert_eq!(parse(&followed), Ok(Some(expected)));
        }
    }

    #[test]
    fn what_is_no_preface_is_refused() {
        for (bytes, error) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), ProxyError::Signature),
            (b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n".to_vec(), ProxyError::Signature),
            (b"\r\n\r\nx".to_vec(), ProxyError::Signature),
            (preface(0x11, 0x11, &v4_block()), ProxyError::Version),
            (preface(0x22, 0x11, &v4_block()), ProxyError::Version),
            (preface(0x21, 0x11, &v4_block()[..11]), ProxyError::TooShort),
            (preface(0x21, 0x21, &v4_block()), ProxyError::TooShort),
            (preface(0x21, 0x11, &[0; MAX_LENGTH + 1]), ProxyError::TooLong),
        ] {
            assert_eq!(parse(&bytes), Err(error));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            for bytes in [bytes.clone(), [&SIGNATURE[..], &bytes].concat()] {
                let consumed = parse(&bytes).ok().flatten().map_or(0, |preface| preface.consumed);
                prop_assert!(consumed <= bytes.len());
            }
        }

        #[test]
        fn every_beginning_of_a_preface_asks_for_more(source in any::<u128>(), extra in prop::collection::vec(any::<u8>(), 0..40), cut in 0_usize..1000) {
            let block = [v6_block(Ipv6Addr::from_bits(source)), extra].concat();
            let bytes = preface(0x21, 0x21, &block);
            let cut = cut % bytes.len();
            prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
            let found = parse(&bytes).unwrap().unwrap();
            prop_assert_eq!(found.client.unwrap().ip(), IpAddr::from(Ipv6Addr::from_bits(source)).to_canonical());
            prop_assert_eq!(found.consumed, bytes.len());
        }
    }
}
