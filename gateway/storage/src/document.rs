//! Volatile state as typed documents: read, change, swap, and again if somebody was faster.

use std::{any::Any, fmt, marker::PhantomData, sync::Arc};

use moongate_core::StateKey;
use serde::Serialize;

use crate::{Error, State, state::DocumentKey};

/// A value that a State can keep: in memory as it is, elsewhere as its bytes.
pub trait Document: Any + fmt::Debug + Send + Sync {
    /// The value as bytes, for a State outside this process.
    fn encode(&self) -> Vec<u8>;

    /// About how many bytes it takes.
    fn size(&self) -> usize;

    /// For [`Documents`] only: the value as its own type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// A serde type that is kept as a document without more ado: it only has to tell its weight.
pub trait Plain: Serialize + fmt::Debug + Send + Sync + 'static {
    /// About how many bytes it takes. Runs with every update: add up lengths or keep a sum, do not serialise.
    fn weight(&self) -> usize;
}

impl<T: Plain> Document for T {
    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a plain data type always serialises")
    }

    fn size(&self) -> usize {
        self.weight()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// The documents of one kind, opened for one caller.
pub struct Documents<'a, T> {
    state: &'a dyn State,
    key: DocumentKey,
    value: PhantomData<fn() -> T>,
}

impl<'a, T: Document + Clone + Default> Documents<'a, T> {
    /// The largest document that is kept.
    pub const MAX_SIZE: usize = 1 << 20;

    /// The document of `kind` that belongs to `owner`.
    pub fn open(state: &'a dyn State, kind: &'static str, owner: StateKey) -> Self {
        Self { state, key: DocumentKey { owner, kind }, value: PhantomData }
    }

    /// The value now; the default when there is none.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn read(&self) -> Result<Arc<T>, Error> {
        Ok(self.load().await?.1)
    }

    /// Runs `change` on the value and stores what it leaves. Runs it again on the newer value when somebody was faster,
    /// so `change` must not do anything but change the value. Nothing is stored when it fails.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the value changed or unchanged, never half.
    pub async fn update<R, E: From<Error>>(
        &self,
        mut change: impl FnMut(&mut T) -> Result<R, E>,
    ) -> Result<R, E> {
        loop {
            let (revision, value) = self.load().await?;
            let mut value = T::clone(&value);
            let outcome = change(&mut value)?;
            if value.size() > Self::MAX_SIZE {
                return Err(
                    Error::TooLarge { what: "the state of this session", limit: Self::MAX_SIZE }.into()
                );
            }
            if self.state.swap(&self.key, revision, Arc::new(value)).await? {
                return Ok(outcome);
            }
        }
    }

    async fn load(&self) -> Result<(u64, Arc<T>), Error> {
        let Some(found) = self.state.document(&self.key).await? else { return Ok((0, Arc::default())) };
        let value = found.value.into_any().downcast::<T>();
        let value = value.map_err(|_| Error::Corrupt("a document of another type under this key".into()))?;
        Ok((found.revision, value))
    }
}

impl<T> fmt::Debug for Documents<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Documents({}, {})", self.key.kind, self.key.owner)
    }
}

#[cfg(test)]
mod tests {
    use moongate_core::{Context, Principal, task::Group};

    use super::*;
    use crate::{MemoryOptions, MemoryState};

    #[derive(Clone, Debug, Default, PartialEq, Serialize)]
    struct Notebook {
        lines: Vec<String>,
    }

    impl Plain for Notebook {
        fn weight(&self) -> usize {
            self.lines.iter().map(String::len).sum()
        }
    }

    #[derive(Clone, Debug, Default, Serialize)]
    struct Other;

    impl Plain for Other {
        fn weight(&self) -> usize {
            0
        }
    }

    fn owner(session: &str) -> StateKey {
        Context::for_test(Principal::local(), session, None, None).state_key()
    }

    fn state() -> Arc<MemoryState> {
        Arc::new(MemoryState::new(MemoryOptions::default()))
    }

