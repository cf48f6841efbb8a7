//! What was measured, beside what is allowed: one table of verdicts, then the numbers behind them.

use std::fmt::Write as _;

/// How a value compares with its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within it.
    Ok,
    /// Not within it.
    Over,
    /// There is none.
    Unjudged,
}

/// One measured value.
#[derive(Clone, Debug)]
struct Row {
    what: String,
    value: String,
    budget: String,
    verdict: Verdict,
}

/// What one part found out.
#[derive(Clone, Debug, Default)]
pub struct Section {
    rows: Vec<Row>,
    tables: Vec<Table>,
    notes: Vec<String>,
}

/// Numbers without a verdict.
#[derive(Clone, Debug)]
pub struct Table(Vec<Vec<String>>);

impl Table {
    /// A table with these columns.
    pub fn new<const N: usize>(columns: [&str; N]) -> Self {
        Self(vec![columns.map(str::to_owned).into()])
    }

    /// Adds a line.
    pub fn push<const N: usize>(&mut self, cells: [String; N]) {
        self.0.push(cells.into());
    }

    /// As Markdown that is also readable as it stands.
    fn markdown(&self) -> String {
        let columns = self.0.first().map_or(0, Vec::len);
        let cell = |line: &Vec<String>, column| line.get(column).map_or("", |text: &String| text).to_owned();
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.0.iter().map(|line| cell(line, column).chars().count()).max().unwrap_or(0))
            .collect();
        let mut out = String::new();
        for (number, line) in self.0.iter().enumerate() {
            for (column, width) in widths.iter().enumerate() {
                let text = cell(line, column);
                // By characters, because the formatter pads by them too.
                let _infallible = write!(out, "| {text:<width$} ");
            }
            out.push_str("|\n");
            if number == 0 {
                for width in &widths {
                    let _infallible = write!(out, "| {} ", "-".repeat((*width).max(3)));
                }
                out.push_str("|\n");
            }
        }
        out
    }
}

impl Section {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A value that must not exceed `budget`. `shown` is how it is written, if not as the bare number.
    pub fn at_most(
        &mut self,
        what: impl Into<String>,
        value: f64,
        shown: impl Into<String>,
        budget: f64,
        unit: &str,
    ) {
        let verdict = if value <= budget { Verdict::Ok } else { Verdict::Over };
        self.judged(what, shown, format!("≤ {budget}{unit}"), verdict);
    }

    /// A value that must not fall below `budget`.
    pub fn at_least(
        &mut self,
        what: impl Into<String>,
        value: f64,
        shown: impl Into<String>,
        budget: f64,
        unit: &str,
    ) {
        let verdict = if value >= budget { Verdict::Ok } else { Verdict::Over };
        self.judged(what, shown, format!("≥ {budget}{unit}"), verdict);
    }

    /// A value without a budget.
    pub fn value(&mut self, what: impl Into<String>, shown: impl Into<String>) {
        self.judged(what, shown, "–".to_owned(), Verdict::Unjudged);
    }

    fn judged(
        &mut self,
        what: impl Into<String>,
        shown: impl Into<String>,
        budget: String,
        verdict: Verdict,
    ) {
        self.rows.push(Row { what: what.into(), value: shown.into(), budget, verdict });
    }

    /// Adds the numbers behind the verdicts.
    pub fn table(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Adds a sentence.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Whether every budget is kept.
    pub fn is_ok(&self) -> bool {
        self.rows.iter().all(|row| row.verdict != Verdict::Over)
    }

    /// The values that are over their budgets.
    pub fn missed(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter(|row| row.verdict == Verdict::Over).map(|row| row.what.as_str())
    }

    /// All of it as Markdown.
    pub fn markdown(&self) -> String {
        let mut verdicts = Table::new(["what", "value", "budget", ""]);
        for row in &self.rows {
            let verdict = match row.verdict {
                Verdict::Ok => "ok",
                Verdict::Over => "OVER",
                Verdict::Unjudged => "",
            };
            verdicts.push([row.what.clone(), row.value.clone(), row.budget.clone(), verdict.to_owned()]);
        }
        let tables = std::iter::once(&verdicts).chain(&self.tables).map(Table::markdown);
        let notes = self.notes.iter().map(|note| format!("{note}\n"));
        tables.chain(notes).collect::<Vec<_>>().join("\n")
    }
}

/// Bytes as `12.3 MiB` or `5.4 KiB`.
#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
pub fn bytes(count: u64) -> String {
    let kibibytes = count as f64 / 1024.0;
    if kibibytes < 1024.0 { format!("{kibibytes:.1} KiB") } else { format!("{:.1} MiB", kibibytes / 1024.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_follow_the_budgets() {
        let mut section = Section::new();
        section.at_most("memory", 25.0, "25 MiB", 25.0, " MiB");
        section.at_least("ratio", 0.71, "0.71", 0.7, "");
        section.value("rate", "5 req/s");
        assert!(section.is_ok());
        section.at_least("other ratio", 0.69, "0.69", 0.7, "");
        section.at_most("start", 61.0, "61 ms", 60.0, " ms");
        assert_eq!(section.missed().collect::<Vec<_>>(), ["other ratio", "start"]);
        let text = section.markdown();
        assert!(text.contains("| memory      | 25 MiB  | ≤ 25 MiB | ok   |"), "{text}");
        assert!(text.contains("| start       | 61 ms   | ≤ 60 ms  | OVER |"), "{text}");
    }

    #[test]
    fn a_failed_comparison_is_over() {
        let mut section = Section::new();
        section.at_most("ratio", f64::NAN, "none", 1.0, "");
        assert!(!section.is_ok(), "what was not measured keeps no budget");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes(5 * 1024 + 512), "5.5 KiB");
        assert_eq!(bytes(25 << 20), "25.0 MiB");
    }
}
