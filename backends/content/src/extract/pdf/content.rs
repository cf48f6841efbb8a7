//! Runs the drawing operators of a page as far as they move or show text.

use std::{collections::HashMap, rc::Rc};

use super::{
    super::ExtractError,
    damaged,
    file::File,
    font::{Font, Fonts},
    layout::Run,
    object::{Dictionary, Lexer, Object, is_space},
    page::Page,
};

/// Forms may hold forms, but not without end.
const DEEPEST_FORM: usize = 8;
/// How many operators and operands one page may have, its forms included: each may be a run of text in memory.
const MOST_OBJECTS: usize = 2_000_000;
/// No operator takes more operands than these.
const MOST_OPERANDS: usize = 64;
/// A move to the left by more than this share of the font's size inside one string is a space.
const GAP: f64 = 180.0;
/// Deeper saved states than any program leaves.
const MOST_SAVED: usize = 256;

type Matrix = [f64; 6];

const IDENTITY: Matrix = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0];

/// What a page shows, in the order it is drawn.
pub(super) fn runs(page: &Page, file: &mut File<'_>, fonts: &mut Fonts) -> Result<Vec<Run>, ExtractError> {
    let mut content = Vec::new();
    let parts = match page.contents.as_ref().map(|contents| (contents, file.resolve(contents))) {
        Some((_, Object::Array(parts))) => parts,
        Some((stream, _)) => Rc::new(vec![stream.clone()]),
        None => Rc::default(),
    };
    for part in parts.iter() {
        file.go_on()?;
        if let Some((_, bytes)) = file.stream(part)? {
            content.extend_from_slice(&bytes);
            content.push(b'\n');
        }
    }
    let resources = match page.resources.as_ref().map(|resources| file.resolve(resources)) {
        Some(Object::Dictionary(resources)) => resources,
        _ => Rc::default(),
    };
    let most = MOST_OBJECTS.min(file.drawing_left);
    let mut drawing = Drawing { file, fonts, runs: Vec::new(), left: most };
    drawing.draw(&content, &resources, IDENTITY, 0)?;
    let (runs, left) = (drawing.runs, drawing.left);
    file.drawing_left -= most - left;
    Ok(runs)
}

struct Drawing<'a, 'b> {
    file: &'a mut File<'b>,
    fonts: &'a mut Fonts,
    runs: Vec<Run>,
    left: usize,
}

/// What `q` saves.
#[derive(Debug, Clone)]
struct Graphics {
    place: Matrix,
    font: Option<Rc<Font>>,
    size: f64,
    leading: f64,
    stretch: f64,
    rise: f64,
    char_space: f64,
    word_space: f64,
}

/// What the operators of one content call by name, looked up once.
struct Named<'a> {
    resources: &'a Rc<Dictionary>,
    fonts: HashMap<Vec<u8>, Option<Rc<Font>>>,
    all_fonts: Option<Rc<Dictionary>>,
    all_forms: Option<Rc<Dictionary>>,
}

#[derive(Debug)]
struct Text {
    /// Where the next glyph goes.
    matrix: Matrix,
    /// Where the line began.
    line: Matrix,
}

impl Drawing<'_, '_> {
    fn draw(
        &mut self,
        content: &[u8],
        resources: &Rc<Dictionary>,
        place: Matrix,
        depth: usize,
    ) -> Result<(), ExtractError> {
        let mut now = Graphics {
            place,
            font: None,
            size: 0.0,
            leading: 0.0,
            stretch: 1.0,
            rise: 0.0,
            char_space: 0.0,
            word_space: 0.0,
        };
        let mut named = Named { resources, fonts: HashMap::new(), all_fonts: None, all_forms: None };
        let mut text = Text { matrix: IDENTITY, line: IDENTITY };
        let (mut saved, mut operands) = (Vec::new(), Vec::new());
        let mut lexer = Lexer::new(content, 0, self.left);
        while let Some(object) = lexer.next() {
            let Object::Word(operator) = object else {
                if operands.len() < MOST_OPERANDS {
                    operands.push(object);
                }
                continue;
            };
            self.file.go_on()?;
            match operator.as_slice() {
                b"q" if saved.len() < MOST_SAVED => saved.push(now.clone()),
                b"Q" => now = saved.pop().unwrap_or(now),
                b"cm" => now.place = multiply(&matrix(&operands), &now.place),
                b"BT" => text = Text { matrix: IDENTITY, line: IDENTITY },
                b"Tf" => self.set_font(&mut named, &operands, &mut now)?,
                b"Do" => {
                    // What the form uses up counts for the page.
                    self.left = lexer.left();
                    self.draw_form(&mut named, &operands, &now, depth)?;
                    lexer.limit(self.left);
                }
                b"BI" => lexer.at = image_end(content, lexer.at),
                _ => self.show(&operator, &operands, &mut now, &mut text)?,
            }
            operands.clear();
        }
        self.left = lexer.left();
        if self.left == 0 {
            return Err(damaged("a page of it has too many parts"));
        }
        Ok(())
    }

