//! Problems as text for people: a sentence, the line it is about, and what would be right.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet, renderer::DecorStyle};

use super::{Problem, Problems, offset};

pub(super) fn all(problems: &Problems, colours: bool) -> String {
    let renderer =
        if colours { Renderer::styled() } else { Renderer::plain() }.decor_style(DecorStyle::Ascii);
    let mut blocks: Vec<_> = problems.list.iter().map(|problem| one(&renderer, problems, problem)).collect();
    let count = problems.count();
    let plural = if count == 1 { "" } else { "s" };
    blocks.push(format!("{count} problem{plural} in {}\n", problems.origin));
    blocks.join("\n\n")
}

fn one(renderer: &Renderer, problems: &Problems, problem: &Problem) -> String {
    let title = match problem.path.as_str() {
        "" => problem.message.clone(),
        path => format!("{path}: {}", problem.message),
    };
    let (line, span) = line_and_span(&problems.source, problem);
    let label = problem.nearest.as_ref().map(|nearest| format!("did you mean `{nearest}`?"));
    let footer = match &label {
        Some(_) => None,
        None => problem.expected.as_ref().map(|expected| Level::HELP.message(format!("expected {expected}"))),
    };
    // One line at a time: the renderer looks at all it is given, once per problem.
    let snippet = Snippet::source(line)
        .path(problems.origin.as_str())
        .line_start(problem.line)
        .annotation(AnnotationKind::Primary.span(span).label(label));
    let group: Group<'_> = Level::ERROR.primary_title(title).element(snippet).elements(footer);
    renderer.render(&[group])
}

/// The line a problem is on, and the bytes of that line it is about: at least one character, if there is one.
fn line_and_span<'s>(source: &'s str, problem: &Problem) -> (&'s str, Range<usize>) {
    let line =
        source.split('\n').nth(problem.line.saturating_sub(1)).unwrap_or_default().trim_end_matches('\r');
    let start = offset(line, 1, problem.column);
    let rest = line.get(start..).unwrap_or_default();
    let wanted = problem.span.len().max(1);
    let end = start + rest.ceil_char_boundary(wanted.min(rest.len()));
    (line, start..end)
}
