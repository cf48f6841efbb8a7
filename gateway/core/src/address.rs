//! Addresses of resources that only backends of this process have.

/// The schemes of addresses that only backends of this process have, there or switched off: what lies there is a caller's own.
const RESERVED_SCHEMES: [&str; 2] = ["content", "workspace"];

/// Whether no other server may have a resource at `uri`.
pub fn is_reserved(uri: &str) -> bool {
    let scheme = uri.split_once(':').map_or(uri, |(scheme, _)| scheme);
    RESERVED_SCHEMES.iter().any(|reserved| scheme.eq_ignore_ascii_case(reserved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_our_own_are_reserved_however_they_are_spelled() {
        for uri in ["content://1", "Content://1", "content:{+rest}", "workspace:///a", "workspace"] {
            assert!(is_reserved(uri), "{uri}");
        }
        for uri in ["contents://1", "file:///content:1", "", "{+any}"] {
            assert!(!is_reserved(uri), "{uri}");
        }
    }
}
