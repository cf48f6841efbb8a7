//! The tools and the shapes of their arguments.

use moongate_core::{
    Scope,
    builtin::{Effect, ToolSpec},
    schema,
};
use serde_json::{Value, json};

use super::{
    export::{MAX_PACKAGE_NAME, MAX_PACKED},
    grep::MAX_PATTERN,
    path::MAX_PATH,
    text::MAX_REPLACEMENTS,
};

pub(crate) fn all() -> Vec<ToolSpec> {
    [reading(), writing(), exchanging()].concat()
}

fn tool(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    input_schema: Value,
    effect: Effect,
) -> ToolSpec {
    ToolSpec { name, title, description, input_schema, aliases: &[], scope: Scope::CONTROL, effect }
}

fn reading() -> Vec<ToolSpec> {
    vec![
        tool(
            "read_file",
            "Read file",
            "Reads a text file of the workspace, all of it or some lines.",
            schema::object(
                json!({
                    "path": path("The file"),
                    "start_line": schema::number(1, "The first line, from 1"),
                    "end_line": schema::number(1, "The last line; to the end if absent"),
                }),
                &["path"],
            ),
            Effect::Reads,
        ),
        tool(
            "list_directory",
            "List directory",
            "Lists a directory of the workspace, directories first.",
            schema::object(json!({"path": path("The directory; the workspace itself if absent")}), &[]),
            Effect::Reads,
        ),
        tool(
            "search_files",
            "Search files",
            "Finds files and directories by a glob pattern: * and ? within a name, ** across directories, [a-z], {a,b}. A \
             pattern without / is compared with names, another with paths below the directory searched.",
            schema::object(
                json!({
                    "pattern": pattern("The glob pattern, such as *.rs or src/**/*.rs"),
                    "path": path("Where to search; the workspace itself if absent"),
                    "max_depth": schema::number(1, "How deep; 1 is the directory alone"),
                    "file_type": schema::choice(&["file", "dir", "both"], "What to find; both if absent"),
                }),
                &["pattern"],
            ),
            Effect::Reads,
        ),
        tool(
            "grep",
            "Search in files",
            "Shows the lines that match a regular expression: of a file, of all text files below a directory, or of a given \
             text.",
            schema::object(
                json!({
                    "pattern": pattern("The regular expression, without look-around and back-references"),
                    "path": path("The file or directory to search; this or input"),
                    "input": schema::optional_text("The text to search; this or path"),
                    "ignore_case": schema::flag("Whether A matches a; false if absent"),
                    "line_numbers": schema::flag("Whether to number the lines; false if absent"),
                }),
                &["pattern"],
            ),
            Effect::Reads,
        ),
    ]
}

fn writing() -> Vec<ToolSpec> {
    let replacement = json!({"type": "object", "additionalProperties": false, "properties": {
        "start_line": schema::number(1, "The first line to replace, from 1"),
        "line_number": schema::number(1, "The same as start_line"),
        "end_line": schema::number(1, "The last line to replace; start_line if absent"),
        "new_content": schema::optional_text("What takes their place; empty or absent removes the lines"),
    }});
    vec![
        tool(
            "write_file",
            "Write file",
            "Writes a text file of the workspace. Directories on the way are made.",
            schema::object(
                json!({
                    "path": path("The file"),
                    "content": schema::optional_text("What to write"),
                    "mode": schema::choice(&["w", "a"], "w overwrites, a appends; w if absent"),
                }),
                &["path", "content"],
            ),
            Effect::Overwrites,
        ),
        tool(
            "replace_lines_in_file",
            "Replace lines in file",
            "Replaces, removes or expands lines of a text file. All line numbers are those of the file before the call.",
            schema::object(
                json!({
                    "path": path("The file"),
                    "replacements": {"type": "array", "items": replacement, "minItems": 1,
                        "maxItems": MAX_REPLACEMENTS, "description": "What to replace; no two may overlap"},
                }),
                &["path", "replacements"],
            ),
            Effect::Overwrites,
        ),
    ]
}

fn exchanging() -> Vec<ToolSpec> {
    let words = |description: &str| json!({"type": "string", "maxLength": 2000, "description": description});
    vec![
        tool(
            "import_file",
            "Import file",
            "Copies a file into the workspace from a directory that the operator has opened for that.",
            schema::object(
                json!({
                    "src_abs_path": {"type": "string", "minLength": 1, "maxLength": 4096,
                        "description": "The absolute path of the file to copy"},
                    "dest_rel_path": path("Where to put it"),
                }),
                &["src_abs_path", "dest_rel_path"],
            ),
            Effect::Overwrites,
        ),
        tool(
            "export_file",
            "Export file",
            "Puts a copy of a file under exports/files and shows it to the user.",
            schema::object(
                json!({
                    "path": path("The file"),
                    "display_name": words("What to call it"),
                    "description": words("What it is"),
                }),
                &["path"],
            ),
            Effect::Adds,
        ),
        tool(
            "export_zip",
            "Export zip",
            "Packs files into a zip archive under exports/packages and shows it to the user.",
            schema::object(
                json!({
                    "files": {"type": "array", "items": path("A file"), "minItems": 1, "maxItems": MAX_PACKED,
                        "description": "The files to pack"},
                    "package_name": {"type": "string", "minLength": 1, "maxLength": MAX_PACKAGE_NAME,
                        "description": "The archive's name without .zip; workspace_export if absent"},
                    "description": words("What it is"),
                }),
                &["files"],
            ),
            Effect::Adds,
        ),
    ]
}

fn path(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": MAX_PATH,
        "description": format!("{description}. Relative to the workspace")})
}

fn pattern(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": MAX_PATTERN, "description": description})
}
