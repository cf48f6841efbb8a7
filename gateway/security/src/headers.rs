//! The head of a request, with its headers as a flat list.
//!
//! In: one buffer and where in it each header lies, or the map that HTTP/2 gives. Out: the headers in their order. A
//! request has a dozen of them and each is asked for once or never, so that comparing names costs less than hashing
//! them, and one buffer less than a counted value for each.

use std::{fmt, ops::Range};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Uri, Version, request};

/// What a request says before its body.
pub struct Head {
    /// What is to be done.
    pub method: Method,
    /// With what; with HTTP/2 this holds the authority.
    pub uri: Uri,
    /// The version of HTTP.
    pub version: Version,
    /// All else.
    pub headers: Headers,
}

/// The headers of a request, in their order.
#[derive(Clone, Default)]
pub struct Headers {
    /// Holds all of them. What else it holds does not matter: it may be the whole buffer that the head was read into.
    text: Bytes,
    lines: Vec<Line>,
}

/// Where in a buffer one header lies. Offsets of 32 bits are enough for any head and make the list half as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    name: (u32, u32),
    value: (u32, u32),
}

impl Line {
    /// A header whose name lies at `name` and whose value lies at `value`.
    pub fn new(name: Range<usize>, value: Range<usize>) -> Self {
        // What is too far out to be written down is as far out of every buffer.
        let short = |offset| u32::try_from(offset).unwrap_or(u32::MAX);
        let span = |range: Range<usize>| (short(range.start), short(range.end));
        Self { name: span(name), value: span(value) }
    }
}

impl Headers {
    /// The headers that lie at `lines` in `text`. What lies outside of it is empty.
    pub fn of(mut text: BytesMut, lines: Vec<Line>) -> Self {
        for Line { name: (start, end), .. } in &lines {
            text.get_mut(*start as usize..*end as usize).unwrap_or_default().make_ascii_lowercase();
        }
        Self { text: text.freeze(), lines }
    }

    /// Each name, in lower case, and its value. A name that was sent twice comes twice.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.lines.iter().map(|line| (self.at(line.name), self.at(line.value)))
    }

    /// The first value of a header, whose name may be in any case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.lines.iter().find(|line| self.is(line, name)).map(|line| self.at(line.value))
    }

    /// All values of a header, whose name may be in any case.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        self.lines.iter().filter(|line| self.is(line, name)).map(|line| self.at(line.value))
    }

    /// Whether there is a header of that name, which may be in any case.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn is(&self, line: &Line, name: &str) -> bool {
        self.at(line.name).eq_ignore_ascii_case(name.as_bytes())
    }

    fn at(&self, (start, end): (u32, u32)) -> &[u8] {
        self.text.get(start as usize..end as usize).unwrap_or_default()
    }

    fn copied<'a>(size: usize, count: usize, headers: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let (mut text, mut lines) = (Vec::with_capacity(size), Vec::with_capacity(count));
        for (name, value) in headers {
            let start = text.len();
            text.extend(name.iter().map(u8::to_ascii_lowercase));
            let middle = text.len();
            text.extend_from_slice(value);
            lines.push(Line::new(start..middle, middle..text.len()));
        }
        Self { text: text.into(), lines }
    }
}

/// The text of a value: visible ASCII, blanks and tabs. What holds anything else is none.
pub fn text(value: &[u8]) -> Option<&str> {
    // All of them, not up to the first that is not: that goes many at a time.
    let plain = value.iter().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~' | b'\t'));
    if plain { str::from_utf8(value).ok() } else { None }
}

/// A copy, which does not keep what it was made of.
impl<'a> FromIterator<(&'a str, &'a [u8])> for Headers {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a [u8])>>(headers: I) -> Self {
        let headers = headers.into_iter().map(|(name, value)| (name.as_bytes(), value));
        Self::copied(0, headers.size_hint().0, headers)
    }
}

/// A copy, in which the values of one name stand together.
impl From<&HeaderMap> for Headers {
    fn from(map: &HeaderMap) -> Self {
        let headers = || map.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
        let size = headers().map(|(name, value)| name.len() + value.len()).sum();
        Self::copied(size, map.len(), headers())
    }
}

impl From<request::Parts> for Head {
    fn from(parts: request::Parts) -> Self {
        let request::Parts { method, uri, version, headers, .. } = parts;
        Self { method, uri, version, headers: Headers::from(&headers) }
    }
}

impl fmt::Debug for Headers {
    /// The names alone: a value may be a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| String::from_utf8_lossy(name))).finish()
    }
}

