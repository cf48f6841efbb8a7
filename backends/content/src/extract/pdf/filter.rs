//! How streams are packed: deflate with predictors, LZW, hexadecimal, base 85, run lengths.

use super::{
    super::{
        ExtractError,
        inflate::{Budget, Header, inflate},
    },
    object::{Dictionary, from_hexadecimal, is_space},
};

/// Unpacks once. `None` where the filter is none that text is packed with.
pub(super) fn unpack(
    filter: &[u8],
    packed: &[u8],
    parameters: Option<&Dictionary>,
    budget: &mut Budget,
) -> Result<Option<Vec<u8>>, ExtractError> {
    let unpacked = match filter {
        b"FlateDecode" | b"Fl" => {
            let unpacked = inflate(packed, Header::Zlib, budget)?;
            // A stream that breaks off still shows what came before.
            predicted(unpacked.whole.unwrap_or(unpacked.begun), parameters)
        }
        b"LZWDecode" | b"LZW" => {
            let early = number(parameters, b"EarlyChange").unwrap_or(1);
            predicted(lzw(packed, early, budget)?, parameters)
        }
        b"ASCIIHexDecode" | b"AHx" => hexadecimal(packed),
        b"ASCII85Decode" | b"A85" => base85(packed, budget)?,
        b"RunLengthDecode" | b"RL" => run_lengths(packed, budget)?,
        _ => return Ok(None),
    };
    Ok(Some(unpacked))
}

fn number(parameters: Option<&Dictionary>, name: &[u8]) -> Option<usize> {
    parameters?.get(name)?.index()
}

/// Undoes the predictors of PNG, which tables of objects are often packed with.
fn predicted(bytes: Vec<u8>, parameters: Option<&Dictionary>) -> Vec<u8> {
    let given = |name: &[u8], default| number(parameters, name).unwrap_or(default);
    if given(b"Predictor", 1) < 10 {
        return bytes;
    }
    let pixel_bits = given(b"Colors", 1).clamp(1, 32) * given(b"BitsPerComponent", 8).clamp(1, 16);
    let pixel = pixel_bits.div_ceil(8);
    let width = (given(b"Columns", 1).min(1 << 20) * pixel_bits).div_ceil(8);
    let mut plain = Vec::with_capacity(bytes.len());
    let mut above = vec![0; width];
    for row in bytes.chunks(width + 1) {
        let Some((kind, row)) = row.split_first() else { break };
        let mut row = row.to_vec();
        for at in 0..row.len() {
            let left = at.checked_sub(pixel).and_then(|at| row.get(at)).copied().unwrap_or(0);
            let corner = at.checked_sub(pixel).and_then(|at| above.get(at)).copied().unwrap_or(0);
            let up = above.get(at).copied().unwrap_or(0);
            let guess = match kind {
                1 => left,
                2 => up,
                3 => left.midpoint(up),
                4 => paeth(left, up, corner),
                _ => 0,
            };
            if let Some(byte) = row.get_mut(at) {
                *byte = byte.wrapping_add(guess);
            }
        }
        plain.extend_from_slice(&row);
        above = row;
    }
    plain
}

fn paeth(left: u8, up: u8, corner: u8) -> u8 {
    let sum = i16::from(left) + i16::from(up) - i16::from(corner);
    let distance = |byte: u8| (sum - i16::from(byte)).abs();
    match () {
        () if distance(left) <= distance(up) && distance(left) <= distance(corner) => left,
        () if distance(up) <= distance(corner) => up,
        () => corner,
    }
}

fn lzw(packed: &[u8], early: usize, budget: &mut Budget) -> Result<Vec<u8>, ExtractError> {
    const CLEAR: usize = 256;
    const END: usize = 257;
    let mut plain = Vec::new();
    // Each entry of the table is a stretch of what was written already.
    let mut table = Vec::<(usize, usize)>::new();
    let (mut bits, mut held, mut width) = (0_usize, 0, 9);
    let mut previous = None::<(usize, usize)>;
    for byte in packed {
        bits = bits << 8 | usize::from(*byte);
        held += 8;
        if held < width {
            continue;
        }
        held -= width;
        let code = bits >> held & ((1 << width) - 1);
        bits &= (1 << held) - 1;
        if code == END {
            break;
        }
        if code == CLEAR {
            (table, width, previous) = (Vec::new(), 9, None);
            continue;
        }
        let start = plain.len();
        match (u8::try_from(code), table.get(code.wrapping_sub(258)).copied(), previous) {
            (Ok(byte), _, _) => plain.push(byte),
            (_, Some((from, to)), _) => plain.extend_from_within(from..to),
            (_, None, Some((from, to))) => {
                plain.extend_from_within(from..to);
                plain.extend_from_within(from..=from);
            }
            _ => break,
        }
        budget.take(plain.len() - start)?;
        if let Some((from, to)) = previous
            && table.len() < 4096 - 258
        {
            // What came before, and the first byte of this: they stand side by side in what was written.
            table.push((from, to + 1));
        }
        previous = Some((start, plain.len()));
        width = match table.len() + 258 + early {
            ..512 => 9,
            512..1024 => 10,
            1024..2048 => 11,
            _ => 12,
        };
    }
    Ok(plain)
}

fn hexadecimal(packed: &[u8]) -> Vec<u8> {
    from_hexadecimal(packed.split(|byte| *byte == b'>').next().unwrap_or_default())
}

fn base85(packed: &[u8], budget: &mut Budget) -> Result<Vec<u8>, ExtractError> {
    let mut plain = Vec::with_capacity(packed.len() / 5 * 4);
    let mut group = Vec::with_capacity(5);
    for byte in packed.iter().copied().filter(|byte| !is_space(*byte)) {
        match byte {
            b'z' if group.is_empty() => {
                // The only way in which this grows.
                budget.take(4)?;
                plain.extend_from_slice(&[0; 4]);
            }
            b'!'..=b'u' => group.push(byte - b'!'),
            _ => break,
        }
        if group.len() == 5 {
            plain.extend_from_slice(&group_of_85(&group));
            group.clear();
        }
    }
    if group.len() > 1 {
        let bytes = group.len() - 1;
        group.resize(5, 84);
        plain.extend(group_of_85(&group).into_iter().take(bytes));
    }
    Ok(plain)
}

fn group_of_85(group: &[u8]) -> [u8; 4] {
    group
        .iter()
        .fold(0_u32, |number, digit| number.wrapping_mul(85).wrapping_add(u32::from(*digit)))
        .to_be_bytes()
}

fn run_lengths(packed: &[u8], budget: &mut Budget) -> Result<Vec<u8>, ExtractError> {
    let mut plain = Vec::new();
    let mut rest = packed;
    while let Some((length, after)) = rest.split_first() {
        let count = match length {
            0..=127 => usize::from(*length) + 1,
            128 => break,
            _ => 257 - usize::from(*length),
        };
        budget.take(count)?;
        if *length < 128 {
            let (bytes, after) = after.split_at(count.min(after.len()));
            plain.extend_from_slice(bytes);
            rest = after;
        } else {
            let Some((byte, after)) = after.split_first() else { break };
            plain.extend(std::iter::repeat_n(*byte, count));
            rest = after;
        }
    }
    Ok(plain)
}
