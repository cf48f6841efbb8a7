//! What the process tools answer, in words and as data.

use std::{fmt::Write as _, sync::Arc, time::SystemTime};

use moongate_core::builtin::ToolOutput;
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    output::{End, Lines, Source},
    run::{Process, Status},
};

/// After how many polls in a row that find it running somebody is told to wait.
const PATIENT: u32 = 5;
const ADVICE: &str = "It is still running. Wait at least 10 seconds before you ask again.";

/// What there is to say about a process.
#[derive(Serialize)]
struct About<'a> {
    #[serde(rename = "processId")]
    process_id: &'a str,
    status: &'a str,
    command: &'a str,
    pid: Option<i32>,
    exit_code: Option<i32>,
    started_at: String,
    finished_at: Option<String>,
    stdout_size: u64,
    stderr_size: u64,
}

impl<'a> About<'a> {
    fn of(process: &'a Process) -> Self {
        let state = process.state();
        Self {
            process_id: &process.id,
            status: state.status.as_str(),
            command: &process.command,
            pid: state.pid,
            exit_code: state.exit_code,
            started_at: time(process.started_at),
            finished_at: state.finished_at.map(time),
            stdout_size: process.output.stream(Source::Stdout).size(),
            stderr_size: process.output.stream(Source::Stderr).size(),
        }
    }
}

/// The least there is to say, beside an error.
pub(super) fn brief(process: &Process) -> Value {
    json!({"processId": process.id, "status": process.state().status})
}

pub(super) fn started(process: &Process) -> ToolOutput {
    let text =
        format!("Started as process {}. Follow it with poll_process (processId {}).", process.id, process.id);
    ToolOutput::new(text, About { status: "started", ..About::of(process) })
}

pub(super) fn failed_at_once(process: &Process, stderr: &Lines) -> ToolOutput {
    #[derive(Serialize)]
    struct Failed<'a> {
        #[serde(flatten)]
        about: About<'a>,
        output: String,
    }
    let about = About::of(process);
    let output = stderr.lines.join("\n");
    let text = format!("Process {} ended at once: {}\n{output}", process.id, ending(process));
    ToolOutput::new(text.trim_end(), Failed { about, output })
}

pub(super) fn ended(process: &Process, stdout: &Lines, stderr: &Lines) -> ToolOutput {
    #[derive(Serialize)]
    struct Ended<'a> {
        #[serde(flatten)]
        about: About<'a>,
        stdout: String,
        stderr: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<&'static str>,
    }
    let about = About::of(process);
    let mut text = ending(process);
    for (name, lines) in [("stdout", stdout), ("stderr", stderr)] {
        if !lines.lines.is_empty() {
            let _infallible = write!(text, "\n{name}:\n{}", lines.lines.join("\n"));
        }
    }
    let is_part = |lines: &Lines, size: u64| {
        let shown: usize = lines.lines.iter().map(|line| line.len() + 1).sum();
        lines.cut || (lines.lines.len() >= super::SHOWN && size > shown as u64)
    };
    let part = is_part(stdout, about.stdout_size) || is_part(stderr, about.stderr_size);
    let note = part.then_some("Only the last lines are shown; read_process_output reads others.");
    if let Some(note) = note {
        let _infallible = write!(text, "\n{note}");
    }
    ToolOutput::new(
        text,
        Ended { about, stdout: stdout.lines.join("\n"), stderr: stderr.lines.join("\n"), note },
    )
}

pub(super) fn polled(process: &Process, polls: u32, lines: &Lines, tail: Option<Source>) -> ToolOutput {
    #[derive(Serialize)]
    struct Tail<'a> {
        src: Source,
        n: usize,
        lines: &'a [String],
    }
    #[derive(Serialize)]
    struct Polled<'a> {
        #[serde(flatten)]
        about: About<'a>,
        output: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        tail: Option<Tail<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        advice: Option<&'static str>,
    }
    let output = lines.lines.join("\n");
    let mut text = format!("Process {}: {}", process.id, ending(process));
    if !output.is_empty() {
        let _infallible = write!(text, "\n{output}");
    }
    let advice = (polls >= PATIENT).then_some(ADVICE);
    if let Some(advice) = advice {
        let _infallible = write!(text, "\n{advice}");
    }
    let tail = tail.map(|src| Tail { src, n: lines.lines.len(), lines: &lines.lines });
    ToolOutput::new(text, Polled { about: About::of(process), output, tail, advice })
}

pub(super) fn read(process: &Process, stream: Source, mode: End, asked: usize, lines: &Lines) -> ToolOutput {
    #[derive(Serialize)]
    struct Read<'a> {
        process_id: &'a str,
        stream: Source,
        mode: End,
        lines_requested: usize,
        lines_returned: usize,
        content: &'a [String],
        total_size: u64,
        note: &'static str,
    }
    let (total_size, content) = (process.output.stream(stream).size(), &lines.lines);
    let note = if total_size == 0 {
        "Nothing was written to it so far."
    } else if lines.cut && content.len() > 1 {
        "Fewer lines than asked for: together they are too long. The outermost may be shown in part."
    } else if lines.cut {
        "A line is too long and shown in part."
    } else {
        "Text only; what is no text is replaced by \u{fffd}."
    };
    let read = Read {
        process_id: &process.id,
        stream,
        mode,
        lines_requested: asked,
        lines_returned: content.len(),
        content,
        total_size,
        note,
    };
    let text = if content.is_empty() { note.to_owned() } else { content.join("\n") };
    ToolOutput::new(text, read)
}

pub(super) fn listed(all: &[Arc<Process>], fits: impl Fn(&Arc<Process>) -> bool) -> ToolOutput {
    #[derive(Serialize)]
    struct Item<'a> {
        process_id: &'a str,
        command: &'a str,
        status: Status,
        pid: Option<i32>,
        started_at: String,
        exit_code: Option<i32>,
    }
    let item = |process: &'_ Arc<Process>| {
        let state = process.state();
        json!(Item {
            process_id: &process.id,
            command: &process.command,
            status: state.status,
            pid: state.pid,
            started_at: time(process.started_at),
            exit_code: state.exit_code,
        })
    };
    let finished = all.iter().filter(|process| process.is_over()).count();
    let running = all.len() - finished;
    let shown: Vec<_> = all.iter().filter(|process| fits(process)).collect();
    let mut text = format!("{} processes, {running} running", all.len());
    for process in &shown {
        let _infallible = write!(text, "\n{}  {}  {}", process.id, ending(process), process.command);
    }
    let items: Vec<Value> = shown.into_iter().map(item).collect();
    ToolOutput::new(
        text,
        json!({"processes": items, "total": all.len(), "running": running, "finished": finished}),
    )
}

pub(super) fn terminated(process: &Process) -> ToolOutput {
    ToolOutput::new(format!("Process {}: {}", process.id, ending(process)), brief(process))
}

/// How a process is, in words.
fn ending(process: &Process) -> String {
    let state = process.state();
    match (state.status, state.exit_code) {
        (Status::Finished | Status::Failed, Some(code)) => {
            format!("{}, exit code {code}", state.status.as_str())
        }
        (status, _) => status.as_str().to_owned(),
    }
}

fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}
