//! The tools and the shapes of their arguments.

use moongate_core::{
    Scope,
    builtin::{Effect, ToolSpec},
    schema,
};
use moongate_launch::Network;
use serde_json::{Value, json};

/// Characters of a command. Of the longer ones the system takes 128 KiB.
const SHELL_COMMAND: usize = 1000;
const COMMAND: usize = 30_000;
/// Seconds.
const SHELL_TIMEOUT: u32 = 300;
const TIMEOUT: u32 = 86_400;

/// All of them, for commands with this network.
pub(crate) fn all(network: Network) -> Vec<ToolSpec> {
    let mut tools = running(network);
    tools.extend(watching());
    tools
}

fn tool(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    effect: Effect,
    input_schema: Value,
) -> ToolSpec {
    ToolSpec { name, title, description, input_schema, aliases: &[], scope: Scope::CONTROL, effect }
}

fn running(network: Network) -> Vec<ToolSpec> {
    let (command, shell) = match network {
        Network::None => (
            "Starts a command with /bin/sh in the directory of this session, and answers at once with its processId; \
             poll_process tells how it is. The command has no network and may write to that directory only. Whatever it \
             leaves in the background ends with it.",
            "Runs a command with /bin/sh in the directory of this session and answers with its output and exit code. The \
             command has no network and may write to that directory only. What takes longer than it may, by default 30 \
             seconds, needs run_mode async.",
        ),
        Network::Outbound => (
            "Starts a command with /bin/sh in the directory of this session, and answers at once with its processId; \
             poll_process tells how it is. The command may write to that directory only. Whatever it leaves in the \
             background ends with it.",
            "Runs a command with /bin/sh in the directory of this session and answers with its output and exit code. The \
             command may write to that directory only. What takes longer than it may, by default 30 seconds, needs run_mode \
             async.",
        ),
    };
    let arguments = |longest: usize, most: u32, mode: &str, time: &str| {
        let properties = json!({
            "command": {"type": "string", "minLength": 1, "maxLength": longest,
                "description": "The command line, as a shell takes it"},
            "run_mode": schema::choice(&["sync", "async"], mode),
            "timeout": range(most, time),
        });
        schema::object(properties, &["command"])
    };
    vec![
        tool(
            "execute_command",
            "Execute command",
            command,
            Effect::Anything,
            arguments(
                COMMAND,
                TIMEOUT,
                "async answers at once, which is the default; sync waits for the end",
                "Seconds after which it is killed. Without, a command that is waited for has the most it may have, by \
                 default 30; others have no limit",
            ),
        ),
        tool(
            "execute_shell",
            "Execute shell command",
            shell,
            Effect::Anything,
            arguments(
                SHELL_COMMAND,
                SHELL_TIMEOUT,
                "sync waits for the end, which is the default; async answers at once",
                "Seconds after which it is killed. Without, a command that is waited for has the most it may have, by \
                 default 30",
            ),
        ),
    ]
}

fn watching() -> Vec<ToolSpec> {
    let tail = json!({"type": "object", "additionalProperties": false,
        "description": "Which lines to show; the last 10 of stdout if absent",
        "properties": {"src": stream("The stream; stdout if absent"), "n": range(100, "How many lines; 10 if absent")}});
    vec![
        tool(
            "poll_process",
            "Poll process",
            "Tells how a process of this session is: its status, its exit code and its last lines.",
            Effect::Reads,
            of_process(json!({"tail": tail}), &[]),
        ),
        tool(
            "read_process_output",
            "Read process output",
            "Reads up to 100 lines of what a process of this session has written, from either end.",
            Effect::Reads,
            of_process(
                json!({
                    "stream": stream("The stream"),
                    "mode": schema::choice(&["tail", "head"], "From which end; tail if absent"),
                    "lines": range(100, "How many lines; 20 if absent"),
                }),
                &["stream"],
            ),
        ),
        tool(
            "list_processes",
            "List processes",
            "Lists the processes of this session, the newest first.",
            Effect::Reads,
            schema::object(
                json!({"status_filter": schema::choice(&["all", "running", "finished"], "Which; all if absent")}),
                &[],
            ),
        ),
        tool(
            "terminate_process",
            "Terminate process",
            "Ends a process of this session and all that it has started. It is asked first and killed after 3 seconds.",
            Effect::Anything,
            of_process(json!({"force": schema::flag("Kill it at once")}), &[]),
        ),
    ]
}

/// Arguments of a tool for one process. Neither spelling of the id is required, because either will do.
fn of_process(mut properties: Value, required: &[&str]) -> Value {
    let id = |description: &str| json!({"type": "string", "maxLength": 64, "description": description});
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("processId".to_owned(), id("The id that starting it gave; required"));
        properties.insert("process_id".to_owned(), id("The same as processId"));
    }
    schema::object(properties, required)
}

fn stream(description: &str) -> Value {
    schema::choice(&["stdout", "stderr"], description)
}

/// A whole number from 1 on, as a number or as digits in a string.
fn range(most: u32, description: &str) -> Value {
    let digits = most.to_string().len();
    json!({"type": ["integer", "string"], "minimum": 1, "maximum": most,
        "pattern": format!("^[1-9][0-9]{{0,{}}}$", digits - 1), "description": description})
}