impl fmt::Debug for Head {
    /// Without the values of headers and the query: both may hold a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, uri, version, headers } = self;
        f.debug_struct("Head")
            .field("method", method)
            .field("path", &uri.path())
            .field("version", version)
            .field("headers", headers)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(name, value)| (*name, value.as_bytes())).collect()
    }

    fn pairs(headers: &Headers) -> Vec<(&str, &str)> {
        let text = |bytes| str::from_utf8(bytes).unwrap();
        headers.iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn headers_come_in_their_order_and_as_often_as_they_were_sent() {
        let sent = [("host", "h"), ("b", "1"), ("a", ""), ("b", "2"), ("b", "1")];
        let headers = headers(&sent);
        assert_eq!(pairs(&headers), sent);
        assert_eq!(headers.get_all("b").collect::<Vec<_>>(), [b"1", b"2", b"1"]);
        assert_eq!(headers.get_all("b").nth_back(1), Some(&b"2"[..]));
        assert_eq!(headers.get_all("c").count(), 0);
    }

    #[test]
    fn the_first_of_several_is_found_by_a_name_in_any_case() {
        let headers = headers(&[("Mcp-Param-A", "1"), ("mcp-param-a", "2"), ("empty", "")]);
        assert_eq!(pairs(&headers)[0].0, "mcp-param-a");
        for name in ["mcp-param-a", "mcp-param-A"] {
            assert_eq!(headers.get(name), Some(&b"1"[..]), "{name}");
        }
        assert_eq!(headers.get("empty"), Some(&b""[..]));
        assert_eq!(headers.get("mcp-param"), None);
        assert!(headers.contains("Empty") && !headers.contains("") && !headers.contains("mcp-param-ab"));
    }

    #[test]
    fn headers_lie_in_the_buffer_they_were_read_into_with_names_in_lower_case() {
        let text = BytesMut::from("GET / HTTP/1.1\r\nHost: H\r\nX:\r\n\r\n");
        let headers = Headers::of(text, vec![Line::new(16..20, 22..23), Line::new(25..26, 27..27)]);
        assert_eq!(pairs(&headers), [("host", "H"), ("x", "")]);
    }

    #[test]
    fn what_lies_outside_of_the_buffer_is_empty() {
        #[expect(clippy::reversed_empty_ranges, reason = "one more way to be wrong")]
        let bad = [0..5, 4..5, 9..9, 3..1, usize::MAX..usize::MAX, 0..usize::MAX];
        for bad in bad {
            let text = BytesMut::from("name");
            let headers = Headers::of(text, vec![Line::new(0..4, bad.clone()), Line::new(bad, 0..4)]);
            assert_eq!(pairs(&headers), [("name", ""), ("", "name")]);
            assert_eq!(headers.get("name"), Some(&b""[..]));
        }
    }

    #[test]
    fn a_map_is_copied_with_all_its_values() {
        let mut map = HeaderMap::new();
        for (name, value) in [("b", "1"), ("a", "2"), ("b", "3")] {
            map.append(name, HeaderValue::from_static(value));
        }
        map.insert("bytes", HeaderValue::from_bytes(b"\xff").unwrap());
        let headers = Headers::from(&map);
        assert_eq!(headers.get("bytes"), Some(&b"\xff"[..]));
        assert_eq!(headers.iter().count(), 4);
        assert_eq!(headers.get_all("b").collect::<Vec<_>>(), [b"1", b"3"]);
        assert_eq!(pairs(&Headers::from(&HeaderMap::new())), []);
    }

    #[test]
    fn text_is_what_a_header_value_takes_for_text() {
        for byte in u8::MIN..=u8::MAX {
            let value = [b'a', byte];
            let expected = matches!(byte, 0x20..=0x7e | b'\t');
            assert_eq!(text(&value).is_some(), expected, "{byte:#x}");
            if let Ok(same) = HeaderValue::from_bytes(&value) {
                assert_eq!(text(&value), same.to_str().ok(), "{byte:#x}");
            }
        }
        assert_eq!(text(b""), Some(""));
        assert_eq!(text("ä".as_bytes()), None);
    }

    #[test]
    fn no_debug_output_holds_a_value_or_a_query() {
        let request = http::Request::post("https://localhost/mcp?token=very-secret")
            .header("authorization", "Bearer very-secret")
            .body(());
        let head = Head::from(request.unwrap().into_parts().0);
        let printed = format!("{head:?}");
        assert!(printed.contains("/mcp") && printed.contains("authorization"), "{printed}");
        assert!(!printed.contains("very-secret"), "{printed}");
    }
}
