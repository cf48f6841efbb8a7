//! Files as resources: `workspace:///` and the path, percent-encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::path::RelativePath;

const SCHEME: &str = "workspace:///";
/// What stands for itself in the path of an address.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The address of the file at `path` in its owner's room.
pub(crate) fn of(path: &str) -> String {
    format!("{SCHEME}{}", encoded(path))
}

/// `path` as part of an address.
pub(crate) fn encoded(path: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(path, PLAIN)
}

/// The path that `uri` names, if it is the address of a file.
pub(crate) fn path(uri: &str) -> Option<RelativePath> {
    let path = percent_decode_str(uri.strip_prefix(SCHEME)?).decode_utf8().ok()?;
    RelativePath::parse(&path).ok().filter(|path| !path.is_room())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_the_path_it_was_made_of() {
        for name in ["a", "a/b c.txt", "é%2F", "100%", "a?b#c", "x/..y"] {
            assert_eq!(path(&of(name)).unwrap().as_str(), name);
        }
        assert_eq!(of("a b/ü.txt"), "workspace:///a%20b/%C3%BC.txt");
    }

    #[test]
    fn other_addresses_name_nothing() {
        for uri in [
            "workspace:///",
            "workspace:///.",
            "workspace:////etc/passwd",
            "workspace:///%2Fetc/passwd",
            "workspace:///../x",
            "workspace:///a/%2e%2e/%2E%2E/x",
            "workspace:///a%00b",
            "workspace:///%ff",
            "workspace://a/b",
            "file:///a",
            "",
        ] {
            assert_eq!(path(uri), None, "{uri}");
        }
    }
}
