//! Reads the text out of a file: plain text in Unicode, PDF, DOCX, XLSX. Pure: bytes come in, text goes out.
//!
//! Files come from strangers. What they unpack to is bounded, references that go in circles end, and whatever goes wrong is an
//! [`ExtractError`] that says what to do about it.

use std::{
    panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

mod docx;
mod inflate;
mod pdf;
mod plain;
mod xlsx;
mod xml;
mod zip;

/// What one file may cost.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The most bytes a file may have.
    pub file: usize,
    /// The most bytes that all its compressed parts together may unpack to.
    pub unpacked: usize,
    /// The most bytes its text may have.
    pub text: usize,
    /// For how long somebody waits.
    pub patience: Patience,
}

/// Whether somebody still waits for the text of a file. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Patience(Arc<AtomicBool>);

impl Patience {
    /// Nobody waits any more: whoever reads stops soon.
    pub fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn go_on(&self) -> Result<(), ExtractError> {
        if self.0.load(Ordering::Relaxed) { Err(ExtractError::GivenUp) } else { Ok(()) }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        // A text beyond this serves no model; the parts of a document are some ten times its text.
        Limits { file: 32 << 20, unpacked: 128 << 20, text: 16 << 20, patience: Patience::default() }
    }
}

/// The text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extracted {
    /// What it says.
    pub text: String,
    /// What kind of file it is.
    pub mime_type: &'static str,
}

/// Why a file has no text for us.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// It is neither text nor a document that can be read.
    #[error("the file is binary; add text, Markdown, CSV, PDF, DOCX or XLSX")]
    Binary,
    /// It is larger than a file may be.
    #[error("the file has {found} bytes, and {limit} are allowed; split it")]
    TooLarge {
        /// Its size.
        found: usize,
        /// What is allowed.
        limit: usize,
    },
    /// Its parts unpack to more than they may.
    #[error("the file unpacks to more than {limit} bytes; split it")]
    Unpacked {
        /// What is allowed.
        limit: usize,
    },
    /// Its text is longer than it may be.
    #[error("the file has more than {limit} bytes of text; split it")]
    TooLong {
        /// What is allowed.
        limit: usize,
    },
    /// Reading it took longer than anybody waits.
    #[error("reading the file took too long; split it")]
    GivenUp,
    /// It needs a password.
    #[error("the file is encrypted; save it without a password")]
    Encrypted,
    /// It is not what its name or its first bytes say.
    #[error("the file is not a sound {kind} file: {reason}; save it anew, or add its text")]
    Damaged {
        /// What it should be.
        kind: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// It is sound and holds no text, such as a scan.
    #[error("the file holds no text; if it is a scan, add the text that stands on it")]
    NoText,
}

/// The text of the file called `name` whose content is `bytes`.
pub fn extract(name: &str, bytes: &[u8], limits: &Limits) -> Result<Extracted, ExtractError> {
    if bytes.len() > limits.file {
        return Err(ExtractError::TooLarge { found: bytes.len(), limit: limits.file });
    }
    let kind = Kind::of(name, bytes);
    // The readers do not panic as far as we know; a file that proves us wrong must not take its caller along.
    let read = panic::catch_unwind(|| kind.read(bytes, limits));
    let text = read.unwrap_or_else(|_| Err(kind.damaged("it cannot be read")))?;
    if text.len() > limits.text {
        return Err(ExtractError::TooLong { limit: limits.text });
    }
    Ok(Extracted { text, mime_type: kind.mime_type() })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Markdown,
    Csv,
    Pdf,
    Docx,
    Xlsx,
}

impl Kind {
    /// By its first bytes where they are certain, else by its name.
    fn of(name: &str, bytes: &[u8]) -> Kind {
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let named = |known: &str| extension.eq_ignore_ascii_case(known);
        let opening = bytes.get(..bytes.len().min(1024)).unwrap_or_default();
        if opening.windows(5).any(|window| window == b"%PDF-")
            && (named("pdf") || opening.starts_with(b"%PDF-"))
        {
            return Kind::Pdf;
        }
        match () {
            () if named("pdf") => Kind::Pdf,
            () if named("docx") || named("docm") => Kind::Docx,
            () if named("xlsx") || named("xlsm") => Kind::Xlsx,
            () if named("md") || named("markdown") => Kind::Markdown,
            () if named("csv") => Kind::Csv,
            () => zip::office_kind(bytes).unwrap_or(Kind::Plain),
        }
    }

    fn read(self, bytes: &[u8], limits: &Limits) -> Result<String, ExtractError> {
        match self {
            Kind::Plain | Kind::Markdown | Kind::Csv => plain::read(bytes),
            Kind::Pdf => pdf::read(bytes, limits),
            Kind::Docx => docx::read(bytes, limits),
            Kind::Xlsx => xlsx::read(bytes, limits),
        }
    }

    fn mime_type(self) -> &'static str {
        match self {
            Kind::Plain => "text/plain",
            Kind::Markdown => "text/markdown",
            Kind::Csv => "text/csv",
            Kind::Pdf => "application/pdf",
            Kind::Docx => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            Kind::Xlsx => "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        }
    }

    fn damaged(self, reason: impl Into<String>) -> ExtractError {
        let kind = match self {
            Kind::Plain | Kind::Markdown | Kind::Csv => "text",
            Kind::Pdf => "PDF",
            Kind::Docx => "DOCX",
            Kind::Xlsx => "XLSX",
        };
        ExtractError::Damaged { kind, reason: reason.into() }
    }
}

#[cfg(test)]
mod tests;
