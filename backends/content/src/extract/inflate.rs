//! Unpacks what is compressed, within a budget for all of a file.

use zlib_rs::{Inflate, InflateFlush, Status};

use super::ExtractError;

/// How many bytes the parts of one file may still unpack to.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    left: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Budget {
        Budget { limit, left: limit }
    }

    pub(super) fn take(&mut self, bytes: usize) -> Result<(), ExtractError> {
        self.left = self.left.checked_sub(bytes).ok_or(ExtractError::Unpacked { limit: self.limit })?;
        Ok(())
    }
}

/// What stands before the compressed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// Nothing, as in ZIP.
    None,
    /// That of zlib, as in PDF.
    Zlib,
}

/// What came out.
#[derive(Debug)]
pub(super) struct Unpacked {
    /// All of it, if the data was sound to its end.
    pub(super) whole: Option<Vec<u8>>,
    /// Else what came out before it broke.
    pub(super) begun: Vec<u8>,
}

const STEP: usize = 64 << 10;
/// Inflate's window is 2^15 bytes everywhere.
const WINDOW_BITS: u8 = 15;

pub(super) fn inflate(packed: &[u8], header: Header, budget: &mut Budget) -> Result<Unpacked, ExtractError> {
    let mut stream = Inflate::new(header == Header::Zlib, WINDOW_BITS);
    let mut unpacked = Vec::new();
    let mut step = vec![0; STEP];
    loop {
        let (read, written) = (stream.total_in(), stream.total_out());
        let rest = usize::try_from(read).ok().and_then(|read| packed.get(read..)).unwrap_or_default();
        let status = stream.decompress(rest, &mut step, InflateFlush::NoFlush);
        let fresh = usize::try_from(stream.total_out() - written).unwrap_or(usize::MAX).min(step.len());
        budget.take(fresh)?;
        unpacked.extend_from_slice(step.get(..fresh).unwrap_or_default());
        match status {
            Ok(Status::StreamEnd) => return Ok(Unpacked { whole: Some(unpacked), begun: Vec::new() }),
            Ok(_) if fresh > 0 || stream.total_in() > read => {}
            _ => return Ok(Unpacked { whole: None, begun: unpacked }),
        }
    }
}
