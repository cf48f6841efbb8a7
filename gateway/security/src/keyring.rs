//! One root key, and the keys derived from it.
//!
//! What the gateway hands to clients and wants back unchanged is sealed (parked calls, list cursors, task ids) or signed (issued
//! tokens). Every purpose has a key of its own, derived by HKDF, so a value made for one never passes for another. The
//! id of the root key is part of every value.
//!
//! The file holds 256 random bits per line, as base64url: the current key, then the previous one. After a rotation the
//! previous key still opens what was sealed, so that no list or parked call breaks; it no longer verifies issued
//! tokens, because voiding them is what a rotation is for.

use std::{fmt, path::Path, sync::Arc};

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, KeyType, Prk, Salt},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

use crate::{
    Error, Flaw, Secret, Warning,
    secret::{Watched, hex, random},
};

/// Layout of a sealed value: this byte, key id, nonce, ciphertext with tag.
const LAYOUT: u8 = 1;
const ID_BYTES: usize = 4;
const KEY_BYTES: usize = 32;
/// Separates these keys from those of any other program that is given the same root key.
const SALT: &[u8] = b"moongate keyring 1";

/// What a derived key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The state of a call that waits for its client.
    ParkedState,
    /// A place in a list.
    Cursor,
    /// A task at an upstream.
    TaskId,
    /// A token that this gateway issued.
    IssuedToken,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Self::ParkedState => b"parked state",
            Self::Cursor => b"cursor",
            Self::TaskId => b"task ids",
            Self::IssuedToken => b"issued token",
        }
    }

    /// Whether values made before the last rotation are still good.
    fn outlives_rotation(self) -> bool {
        match self {
            Self::ParkedState | Self::Cursor | Self::TaskId => true,
            Self::IssuedToken => false,
        }
    }
}

/// Why a sealed value does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It is not a sealed value at all.
    #[error("this is not a value that the gateway made")]
    Malformed,
    /// It was sealed with a key that is not in use any more.
    #[error("the value was sealed with a key that is not in use any more")]
    UnknownKey,
    /// It was changed, or belongs to another purpose or another caller.
    #[error("the value was changed or belongs elsewhere")]
    Forged,
}

/// The gateway's keys.
pub struct Keyring {
    source: Source,
}

enum Source {
    File(Watched<Keys>),
    Fixed(Arc<Keys>),
}

struct Keys {
    current: Root,
    previous: Option<Root>,
}

/// A root key: what is derived from it, not the key itself.
struct Root {
    id: [u8; ID_BYTES],
    prk: Prk,
    signing: EncodingKey,
    verifying: DecodingKey,
}

impl Keyring {
    /// Opens the key file at `path`, or makes one with a new key; as careful about modes and owners as
    /// [`TokenFile`](crate::TokenFile).
    pub fn open_or_create(path: &Path) -> Result<(Self, Vec<Warning>), Error> {
        let fresh = || Zeroizing::new(format!("{}\n", Secret::random().expose()));
        let (file, warnings) = Watched::open_or_create(path, parse_keys, &fresh)?;
        Ok((Self { source: Source::File(file) }, warnings))
    }

    /// A keyring from a key that the configuration gives: the same text as in a key file. Replicas share one so.
    pub fn fixed(key: &Secret) -> Result<Self, Error> {
        let keys = parse_keys(key.expose()).map_err(Error::BadKey)?;
        Ok(Self { source: Source::Fixed(Arc::new(keys)) })
    }

    /// Makes a new key current and the current one the previous. Voids every issued token, here and in every process
    /// that uses the file.
    pub fn rotate(&self) -> Result<(), Error> {
        let Source::File(file) = &self.source else { return Err(Error::FixedKey) };
        let old = file.text()?;
        let current = old.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        file.replace(&Zeroizing::new(format!("{}\n{current}\n", Secret::random().expose())))
    }

