//! Pauses: the agent waits until a person presses a button, then learns how long that took.
//!
//! Nothing is kept: the button carries what the agent needs to go on.

use std::time::{Duration, SystemTime};

use moongate_core::{
    Clock, Scope,
    builtin::{Effect, ToolError, ToolOutput, ToolSpec},
    html::{self, Escaped},
    schema,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Error, required};

/// Characters of a message or an instruction.
const MAX_TEXT: usize = 16_384;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wait {
    message: String,
    resume_instruction: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resume {
    resume_instruction: String,
    started_at: String,
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    let text = |description: &str| -> Value {
        json!({"type": "string", "minLength": 1, "maxLength": MAX_TEXT, "description": description})
    };
    vec![
        ToolSpec {
            name: "wait_for_user_resume",
            title: "Wait for the user",
            description: "Shows the user a message and a button to continue. Stop working after this call: it goes on \
                          with a call of resume_from_wait.",
            input_schema: schema::object(
                json!({
                    "message": text("What the user should do or know"),
                    "resumeInstruction": text("What to do once the user continues"),
                }),
                &["message", "resumeInstruction"],
            ),
            aliases: &[],
            scope: Scope::READ,
            effect: Effect::Reads,
        },
        ToolSpec {
            name: "resume_from_wait",
            title: "Resume after waiting",
            description: "Says that the user continued after wait_for_user_resume, and how long that took.",
            input_schema: schema::object(
                json!({
                    "resumeInstruction": text("The instruction given when the wait began"),
                    "startedAt": {"type": "string", "minLength": 1, "maxLength": 64,
                        "description": "When the wait began, as wait_for_user_resume returned it (RFC 3339)"},
                    "sessionId": {"type": "string", "maxLength": 256, "description": "Not used"},
                }),
                &["resumeInstruction", "startedAt"],
            ),
            aliases: &[],
            scope: Scope::READ,
            effect: Effect::Reads,
        },
    ]
}

pub(crate) fn wait(args: &Wait, id: &str, clock: &Clock) -> Result<ToolOutput, ToolError> {
    required("message", &args.message)?;
    required("resumeInstruction", &args.resume_instruction)?;
    let started = humantime::format_rfc3339_millis(clock.now()).to_string();
    let told = json!({"waiting": true, "message": args.message, "resumeInstruction": args.resume_instruction,
        "startedAt": started});
    let text = format!("Waiting for the user: {}\nThen: {}", args.message, args.resume_instruction);
    let page = page(args, &started);
    Ok(ToolOutput::new(text, told).with_block(html::resource(&format!("ui://wait/{id}"), &page)))
}

pub(crate) fn resume(args: &Resume, clock: &Clock) -> Result<ToolOutput, ToolError> {
    required("resumeInstruction", &args.resume_instruction)?;
    let started = parse_time(args.started_at.trim()).ok_or(Error::NotATime)?;
    let now = clock.now();
    // Clocks of two machines differ: a start in the future means no time has passed.
    let duration = spoken(now.duration_since(started).unwrap_or_default());
    let told = json!({"resumed": true, "duration": duration, "resumeInstruction": args.resume_instruction,
        "startedAt": args.started_at, "resumedAt": humantime::format_rfc3339_millis(now).to_string()});
    Ok(ToolOutput::new(format!("Resumed after {duration}. {}", args.resume_instruction), told))
}

fn page(args: &Wait, started: &str) -> String {
    let resume = json!({"resumeInstruction": args.resume_instruction, "startedAt": started});
    let body = format!(
        r#"<section role="dialog" aria-labelledby="message"><h1 id="message">{}</h1><p class="muted">{}</p>
<div class="row"><button class="primary" type="button" {}>Continue</button></div></section>"#,
        Escaped(&args.message),
        Escaped(&args.resume_instruction),
        html::action("resume_from_wait", &resume)
    );
    html::page("Waiting for you", &body)
}

/// `1h 2m`, `3m 4s` or `5s`.
fn spoken(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m {seconds}s"),
        (hours, minutes, _) => format!("{hours}h {minutes}m"),
    }
}

/// An RFC 3339 time, in UTC or with an offset.
fn parse_time(text: &str) -> Option<SystemTime> {
    if let Ok(time) = humantime::parse_rfc3339(text) {
        return Some(time);
    }
    let (local, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let local = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let minutes = hours.parse::<u64>().ok()?.checked_mul(60)?.checked_add(minutes.parse().ok()?)?;
    let offset_by = Duration::from_secs(minutes * 60);
    match offset.as_bytes().first()? {
        b'+' => local.checked_sub(offset_by),
        b'-' => local.checked_add(offset_by),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_two_units_at_most() {
        for (seconds, expected) in
            [(0, "0s"), (5, "5s"), (59, "59s"), (184, "3m 4s"), (3720, "1h 2m"), (180_000, "50h 0m")]
        {
            assert_eq!(spoken(Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn times_may_have_an_offset() {
        let noon = humantime::parse_rfc3339("2026-01-31T12:00:00Z").unwrap();
        for text in [
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00.000Z",
            "2026-01-31T14:30:00+02:30",
            "2026-01-31T11:00:00-01:00",
        ] {
            assert_eq!(parse_time(text), Some(noon), "{text}");
        }
        for text in [
            "",
            "now",
            "2026-01-31",
            "2026-01-31T12:00:00",
            "é+02:00",
            "2026-01-31T12:00:00+0200",
            "2026-01-31T12:00:00+xx:yy",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
