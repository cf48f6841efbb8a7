//! Seals that open, seals that do not, and what a rotation voids.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

fn fixed() -> Keyring {
    Keyring::fixed(&Secret::new(KEY.into())).unwrap()
}

fn in_file() -> (tempfile::TempDir, PathBuf, Keyring) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let (keyring, warnings) = Keyring::open_or_create(&path).unwrap();
    assert_eq!(warnings, []);
    (directory, path, keyring)
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Note {
    text: String,
    exp: u64,
}

fn note() -> Note {
    Note { text: "hello".into(), exp: 1 }
}

#[test]
fn a_key_file_is_made_once_and_closed_to_others() {
    let (_directory, path, keyring) = in_file();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let (again, _) = Keyring::open_or_create(&path).unwrap();
    let sealed = keyring.seal(Purpose::Cursor, b"", b"place");
    assert_eq!(again.open(Purpose::Cursor, b"", &sealed).unwrap(), b"place");
}

#[test]
fn what_is_no_key_is_refused_without_being_printed() {
    for text in [
        "",
        "\n",
        "short",
        "AAAA",
        &KEY[1..],
        &format!("{KEY}A"),
        &format!("{KEY}\n{KEY}\n{KEY}"),
        "not base64!",
    ] {
        let error = Keyring::fixed(&Secret::new(text.to_owned())).unwrap_err();
        assert!(matches!(error, Error::BadKey(_)), "{text:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    fs::write(&path, "secret-but-not-a-key").unwrap();
    let error = Keyring::open_or_create(&path).unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }));
    assert!(!format!("{error} {error:?}").contains("secret-but"));
}

#[test]
fn a_key_may_be_written_in_either_alphabet_of_base64() {
    let bytes = [0xfb_u8; 32];
    let engines = base64::engine::general_purpose::STANDARD;
    let standard = Keyring::fixed(&Secret::new(engines.encode(bytes))).unwrap();
    let url_safe = Keyring::fixed(&Secret::new(URL_SAFE_NO_PAD.encode(bytes))).unwrap();
    let sealed = standard.seal(Purpose::Cursor, b"", b"x");
    assert_eq!(url_safe.open(Purpose::Cursor, b"", &sealed).unwrap(), b"x");
}

#[test]
fn a_sealed_value_belongs_to_its_purpose_and_its_owner() {
    let keyring = fixed();
    let sealed = keyring.seal(Purpose::ParkedState, b"issued:alice", b"state");
    assert_eq!(keyring.open(Purpose::ParkedState, b"issued:alice", &sealed).unwrap(), b"state");
    assert_eq!(keyring.open(Purpose::ParkedState, b"issued:bob", &sealed), Err(SealError::Forged));
    assert_eq!(keyring.open(Purpose::Cursor, b"issued:alice", &sealed), Err(SealError::Forged));
    assert_ne!(keyring.seal(Purpose::ParkedState, b"issued:alice", b"state"), sealed, "the nonce is random");
    assert!(sealed.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')));
}

#[test]
fn a_value_of_another_key_names_an_unknown_key() {
    let (_directory, _, other) = in_file();
    let sealed = other.seal(Purpose::Cursor, b"", b"place");
    assert_eq!(fixed().open(Purpose::Cursor, b"", &sealed), Err(SealError::UnknownKey));
}

#[test]
fn what_is_no_sealed_value_is_malformed() {
    for text in ["", "A", "AAAA", "AQ", "not base64!", "AQ==", &"A".repeat(64)] {
        assert_eq!(fixed().open(Purpose::Cursor, b"", text), Err(SealError::Malformed), "{text:?}");
    }
}

#[test]
fn a_rotation_keeps_what_is_sealed_and_voids_what_is_signed() {
    let (_directory, path, keyring) = in_file();
    let sealed = keyring.seal(Purpose::ParkedState, b"", b"state");
    let signed = keyring.sign(&note());
    let sealed_as_token = keyring.seal(Purpose::IssuedToken, b"", b"state");
    assert_eq!(keyring.verify::<Note>(signed.expose()), Ok(note()));

    keyring.rotate().unwrap();
    let (restarted, _) = Keyring::open_or_create(&path).unwrap();
    for keyring in [&keyring, &restarted] {
        assert_eq!(keyring.open(Purpose::ParkedState, b"", &sealed).unwrap(), b"state");
        assert_eq!(keyring.open(Purpose::IssuedToken, b"", &sealed_as_token), Err(SealError::UnknownKey));
        assert_eq!(keyring.verify::<Note>(signed.expose()), Err(Flaw::Foreign));
    }

    keyring.rotate().unwrap();
    assert_eq!(
        keyring.open(Purpose::ParkedState, b"", &sealed),
        Err(SealError::UnknownKey),
        "one previous key is kept"
    );
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 2);
    assert!(matches!(fixed().rotate(), Err(Error::FixedKey)));
}

