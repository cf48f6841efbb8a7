//! What was found, for people and for programs.

use std::fmt::Write as _;

use serde::Serialize;

use crate::find::Upstream;

/// How wide the column is that says where something was found.
const AREA: usize = 13;

/// Everything that was found.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    findings: Vec<Finding>,
    /// The servers behind the gateway, in full.
    pub(super) upstreams: Vec<Upstream>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Where.
    pub(super) area: String,
    /// How it is.
    pub(super) state: State,
    /// What was seen.
    pub(super) text: String,
    /// What to do about a problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
    /// More about it, a line each; programs find it among the servers.
    #[serde(skip)]
    pub(super) details: Vec<String>,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum State {
    /// As it should be.
    Fine,
    /// Worth knowing.
    Note,
    /// Wrong.
    Problem,
}

impl Finding {
    pub(super) fn fine(area: impl Into<String>, text: impl Into<String>) -> Self {
        Self { area: area.into(), state: State::Fine, text: text.into(), advice: None, details: Vec::new() }
    }

    pub(super) fn note(area: impl Into<String>, text: impl Into<String>) -> Self {
        Self { state: State::Note, ..Self::fine(area, text) }
    }

    pub(super) fn problem(
        area: impl Into<String>,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { state: State::Problem, advice: Some(advice.into()), ..Self::fine(area, text) }
    }

    pub(super) fn with_details(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }
}

impl Report {
    pub(super) fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    pub(super) fn extend(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings);
    }

    /// What is wrong.
    pub(super) fn problems(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.state == State::Problem)
    }

    /// The report for people: all that was seen, then what to do.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let mark = match finding.state {
                State::Fine => "ok",
                State::Note => "note",
                State::Problem => "WRONG",
            };
            let _infallible = writeln!(text, "{mark:5}  {:AREA$}  {}", finding.area, finding.text);
            for detail in &finding.details {
                let _infallible = writeln!(text, "{:5}  {:AREA$}  {detail}", "", "");
            }
        }
        let problems: Vec<&Finding> = self.problems().collect();
        let heading = match problems.len() {
            0 => "Nothing is wrong.".to_owned(),
            1 => "1 problem; what to do:".to_owned(),
            count => format!("{count} problems; what to do:"),
        };
        text.extend(["\n", &heading, "\n"]);
        for problem in problems {
            let advice = problem.advice.as_deref().unwrap_or_default();
            let _infallible = writeln!(text, "  {}: {advice}", problem.area);
        }
        text
    }
}
