//! What a route adds to the calls it names, beyond where they go: edits of arguments, and context for the backend.

use std::fmt;

use moongate_config::{ContextFields, Route};
use moongate_core::{ContextIds, Raw};
use moongate_wire::{
    edit::{self, Edit},
    params::OURS,
    write,
};

/// What one route adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteExtras {
    /// What becomes of the caller's arguments.
    pub arguments: ArgumentEdits,
    /// How the backend learns the context ids.
    pub inject: Inject,
}

/// Changes to a caller's arguments, each by name and on the top level. Values may be secrets, so `Debug` prints names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ArgumentEdits {
    /// Always this value, whatever the caller says.
    pub set: Vec<(String, Raw)>,
    /// This value, unless the caller names one.
    pub default: Vec<(String, Raw)>,
    /// Never passed on.
    pub remove: Vec<String>,
}

/// How a backend that does not live here learns which session, assistant and thread a call is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inject {
    /// Not at all.
    #[default]
    None,
    /// As arguments, `__sessionId` and so on.
    Fields,
    /// As members of `_meta`, `dev.moongate/sessionId` and so on.
    Meta,
}

impl RouteExtras {
    /// What `route` adds.
    pub fn of(route: Option<&Route>) -> Self {
        let Some(route) = route else { return Self::default() };
        let values = |values: &serde_json::Map<String, serde_json::Value>| {
            values.iter().map(|(name, value)| (name.clone(), Raw::of(value))).collect()
        };
        Self {
            arguments: ArgumentEdits {
                set: values(&route.args.set),
                default: values(&route.args.default),
                remove: route.args.remove.clone(),
            },
            inject: match route.context {
                ContextFields::None => Inject::None,
                ContextFields::Fields => Inject::Fields,
                ContextFields::Meta => Inject::Meta,
            },
        }
    }
}

impl fmt::Debug for ArgumentEdits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |edits: &[(String, Raw)]| edits.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        f.debug_struct("ArgumentEdits")
            .field("set", &names(&self.set))
            .field("default", &names(&self.default))
            .field("remove", &self.remove)
            .finish()
    }
}

impl ArgumentEdits {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.default.is_empty() && self.remove.is_empty()
    }

    /// `arguments`, an object, with these changes: what the caller wrote first, then what is added, in order.
    pub fn apply(&self, arguments: Raw) -> Raw {
        if self.is_empty() {
            return arguments;
        }
        let mut named: Vec<String> = Vec::new();
        let value = |name: &str| self.set.iter().find(|(set, _)| set == name).map(|(_, value)| value);
        let edited = edit::members(&arguments, |name, _| {
            let edit = match value(name) {
                Some(value) => Edit::Replace(value.clone()),
                None if self.remove.iter().any(|removed| removed == name) => return Edit::Drop,
                None => Edit::Keep,
            };
            named.push(name.to_owned());
            edit
        });
        let mut added: Vec<(&str, Raw)> = Vec::new();
        for (name, value) in self.set.iter().chain(&self.default) {
            let there = named.contains(name) || added.iter().any(|(added, _)| added == name);
            if !there {
                added.push((name, value.clone()));
            }
        }
        if added.is_empty() { edited } else { write::with_members(&edited, &added) }
    }
}

/// A call's `_meta`, which says nothing to the gateway any more, with the ids for a backend.
pub fn meta_with(meta: Option<&Raw>, ids: &ContextIds) -> Raw {
    let name = |end: &str| format!("{OURS}{end}");
    let (session, assistant, thread) = (name("sessionId"), name("assistantId"), name("threadId"));
    let others = [(&assistant, &ids.assistant), (&thread, &ids.thread)];
    let others = others.into_iter().filter_map(|(name, id)| Some((name.as_str(), id.as_deref()?)));
    let all: Vec<(&str, &str)> = std::iter::once((session.as_str(), &*ids.session)).chain(others).collect();
    edit::append(meta.unwrap_or(&Raw::empty_object()), all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Raw {
        Raw::from_text(text.to_owned()).unwrap()
    }

    #[test]
    fn arguments_are_set_defaulted_and_removed_and_the_rest_keeps_its_bytes() {
        let named = |name: &str, value: &str| (name.to_owned(), raw(value));
        let edits = ArgumentEdits {
            set: vec![named("a", "1"), named("b", "2")],
            default: vec![named("c", "3"), named("d", "4"), named("b", "5")],
            remove: vec!["e".to_owned(), "c".to_owned()],
        };
        for (arguments, expected) in [
            ("{}", r#"{"a":1,"b":2,"c":3,"d":4}"#),
            (r#"{ "x" : 1e400 }"#, r#"{"a":1,"b":2,"c":3,"d":4, "x" : 1e400 }"#),
            (r#"{"a":9,"d":8,"e":7}"#, r#"{"b":2,"c":3,"a":1,"d":8}"#),
            (r#"{"c":9,"\u0061":0}"#, r#"{"b":2,"c":3,"d":4,"\u0061":1}"#),
        ] {
            assert_eq!(edits.apply(raw(arguments)).as_str(), expected, "{arguments}");
        }
        let same = raw(r#"{"a":1}"#);
        let untouched = ArgumentEdits::default().apply(same.clone());
        assert_eq!(untouched.as_bytes().as_ptr(), same.as_bytes().as_ptr());
    }

    #[test]
    fn what_is_printed_names_arguments_and_hides_their_values() {
        let edits = ArgumentEdits {
            set: vec![("token".to_owned(), raw(r#""hunter2""#))],
            default: vec![("key".to_owned(), raw(r#""hunter3""#))],
            remove: vec!["debug".to_owned()],
        };
        let printed = format!("{edits:?}");
        assert!(!printed.contains("hunter"), "{printed}");
        assert!(["token", "key", "debug"].iter().all(|name| printed.contains(name)), "{printed}");
    }

    #[test]
    fn meta_carries_the_ids_that_are_known() {
        let ids = |assistant: Option<&str>| ContextIds {
            session: "s\"1".into(),
            durable_session: "default".into(),
            assistant: assistant.map(Into::into),
            thread: None,
        };
        assert_eq!(meta_with(None, &ids(None)).as_str(), r#"{"dev.moongate/sessionId":"s\"1"}"#);
        assert_eq!(
            meta_with(Some(&raw(r#"{"a":1}"#)), &ids(Some("x"))).as_str(),
            r#"{"a":1,"dev.moongate/sessionId":"s\"1","dev.moongate/assistantId":"x"}"#
        );
    }
}
