//! Any text as a configuration file: it becomes a configuration or problems, never a panic, and no secret is quoted.

#![no_main]

use std::{io, path::Path};

use libfuzzer_sys::fuzz_target;
use moongate_config::RootKey;

/// What stands behind every `${env:}` and `${file:}`.
const SECRET: &str = "hush-hush-hush-hush-hush-hush-hush-hush";

fuzz_target!(|text: &[u8]| {
    let env = |_: &str| Some(SECRET.to_owned());
    let file = |_: &Path| -> io::Result<String> { Ok(SECRET.to_owned()) };
    match moongate_config::load(text, Path::new("moongate.yaml"), &env, &file) {
        Ok(loaded) => match loaded.config.security.key {
            key @ RootKey::Given(_) => assert!(!format!("{key:?}").contains(SECRET)),
            // A path may be built of placeholders, such as `${env:HOME}/key`, and is no secret.
            RootKey::File(_) => {}
        },
        Err(problems) => {
            assert!(problems.iter().next().is_some(), "a refusal says why");
            assert!(!problems.render(false).contains(SECRET));
            assert!(!problems.to_json().contains(SECRET));
        }
    }
});
