//! The names under which a member's tools and prompts are shown.
//!
//! A name depends on the member's configuration and on the upstream's own name alone, never on what else there is: it is
//! the same after a restart, and adding an upstream renames nothing.

use std::sync::Arc;

use aws_lc_rs::digest;
pub use moongate_core::address::is_reserved;

/// Between a prefix and a name.
pub const SEPARATOR: &str = "__";

/// The longest name that is shown: several model providers take no longer one.
pub const MAX_SHOWN: usize = 64;

/// Characters of the hash that ends a name which was cut. They tell four thousand million names apart.
const HASH: usize = 8;

/// How a member's names are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// As they are.
    #[default]
    Bare,
    /// Behind a prefix and [`SEPARATOR`].
    Prefixed(Arc<str>),
}

impl Naming {
    /// The name clients see for what the member calls `name`.
    pub fn shown(&self, name: &Arc<str>) -> Arc<str> {
        match self {
            Self::Bare => Arc::clone(name),
            Self::Prefixed(prefix) => shortened(format!("{prefix}{SEPARATOR}{name}")),
        }
    }

    /// Whether `shown` can only be the member's, whatever it offers.
    pub fn claims(&self, shown: &str) -> bool {
        match self {
            Self::Bare => false,
            Self::Prefixed(prefix) => is_behind(prefix, shown),
        }
    }
}

/// Whether `shown` begins with `prefix` and [`SEPARATOR`].
pub fn is_behind(prefix: &str, shown: &str) -> bool {
    shown.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(SEPARATOR))
}

fn shortened(name: String) -> Arc<str> {
    if name.chars().count() <= MAX_SHOWN {
        return name.into();
    }
    let digest = digest::digest(&digest::SHA256, name.as_bytes());
    let hash = digest.as_ref().iter().take(HASH / 2).map(|byte| format!("{byte:02x}"));
    let mut short: String = name.chars().take(MAX_SHOWN - HASH - 1).collect();
    short.push('_');
    short.extend(hash);
    short.into()
}

/// Whether a tool may have this name; one with blanks or control characters can be neither called nor logged safely.
pub fn is_usable(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_claims_what_is_behind_it_and_no_more() {
        let naming = Naming::Prefixed("git".into());
        assert!(naming.claims("git__log") && naming.claims("git__"));
        assert!(!naming.claims("git_log") && !naming.claims("github__log") && !naming.claims("git"));
        assert!(!Naming::Bare.claims("log"));
    }

    fn shown(prefix: &str, name: &str) -> String {
        Naming::Prefixed(prefix.into()).shown(&name.into()).to_string()
    }

    #[test]
    fn a_prefix_goes_before_and_a_bare_name_stays() {
        assert_eq!(shown("github", "get_me"), "github__get_me");
        let long: Arc<str> = "x".repeat(100).into();
        assert!(Arc::ptr_eq(&Naming::Bare.shown(&long), &long));
    }

    #[test]
    fn a_long_name_is_cut_the_same_way_every_time_and_stays_its_own() {
        let fits = "a".repeat(MAX_SHOWN - "up__".len());
        assert_eq!(shown("up", &fits), format!("up__{fits}"));
        let (one, other) = (format!("{fits}1"), format!("{fits}2"));
        for name in [shown("up", &one), shown("up", &other), shown("up", &"é".repeat(200))] {
            assert_eq!(name.chars().count(), MAX_SHOWN, "{name}");
        }
        assert_ne!(shown("up", &one), shown("up", &other));
        // Written down here, because it must not change from one build to the next.
        assert_eq!(shown("up", &one), "up__aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa_c7c72bd7");
    }

    #[test]
    fn names_that_cannot_be_called_safely_are_told() {
        for (name, usable) in [("a.b/c-d_e", true), ("é", true), ("", false), ("a b", false), ("a\n", false)]
        {
            assert_eq!(is_usable(name), usable, "{name:?}");
        }
    }
}
