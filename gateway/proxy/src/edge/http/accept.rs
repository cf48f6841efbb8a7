//! What a client takes and sends: `Accept` and `Content-Type`.

use moongate_security::{Headers, Said, headers::text};

/// The kinds of answer a client takes; at least one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accept {
    /// `application/json`
    pub(super) json: bool,
    /// `text/event-stream`
    pub(super) events: bool,
}

impl Accept {
    /// JSON only.
    pub(super) const JSON: Self = Self { json: true, events: false };

    /// What the request takes: `accept` is what its header says first, which nearly always is all. Without `Accept`
    /// everything, `None` when it excludes both.
    pub(super) fn read(accept: Said<'_>, headers: &Headers) -> Option<Self> {
        match accept {
            Said::Absent => return Some(Self { json: true, events: true }),
            // What the specification tells clients to send, and nearly all of them do.
            Said::Once(b"application/json, text/event-stream") => {
                return Some(Self { json: true, events: true });
            }
            Said::Once(_) | Said::Again(_) => {}
        }
        let mut accept = Self { json: false, events: false };
        for range in headers.get_all("accept").filter_map(text).flat_map(|value| value.split(',')) {
            let (kind, parameters) = range.split_once(';').unwrap_or((range, ""));
            let kind = kind.trim_ascii();
            let is = |names: [&str; 3]| names.iter().any(|name| kind.eq_ignore_ascii_case(name));
            if parameters.split(';').map(str::trim).any(is_zero_weight) {
                continue;
            }
            accept.json |= is(["application/json", "application/*", "*/*"]);
            accept.events |= is(["text/event-stream", "text/*", "*/*"]);
        }
        (accept.json || accept.events).then_some(accept)
    }
}

fn is_zero_weight(parameter: &str) -> bool {
    parameter.split_once('=').is_some_and(|(name, value)| {
        name.trim().eq_ignore_ascii_case("q") && value.trim().parse::<f32>() == Ok(0.0)
    })
}

/// Whether the content type is JSON, with or without parameters.
pub(super) fn is_json(content_type: Option<&[u8]>) -> bool {
    // What nearly all of them say.
    if content_type == Some(b"application/json") {
        return true;
    }
    let text = content_type.and_then(text).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(values: &[&str]) -> Option<(bool, bool)> {
        let headers: Headers = values.iter().map(|value| ("accept", value.as_bytes())).collect();
        let said = headers.iter().fold(Said::Absent, |mut said, (_, value)| {
            said.note(value);
            said
        });
        Accept::read(said, &headers).map(|accept| (accept.json, accept.events))
    }

    #[test]
    fn only_a_real_exclusion_is_refused() {
        assert_eq!(accept(&[]), Some((true, true)));
        assert_eq!(accept(&["*/*"]), Some((true, true)));
        assert_eq!(accept(&["application/json, text/event-stream"]), Some((true, true)));
        assert_eq!(accept(&["application/json", "text/event-stream"]), Some((true, true)));
        assert_eq!(accept(&["application/json;q=0.9"]), Some((true, false)));
        assert_eq!(accept(&["TEXT/Event-Stream"]), Some((false, true)));
        assert_eq!(accept(&["text/html"]), None);
        assert_eq!(accept(&["application/json;q=0, text/event-stream"]), Some((false, true)));
    }

    #[test]
    fn json_may_have_parameters() {
        for (text, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/plain", false),
            ("application/jsonp", false),
            ("", false),
        ] {
            assert_eq!(is_json(Some(text.as_bytes())), expected, "{text}");
        }
        assert!(!is_json(None));
    }
}
