//! Arbitrary bytes as a header value and as a tool's schema: what can be read can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use moongate_wire::{Raw, header};

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        round_trip(text);
    }
    if let Ok(text) = header::decode(data) {
        round_trip(&text);
    }
    if let Ok(schema) = Raw::from_text(data.to_vec())
        && let Ok(params) = header::header_params(&schema)
    {
        for (name, path) in &params {
            assert!(name.bytes().all(|byte| byte.is_ascii_graphic()));
            assert!(!name.is_empty() && !path.is_empty());
        }
        let pairs = params.iter().map(|(name, path)| (name.as_str(), path.iter().map(String::as_str)));
        let _checked = header::check_params(pairs, &schema, |_| Some(data));
    }
});

fn round_trip(text: &str) {
    let written = header::encode(text);
    assert!(written.bytes().all(|byte| matches!(byte, b' '..=b'~')));
    assert_eq!(header::decode(written.as_bytes()).as_deref(), Ok(text));
}
