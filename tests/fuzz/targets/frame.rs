//! Arbitrary bytes as a frame: nothing panics, the scan agrees with a slow reference, and every message that is read
//! can be written and read again.
#![no_main]

use std::collections::BTreeMap;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use moongate_wire::{
    Frame, Message, Raw,
    era::{self, Facts},
    frame::Malformed,
    ladder::{self, Headers},
    params::{MARK, OURS},
    scan::{MAX_DEPTH, Problem, scan},
    write,
};
use serde_json::value::RawValue;

fuzz_target!(|data: &[u8]| {
    let body = Bytes::copy_from_slice(data);
    agree(&body);
    match Frame::parse(&body) {
        Ok(Frame::One(message)) => read_back(&message),
        Ok(Frame::Batch(elements)) => {
            assert!(!elements.is_empty());
            elements.iter().flatten().for_each(read_back);
        }
        Err(Malformed { error, .. }) => assert!(matches!(error.code, -32700 | -32600 | -32602)),
    }
});

/// What the reference found: how deep the text is and whether a member appears twice.
#[derive(Default)]
struct Found {
    depth: usize,
    duplicate: bool,
}

fn agree(body: &[u8]) {
    let mut found = Found::default();
    let json = serde_json::from_slice::<&RawValue>(body)
        .is_ok_and(|value| visit(value.get(), 0, &mut found).is_some());
    match scan(body) {
        Ok(_) => assert!(json && !found.duplicate && found.depth <= MAX_DEPTH),
        Err(Problem::NotJson) => assert!(!json),
        Err(Problem::TooDeep) => assert!(!json || found.depth > MAX_DEPTH),
        Err(Problem::Duplicate { .. } | Problem::DuplicateArgument { .. }) => {
            assert!(json && found.duplicate && found.depth <= MAX_DEPTH);
        }
    }
}

/// Looks at one level with serde and at those below by itself. Nothing if some string is not Unicode.
fn visit(text: &str, depth: usize, found: &mut Found) -> Option<()> {
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(text).ok().map(|_| ()),
        b'[' => {
            found.depth = found.depth.max(depth + 1);
            let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            elements.into_iter().try_for_each(|element| visit(element.get(), depth + 1, found))
        }
        b'{' => {
            found.depth = found.depth.max(depth + 1);
            // The map keeps one of several equal names, the list keeps them all.
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            let written = Raw::from_text(text.to_owned()).ok()?.members();
            found.duplicate |= written.len() > members.len();
            written.iter().try_for_each(|(_, value)| visit(value.as_str(), depth + 1, found))
        }
        _ => Some(()),
    }
}

fn read_back(message: &Message) {
    let text = match message {
        Message::Request(request) => {
            let params = request.params.raw().unwrap_or_else(Raw::empty_object);
            write::request(&request.id, &request.method, &params)
        }
        Message::Notification(notification) => {
            let params = notification.params.raw().unwrap_or_else(Raw::empty_object);
            write::notification(&notification.method, &params)
        }
        Message::Response(response) => match (&response.id, &response.outcome) {
            (Some(id), Ok(result)) => write::result(id, result),
            (None, Ok(_)) => return,
            (id, Err(error)) => write::error(id.as_ref(), write::NoId::Omit, error),
        },
    };
    let again = match Frame::parse(&text.into_bytes()) {
        Ok(Frame::One(again)) => again,
        other => panic!("{message:?} was read back as {other:?}"),
    };
    match (&again, message) {
        (Message::Request(again), Message::Request(request)) => {
            assert_eq!((&again.id, &again.method), (&request.id, &request.method));
            assert!(request.params.raw().is_none() || request.params == again.params);
        }
        (Message::Notification(again), Message::Notification(notification)) => {
            assert_eq!(again.method, notification.method);
        }
        (Message::Response(_), Message::Response(_)) => assert_eq!(again, *message),
        _ => panic!("{message:?} was read back as {again:?}"),
    }
    members_are_found(message);
    decide(message);
}

/// What the scan found in `params` on its way is what a look at its members finds.
fn members_are_found(message: &Message) {
    let Some(params) = message.params() else { return };
    let Some(raw) = params.raw() else { return };
    let member = |object: &Raw, name: &str| object.member(name).filter(|value| !value.is_null());
    assert_eq!(params.arguments(), member(&raw, "arguments"));
    assert_eq!(params.meta().raw(), member(&raw, "_meta"));
    let name = member(&raw, "name").and_then(|name| name.parse::<String>().ok());
    assert_eq!(params.name(), name.as_deref());
    let begins = |object: Option<Raw>, start: &str| {
        object.is_some_and(|object| object.members().iter().any(|(name, _)| name.starts_with(start)))
    };
    assert_eq!(params.has_marked_arguments(), begins(params.arguments(), MARK));
    assert_eq!(params.meta().speaks_to_us(), begins(params.meta().raw(), OURS));
    assert_eq!(params.request_state(), member(&raw, "requestState"));
    assert_eq!(params.input_responses(), member(&raw, "inputResponses"));
    let token = params.meta().raw().and_then(|meta| member(&meta, "progressToken"));
    assert_eq!(params.meta().progress_token(), token);
}

/// Whatever the message says, era and ladder answer.
fn decide(message: &Message) {
    for session in [false, true] {
        for version in [None, Some("2025-06-18"), Some("2026-07-28"), Some("?")] {
            if let Err(refusal) = era::decide(message, Facts { version, session }) {
                assert_eq!(refusal.status, 400);
            }
        }
        let _verdict = era::decide_stdio(message, session);
    }
    if let Message::Request(request) = message {
        let method = request.method.as_bytes();
        let headers = Headers { version: Some(b"2026-07-28"), method: Some(method), name: Some(method) };
        if let Err(refusal) = ladder::check_http(request, &headers) {
            assert!(matches!(refusal.status, 400 | 404));
        }
        let _checked = ladder::check_stdio(request);
    }
}
