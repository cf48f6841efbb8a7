//! The scanner against tables, and against a slow reference on generated text.

use std::time::Duration;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::*;

fn scan(body: &[u8]) -> Result<(), Problem> {
    super::scan(body).map(drop)
}

fn duplicate(name: &str) -> Result<(), Problem> {
    Err(Problem::Duplicate { name: name.to_owned() })
}

fn argument(name: &str) -> Result<(), Problem> {
    Err(Problem::DuplicateArgument { name: name.to_owned() })
}

const PLAIN: Result<(), Problem> = Ok(());
const NOT_JSON: Result<(), Problem> = Err(Problem::NotJson);

#[test]
fn repeated_names_are_found_wherever_they_are() {
    for (text, expected) in [
        (r#"{"a":1,"b":2}"#, PLAIN),
        (r#"{"a":1,"a":2}"#, duplicate("a")),
        (r#"{"a":1,"\u0061":2}"#, duplicate("a")),
        (r#"{"\u00e9":1,"é":2}"#, duplicate("é")),
        (r#"{"\ud83d\ude00":1,"😀":2}"#, duplicate("😀")),
        (r#"{"\/":1,"/":2}"#, duplicate("/")),
        (r#"{"a":1,"A":2,"a ":3,"":4}"#, PLAIN),
        (r#"{"a":{"a":{"a":1}},"b":{"a":1}}"#, PLAIN),
        (r#"[{"a":1},{"a":1}]"#, PLAIN),
        (r#"{"a":[{"b":1,"b":2}]}"#, duplicate("b")),
        (r#"{"x":{"y":1},"x":{}}"#, duplicate("x")),
        (r#"{"params":{"arguments":{"x":1,"x":2}}}"#, argument("x")),
        (r#"{"params":{"arguments":{"d":[[{"x":1,"\u0078":2}]]}}}"#, argument("x")),
        (r#"{"params":{"arguments":[{"x":1,"x":2}]}}"#, argument("x")),
        (r#"[{"params":{"arguments":{"x":1,"x":2}}}]"#, argument("x")),
        (r#"{"\u0070arams":{"argument\u0073":{"x":1,"x":2}}}"#, argument("x")),
        // These are not the arguments of a message.
        (r#"{"arguments":{"x":1,"x":2}}"#, duplicate("x")),
        (r#"{"params":{"params":{"arguments":{"x":1,"x":2}}}}"#, duplicate("x")),
        (r#"{"params":[{"arguments":{"x":1,"x":2}}]}"#, duplicate("x")),
        (r#"[[{"params":{"arguments":{"x":1,"x":2}}}]]"#, duplicate("x")),
        (r#"{"params":{"_meta":{"x":1,"x":2}}}"#, duplicate("x")),
        (r#"{"params":{"arguments":{},"arguments":{}}}"#, duplicate("arguments")),
    ] {
        assert_eq!(scan(text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn only_json_in_unicode_passes() {
    for text in [
        "0",
        "-0",
        "10",
        "-1.5e+10",
        "1E5",
        "0.0",
        "1e400",
        "\"\"",
        "true",
        "false",
        "null",
        "[]",
        "{}",
        " [ ] ",
        "\t{\r\n}",
        "[1 , 2]",
        r#"{ "a" : [ ] }"#,
        r#""\"\\\/\b\f\n\r\t\u12aB""#,
        r#""\ud834\udd1e""#,
        "\"\u{7f}é\"",
        "123456789012345678901234567890",
    ] {
        assert_eq!(scan(text.as_bytes()), PLAIN, "{text}");
    }
    for text in [
        "",
        " ",
        "nul",
        "nulll",
        "True",
        "NaN",
        "Infinity",
        "-",
        "+1",
        "01",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x1",
        "1_0",
        "\"",
        "\"a",
        "\"\n\"",
        "\"\t\"",
        r#""\x""#,
        r#""\u12g4""#,
        r#""\u123""#,
        r#""\ud800""#,
        r#""\udc00""#,
        r#""\ud800\u0041""#,
        r#""\ud800\n""#,
        r#""\ud800x""#,
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{",
        "}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{a:1}",
        "{'a':1}",
        "{1:2}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "[}",
        "{]",
        "[1}",
        "{\"a\":1]",
        "{} {}",
        "1 2",
        "[] x",
        "/**/1",
        "\u{feff}{}",
        "\u{a0}1",
        "{\"a\":1,\"a\":2",
        "[{\"a\":1,\"a\":2}] x",
    ] {
        assert_eq!(scan(text.as_bytes()), NOT_JSON, "{text}");
    }
    for bytes in [&b"\"\xff\""[..], b"\"\xc3\"", b"{\"a\":\"\xed\xa0\x80\"}", b"\xff", b"\x0c1"] {
        assert_eq!(scan(bytes), NOT_JSON, "{bytes:?}");
    }
}

#[test]
fn special_bytes_are_seen_at_every_offset_of_a_long_string() {
    for length in 0..100 {
        let filler = "x".repeat(length);
        assert_eq!(scan(format!("\"{filler}\"").as_bytes()), PLAIN);
        assert_eq!(scan(format!("\"{filler}\\n{filler}\"").as_bytes()), PLAIN);
        assert_eq!(scan(format!("\"{filler}\n{filler}\"").as_bytes()), NOT_JSON);
        assert_eq!(scan(format!("\"{filler}").as_bytes()), NOT_JSON);
    }
}

#[test]
fn the_depth_limit_is_exact() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!(scan(nested(MAX_DEPTH).as_bytes()), PLAIN);
    assert_eq!(scan(nested(MAX_DEPTH + 1).as_bytes()), Err(Problem::TooDeep));
    assert_eq!(scan("[".repeat(4 << 20).as_bytes()), Err(Problem::TooDeep));
    let objects = |depth: usize| r#"{"a":"#.repeat(depth) + "1" + &"}".repeat(depth);
    assert_eq!(scan(objects(MAX_DEPTH).as_bytes()), PLAIN);
    assert_eq!(scan(objects(MAX_DEPTH + 1).as_bytes()), Err(Problem::TooDeep));
}

#[test]
fn names_are_compared_after_a_level_became_big_and_was_left() {
    let members =
        |count: usize| (0..count).map(|n| format!(r#""k{n}":{{"k0":1}}"#)).collect::<Vec<_>>().join(",");
    for count in [1, FEW_NAMES - 1, FEW_NAMES, FEW_NAMES + 1, 500] {
        let distinct = format!("[{{{0}}},{{{0}}}]", members(count));
        assert_eq!(scan(distinct.as_bytes()), PLAIN, "{count}");
        let repeated = format!("{{{},\"k0\":1}}", members(count));
        assert_eq!(scan(repeated.as_bytes()), duplicate("k0"), "{count}");
        let last = count - 1;
        let repeated = format!("{{{},\"\\u006b{last}\":1}}", members(count));
        assert_eq!(scan(repeated.as_bytes()), duplicate(&format!("k{last}")), "{count}");
    }
}

/// So many objects in each other, each with so many names, the next inside the last of them; `twice` repeats its first
/// name behind that.
fn nest(depth: usize, width: usize, twice: Option<usize>) -> String {
    let mut text = "1".to_owned();
    for level in (0..depth).rev() {
        let names = (1..width).map(|n| format!(r#""k{n}":{n},"#)).collect::<Vec<_>>().concat();
        let again = if twice == Some(level) { r#","\u006b0":2"# } else { "" };
        text = format!(r#"{{"k0":0,{names}"last":{text}{again}}}"#);
    }
    text
}

#[test]
fn names_are_kept_however_deep_and_many_they_are() {
    for depth in [1, USUAL_DEPTH - 1, USUAL_DEPTH, USUAL_DEPTH + 1, 2 * USUAL_DEPTH, MAX_DEPTH] {
        for width in [1, 2, 3, USUAL_NAMES - 1, USUAL_NAMES, USUAL_NAMES + 1, FEW_NAMES + 1, 2 * FEW_NAMES] {
            assert_eq!(scan(nest(depth, width, None).as_bytes()), PLAIN, "{depth} {width}");
            for level in [0, depth / 2, depth - 1] {
                let text = nest(depth, width, Some(level));
                assert_eq!(scan(text.as_bytes()), duplicate("k0"), "{depth} {width} {level}");
            }
        }
    }
}

#[test]
fn places_are_known_again_when_deep_levels_were_left() {
    for depth in [1, USUAL_DEPTH, MAX_DEPTH - 3] {
        let deep = nest(depth, 2, None);
        let text = format!(r#"{{"params":{{"x":{deep},"arguments":{{"y":{deep},"z":[{{"a":1,"a":2}}]}}}}}}"#);
        assert_eq!(scan(text.as_bytes()), argument("a"), "{depth}");
        let text = format!(r#"{{"params":{{"arguments":{{"y":{deep}}},"z":{{"a":1,"a":2}}}}}}"#);
        assert_eq!(scan(text.as_bytes()), duplicate("a"), "{depth}");
    }
}

#[test]
fn what_is_no_unicode_is_refused_wherever_it_is() {
    for length in 1..80 {
        for at in 0..length {
            let mut text = vec![b'x'; length];
            text[at] = 0xff;
            let text = [b"\"", &*text, b"\""].concat();
            assert_eq!(scan(&text), NOT_JSON, "{at} of {length}");
        }
        assert_eq!(scan(format!("\"{}\u{e9}\"", "x".repeat(length)).as_bytes()), PLAIN, "{length}");
    }
    let deep = [&*b"[".repeat(MAX_DEPTH + 1), b"\"\xff\""].concat();
    assert_eq!(scan(&deep), NOT_JSON);
    assert_eq!(scan(b"{\"a\":1,\"a\":\"\xff\"}"), NOT_JSON);
}

#[test]
fn every_byte_is_plain_or_special_at_every_offset() {
    for byte in 0..=u8::MAX {
        for at in 0..20 {
            for filler in [b'x', b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xff] {
                let mut text = [filler; 20];
                text[at] = byte;
                let special = byte == b'"' || byte == b'\\' || byte < b' ';
                let expected = if special { at } else { text.len() };
                assert_eq!(plain_length(&text), expected, "{byte:#x} at {at} among {filler:#x}");
                for end in [at + 1, 20] {
                    let plain = seems_plain(&text[..end]);
                    let certain = byte.is_ascii() && filler.is_ascii();
                    assert!(plain != special || !certain, "{byte:#x} at {at} of {end} {filler:#x}");
                    assert!(!(plain && special), "{byte:#x} at {at} of {end} {filler:#x}");
                    let expected = if special { at } else { end };
                    assert_eq!(
                        plain_length(&text[..end]),
                        expected,
                        "{byte:#x} at {at} of {end} {filler:#x}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_long_name_is_shortened_in_the_problem() {
    let name = "n".repeat(10_000);
    assert_eq!(scan(format!(r#"{{"{name}":1,"{name}":1}}"#).as_bytes()), duplicate(&name[..SHOWN_NAME]));
}

/// 400,000 names would take about a minute with a quadratic comparison, even optimised.
#[test]
#[expect(clippy::disallowed_types, reason = "measures real time; nothing here runs on a paused clock")]
fn an_object_with_very_many_members_takes_linear_time() {
    let members: Vec<_> = (0..400_000).map(|n| format!(r#""member-{n}":0"#)).collect();
    let text = format!("{{{}}}", members.join(","));
    let started = std::time::Instant::now();
    assert_eq!(scan(text.as_bytes()), PLAIN);
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// The same answer as [`scan`] for JSON of allowed depth, by the slowest and plainest means: one serde pass per level.
fn reference(text: &[u8]) -> Result<(), Problem> {
    let value: &RawValue = serde_json::from_slice(text).map_err(|_| Problem::NotJson)?;
    let mut seen = Seen::default();
    seen.visit(value.get(), Place::Frame).map_err(|_| Problem::NotJson)?;
    seen.duplicate.map_or(Ok(()), Err)
}

#[derive(Default)]
struct Seen {
    duplicate: Option<Problem>,
}

impl Seen {
    fn visit(&mut self, text: &str, place: Place) -> Result<(), serde_json::Error> {
        match text.as_bytes()[0] {
            b'"' => String::deserialize(&mut serde_json::Deserializer::from_str(text)).map(|_| ()),
            b'[' => {
                let elements: Vec<&RawValue> = serde_json::from_str(text)?;
                elements.into_iter().try_for_each(|element| self.visit(element.get(), place.element()))
            }
            b'{' => {
                let mut names = Vec::new();
                for (name, value) in serde_json::from_str::<Entries<'_>>(text)?.0 {
                    if names.contains(&name) {
                        let inside = matches!(place, Place::Arguments | Place::Inside);
                        self.duplicate.get_or_insert_with(|| super::duplicate(name.as_bytes(), inside));
                    }
                    let inner = place.member(place.field(name.as_bytes()));
                    names.push(name);
                    self.visit(value.get(), inner)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Vec<(String, &'de RawValue)>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Visitor).map(Self)
    }
}

/// Texts of strings, chosen so that equal ones with different spellings are frequent.
fn string() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(r#""a""#.to_owned()),
        Just(r#""\u0061""#.to_owned()),
        Just(r#""params""#.to_owned()),
        Just(r#""p\u0061rams""#.to_owned()),
        Just(r#""arguments""#.to_owned()),
        Just(r#""__x""#.to_owned()),
        Just(r#""\u005f_x""#.to_owned()),
        Just(r#""\ud83d\ude00""#.to_owned()),
        Just(r#""😀""#.to_owned()),
        any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
    ]
}

fn json() -> impl Strategy<Value = String> {
    let blank = prop_oneof![Just(""), Just(" "), Just("\n\t")];
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("-1.50e+3".to_owned()),
        any::<f64>()
            .prop_filter("finite", |n| n.is_finite())
            .prop_map(|n| serde_json::to_string(&n).unwrap()),
        string(),
    ];
    scalar.prop_recursive(6, 64, 6, move |inner| {
        let member = (string(), blank.clone(), inner.clone())
            .prop_map(|(name, blank, value)| format!("{name}{blank}:{blank}{value}"));
        prop_oneof![
            (prop::collection::vec(inner.clone(), 0..5), blank.clone()).prop_map(|(items, blank)| format!(
                "[{blank}{}{blank}]",
                items.join(&format!("{blank},{blank}"))
            )),
            (prop::collection::vec(member, 0..6), blank.clone()).prop_map(|(items, blank)| format!(
                "{{{blank}{}{blank}}}",
                items.join(&format!("{blank},{blank}"))
            )),
            inner.prop_map(|value| format!(r#"{{"params":{{"name":"x","arguments":{value}}}}}"#)),
        ]
    })
}

proptest! {
    #[test]
    fn the_scan_agrees_with_a_slow_reference(text in json()) {
        prop_assert_eq!(scan(text.as_bytes()), reference(text.as_bytes()));
    }

    #[test]
    fn a_damaged_text_passes_only_if_the_reference_lets_it(text in json(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        prop_assert_eq!(scan(&bytes), reference(&bytes));
        bytes.truncate(at);
        prop_assert_eq!(scan(&bytes), reference(&bytes));
    }
}