    /// Encrypts `plaintext` so that only [`open`](Self::open) with the same purpose and the same `aad` reads it. `aad`
    /// says what the value belongs to (a principal, a session) and is not part of the text.
    pub fn seal(&self, purpose: Purpose, aad: &[u8], plaintext: &[u8]) -> String {
        let keys = self.keys();
        let root = &keys.current;
        let nonce = random::<NONCE_LEN>();
        let mut sealed = plaintext.to_vec();
        let header = [&[LAYOUT], &root.id[..]].concat();
        root.sealing(purpose)
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(*nonce), bind(&header, aad), &mut sealed)
            .expect("AES-GCM seals anything that fits into memory");
        URL_SAFE_NO_PAD.encode([&header[..], &nonce[..], &sealed].concat())
    }

    /// Decrypts what [`seal`](Self::seal) made.
    pub fn open(&self, purpose: Purpose, aad: &[u8], text: &str) -> Result<Vec<u8>, SealError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| SealError::Malformed)?;
        let (header, rest) = bytes.split_at_checked(1 + ID_BYTES).ok_or(SealError::Malformed)?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>().ok_or(SealError::Malformed)?;
        let id = header.strip_prefix(&[LAYOUT]).ok_or(SealError::Malformed)?;
        let keys = self.keys_with(|keys| keys.find(purpose, id).is_some());
        let root = keys.find(purpose, id).ok_or(SealError::UnknownKey)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = root.sealing(purpose).open_in_place(nonce, bind(header, aad), &mut sealed);
        let length = opened.map_err(|_| SealError::Forged)?.len();
        sealed.truncate(length);
        Ok(sealed)
    }

    /// Signs claims as a JWT with HS256.
    pub(crate) fn sign<T: Serialize>(&self, claims: &T) -> Secret {
        let keys = self.keys();
        let root = &keys.current;
        let header = Header { kid: Some(hex(&root.id)), ..Header::new(Algorithm::HS256) };
        let token = jsonwebtoken::encode(&header, claims, &root.signing).expect("plain claims can be signed");
        Secret::new(token)
    }

    /// The claims of a token that [`sign`](Self::sign) made with the current key. Times are left to the caller, who
    /// has the clock.
    ///
    /// [`Flaw::Foreign`] when it is no token of this key: it may be somebody else's.
    pub(crate) fn verify<T: DeserializeOwned>(&self, token: &str) -> Result<T, Flaw> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| Flaw::Foreign)?;
        // Only what looks like an id of ours is worth a look at the file.
        let id = header.kid.filter(|id| id.len() == 2 * ID_BYTES).ok_or(Flaw::Foreign)?;
        let keys = self.keys_with(|keys| hex(&keys.current.id) == id);
        if hex(&keys.current.id) != id {
            return Err(Flaw::Foreign);
        }
        // The algorithm is ours to say, never the header's.
        let mut validation = Validation::new(Algorithm::HS256);
        validation.validate_exp = false;
        let verified = jsonwebtoken::decode(token, &keys.current.verifying, &validation);
        verified.map(|data| data.claims).map_err(|_| Flaw::Forged)
    }

    fn keys(&self) -> Arc<Keys> {
        match &self.source {
            Source::File(file) => file.get(),
            Source::Fixed(keys) => Arc::clone(keys),
        }
    }

    /// The keys; after another look at the file if they are not `wanted`, so that what another process made with a
    /// rotated key is good at once.
    fn keys_with(&self, wanted: impl Fn(&Keys) -> bool) -> Arc<Keys> {
        let keys = self.keys();
        match &self.source {
            Source::File(file) if !wanted(&keys) => {
                file.refresh();
                file.get()
            }
            _ => keys,
        }
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.keys();
        write!(f, "Keyring(current: {}, keys: ***)", hex(&keys.current.id))
    }
}

impl Keys {
    fn find(&self, purpose: Purpose, id: &[u8]) -> Option<&Root> {
        let previous = self.previous.as_ref().filter(|_| purpose.outlives_rotation());
        [Some(&self.current), previous].into_iter().flatten().find(|root| root.id == id)
    }
}

impl Root {
    fn new(key: &[u8; KEY_BYTES]) -> Self {
        let prk = Salt::new(HKDF_SHA256, SALT).extract(key);
        let mut id = [0; ID_BYTES];
        derive(&prk, &[b"id"], &mut id);
        let mut signing = Zeroizing::new([0; KEY_BYTES]);
        derive(&prk, &[b"sign ", Purpose::IssuedToken.label()], signing.as_mut());
        Self {
            id,
            prk,
            signing: EncodingKey::from_secret(signing.as_ref()),
            verifying: DecodingKey::from_secret(signing.as_ref()),
        }
    }

    /// Derived anew each time: it costs about a microsecond, and calls are parked and lists paged rarely.
    fn sealing(&self, purpose: Purpose) -> LessSafeKey {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        derive(&self.prk, &[b"seal ", purpose.label()], key.as_mut());
        LessSafeKey::new(
            UnboundKey::new(&AES_256_GCM, key.as_ref()).expect("the key has the cipher's length"),
        )
    }
}

/// How many bytes HKDF is asked for.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive(prk: &Prk, label: &[&[u8]], out: &mut [u8]) {
    prk.expand(label, Length(out.len()))
        .and_then(|key| key.fill(out))
        .expect("HKDF yields the few bytes that are asked for");
}

/// Binds header and caller's data to the ciphertext. The header's length is fixed, so the parts cannot be confused.
fn bind(header: &[u8], aad: &[u8]) -> Aad<Vec<u8>> {
    Aad::from([header, aad].concat())
}

fn parse_keys(text: &str) -> Result<Keys, &'static str> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let current = lines.next().ok_or("is empty; it should hold 32 random bytes as base64url")?;
    let previous = lines.next().map(parse_key).transpose()?;
    if lines.next().is_some() {
        return Err("holds more than a current and a previous key");
    }
    Ok(Keys { current: parse_key(current)?, previous })
}

/// Takes base64 in both alphabets, with and without padding: people make keys with `openssl rand -base64 32`.
fn parse_key(line: &str) -> Result<Root, &'static str> {
    let plain: Zeroizing<String> =
        Zeroizing::new(line.trim_end_matches('=').replace('+', "-").replace('/', "_"));
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    // The decoder wants room for a multiple of three bytes.
    let mut room = Zeroizing::new([0; KEY_BYTES + 4]);
    let length = URL_SAFE_NO_PAD.decode_slice(plain.as_bytes(), room.as_mut()).map_err(|_| NOT_A_KEY)?;
    if length != KEY_BYTES {
        return Err(NOT_A_KEY);
    }
    key.copy_from_slice(room.get(..KEY_BYTES).ok_or(NOT_A_KEY)?);
    Ok(Root::new(&key))
}

const NOT_A_KEY: &str = "does not hold 32 bytes as base64url";

#[cfg(test)]
mod tests;
