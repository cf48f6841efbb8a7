//! The list of what the client did wrong, shared by all sessions of the process and kept in a file if one was named.

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

/// The breaches so far; clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Breaches {
    list: Arc<Mutex<Vec<String>>>,
    file: Option<PathBuf>,
}

impl Breaches {
    /// An empty list, appended to `file` as it grows. Several processes may append to one file.
    pub fn new(file: Option<PathBuf>) -> Self {
        Self { list: Arc::default(), file }
    }

    /// Adds one sentence.
    pub fn note(&self, breach: impl Into<String>) {
        let breach = breach.into();
        if let Some(file) = &self.file {
            let written = OpenOptions::new().create(true).append(true).open(file).and_then(|mut file| {
                // In one write, so that lines of several processes do not mix.
                file.write_all(format!("{breach}\n").as_bytes())
            });
            if let Err(error) = written {
                eprintln!("{}: {error}; lost: {breach}", file.display());
            }
        }
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push(breach);
    }

    /// Adds several.
    pub fn extend(&self, breaches: impl IntoIterator<Item = String>) {
        breaches.into_iter().for_each(|breach| self.note(breach));
    }

    /// All of them, in the order they happened.
    pub fn all(&self) -> Vec<String> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
