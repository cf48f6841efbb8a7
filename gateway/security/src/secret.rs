//! Secrets, the files they are kept in, and the local token.
//!
//! A [`Secret`] has no `Display` and its `Debug` prints `***`. [`TokenFile`] is the one token every caller of this user
//! shares: 256 random bits in a 0600 file, taken up anew by a running gateway when the file changes.

mod file;
mod watched;

use std::{fmt, path::Path};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use crate::Error;

pub use file::Warning;
pub(crate) use file::hex;
pub(crate) use watched::Watched;

/// Tokens that people chose themselves should not be shorter than this.
const SAFE_LENGTH: usize = 32;

/// A text that must not be seen: `Debug` prints `***`, and the memory is wiped when it is dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes `text` over.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// 256 random bits, as base64url.
    pub fn random() -> Self {
        Self::new(URL_SAFE_NO_PAD.encode(*random::<32>()))
    }

    /// The text itself. Whoever calls this keeps it out of logs and errors.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `text` is the secret. Takes as long for the first wrong byte as for the last. Only the length shows: that
    /// of ours is known, and that of one that somebody chose gives nothing away if it is long enough.
    fn is(&self, text: &str) -> bool {
        verify_slices_are_equal(self.0.as_bytes(), text.as_bytes()).is_ok()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// So many random bytes.
pub(crate) fn random<const N: usize>() -> Zeroizing<[u8; N]> {
    let mut bytes = Zeroizing::new([0; N]);
    aws_lc_rs::rand::fill(bytes.as_mut()).expect("the system's random source answers");
    bytes
}

/// The file with the local token.
pub struct TokenFile {
    file: Watched<Secret>,
}

impl TokenFile {
    /// Opens the token file at `path`, or makes one with a new token. Its directory is made with mode 0700 if it is
    /// missing; a file that others could read gets mode 0600 and a warning.
    pub fn open_or_create(path: &Path) -> Result<(Self, Vec<Warning>), Error> {
        let (file, mut warnings) = Watched::open_or_create(path, parse_token, &|| line(&Secret::random()))?;
        let token = Self { file };
        if token.token()?.expose().len() < SAFE_LENGTH {
            warnings.push(Warning::ShortToken { path: path.to_owned() });
        }
        Ok((token, warnings))
    }

    /// The token as it is on disk now.
    pub fn token(&self) -> Result<Secret, Error> {
        let text = self.file.text()?;
        Ok(Secret::new(text.trim().to_owned()))
    }

    /// Writes a new token to `path`, whatever is there now: also the way out of a file that cannot be used. A running
    /// gateway takes it up at once.
    pub fn write_new(path: &Path) -> Result<(Secret, Vec<Warning>), Error> {
        let mut warnings = Vec::new();
        file::prepare_directory(path, &mut warnings)?;
        let token = Secret::random();
        file::replace(path, &line(&token), &mut warnings)?;
        Ok((token, warnings))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Whether this is the token. One that does not match is compared again after a look at the file, so that a rotated
    /// token is good from its first use; the old one is refused at the latest when the next periodic look is due.
    ///
    /// Signed tokens pass by here with every request. They have dots, ours do not: they are not worth that look.
    pub fn matches(&self, token: &str) -> bool {
        if self.file.get().is(token) {
            return true;
        }
        if token.contains('.') {
            return false;
        }
        self.file.refresh();
        self.file.get().is(token)
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile").field("path", &self.path()).field("token", &"***").finish()
    }
}

fn line(token: &Secret) -> Zeroizing<String> {
    Zeroizing::new(format!("{}\n", token.expose()))
}

fn parse_token(text: &str) -> Result<Secret, &'static str> {
    match text.trim() {
        "" => Err("is empty; `moongate token rotate` writes a new token"),
        token if token.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Secret::new(token.to_owned())),
        _ => Err("holds something that is not one token"),
    }
}

#[cfg(test)]
mod tests;
