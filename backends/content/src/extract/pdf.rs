//! PDF: the text of each page, in the order it is read.
//!
//! ```text
//! bytes ─file→ objects ─page→ resources and content ─content→ glyphs with places ─font→ characters ─layout→ lines
//! ```
//!
//! A reader of our own, because we only need text, files come from strangers, and everything a file makes us unpack, keep and draw
//! has to be counted. Nothing is believed about where objects are: the file is scanned for them, so that damaged tables do not
//! matter and no reference can lead in a circle through them.

use super::{ExtractError, Kind, Limits};

mod content;
mod encoding;
mod file;
mod filter;
mod font;
mod glyphs;
mod layout;
mod object;
mod page;
mod tounicode;

use file::File;

pub(super) fn read(bytes: &[u8], limits: &Limits) -> Result<String, ExtractError> {
    let mut file = File::open(bytes, limits)?;
    let pages = page::pages(&mut file);
    if pages.is_empty() {
        return Err(damaged("it has no pages"));
    }
    let mut fonts = font::Fonts::default();
    let mut text = String::new();
    for page in pages {
        let runs = content::runs(&page, &mut file, &mut fonts)?;
        let page = layout::text(runs);
        if !text.is_empty() && !page.is_empty() {
            text.push('\n');
        }
        text.push_str(&page);
        if text.len() > limits.text {
            return Err(ExtractError::TooLong { limit: limits.text });
        }
    }
    if file.is_exhausted() {
        return Err(damaged("it has too many parts"));
    }
    if text.trim().is_empty() { Err(ExtractError::NoText) } else { Ok(text) }
}

fn damaged(reason: &str) -> ExtractError {
    Kind::Pdf.damaged(reason)
}
