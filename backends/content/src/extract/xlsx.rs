//! Workbooks: each sheet as a line with its name, then its rows, cells parted by tabs.

use std::collections::HashMap;

use super::{
    ExtractError, Kind, Limits,
    xml::{self, Piece, Pieces, Tag},
    zip::Archive,
};

/// No workbook has more columns.
const MOST_COLUMNS: usize = 16_384;
/// What a shared string counts for, so that a file of nothing but empty ones has an end.
const STRING: usize = 8;

pub(super) fn read(bytes: &[u8], limits: &Limits) -> Result<String, ExtractError> {
    let mut archive = Archive::open(bytes, Kind::Xlsx, limits)?;
    let sheets = sheets(&archive.require("xl/workbook.xml")?)?;
    let targets = match archive.part("xl/_rels/workbook.xml.rels")? {
        Some(part) => targets(&part)?,
        None => HashMap::new(),
    };
    let shared = match archive.part("xl/sharedStrings.xml")? {
        Some(part) => shared_strings(&part, limits)?,
        None => Vec::new(),
    };
    let mut text = String::new();
    for (number, sheet) in sheets.iter().enumerate() {
        limits.patience.go_on()?;
        let target = targets.get(&sheet.relation).cloned();
        let target = target.unwrap_or_else(|| format!("xl/worksheets/sheet{}.xml", number + 1));
        // A chart stands among the sheets, and has none of its own.
        let Some(part) = archive.part(&target)?.filter(|_| !target.contains("chartsheets")) else { continue };
        text.extend(["# ", &one_line(&sheet.name), "\n"]);
        rows(&part, &shared, &mut text, limits)?;
        text.push('\n');
    }
    Ok(text)
}

#[derive(Debug)]
struct Sheet {
    name: String,
    relation: String,
}

fn sheets(part: &[u8]) -> Result<Vec<Sheet>, ExtractError> {
    let mut sheets = Vec::new();
    each_tag(part, |tag| {
        if tag.name() == "sheet" {
            let [name, relation] = ["name", "id"].map(|name| tag.attribute(name).unwrap_or_default());
            sheets.push(Sheet { name, relation });
        }
    })?;
    Ok(sheets)
}

fn targets(part: &[u8]) -> Result<HashMap<String, String>, ExtractError> {
    let mut targets = HashMap::new();
    each_tag(part, |tag| {
        if let (Some(id), Some(target)) = (tag.attribute("Id"), tag.attribute("Target")) {
            let target = target.strip_prefix('/').map_or_else(|| format!("xl/{target}"), str::to_owned);
            targets.insert(id, target);
        }
    })?;
    Ok(targets)
}

