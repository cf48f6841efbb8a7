//! How one upstream is reached: as a process or over HTTP, and nothing of the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    path::PathBuf,
};

use http::HeaderName;

use super::super::{Check, context::more_than_zero, set};
use crate::{
    load::read::{At, Given, Hidden, Place},
    model::upstreams::{
        Kind, RawUpstream, Reach,
        process::{Command, Process, ProcessLimits, RawProcessLimits, VariableName, VariableValue},
        remote::{Endpoint, HeaderText, RawRemoteTls, Remote, RemoteTransport, is_owned},
    },
    secret::Secret,
    units::Size,
};

/// Less than any program needs.
const MIN_MEMORY: Size = Size(1 << 20);
/// As many connections to an upstream as one caller may have at all.
const MOST_PROCESSES: NonZeroUsize = NonZeroUsize::new(64).expect("it is not zero");

const EXPECTED: &str = "`command` for a process, or `url` for a remote server";

/// What the entry called `name` says of it, if that can be told.
pub(super) fn reach(raw: &mut RawUpstream, name: &At<String>, check: &mut Check<'_>) -> Option<Reach> {
    match (raw.command.take(), raw.url.take()) {
        (Some(command), None) => {
            stray(&keys_of_remote(raw), "a remote server; this upstream has a command", check);
            kind(raw, &[Kind::Stdio], check);
            process(command.value, raw, check).map(Reach::Process)
        }
        (None, Some(url)) => {
            stray(&keys_of_process(raw), "a process; this upstream has a url", check);
            let kinds = match raw.transport.as_ref().map(|transport| transport.value) {
                None | Some(RemoteTransport::Auto) => &[Kind::Http, Kind::StreamableHttp, Kind::Sse][..],
                Some(RemoteTransport::Streamable) => &[Kind::Http, Kind::StreamableHttp],
                Some(RemoteTransport::Sse) => &[Kind::Sse],
            };
            kind(raw, kinds, check);
            remote(url, raw, check).map(Reach::Remote)
        }
        (None, None) => {
            check.conflict(&name.place, "this upstream has neither a command nor a url", EXPECTED);
            None
        }
        (Some(command), Some(url)) => {
            check.conflict(&url.place, "this upstream has both a command and a url", EXPECTED);
            // Whichever of them goes, what else is wrong is wrong.
            process(command.value, raw, check);
            remote(url, raw, check).map(Reach::Remote)
        }
    }
}

/// A key and, if it is given, its place.
type Key<'r> = (&'static str, Option<&'r Place>);

fn keys_of_process(raw: &RawUpstream) -> [Key<'_>; 9] {
    [
        ("args", place(raw.args.as_ref())),
        ("env", place(raw.env.as_ref())),
        ("inherit_env", place(raw.inherit_env.as_ref())),
        ("cwd", place(raw.cwd.as_ref())),
        ("start", place(raw.start.as_ref())),
        ("share", place(raw.share.as_ref())),
        ("idle_timeout", place(raw.idle_timeout.as_ref())),
        ("max_processes", place(raw.max_processes.as_ref())),
        ("limits", place(raw.limits.as_ref())),
    ]
}

fn keys_of_remote(raw: &RawUpstream) -> [Key<'_>; 4] {
    [
        ("headers", place(raw.headers.as_ref())),
        ("tls", place(raw.tls.as_ref())),
        ("transport", place(raw.transport.as_ref())),
        ("allow_insecure", place(raw.allow_insecure.as_ref())),
    ]
}

fn place<T>(given: Option<&At<T>>) -> Option<&Place> {
    given.map(|at| &at.place)
}

