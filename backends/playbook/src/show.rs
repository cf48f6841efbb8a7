//! Playbooks for readers: Markdown for the model, a page for the person.

use std::fmt::{self, Write};

use moongate_core::html::{self, Escaped};
use serde_json::json;

use crate::{
    library::{Listing, Place},
    record::{InputKind, Record},
    template::{Values, fill, plain},
};

/// One playbook in full.
pub(crate) fn detail(record: &Record) -> String {
    let mut out = String::new();
    write_detail(&mut out, record).expect("writing to a string cannot fail");
    out
}

/// What to do now that the playbook is selected, with its templates filled in.
pub(crate) fn instructions(record: &Record, values: &Values) -> String {
    let mut out = fill(&detail(record), values);
    write_instructions(&mut out, record, values).expect("writing to a string cannot fail");
    out
}

/// A page of the list, one line each.
pub(crate) fn list(listing: &Listing) -> String {
    let Place { page, total_items, total_pages, .. } = listing.place;
    if total_items == 0 {
        return "No playbooks found".to_owned();
    }
    let mut out = format!("{total_items} playbooks, page {page} of {total_pages}:");
    for record in &listing.records {
        let goal = record.goal.as_deref().unwrap_or("no goal");
        write!(out, "\n- {}: {} ({}): {goal}", record.id, record.name, steps(record))
            .expect("writing to a string cannot fail");
    }
    out
}

/// A page of the list with buttons to select, delete and turn over.
pub(crate) fn page(listing: &Listing) -> String {
    let mut body = String::from("<h1>Playbooks</h1>");
    write_page(&mut body, listing).expect("writing to a string cannot fail");
    html::page("Playbooks", &body)
}

fn write_detail(out: &mut String, record: &Record) -> fmt::Result {
    writeln!(out, "# {}", record.title.as_deref().unwrap_or(&record.name))?;
    writeln!(out, "Id: {}", record.id)?;
    if let Some(goal) = &record.goal {
        writeln!(out, "Goal: {goal}")?;
    }
    if let Some(command) = &record.initial_command {
        writeln!(out, "Initial command: {command}")?;
    }
    if !record.workflow.is_empty() {
        writeln!(out, "\n## Steps")?;
    }
    for (index, step) in record.workflow.iter().enumerate() {
        let work = &step.work;
        writeln!(out, "{}. {}", index + 1, work.description)?;
        writeln!(out, "   - tool: {} ({})", work.action.tool_name, work.action.purpose)?;
        if !work.required_data.is_empty() {
            writeln!(out, "   - needs: {}", work.required_data.join(", "))?;
        }
        writeln!(out, "   - result: {}", work.output_variable)?;
    }
    if let Some(criteria) = &record.success_criteria {
        writeln!(out, "\n## Success criteria\n{}", criteria.description)?;
        for artifact in &criteria.required_artifacts {
            writeln!(out, "- {artifact}")?;
        }
    }
    Ok(())
}

fn write_instructions(out: &mut String, record: &Record, values: &Values) -> fmt::Result {
    if !record.inputs.is_empty() {
        writeln!(out, "\n## Inputs")?;
    }
    for input in &record.inputs {
        let kind = match input.kind {
            InputKind::String => "string",
            InputKind::Number => "number",
            InputKind::Boolean => "boolean",
        };
        match values.get(&input.name) {
            Some(value) => writeln!(out, "- {} = {}", input.name, plain(value))?,
            None => {
                writeln!(out, "- {} ({kind}) is not given; ask the user: {}", input.name, input.description)?;
            }
        }
    }
    out.push_str(
        "\n## What to do now\n1. Review the steps and check that their tools are available.\n\
         2. Derive todos from the steps.\n3. Execute the steps in order and keep each result for the steps that need it.\n\
         4. Track progress against the success criteria, and say when they are met.\n",
    );
    Ok(())
}

fn write_page(out: &mut String, listing: &Listing) -> fmt::Result {
    let Place { page, page_size, total_items, total_pages } = listing.place;
    if total_items == 0 {
        return out.write_str("<p>No playbooks found</p>");
    }
    out.push_str(r#"<ul class="cards">"#);
    for record in &listing.records {
        write_card(out, record)?;
    }
    out.push_str(r#"</ul><nav class="row" aria-label="Pages">"#);
    let turn = |label: &str, to: usize| {
        html::button(
            label,
            &format!("{label} page"),
            "get_playbook_page",
            &json!({"page": to, "pageSize": page_size}),
        )
    };
    if page > 1 {
        out.push_str(&turn("Previous", page - 1));
    }
    write!(out, r#"<span class="muted">Page {page} of {total_pages}, {total_items} in all</span>"#)?;
    if page < total_pages {
        out.push_str(&turn("Next", page + 1));
    }
    out.write_str("</nav>")
}

fn write_card(out: &mut String, record: &Record) -> fmt::Result {
    let (name, id) = (Escaped(&record.name), json!({"id": record.id}));
    write!(out, "<li><h2>{name}</h2>")?;
    if let Some(goal) = &record.goal {
        write!(out, "<p>{}</p>", Escaped(goal))?;
    }
    write!(out, r#"<p class="muted">{}</p><div class="row">"#, steps(record))?;
    out.push_str(&html::button("Select", &format!("Select {}", record.name), "select_playbook", &id));
    out.push_str(&html::risky_button(
        "Delete",
        &format!("Delete {}", record.name),
        "Delete for good?",
        "delete_playbook",
        &id,
    ));
    out.write_str("</div></li>")
}

fn steps(record: &Record) -> String {
    match record.workflow.len() {
        1 => "1 step".to_owned(),
        count => format!("{count} steps"),
    }
}
