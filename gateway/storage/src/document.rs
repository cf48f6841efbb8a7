//! Volatile state as typed documents: read, change, swap, and again if somebody was faster.

use std::{any::Any, fmt, marker::PhantomData, sync::Arc};

use moongate_core::StateKey;

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
    pub async fn update<R, E: From<Error>>(&self, mut change: impl FnMut(&mut T) -> Result<R, E>) -> Result<R, E> {
        loop {
            let (revision, value) = self.load().await?;
            let mut value = T::clone(&value);
            let outcome = change(&mut value)?;
            if value.size() > Self::MAX_SIZE {
                return Err(Error::TooLarge { what: "the state of this session", limit: Self::MAX_SIZE }.into());
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