    async fn add(documents: &Documents<'_, Notebook>, line: &str) -> Result<usize, Error> {
        documents
            .update(|notebook| {
                notebook.lines.push(line.into());
                Ok(notebook.lines.len())
            })
            .await
    }

    /// CTX-T21
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn concurrent_updates_of_one_document_are_all_kept() {
        let (state, group) = (state(), Group::new());
        let (done, mut finished) = tokio::sync::mpsc::channel(100);
        for n in 0..100 {
            let (state, done) = (Arc::clone(&state), done.clone());
            group.spawn(async move {
                let documents = Documents::open(&*state, "notes", owner("s"));
                add(&documents, &n.to_string()).await.unwrap();
                done.send(()).await.unwrap();
            });
        }
        drop(done);
        while finished.recv().await.is_some() {}
        let notebook = Documents::<Notebook>::open(&*state, "notes", owner("s")).read().await.unwrap();
        let mut numbers: Vec<usize> = notebook.lines.iter().map(|line| line.parse().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn an_update_runs_again_when_somebody_was_faster() {
        let state = state();
        let documents = Documents::<Notebook>::open(&*state, "notes", owner("s"));
        let mut runs = 0;
        let outcome: Result<(), Error> = documents
            .update(|notebook| {
                runs += 1;
                if runs == 1 {
                    // Between this update's read and its write; the memory State never makes anybody wait.
                    let rival = Documents::<Notebook>::open(&*state, "notes", owner("s"));
                    let mut rival = std::pin::pin!(add(&rival, "rival"));
                    let mut now = std::task::Context::from_waker(std::task::Waker::noop());
                    assert!(rival.as_mut().poll(&mut now).is_ready());
                }
                notebook.lines.push("mine".into());
                Ok(())
            })
            .await;
        outcome.unwrap();
        assert_eq!(runs, 2);
        assert_eq!(documents.read().await.unwrap().lines, ["rival", "mine"]);
    }

    #[tokio::test]
    async fn a_failed_or_dropped_update_changes_nothing() {
        let state = state();
        let documents = Documents::<Notebook>::open(&*state, "notes", owner("s"));
        add(&documents, "kept").await.unwrap();
        let failed: Result<(), Error> = documents
            .update(|notebook| {
                notebook.lines.clear();
                Err(Error::Closed)
            })
            .await;
        assert!(matches!(failed, Err(Error::Closed)));
        drop(add(&documents, "never polled"));
        assert_eq!(documents.read().await.unwrap().lines, ["kept"]);
    }

    #[tokio::test]
    async fn a_document_that_grows_too_large_stays_as_it_was() {
        let state = state();
        let documents = Documents::<Notebook>::open(&*state, "notes", owner("s"));
        add(&documents, "small").await.unwrap();
        let refused = add(&documents, &"x".repeat(Documents::<Notebook>::MAX_SIZE)).await;
        assert!(matches!(refused, Err(Error::TooLarge { limit, .. }) if limit == 1 << 20), "{refused:?}");
        assert_eq!(documents.read().await.unwrap().lines, ["small"]);
        let largest = Documents::<Notebook>::MAX_SIZE - "small".len();
        assert_eq!(add(&documents, &"x".repeat(largest)).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn owners_kinds_and_types_are_kept_apart() {
        let state = state();
        let documents = |kind, session| Documents::<Notebook>::open(&*state, kind, owner(session));
        add(&documents("notes", "s"), "one").await.unwrap();
        assert_eq!(*documents("notes", "t").read().await.unwrap(), Notebook::default());
        assert_eq!(*documents("ui", "s").read().await.unwrap(), Notebook::default());
        let mistaken = Documents::<Other>::open(&*state, "notes", owner("s")).read().await;
        assert!(matches!(mistaken, Err(Error::Corrupt(_))));
        assert_eq!(documents("notes", "s").read().await.unwrap().encode(), br#"{"lines":["one"]}"#);
    }
}
