//! The tools as they are listed, in the words of each version.

use serde_json::{Map, Value, json};

use crate::{Chaos, Misbehaviour, Version};

/// A tool: its name, what it does, its arguments with their types.
type Tool<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// Every tool. The last stays last, after those that are added and generated.
const TOOLS: [Tool<'_>; 24] = [
    ("echo", "Returns the text.", &[("text", "string")]),
    ("add", "Adds two numbers.", &[("a", "number"), ("b", "number")]),
    ("route", "Returns the region, which modern clients repeat in a header.", &[("region", "string")]),
    ("whoami", "What this server knows about the one who calls.", &[]),
    ("progress", "Reports progress in so many steps.", &[("steps", "integer")]),
    ("log", "Logs the text at the level.", &[("level", "string"), ("text", "string")]),
    ("wait", "Reports progress once and does not answer until it is cancelled.", &[]),
    ("cancelled", "How many calls were cancelled.", &[]),
    ("ask_form", "Asks the user.", &[("message", "string")]),
    ("ask_model", "Asks the client's model.", &[("prompt", "string")]),
    ("ask_roots", "Asks for the client's roots.", &[]),
    ("ask_twice", "Asks the user, then the model.", &[]),
    ("links", "Returns content of every type.", &[]),
    ("fail", "Fails.", &[]),
    ("error", "Answers with an error.", &[("code", "integer"), ("message", "string")]),
    ("count", "Counts its calls.", &[]),
    ("change_tools", "Adds a tool.", &[]),
    ("touch", "Says that a resource has changed.", &[("uri", "string")]),
    ("big", "Returns so many bytes.", &[("bytes", "integer")]),
    ("crash", "Exits in the middle of a line.", &[]),
    ("exit", "Exits without an answer.", &[]),
    ("forget", "Forgets the session after answering.", &[]),
    ("ping_client", "Pings the client.", &[]),
    ("breaches", "What the client did wrong so far.", &[]),
];

/// The list. `added` is how many tools `change_tools` has added.
pub(crate) fn list(version: Version, chaos: &Chaos, added: u64) -> Vec<Value> {
    let (own, last) = TOOLS.split_at(TOOLS.len() - 1);
    let offered = |(name, _, _): &&Tool<'_>| !version.is_modern() || !LEGACY.contains(name);
    let mut tools: Vec<Value> = own.iter().filter(offered).map(|tool| describe(version, *tool)).collect();
    tools
        .extend((1..=added).map(|number| describe(version, (&format!("added_{number}"), "Was added.", &[]))));
    tools.extend(generated(version, chaos));
    tools.extend(last.iter().map(|tool| describe(version, *tool)));
    tools
}

/// Tools that make no sense where there are no sessions and no requests to clients.
const LEGACY: [&str; 2] = ["ping_client", "forget"];

fn describe(version: Version, (name, description, arguments): Tool<'_>) -> Value {
    let properties: Map<String, Value> =
        arguments.iter().map(|(name, kind)| ((*name).to_owned(), json!({"type": kind}))).collect();
    let required: Vec<&str> = arguments.iter().map(|(name, _)| *name).collect();
    let schema = json!({"type": "object", "properties": properties, "required": required});
    let mut tool = json!({"name": name, "description": description, "inputSchema": schema});
    if version >= Version::March2025 {
        tool["annotations"] = json!({"readOnlyHint": name == "echo", "openWorldHint": false});
    }
    if version >= Version::June2025 {
        tool["title"] = json!(format!("The tool {name}"));
        if name == "add" {
            tool["outputSchema"] =
                json!({"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]});
        }
    }
    if version.is_modern() && name == "route" {
        tool["inputSchema"]["properties"]["region"]["x-mcp-header"] = json!("Region");
        // Left out where it is not given: then there is no header either.
        tool["inputSchema"]["required"] = json!([]);
    }
    if version >= Version::November2025 {
        tool["icons"] = json!([{"src": "data:image/png;base64,AAAA", "mimeType": "image/png"}]);
    }
    tool
}

fn generated(version: Version, chaos: &Chaos) -> Vec<Value> {
    let count = chaos.find(|one| if let Misbehaviour::Tools(count) = one { Some(count) } else { None });
    let bytes = chaos.find(|one| if let Misbehaviour::SchemaBytes(bytes) = one { Some(bytes) } else { None });
    let count = count.unwrap_or_else(|| usize::from(bytes.is_some()));
    let padding = "x".repeat(bytes.unwrap_or_default());
    let make = |number| {
        let mut tool = describe(version, (&format!("generated_{number}"), "Was generated.", &[]));
        tool["inputSchema"]["description"] = json!(padding);
        tool
    };
    (1..=count).map(make).collect()
}