    /// The operators that place and show text.
    fn show(
        &mut self,
        operator: &[u8],
        operands: &[Object],
        now: &mut Graphics,
        text: &mut Text,
    ) -> Result<(), ExtractError> {
        let number = |at: usize| operands.get(at).and_then(Object::number).unwrap_or(0.0);
        match operator {
            b"Td" => text.next_line(number(0), number(1)),
            b"TD" => {
                now.leading = -number(1);
                text.next_line(number(0), number(1));
            }
            b"Tm" => {
                text.line = matrix(operands);
                text.matrix = text.line;
            }
            b"T*" => text.next_line(0.0, -now.leading),
            b"TL" => now.leading = number(0),
            b"Tc" => now.char_space = number(0),
            b"Tw" => now.word_space = number(0),
            b"Tz" => now.stretch = number(0) / 100.0,
            b"Ts" => now.rise = number(0),
            b"Tj" => self.show_string(operands.first(), now, text)?,
            b"'" => {
                text.next_line(0.0, -now.leading);
                self.show_string(operands.first(), now, text)?;
            }
            b"\"" => {
                (now.word_space, now.char_space) = (number(0), number(1));
                text.next_line(0.0, -now.leading);
                self.show_string(operands.get(2), now, text)?;
            }
            b"TJ" => {
                for item in operands.first().and_then(Object::array).unwrap_or_default() {
                    match item.number() {
                        Some(back) => {
                            if back < -GAP
                                && let Some(run) = self.runs.last_mut()
                            {
                                run.space_after();
                            }
                            text.forward(-back / 1000.0 * now.size * now.stretch);
                        }
                        None => self.show_string(Some(item), now, text)?,
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn show_string(
        &mut self,
        string: Option<&Object>,
        now: &Graphics,
        text: &mut Text,
    ) -> Result<(), ExtractError> {
        let (Some(Object::String(string)), Some(font)) = (string, &now.font) else { return Ok(()) };
        let (mut shown, mut width) = (String::new(), 0.0);
        for glyph in font.glyphs(string) {
            // One code may stand for many characters, so a string is counted while it grows.
            self.file.count_shown(glyph.text.len())?;
            shown.push_str(&glyph.text);
            let word_space = if glyph.is_space { now.word_space } else { 0.0 };
            width += (glyph.width / 1000.0 * now.size + now.char_space + word_space) * now.stretch;
        }
        let at =
            multiply(&[now.size, 0.0, 0.0, now.size, 0.0, now.rise], &multiply(&text.matrix, &now.place));
        text.forward(width);
        let end = multiply(&text.matrix, &now.place);
        if !shown.is_empty() {
            let [_, _, across, up, x, y] = at;
            let size = across.hypot(up);
            self.runs.push(Run { x, y, end: end[4], size, text: shown, exact: font.knows_widths() });
        }
        Ok(())
    }

    fn set_font(
        &mut self,
        named: &mut Named<'_>,
        operands: &[Object],
        now: &mut Graphics,
    ) -> Result<(), ExtractError> {
        let [Object::Name(name), size] = operands else { return Ok(()) };
        now.size = size.number().unwrap_or(0.0);
        if let Some(known) = named.fonts.get(name) {
            now.font.clone_from(known);
            return Ok(());
        }
        let all = named
            .all_fonts
            .get_or_insert_with(|| self.file.get_dictionary(named.resources, b"Font").unwrap_or_default());
        let font = all.get(name).map(|font| self.fonts.get(font, self.file)).transpose()?;
        now.font.clone_from(&font);
        named.fonts.insert(name.clone(), font);
        Ok(())
    }

    fn draw_form(
        &mut self,
        named: &mut Named<'_>,
        operands: &[Object],
        now: &Graphics,
        depth: usize,
    ) -> Result<(), ExtractError> {
        let forms = named
            .all_forms
            .get_or_insert_with(|| self.file.get_dictionary(named.resources, b"XObject").unwrap_or_default());
        let form = operands.first().and_then(Object::name).and_then(|name| forms.get(name));
        let Some(form) = form.filter(|_| depth < DEEPEST_FORM) else { return Ok(()) };
        let Object::Dictionary(head) = self.file.resolve(form) else { return Ok(()) };
        if head.get(b"Subtype".as_slice()).and_then(Object::name) != Some(b"Form") {
            return Ok(());
        }
        let Some((head, content)) = self.file.stream(form)? else { return Ok(()) };
        let place = match self.file.get(&head, b"Matrix") {
            Object::Array(numbers) => multiply(&matrix(&numbers), &now.place),
            _ => now.place,
        };
        let own = self.file.get_dictionary(&head, b"Resources");
        self.draw(&content, own.as_ref().unwrap_or(named.resources), place, depth + 1)
    }
}

impl Text {
    fn next_line(&mut self, x: f64, y: f64) {
        self.line = multiply(&[1.0, 0.0, 0.0, 1.0, x, y], &self.line);
        self.matrix = self.line;
    }

    fn forward(&mut self, by: f64) {
        self.matrix = multiply(&[1.0, 0.0, 0.0, 1.0, by, 0.0], &self.matrix);
    }
}

fn matrix(numbers: &[Object]) -> Matrix {
    let mut matrix = IDENTITY;
    for (own, number) in matrix.iter_mut().zip(numbers) {
        *own = number.number().unwrap_or(*own);
    }
    matrix
}

fn multiply(left: &Matrix, right: &Matrix) -> Matrix {
    let [x_x, x_y, y_x, y_y, x, y] = *right;
    let apply = |across: f64, up: f64| (across * x_x + up * y_x, across * x_y + up * y_y);
    let (first, second, third) = (apply(left[0], left[1]), apply(left[2], left[3]), apply(left[4], left[5]));
    [first.0, first.1, second.0, second.1, third.0 + x, third.1 + y]
}

/// Where an image inside the content ends: after `EI` between spaces.
fn image_end(content: &[u8], from: usize) -> usize {
    let rest = content.get(from..).unwrap_or_default();
    let end = rest.windows(4).position(
        |window| matches!(window, [before, b'E', b'I', after] if is_space(*before) && is_space(*after)),
    );
    end.map_or(content.len(), |end| from + end + 3)
}
