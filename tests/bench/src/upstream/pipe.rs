//! The upstream as a child process: a line in, a line out.

use std::io::{self, BufRead as _, BufReader, BufWriter, Read, Write};

use super::answers::{Answers, Said};

/// What is read and written at once, where there is so much.
const BUFFER: usize = 64 * 1024;

/// Answers until the input ends. What was read together is answered together.
pub(super) fn serve(answers: &Answers, input: impl Read, output: impl Write) -> io::Result<()> {
    let (mut input, mut output) =
        (BufReader::with_capacity(BUFFER, input), BufWriter::with_capacity(BUFFER, output));
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        match answers.answer(&line) {
            Said::Greeting(text) | Said::Result(text) | Said::Unknown(text) => {
                output.write_all(&text)?;
                output.write_all(b"\n")?;
            }
            Said::Nothing => {}
        }
        line.clear();
        if input.buffer().is_empty() {
            output.flush()?;
        }
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::template::Era;

    #[test]
    fn requests_are_answered_line_by_line_in_their_order() {
        let input = concat!(
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#,
            "\n",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}"#,
            "\n",
        );
        let mut output = Vec::new();
        serve(&Answers::new(Era::Legacy, 1), input.as_bytes(), &mut output).unwrap();
        let text = String::from_utf8(output).unwrap();
        let ids: Vec<Value> =
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone()).collect();
        assert_eq!(ids, [1, 2]);
        assert!(text.ends_with('\n'));
    }
}
