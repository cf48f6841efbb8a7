//! Word documents: paragraphs as lines, headings and lists as Markdown writes them, tables as Markdown tables.

use super::{
    ExtractError, Kind, Limits,
    xml::{self, Piece, Pieces, Tag},
    zip::Archive,
};

/// A cell that claims to span more columns is not believed.
const WIDEST_SPAN: usize = 64;
/// What a cell counts for beside its text, so that a file of nothing but cells has an end.
const CELL: usize = 8;
/// Rows of larger tables are not filled up to the same length.
const MOST_FILLED: usize = 100_000;

pub(super) fn read(bytes: &[u8], limits: &Limits) -> Result<String, ExtractError> {
    let mut archive = Archive::open(bytes, Kind::Docx, limits)?;
    let mut text = part_text(&archive.require("word/document.xml")?, limits)?;
    for notes in ["word/footnotes.xml", "word/endnotes.xml"] {
        if let Some(part) = archive.part(notes)? {
            text.push_str(&part_text(&part, limits)?);
        }
    }
    Ok(text)
}

fn part_text(part: &[u8], limits: &Limits) -> Result<String, ExtractError> {
    let part = xml::decode(part, Kind::Docx)?;
    let mut pieces = Pieces::new(&part, Kind::Docx);
    let mut page = Page::default();
    while let Some(piece) = pieces.next()? {
        limits.patience.go_on()?;
        match piece {
            Piece::Open(tag) => page.open(&tag),
            Piece::Close(name) => page.close(&name),
            Piece::Text(text) => page.text(&text),
        }
        if page.size > limits.text {
            return Err(ExtractError::TooLong { limit: limits.text });
        }
    }
    Ok(page.text)
}

/// What was read so far.
#[derive(Debug, Default)]
struct Page {
    text: String,
    paragraph: String,
    /// What the paragraph begins with: the mark of a heading or of a list's item.
    mark: String,
    /// The tables that are open, outermost first.
    tables: Vec<Table>,
    in_text: bool,
    /// How deep in what is shown only by programs that do not know the better form.
    fallback: usize,
    /// How many bytes were read, wherever they are now.
    size: usize,
}

#[derive(Debug, Default)]
struct Table {
    rows: Vec<Vec<String>>,
    cell: String,
    span: usize,
}

impl Page {
    fn open(&mut self, tag: &Tag<'_>) {
        match tag.name() {
            "Fallback" => self.fallback += 1,
            _ if self.fallback > 0 => {}
            "t" => self.in_text = true,
            // In the settings of a paragraph a `tab` is a place, in its text it is a character.
            "tab" if tag.attribute("pos").is_none() => self.write("\t"),
            "br" | "cr" => self.write("\n"),
            "noBreakHyphen" => self.write("-"),
            "pStyle" => {
                let style = tag.attribute("val").unwrap_or_default().to_ascii_lowercase();
                self.mark = mark(&style);
            }
            "numPr" if self.mark.is_empty() => "- ".clone_into(&mut self.mark),
            "tbl" => self.tables.push(Table::default()),
            "tr" => self.with_table(|table| table.rows.push(Vec::new())),
            "tc" => self.with_table(|table| table.span = 1),
            "gridSpan" => {
                let span = tag.attribute("val").and_then(|span| span.parse().ok()).unwrap_or(1);
                let span = std::cmp::min(span, WIDEST_SPAN);
                self.with_table(|table| table.span = span);
            }
            _ => {}
        }
    }

    fn close(&mut self, name: &str) {
        match name {
            "Fallback" => self.fallback = self.fallback.saturating_sub(1),
            _ if self.fallback > 0 => {}
            "t" => self.in_text = false,
            "p" => self.end_paragraph(),
            "tc" => {
                // The cells that it spans are cells as well.
                self.size += self.tables.last().map_or(0, |table| table.span * CELL);
                self.with_table(Table::end_cell);
            }
            "tbl" => self.end_table(),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if self.in_text && self.fallback == 0 {
            self.write(text);
        }
    }

    fn write(&mut self, text: &str) {
        self.size += text.len();
        self.paragraph.push_str(text);
    }

    fn with_table(&mut self, change: impl FnOnce(&mut Table)) {
        self.size += CELL;
        if let Some(table) = self.tables.last_mut() {
            change(table);
        }
    }

    fn end_paragraph(&mut self) {
        let paragraph = std::mem::take(&mut self.paragraph);
        let mark = std::mem::take(&mut self.mark);
        let (text, end) = match self.tables.last_mut() {
            Some(table) => (&mut table.cell, " "),
            None => (&mut self.text, "\n"),
        };
        if !paragraph.is_empty() && end == "\n" {
            text.push_str(&mark);
        }
        text.push_str(&paragraph);
        text.push_str(end);
        self.size += end.len();
    }

    fn end_table(&mut self) {
        let Some(table) = self.tables.pop() else { return };
        if let Some(outer) = self.tables.last_mut() {
            // A table in a cell is read through, row by row.
            let cells = table.rows.iter().flatten().filter(|cell| !cell.is_empty());
            outer.cell.push_str(&cells.map(String::as_str).collect::<Vec<_>>().join(" "));
            outer.cell.push(' ');
        } else {
            self.text.push_str(&table.markdown());
        }
    }
}

impl Table {
    fn end_cell(&mut self) {
        let cell = std::mem::take(&mut self.cell);
        let cell = cell.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
            row.extend((1..self.span).map(|_| String::new()));
        }
    }

    fn markdown(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut text = String::from("\n");
        for (number, row) in self.rows.iter().enumerate() {
            let cells =
                row.iter().map(|cell| cell.replace('|', "\\|")).chain(std::iter::repeat(String::new()));
            let length = if self.rows.len() * columns > MOST_FILLED { row.len() } else { columns };
            text.push_str(&line(cells.take(length)));
            if number == 0 {
                text.push_str(&line((0..columns).map(|_| "---".to_owned())));
            }
        }
        text.push('\n');
        text
    }
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.fold(String::from("|"), |line, cell| line + " " + &cell + " |") + "\n"
}

/// What paragraphs of a style begin with: `Heading2` and `heading 2` are of level 2, `Title` is of level 1; Word's names
/// for them in other languages are numbers.
fn mark(style: &str) -> String {
    if style.starts_with("list") {
        return "- ".to_owned();
    }
    let level = match style.strip_prefix("heading").unwrap_or(style).trim() {
        "title" => 1,
        level => level.parse::<usize>().unwrap_or(0),
    };
    if (1..=6).contains(&level) { "#".repeat(level) + " " } else { String::new() }
}
