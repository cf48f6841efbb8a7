//! What a caller may do: scopes and how they imply each other.

use std::{collections::BTreeSet, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// One permission, such as `read` or `write`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scope(Arc<str>);

impl Scope {
    /// See what is there.
    pub const READ: &'static str = "read";
    /// Change state.
    pub const WRITE: &'static str = "write";
    /// Change interception rules.
    pub const RULES_WRITE: &'static str = "rules.write";
    /// Start and stop things.
    pub const CONTROL: &'static str = "control";
    /// Everything but `context.write`.
    pub const ADMIN: &'static str = "admin";
    /// Set the context fields of a call; never implied, always granted by name.
    pub const CONTEXT_WRITE: &'static str = "context.write";

    /// The scope called `name`.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// `read`
    pub fn read() -> Self {
        Self::new(Self::READ)
    }

    /// `write`
    pub fn write() -> Self {
        Self::new(Self::WRITE)
    }

    /// The scope's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The scopes a caller holds. Cheap to clone: every call carries them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scopes(Arc<BTreeSet<Scope>>);

impl Scopes {
    /// What the local token holds: everything that `admin` implies.
    pub fn all() -> Self {
        [Scope::new(Scope::ADMIN)].into_iter().collect()
    }

    /// Whether a holder of these may do what needs `scope`. `write`, `control` and `rules.write` imply `read`; `admin`
    /// implies all but `context.write`.
    pub fn allow(&self, scope: &Scope) -> bool {
        self.allow_named(scope.as_str())
    }

    /// As [`Scopes::allow`], for a scope known by its name.
    pub fn allow_named(&self, scope: &str) -> bool {
        let has = |name: &str| self.0.iter().any(|held| held.as_str() == name);
        if has(scope) {
            return true;
        }
        match scope {
            Scope::CONTEXT_WRITE => false,
            Scope::READ => {
                [Scope::WRITE, Scope::CONTROL, Scope::RULES_WRITE, Scope::ADMIN].into_iter().any(has)
            }
            _ => has(Scope::ADMIN),
        }
    }

    /// The scopes by name, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Scope> {
        self.0.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(Arc::new(scopes.into_iter().collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes(names: &[&str]) -> Scopes {
        names.iter().copied().map(Scope::new).collect()
    }

    #[test]
    fn implications_follow_the_table() {
        for (held, needed, allowed) in [
            (&["read"][..], "read", true),
            (&["read"], "write", false),
            (&["write"], "read", true),
            (&["control"], "read", true),
            (&["rules.write"], "read", true),
            (&["control"], "write", false),
            (&["admin"], "write", true),
            (&["admin"], "own.scope", true),
            (&["admin"], "context.write", false),
            (&["admin", "context.write"], "context.write", true),
            (&["own.scope"], "read", false),
            (&[], "read", false),
        ] {
            assert_eq!(scopes(held).allow(&Scope::new(needed)), allowed, "{held:?} for {needed}");
        }
    }
}