#[tokio::test(start_paused = true)]
async fn a_running_gateway_takes_up_a_key_that_another_process_rotated() {
    let (_directory, path, running) = in_file();
    let signed = running.sign(&note());
    let (command_line, _) = Keyring::open_or_create(&path).unwrap();
    command_line.rotate().unwrap();
    let newer = command_line.sign(&note());
    assert_eq!(running.verify::<Note>(newer.expose()), Ok(note()), "good at once");
    assert_eq!(running.verify::<Note>(signed.expose()), Err(Flaw::Foreign));

    command_line.rotate().unwrap();
    tokio::time::advance(Duration::from_millis(250)).await;
    assert_eq!(
        running.verify::<Note>(newer.expose()),
        Err(Flaw::Foreign),
        "voided when the next look is due"
    );
}

#[test]
fn only_this_signature_and_this_algorithm_verify() {
    let keyring = fixed();
    let signed = keyring.sign(&note());
    let token = signed.expose();
    assert_eq!(keyring.verify::<Note>(token), Ok(note()));

    let (head, signature) = token.rsplit_once('.').unwrap();
    let (header, _) = head.split_once('.').unwrap();
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let id = hex(&keyring.keys().current.id);
    let other_claims = encode(r#"{"text":"forged","exp":99999999999}"#);
    let unsigned = encode(&format!(r#"{{"alg":"none","kid":"{id}"}}"#));
    let rsa = encode(&format!(r#"{{"alg":"RS256","kid":"{id}"}}"#));
    let hs512 = encode(&format!(r#"{{"alg":"HS512","kid":"{id}"}}"#));
    let claims = head.split_once('.').unwrap().1;
    for (forged, flaw) in [
        (format!("{header}.{other_claims}.{signature}"), Flaw::Forged),
        (format!("{header}.{claims}."), Flaw::Forged),
        (format!("{header}.{claims}.{}", encode("x")), Flaw::Forged),
        // An algorithm that the library does not know is not even a header.
        (format!("{unsigned}.{claims}."), Flaw::Foreign),
        (format!("{rsa}.{claims}.{signature}"), Flaw::Forged),
        (format!("{hs512}.{claims}.{signature}"), Flaw::Forged),
        (format!("{}.{claims}.{signature}", encode(r#"{"alg":"HS256"}"#)), Flaw::Foreign),
        (format!("{}.{claims}.{signature}", encode(r#"{"alg":"HS256","kid":"00000000"}"#)), Flaw::Foreign),
        ("opaque".into(), Flaw::Foreign),
        (String::new(), Flaw::Foreign),
        ("a.b.c".into(), Flaw::Foreign),
    ] {
        assert_eq!(keyring.verify::<Note>(&forged), Err(flaw), "{forged}");
    }
}

#[test]
fn a_token_signed_with_another_key_under_our_id_is_forged() {
    let keyring = fixed();
    let header = Header { kid: Some(hex(&keyring.keys().current.id)), ..Header::new(Algorithm::HS256) };
    for secret in [&b""[..], b"moongate", KEY.as_bytes(), &[0; 32]] {
        let forged = jsonwebtoken::encode(&header, &note(), &EncodingKey::from_secret(secret)).unwrap();
        assert_eq!(keyring.verify::<Note>(&forged), Err(Flaw::Forged));
    }
}

#[test]
fn no_debug_output_holds_a_key() {
    let keyring = fixed();
    let printed = format!("{keyring:?}");
    assert!(printed.contains("***") && !printed.contains(KEY) && printed.len() < 60, "{printed}");
}

proptest! {
    #[test]
    fn what_is_sealed_opens_again(aad in prop::collection::vec(any::<u8>(), 0..40), plain in prop::collection::vec(any::<u8>(), 0..200)) {
        let keyring = fixed();
        let sealed = keyring.seal(Purpose::ParkedState, &aad, &plain);
        prop_assert_eq!(keyring.open(Purpose::ParkedState, &aad, &sealed), Ok(plain));
    }

    #[test]
    fn a_changed_character_never_opens(at in any::<prop::sample::Index>(), to in "[A-Za-z0-9_-]") {
        let keyring = fixed();
        let sealed = keyring.seal(Purpose::Cursor, b"alice", b"some place in a list");
        let at = at.index(sealed.len());
        let changed = format!("{}{to}{}", &sealed[..at], &sealed[at + 1..]);
        prop_assume!(changed != sealed);
        prop_assert!(keyring.open(Purpose::Cursor, b"alice", &changed).is_err());
    }

    #[test]
    fn any_text_is_refused_without_a_panic(text in "[A-Za-z0-9_.=-]{0,120}") {
        let keyring = fixed();
        prop_assert!(keyring.open(Purpose::Cursor, b"", &text).is_err());
        prop_assert!(keyring.verify::<Note>(&text).is_err());
    }
}
