//! Header encoding and the headers that repeat arguments.

use proptest::prelude::*;

use super::*;

#[test]
fn values_are_written_as_the_specification_shows() {
    for (value, written) in [
        ("us-west1", "us-west1"),
        ("us west 1", "us west 1"),
        ("", ""),
        (" us-west1", "=?base64?IHVzLXdlc3Qx?="),
        ("us-west1 ", "=?base64?dXMtd2VzdDEg?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("line1\r\nline2", "=?base64?bGluZTENCmxpbmUy?="),
        ("\tindented", "=?base64?CWluZGVudGVk?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64?literal", "=?base64?literal"),
        ("=?BASE64?literal?=", "=?BASE64?literal?="),
    ] {
        assert_eq!(encode(value), written, "{value:?}");
        assert_eq!(decode(written.as_bytes()).unwrap(), value, "{written:?}");
    }
}

#[test]
fn values_are_read_strictly() {
    for (written, value) in [
        (&b"=?base64?SGVsbG8=?="[..], Ok("Hello")),
        (b"  foo\t", Ok("foo")),
        (b"=?base64??=", Ok("")),
        (b" ", Ok("")),
        (b"SGVsbG8=", Ok("SGVsbG8=")),
        (b"=?base64?SGVsbG8=", Ok("=?base64?SGVsbG8=")),
        (b"=?base64?=", Ok("=?base64?=")),
        (b"=?BASE64?SGVsbG8=?=", Ok("=?BASE64?SGVsbG8=?=")),
        (b"=?base64?SGVsbG8?=", Err(BadEncoding)),
        (b"=?base64?SGVsbG8==?=", Err(BadEncoding)),
        (b"=?base64?SGVs!!!bG8=?=", Err(BadEncoding)),
        (b"=?base64?SGVs bG8=?=", Err(BadEncoding)),
        (b"=?base64?SGVsbG9=?=", Err(BadEncoding)), // stray bits after the last character
        (b"=?base64?_-8=?=", Err(BadEncoding)),
        (b"=?base64?/w==?=", Err(BadEncoding)), // not UTF-8
        ("é".as_bytes(), Err(BadEncoding)),
        (b"a\x7fb", Err(BadEncoding)),
        (b"a\nb", Err(BadEncoding)),
        (b"\xff", Err(BadEncoding)),
    ] {
        assert_eq!(decode(written).as_deref(), value.as_deref(), "{written:?}");
    }
}

#[test]
fn annotations_are_found_on_the_paths_that_lead_to_them() {
    for (schema, expected) in [
        (r#"{"type":"object"}"#, vec![]),
        (
            r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"}}}"#,
            vec![("Region", vec!["region"])],
        ),
        (
            r#"{"properties":{"a":{"properties":{"b":{"type":"integer","x-mcp-header":"B"}}}}}"#,
            vec![("B", vec!["a", "b"])],
        ),
        (
            r#"{"properties":{"a":{"type":["string","null"],"x-mcp-header":"Method"},"b":{"type":"boolean","x-mcp-header":"b!"}}}"#,
            vec![("Method", vec!["a"]), ("b!", vec!["b"])],
        ),
        (r#"{"properties":{"a":{"type":"string","x-mcp\u002dheader":"A"}}}"#, vec![("A", vec!["a"])]),
        // A property of that name, and data that looks like an annotation, are no annotations.
        (r#"{"properties":{"x-mcp-header":{"type":"string"}}}"#, vec![]),
        (r#"{"$defs":{"x-mcp-header":{"type":"string"}}}"#, vec![]),
        (r#"{"properties":{"a":{"default":{"x-mcp-header":"A"},"enum":[{"x-mcp-header":"A"}]}}}"#, vec![]),
        ("true", vec![]),
    ] {
        let found = header_params(&Raw::from_text(schema).unwrap()).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(name, path)| (name.as_str(), path.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(found, expected, "{schema}");
    }
}

#[test]
fn an_annotation_that_breaks_a_rule_is_explained() {
    for (schema, reason) in [
        (r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#, "not a header name"),
        (r#"{"properties":{"a":{"type":"string","x-mcp-header":"My Region"}}}"#, "not a header name"),
        (r#"{"properties":{"a":{"type":"string","x-mcp-header":"Region:Primary"}}}"#, "not a header name"),
        (r#"{"properties":{"a":{"type":"string","x-mcp-header":"Région"}}}"#, "not a header name"),
        (r#"{"properties":{"a":{"type":"string","x-mcp-header":"Region\t1"}}}"#, "not a header name"),
        (r#"{"properties":{"a":{"type":"string","x-mcp-header":1}}}"#, "not a header name"),
        (r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#, "not on a string"),
        (r#"{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}"#, "not on a string"),
        (r#"{"properties":{"a":{"type":"array","x-mcp-header":"A"}}}"#, "not on a string"),
        (r#"{"properties":{"a":{"type":"null","x-mcp-header":"A"}}}"#, "not on a string"),
        (r#"{"properties":{"a":{"type":["string","number"],"x-mcp-header":"A"}}}"#, "not on a string"),
        (r#"{"properties":{"a":{"x-mcp-header":"A"}}}"#, "not on a string"),
        (
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
            "appears twice",
        ),
        (r#"{"type":"string","x-mcp-header":"A"}"#, "not reached"),
        (r#"{"properties":{"a":{"items":{"type":"string","x-mcp-header":"A"}}}}"#, "not reached"),
        (
            r#"{"properties":{"a":{"items":{"properties":{"b":{"type":"string","x-mcp-header":"A"}}}}}}"#,
            "not reached",
        ),
        (r#"{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#, "not reached"),
        (r#"{"if":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}}"#, "not reached"),
        (
            r##"{"$defs":{"a":{"type":"string","x-mcp-header":"A"}},"properties":{"a":{"$ref":"#/$defs/a"}}}"##,
            "not reached",
        ),
        (r#"{"patternProperties":{"a":{"type":"string","x-mcp-header":"A"}}}"#, "not reached"),
    ] {
        let error = header_params(&Raw::from_text(schema).unwrap()).unwrap_err();
        assert!(error.contains(reason), "{schema}: {error}");
    }
}

#[test]
fn a_schema_too_deep_to_read_is_an_error_and_no_overflow() {
    let schema = r#"{"not":"#.repeat(100_000) + r#"{"x-mcp-header":"A"}"# + &"}".repeat(100_000);
    assert!(header_params(&Raw::from_text(schema).unwrap()).unwrap_err().contains("cannot be read"));
}

#[test]
fn headers_repeat_the_arguments() {
    let check = |arguments: &str, headers: &[(&str, &str)]| {
        let arguments = Raw::from_text(arguments.to_owned()).unwrap();
        let params = [("Text", vec!["t"]), ("Deep", vec!["a", "b"])];
        let header =
            |name: &str| headers.iter().find_map(|(key, value)| (*key == name).then_some(value.as_bytes()));
        check_params(params, &arguments, header)
    };
    for (arguments, headers) in [
        ("{}", &[][..]),
        (r#"{"t":null}"#, &[]),
        (r#"{"t":"x"}"#, &[("text", "x")]),
        (r#"{"t":"\u0078"}"#, &[("text", " x ")]),
        (r#"{"t":" x"}"#, &[("text", "=?base64?IHg=?=")]),
        (r#"{"t":""}"#, &[("text", "")]),
        (r#"{"t":42}"#, &[("text", "42")]),
        (r#"{"t":42}"#, &[("text", "42.0")]),
        (r#"{"t":42.0}"#, &[("text", "42")]),
        (r#"{"t":-7}"#, &[("text", "-7")]),
        (r#"{"t":true}"#, &[("text", "true")]),
        (r#"{"a":{"b":"y"}}"#, &[("deep", "y")]),
        (r#"{"a":"no object"}"#, &[]),
        ("{}", &[("unknown", "x")]),
    ] {
        assert_eq!(check(arguments, headers), Ok(()), "{arguments} {headers:?}");
    }
    for (arguments, headers, named) in [
        (r#"{"t":"x"}"#, &[][..], "Mcp-Param-Text is missing"),
        (r#"{"t":"x"}"#, &[("text", "X")], "Mcp-Param-Text does not match"),
        (r#"{"t":"x"}"#, &[("text", "=?base64?eA?=")], "Mcp-Param-Text is not encoded"),
        ("{}", &[("text", "x")], "Mcp-Param-Text is there"),
        (r#"{"t":null}"#, &[("text", "null")], "Mcp-Param-Text is there"),
        (r#"{"t":true}"#, &[("text", "True")], "does not match"),
        (r#"{"t":42}"#, &[("text", "43")], "does not match"),
        (r#"{"t":42}"#, &[("text", "0x2a")], "does not match"),
        (r#"{"t":9007199254740993}"#, &[("text", "9007199254740992.0")], "does not match"),
        (r#"{"t":[]}"#, &[("text", "[]")], "does not match"),
        (r#"{"a":{"b":"y"}}"#, &[], "Mcp-Param-Deep is missing"),
    ] {
        let error = check(arguments, headers).unwrap_err();
        assert_eq!(error.code, code::HEADER_MISMATCH);
        assert!(error.message.contains(named), "{arguments} {headers:?}: {error}");
    }
}

proptest! {
    #[test]
    fn every_string_reads_back_what_was_written(value in any::<String>()) {
        let written = encode(&value);
        prop_assert!(written.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        prop_assert_eq!(decode(written.as_bytes()), Ok(Cow::Borrowed(value.as_str())));
    }

    #[test]
    fn values_made_of_the_markers_read_back_too(value in "[ =?base64a]{0,30}") {
        let written = encode(&value);
        prop_assert_eq!(decode(written.as_bytes()), Ok(Cow::Borrowed(value.as_str())));
    }

    #[test]
    fn no_header_value_makes_decoding_panic(value in any::<Vec<u8>>()) {
        if let Ok(text) = decode(&value) {
            let written = encode(&text);
            prop_assert_eq!(decode(written.as_bytes()), Ok(Cow::Borrowed(&*text)));
        }
    }
}
