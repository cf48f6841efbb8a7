//! The backend that keeps texts.

use super::{Check, context::more_than_zero, set};
use crate::{
    load::read::At,
    model::backends::content::{Content, RawContent},
};

pub(super) fn content(raw: RawContent, check: &mut Check<'_>) -> Content {
    let mut content = Content::default();
    set(&mut content.backend.enabled, raw.enabled);
    set(&mut content.backend.tool_errors, raw.tool_errors);
    if let Some(roots) = raw.roots {
        content.roots = roots.value.into_iter().map(|root| root.value).collect();
    }
    if let Some(At { value, place }) = raw.retention {
        content.retention = value.0.and_then(|period| more_than_zero(period, &place, check));
    }
    if let Some(limits) = raw.limits {
        set(&mut content.limits.text, limits.value.text);
        set(&mut content.limits.file, limits.value.file);
        set(&mut content.limits.contents, limits.value.contents);
        set(&mut content.limits.total, limits.value.total);
    }
    content
}
