//! A value parsed from a secret's file, read again when the file changes.
//!
//! Another process may rotate a token or a key at any time. A change is found by the file's stamp, looked at no more
//! than every [`INTERVAL`] on the way of a request; there is no watcher to start, to stop or to lose an event.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, Guard};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::file::{self, Contents, Stamp, Warning};
use crate::Error;

/// How long a rotated secret may stay unnoticed.
const INTERVAL: Duration = Duration::from_millis(250);

/// Makes the value of a file's text, or says what is wrong with it.
type Parse<T> = fn(&str) -> Result<T, &'static str>;

pub(crate) struct Watched<T> {
    path: PathBuf,
    parse: Parse<T>,
    current: ArcSwap<Version<T>>,
    opened: Instant,
    /// When the file was last looked at, in milliseconds since `opened`.
    looked: AtomicU64,
    /// Held while the file is looked at; true after a look that failed, so that it is logged once.
    failing: Mutex<bool>,
}

/// A value and the version of the file it was parsed from.
struct Version<T> {
    stamp: Stamp,
    value: Arc<T>,
}

impl<T> Watched<T> {
    /// Opens `path`, or puts what `fresh` returns there.
    pub(crate) fn open_or_create(
        path: &Path,
        parse: Parse<T>,
        fresh: &dyn Fn() -> Zeroizing<String>,
    ) -> Result<(Self, Vec<Warning>), Error> {
        let mut warnings = Vec::new();
        file::prepare_directory(path, &mut warnings)?;
        let contents = loop {
            if let Some(contents) = file::read(path, &mut warnings)? {
                break contents;
            }
            // Whether this wins or another process does, the next round reads what is there.
            file::create(path, &fresh())?;
        };
        let watched = Self {
            path: path.to_owned(),
            parse,
            current: ArcSwap::from_pointee(load(path, parse, &contents)?),
            opened: Instant::now(),
            looked: AtomicU64::new(0),
            failing: Mutex::new(false),
        };
        Ok((watched, warnings))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The value, at most [`INTERVAL`] old.
    ///
    /// The look at the file happens right here and not on a blocking thread: it is one `stat` of a local file, a
    /// microsecond four times a second, and less than the way to another thread and back.
    pub(crate) fn get(&self) -> Arc<T> {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        let looked = self.looked.load(Ordering::Relaxed);
        let due = u128::from(now.saturating_sub(looked)) >= INTERVAL.as_millis();
        if due && self.looked.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.refresh();
        }
        Arc::clone(&self.version().value)
    }

    /// Looks at the file now. True when it had changed and its new value was taken up. A file that is gone or broken
    /// leaves the last good value in place: a hasty editor must not lock everybody out.
    pub(crate) fn refresh(&self) -> bool {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        match self.look() {
            Ok(changed) => {
                *failing = false;
                changed
            }
            Err(error) => {
                if !std::mem::replace(&mut *failing, true) {
                    let error: &(dyn std::error::Error + 'static) = &error;
                    tracing::warn!(
                        error,
                        "a changed secret cannot be taken up; the last good one stays in use"
                    );
                }
                false
            }
        }
    }

    fn look(&self) -> Result<bool, Error> {
        let stamp = file::stamp(&self.path)
            .map_err(|source| Error::Unreadable { path: self.path.clone(), source })?;
        if stamp == self.version().stamp {
            return Ok(false);
        }
        let mut warnings = Vec::new();
        let contents = self.read(&mut warnings)?;
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        self.current.store(Arc::new(load(&self.path, self.parse, &contents)?));
        Ok(true)
    }

    /// Writes `text` in place of what is there and takes it up.
    pub(crate) fn replace(&self, text: &str) -> Result<(), Error> {
        // Its warnings were given when it was opened.
        file::replace(&self.path, text, &mut Vec::new())?;
        self.refresh();
        Ok(())
    }

    /// What is in the file now.
    pub(crate) fn text(&self) -> Result<Zeroizing<String>, Error> {
        Ok(self.read(&mut Vec::new())?.text)
    }

    fn read(&self, warnings: &mut Vec<Warning>) -> Result<Contents, Error> {
        file::read(&self.path, warnings)?.ok_or_else(|| Error::Unreadable {
            path: self.path.clone(),
            source: std::io::ErrorKind::NotFound.into(),
        })
    }

    fn version(&self) -> Guard<Arc<Version<T>>> {
        self.current.load()
    }
}

fn load<T>(path: &Path, parse: Parse<T>, contents: &Contents) -> Result<Version<T>, Error> {
    let value =
        parse(&contents.text).map_err(|problem| Error::Malformed { path: path.to_owned(), problem })?;
    Ok(Version { stamp: contents.stamp, value: Arc::new(value) })
}
