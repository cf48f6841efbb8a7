//! What can go wrong with secrets, keys and issued tokens.
//!
//! A caller that is turned away is not an error of this crate: that is [`Denied`](crate::Denied).

use std::path::PathBuf;

/// A failure of the guard's own files or storage.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that keeps a secret cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file that keeps a secret, or its directory, cannot be written.
    #[error("cannot write {}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A directory, pipe or device stands where a secret should be.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// What was found.
        path: PathBuf,
    },
    /// Somebody else owns the file, and so chose, or can change, what is in it.
    #[error("{} belongs to user {owner}, not to the user who runs moongate", path.display())]
    ForeignOwner {
        /// The file, or the link to it.
        path: PathBuf,
        /// The owner's numeric id.
        owner: u32,
    },
    /// The file does not hold what it should.
    #[error("{} {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong; never part of the content.
        problem: &'static str,
    },
    /// A root key given in the configuration is not usable.
    #[error("the configured key {0}")]
    BadKey(&'static str),
    /// A key that came from the configuration is changed there, not here.
    #[error("the key comes from the configuration and is rotated there")]
    FixedKey,
    /// A token cannot be issued for this subject.
    #[error("a subject has 1 to {} characters and no control characters", crate::token::MAX_SUBJECT)]
    BadSubject,
    /// A token cannot live this long.
    #[error("a token lives for at least a second and at most {} years", crate::token::MAX_YEARS)]
    BadLifetime,
    /// The list of issued or revoked tokens cannot be read or written.
    #[error("the list of tokens cannot be reached")]
    Storage(#[source] moongate_storage::Error),
}
