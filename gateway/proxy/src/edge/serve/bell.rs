//! What wakes a connection, except for nothing.
//!
//! hyper wakes its connection whenever a piece of a body is taken, so that it reads the next. After the last there is none,
//! and the connection would be polled once more with every request, to find nothing. So it has a waker of its own, which
//! [`hushed`] keeps still while the last piece is taken.

use std::{
    cell::RefCell,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Wake, Waker},
};

/// The waker of one connection.
#[derive(Debug, Default)]
pub(super) struct Bell {
    task: OnceLock<Waker>,
}

/// What the bells of this thread do. A bell that another thread rings meanwhile has nothing to do with what is done here.
enum Bells {
    Ring,
    /// They are kept still, and this one should have rung.
    Still(Option<Arc<Bell>>),
}

thread_local! {
    static BELLS: RefCell<Bells> = const { RefCell::new(Bells::Ring) };
}

impl Bell {
    /// Polls a connection, which is all of a task: whatever wakes it rings for that.
    pub(super) fn poll<T>(
        &self,
        waker: &Waker,
        task: &Context<'_>,
        connection: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        // The waker of a task stays the same.
        self.task.get_or_init(|| task.waker().clone());
        connection(&mut Context::from_waker(waker))
    }

    fn ring(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let rings = BELLS.with_borrow_mut(|bells| match bells {
            Bells::Ring => true,
            Bells::Still(missed) => {
                missed.get_or_insert_with(|| Arc::clone(self));
                false
            }
        });
        if rings {
            self.ring();
        }
    }
}

/// Takes a piece of a body. The bell that `take` rings stays still if that was the last, as `take` says.
pub(in crate::edge) fn hushed<T>(take: impl FnOnce() -> (T, bool)) -> T {
    /// Puts the bells back, also if `take` panics.
    struct Guard {
        for_nothing: bool,
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            let Bells::Still(Some(missed)) = BELLS.replace(Bells::Ring) else { return };
            if !self.for_nothing {
                missed.ring();
            }
        }
    }

    BELLS.set(Bells::Still(None));
    let mut guard = Guard { for_nothing: false };
    let (taken, is_last) = take();
    guard.for_nothing = is_last;
    taken
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn bell() -> (Waker, Arc<Task>) {
        let (bell, task) = (Arc::new(Bell::default()), Arc::new(Task::default()));
        let (waker, of_task) = (Waker::from(Arc::clone(&bell)), Waker::from(Arc::clone(&task)));
        assert!(bell.poll(&waker, &Context::from_waker(&of_task), |_| Poll::<()>::Pending).is_pending());
        (waker, task)
    }

    #[test]
    fn a_bell_rings_unless_the_last_piece_was_taken() {
        let (waker, task) = bell();
        let rung = || task.0.load(Ordering::Relaxed);
        waker.wake_by_ref();
        assert_eq!(rung(), 1);
        let taken = hushed(|| {
            waker.wake_by_ref();
            ("last", true)
        });
        assert_eq!((taken, rung()), ("last", 1));
        hushed(|| {
            waker.wake_by_ref();
            assert_eq!(rung(), 1, "not before it is known whether more follows");
            ((), false)
        });
        assert_eq!(rung(), 2);
        waker.wake();
        assert_eq!(rung(), 3);
    }

    #[test]
    fn what_another_thread_rings_is_heard() {
        let (waker, task) = bell();
        hushed(|| {
            std::thread::scope(|scope| scope.spawn(|| waker.wake_by_ref()).join().unwrap());
            ((), true)
        });
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn bells_ring_again_after_a_panic() {
        let (waker, task) = bell();
        let panicked = std::panic::catch_unwind(|| hushed::<()>(|| panic!("taking failed")));
        assert!(panicked.is_err());
        waker.wake_by_ref();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
    }
}