/// Reports every one of `keys` that is given.
fn stray(keys: &[Key<'_>], owner: &str, check: &mut Check<'_>) {
    for (key, place) in keys {
        if let Some(place) = place {
            check.conflict(place, format!("`{key}` belongs to {owner}"), "no such key here");
        }
    }
}

/// What an IDE wrote has to be one of `fitting`.
fn kind(raw: &RawUpstream, fitting: &[Kind], check: &mut Check<'_>) {
    if let Some(At { value, place }) = &raw.r#type
        && !fitting.contains(value)
    {
        let message = format!("the type {} contradicts the other keys of this upstream", place.found);
        check.conflict(place, message, "the type that they mean, or no `type`");
    }
}

fn process(command: Given<Command>, raw: &mut RawUpstream, check: &mut Check<'_>) -> Option<Process> {
    // Whatever is wrong with the command, the rest is looked at.
    let readable = command.0.is_some();
    let mut process = Process::new(command.0.map(|command| command.0).unwrap_or_default());
    let args = raw.args.take().into_iter().flat_map(|list| list.value);
    process.args = args.map(|argument| argument.value).collect();
    process.env = raw.env.take().map(|env| variables(env.value, check)).unwrap_or_default();
    process.inherit_env = inherited(raw, &process.env, check);
    process.cwd = raw.cwd.take().map(|path| path.value);
    set(&mut process.start, raw.start.take());
    set(&mut process.share, raw.share.take());
    if let Some(At { value, place }) = raw.idle_timeout.take() {
        process.idle_timeout = value.0.and_then(|period| more_than_zero(period, &place, check));
    }
    if let Some(At { value, place }) = raw.max_processes.take() {
        if value > MOST_PROCESSES {
            let message = format!("{} processes are more than one caller may have", place.found);
            check.conflict(&place, message, format!("a number from 1 to {MOST_PROCESSES}"));
        }
        process.max_processes = value;
    }
    if let Some(raw) = raw.limits.take() {
        process.limits = limits(raw.value, check);
    }
    readable.then_some(process)
}

fn variables(env: Hidden<VariableValue>, check: &mut Check<'_>) -> BTreeMap<String, Secret> {
    let variable = |(name, value): (At<String>, VariableValue)| {
        if !VariableName::fits(&name.value) {
            let message = format!("{} cannot name a variable", name.place.found);
            check.conflict(&name.place, message, VariableName::EXPECTED);
        }
        (name.value, value.0)
    };
    env.0.into_iter().map(variable).collect()
}

/// The names of variables to hand on, none of which has a value of its own.
fn inherited(raw: &mut RawUpstream, env: &BTreeMap<String, Secret>, check: &mut Check<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for At { value: VariableName(name), place } in
        raw.inherit_env.take().into_iter().flat_map(|list| list.value)
    {
        if env.contains_key(&name) {
            let message = format!("{} has a value of its own in `env`", place.found);
            check.conflict(&place, message, "each variable in `env` or in `inherit_env`");
        }
        if names.contains(&name) {
            check.conflict(&place, format!("{} is listed twice", place.found), "each variable once");
        }
        names.push(name);
    }
    names
}

fn limits(raw: RawProcessLimits, check: &mut Check<'_>) -> ProcessLimits {
    let memory = raw.memory.map(|At { value, place }| {
        if value < MIN_MEMORY {
            let message = format!("{} is too small for any program", place.found);
            check.conflict(&place, message, format!("a size from {MIN_MEMORY}"));
        }
        value.0
    });
    ProcessLimits {
        memory,
        cpu: raw.cpu.and_then(|At { value, place }| more_than_zero(value, &place, check)),
        open_files: raw.open_files.map(|count| count.value),
        processes: raw.processes.map(|count| count.value),
    }
}

fn remote(url: At<Given<Endpoint>>, raw: &mut RawUpstream, check: &mut Check<'_>) -> Option<Remote> {
    let At { value: Given(endpoint), place } = url;
    // Whatever is wrong with the address, the rest is looked at.
    let headers = raw.headers.take().map(|headers| self::headers(headers.value, check)).unwrap_or_default();
    let tls_place = raw.tls.as_ref().map(|tls| tls.place.clone());
    let ca = raw.tls.take().map(|tls| certificates(tls, check)).unwrap_or_default();
    let mut remote = Remote::new(endpoint?);
    (remote.headers, remote.ca) = (headers, ca);
    set(&mut remote.transport, raw.transport.take());
    set(&mut remote.allow_insecure, raw.allow_insecure.take());
    if remote.url.is_exposed() && !remote.allow_insecure {
        let message = "what is sent to this address could be read on the way";
        check.conflict(&place, message, "`https`, a loopback address, or `allow_insecure: true` beside it");
    }
    if let Some(place) = tls_place.filter(|_| remote.url.is_plain()) {
        check.conflict(&place, "`tls` has no effect on a plain `http` address", "`https`, or no `tls`");
    }
    Some(remote)
}

fn certificates(tls: At<RawRemoteTls>, check: &mut Check<'_>) -> Vec<PathBuf> {
    let Some(ca) = tls.value.ca else {
        check.missing(&tls.place, "ca");
        return Vec::new();
    };
    ca.value.0.map(|paths| paths.0).unwrap_or_default()
}

fn headers(raw: Hidden<HeaderText>, check: &mut Check<'_>) -> Vec<(HeaderName, Secret)> {
    let mut seen = BTreeSet::new();
    let mut headers = Vec::new();
    for (At { value, place }, HeaderText(text)) in raw.0 {
        let found = &place.found;
        let Ok(name) = HeaderName::from_bytes(value.as_bytes()) else {
            check.conflict(&place, format!("{found} cannot name a header"), "a name such as `Authorization`");
            continue;
        };
        if is_owned(&name) {
            check.conflict(&place, format!("{found} is set by the gateway itself"), "any other header");
        }
        // Header names differ in more than case.
        if !seen.insert(name.as_str().to_owned()) {
            check.conflict(&place, format!("the header {found} is here a second time"), "each header once");
        }
        headers.push((name, text));
    }
    headers
}