fn each_tag(part: &[u8], mut see: impl FnMut(&Tag<'_>)) -> Result<(), ExtractError> {
    let part = xml::decode(part, Kind::Xlsx)?;
    let mut pieces = Pieces::new(&part, Kind::Xlsx);
    while let Some(piece) = pieces.next()? {
        if let Piece::Open(tag) = piece {
            see(&tag);
        }
    }
    Ok(())
}

fn shared_strings(part: &[u8], limits: &Limits) -> Result<Vec<String>, ExtractError> {
    let part = xml::decode(part, Kind::Xlsx)?;
    let mut pieces = Pieces::new(&part, Kind::Xlsx);
    let (mut strings, mut text) = (Vec::new(), Written::default());
    while let Some(piece) = pieces.next()? {
        limits.patience.go_on()?;
        text.see(&piece);
        if matches!(&piece, Piece::Close(name) if name == "si") {
            strings.push(std::mem::take(&mut text.text));
            // Empty ones take room as well.
            check(strings.len() * STRING, limits)?;
        }
    }
    Ok(strings)
}

/// Collects the text of `t` elements, without the readings that Japanese workbooks write above it.
#[derive(Debug, Default)]
struct Written {
    text: String,
    inside: bool,
    reading: bool,
}

impl Written {
    fn see(&mut self, piece: &Piece<'_>) {
        match piece {
            Piece::Open(tag) => match tag.name() {
                "t" => self.inside = true,
                "rPh" => self.reading = true,
                _ => {}
            },
            Piece::Close(name) => match name.as_str() {
                "t" => self.inside = false,
                "rPh" => self.reading = false,
                _ => {}
            },
            Piece::Text(text) if self.inside && !self.reading => self.text.push_str(text),
            Piece::Text(_) => {}
        }
    }
}

/// One cell while it is read.
#[derive(Debug, Default)]
struct Cell {
    column: usize,
    kind: String,
    value: String,
    in_value: bool,
    inline: Written,
}

fn rows(part: &[u8], shared: &[String], text: &mut String, limits: &Limits) -> Result<(), ExtractError> {
    let part = xml::decode(part, Kind::Xlsx)?;
    let mut pieces = Pieces::new(&part, Kind::Xlsx);
    let mut cell = Cell::default();
    let mut row = Row::default();
    while let Some(piece) = pieces.next()? {
        limits.patience.go_on()?;
        cell.inline.see(&piece);
        match &piece {
            Piece::Open(tag) => match tag.name() {
                "row" => row = Row::default(),
                "c" => cell = Cell::new(tag, row.next),
                "v" => cell.in_value = true,
                _ => {}
            },
            Piece::Text(part) if cell.in_value => cell.value.push_str(part),
            Piece::Text(_) => {}
            Piece::Close(name) => match name.as_str() {
                "v" => cell.in_value = false,
                "c" => {
                    row.write(cell.column, &cell.shown(shared));
                    check(text.len() + row.text.len(), limits)?;
                }
                "row" if !row.text.trim().is_empty() => {
                    text.push_str(row.text.trim_end());
                    text.push('\n');
                    check(text.len(), limits)?;
                }
                _ => {}
            },
        }
    }
    Ok(())
}

fn check(size: usize, limits: &Limits) -> Result<(), ExtractError> {
    if size > limits.text { Err(ExtractError::TooLong { limit: limits.text }) } else { Ok(()) }
}

/// One row while it is read.
#[derive(Debug, Default)]
struct Row {
    text: String,
    /// The column it has come to.
    next: usize,
    tabs: usize,
}

impl Row {
    /// Appends a cell after as many tabs as there are columns before it; one that shows nothing needs none.
    fn write(&mut self, column: usize, shown: &str) {
        self.next = column + 1;
        if !shown.is_empty() {
            self.text.extend(std::iter::repeat_n('\t', column.saturating_sub(self.tabs)));
            self.tabs = column;
            self.text.push_str(&one_line(shown));
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}

impl Cell {
    fn new(tag: &Tag<'_>, next: usize) -> Cell {
        let named = tag.attribute("r").and_then(|name| column(&name));
        // A column to the left of the row's end would overwrite; no program writes it.
        let column = named.unwrap_or(next).max(next).min(MOST_COLUMNS);
        Cell { column, kind: tag.attribute("t").unwrap_or_default(), ..Cell::default() }
    }

    fn shown(&self, shared: &[String]) -> String {
        let value = self.value.trim();
        match self.kind.as_str() {
            "s" => value.parse().ok().and_then(|at: usize| shared.get(at)).cloned().unwrap_or_default(),
            "inlineStr" => self.inline.text.clone(),
            "str" => self.value.clone(),
            "b" => if value == "1" { "TRUE" } else { "FALSE" }.to_owned(),
            _ => value.to_owned(),
        }
    }
}

/// The column of `BC23`, from 0.
fn column(name: &str) -> Option<usize> {
    let letters = name.bytes().take_while(u8::is_ascii_alphabetic).take(3);
    let number =
        letters.fold(0, |number, letter| number * 26 + usize::from(letter.to_ascii_uppercase() - b'A') + 1);
    number.checked_sub(1)
}
