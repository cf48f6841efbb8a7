//! Text that is never shown.

use std::fmt;

use zeroize::Zeroizing;

/// A value that came from `${env:…}` or `${file:…}` and stays between the file and its user.
///
/// It has no `Display`, its `Debug` prints `***`, and its memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Hides `text`.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself; to be handed on, never to be written anywhere.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_prints_stars() {
        let secret = Secret::new("hunter2".to_owned());
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "*** Some(***)");
        assert_eq!(secret.expose(), "hunter2");
    }
}
