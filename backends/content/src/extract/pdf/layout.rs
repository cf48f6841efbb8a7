//! Puts what a page shows into lines.
//!
//! Programs draw a page mostly as it is read, and columns only make sense so. Therefore the order of drawing is kept, but
//! for blocks that were drawn after what stands below them, such as a heading that was added last.

/// A piece of text with its place: y grows upwards.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Run {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Where it ends to the right.
    pub(super) end: f64,
    pub(super) size: f64,
    pub(super) text: String,
    /// Whether `end` is known and not only guessed.
    pub(super) exact: bool,
}

impl Run {
    /// Marks a gap after it that is as wide as a space.
    pub(super) fn space_after(&mut self) {
        if !self.text.ends_with(' ') {
            self.text.push(' ');
        }
    }
}

/// Pages with more blocks are left as they were drawn: comparing each with each would take too long.
const MOST_BLOCKS: usize = 1000;
/// A gap as a share of the font's size from which on it parts words: measured widths, guessed widths.
const GAP: (f64, f64) = (0.17, 0.6);
/// A gap downwards, as a share of the font's size, from which on it parts paragraphs.
const PARAGRAPH: f64 = 1.9;

#[derive(Debug)]
struct Line {
    y: f64,
    end: f64,
    size: f64,
    text: String,
    exact: bool,
}

/// The lines of a page.
pub(super) fn text(runs: Vec<Run>) -> String {
    let mut text = String::new();
    for block in ordered(blocks(lines(runs))) {
        let mut above = None::<Line>;
        for line in block {
            if above.as_ref().is_some_and(|above| above.y - line.y > PARAGRAPH * above.size.max(line.size)) {
                text.push('\n');
            }
            text.push_str(line.text.trim());
            text.push('\n');
            above = Some(line);
        }
    }
    text
}

fn lines(runs: Vec<Run>) -> Vec<Line> {
    let mut lines = Vec::<Line>::new();
    for run in runs {
        let size = run.size.max(0.1);
        match lines.last_mut() {
            Some(line)
                if (line.y - run.y).abs() < 0.4 * size.min(line.size) && run.x > line.end - 2.0 * size =>
            {
                let gap = if line.exact { GAP.0 } else { GAP.1 };
                if run.x - line.end > gap * size && !line.text.ends_with(' ') && !run.text.starts_with(' ') {
                    line.text.push(' ');
                }
                line.text.push_str(&run.text);
                (line.end, line.exact, line.size) = (run.end, run.exact, line.size.max(size));
            }
            _ => lines.push(Line { y: run.y, end: run.end, size, text: run.text, exact: run.exact }),
        }
    }
    lines.retain(|line| !line.text.trim().is_empty());
    lines
}

/// Lines that go down the page, one under the other.
fn blocks(lines: Vec<Line>) -> Vec<Vec<Line>> {
    let mut blocks = Vec::<Vec<Line>>::new();
    for line in lines {
        match blocks.last_mut() {
            Some(block) if block.last().is_some_and(|above| line.y < above.y + 0.4 * line.size) => {
                block.push(line);
            }
            _ => blocks.push(vec![line]),
        }
    }
    blocks
}

/// The blocks as drawn, but each before the first that stands wholly below it.
fn ordered(blocks: Vec<Vec<Line>>) -> Vec<Vec<Line>> {
    if blocks.len() > MOST_BLOCKS {
        return blocks;
    }
    let mut ordered = Vec::<Vec<Line>>::new();
    for block in blocks {
        let bottom = block.last().map_or(0.0, |line| line.y);
        let below = ordered.iter().position(|other| other.first().is_some_and(|line| line.y < bottom));
        ordered.insert(below.unwrap_or(ordered.len()), block);
    }
    ordered
}
