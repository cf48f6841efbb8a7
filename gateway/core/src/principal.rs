//! Who is calling.

use std::{fmt, sync::Arc};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that stay readable in a principal's text; `:` and `#` separate its parts and are always encoded.
const READABLE: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'@').remove(b'/');

/// A caller, typed by how it proved itself, so that no subject can impersonate another kind.
///
/// Its text (`local`, `anonymous`, `issued:SUB`, `jwt:ISSUER#SUB`, `mtls:SUBJECT`, percent-encoded) is used in rules,
/// audit and storage, and never changes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal {
    kind: Kind,
    text: Arc<str>,
}

/// How a principal proved itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The token in the 0600 file, or the user's own pipe.
    Local,
    /// No token, where the configuration allows that.
    Anonymous,
    /// A token signed by this gateway.
    Issued,
    /// A token of a configured issuer.
    Jwt,
    /// A client certificate.
    Mtls,
}

impl Principal {
    /// The holder of the local token.
    pub fn local() -> Self {
        Self { kind: Kind::Local, text: "local".into() }
    }

    /// Whoever calls without a token.
    pub fn anonymous() -> Self {
        Self { kind: Kind::Anonymous, text: "anonymous".into() }
    }

    /// The subject of a token this gateway signed.
    pub fn issued(subject: &str) -> Self {
        Self { kind: Kind::Issued, text: format!("issued:{}", encode(subject)).into() }
    }

    /// A subject of a configured issuer.
    pub fn jwt(issuer: &str, subject: &str) -> Self {
        Self { kind: Kind::Jwt, text: format!("jwt:{}#{}", encode(issuer), encode(subject)).into() }
    }

    /// The subject of a client certificate.
    pub fn mtls(subject: &str) -> Self {
        Self { kind: Kind::Mtls, text: format!("mtls:{}", encode(subject)).into() }
    }

    /// How it proved itself.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The text that identifies it everywhere.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

fn encode(part: &str) -> impl fmt::Display + '_ {
    utf8_percent_encode(part, READABLE)
}

/// Reads back what [`Principal::as_str`] wrote.
impl std::str::FromStr for Principal {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let kind = match text.split_once(':') {
            None if text == "local" => Kind::Local,
            None if text == "anonymous" => Kind::Anonymous,
            Some(("issued", _)) => Kind::Issued,
            Some(("jwt", _)) => Kind::Jwt,
            Some(("mtls", _)) => Kind::Mtls,
            _ => return Err(UnknownKind),
        };
        Ok(Self { kind, text: text.into() })
    }
}

/// A text that no principal writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the text of a principal")]
pub struct UnknownKind;

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({})", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_reads_back_what_it_writes() {
        for principal in
            [Principal::local(), Principal::anonymous(), Principal::issued("a b"), Principal::jwt("i", "s")]
        {
            assert_eq!(principal.as_str().parse(), Ok(principal));
        }
        assert_eq!("root".parse::<Principal>(), Err(UnknownKind));
    }

    #[test]
    fn no_subject_can_pose_as_another_kind() {
        assert_eq!(Principal::issued("a:b#c").as_str(), "issued:a%3Ab%23c");
        assert_ne!(Principal::jwt("x", "y#z"), Principal::jwt("x#y", "z"));
        assert_ne!(Principal::issued("local"), Principal::local());
    }
}
