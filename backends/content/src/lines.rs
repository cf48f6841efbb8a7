//! Some lines of a text, by their numbers.

use moongate_search::{LineRange, chunk::count_lines};

use crate::error::Error;

/// The lines from `first` on, up to `last` or the end of the text, and which these are. The end of the last line is left out
/// unless it is the text's own: a whole text comes back as it is.
pub(crate) fn cut(text: &str, first: usize, last: Option<usize>) -> Result<(&str, LineRange), Error> {
    let lines = count_lines(text);
    if last.is_some_and(|last| first > last) {
        return Err(Error::Backwards);
    }
    if first > lines {
        return Err(Error::BeyondEnd { from: first, lines });
    }
    let last = last.map_or(lines, |last| last.min(lines));
    let rest = text.split_at_checked(start_of(text, first)).map_or("", |(_, rest)| rest);
    let wanted = match last {
        last if last == lines => rest,
        last => {
            let (wanted, _) = rest.split_at_checked(start_of(rest, last - first + 2)).unwrap_or((rest, ""));
            let wanted = wanted.strip_suffix('\n').unwrap_or(wanted);
            wanted.strip_suffix('\r').unwrap_or(wanted)
        }
    };
    Ok((wanted, LineRange { first, last }))
}

/// Where the line `number` begins.
fn start_of(text: &str, number: usize) -> usize {
    text.split_inclusive('\n').take(number - 1).map(str::len).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(text: &str, first: usize, last: Option<usize>) -> (String, usize, usize) {
        let (cut, LineRange { first, last }) = cut(text, first, last).unwrap();
        (cut.to_owned(), first, last)
    }

    #[test]
    fn lines_are_cut_where_they_really_are() {
        let text = "one\ntwo\r\n\nfour\n";
        for (first, last, expected, to) in [
            (1, None, text, 4),
            (1, Some(1), "one", 1),
            (2, Some(2), "two", 2),
            (2, Some(3), "two\r\n", 3),
            (3, Some(3), "", 3),
            (4, Some(4), "four\n", 4),
            (2, Some(99), "two\r\n\nfour\n", 4),
        ] {
            assert_eq!(told(text, first, last), (expected.to_owned(), first, to), "{first} to {last:?}");
        }
        assert_eq!(told("", 1, None), (String::new(), 1, 1), "an empty text is one empty line");
        assert!(matches!(cut(text, 5, None), Err(Error::BeyondEnd { from: 5, lines: 4 })));
        assert!(matches!(cut(text, 3, Some(2)), Err(Error::Backwards)));
        assert!(matches!(cut(text, usize::MAX, None), Err(Error::BeyondEnd { .. })));
    }

    proptest! {
        #[test]
        fn lines_are_those_that_the_standard_library_counts(
            text in "([a-c語]{0,2}(\n|\r\n)){10,15}[a-c]?", first in 1_usize..5, more in 0_usize..5,
        ) {
            let all: Vec<&str> = text.lines().collect();
            let last = first + more;
            prop_assert_eq!(
                cut(&text, first, Some(last)).unwrap().0.replace("\r\n", "\n"),
                all[first - 1..last].join("\n")
            );
            prop_assert_eq!(cut(&text, 1, None).unwrap().0, &text);
        }
    }
}
