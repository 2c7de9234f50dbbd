//! Keeps the parts of a connection from waking the task that is polling them.
//!
//! hyper's halves talk over channels, and each message wakes its receiver. Here one task polls both
//! ends one after the other, so such a wake would only put that task into the run queue again and
//! call an idle thread to take it. Instead, the poll is repeated at once.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Polls in a row before other tasks get their turn.
const POLLS_MAX: usize = 8;

pub(crate) struct Wakes {
    shared: Arc<Shared>,
    /// Wakes `shared`.
    waker: Waker,
}

struct Shared {
    task: Mutex<Waker>,
    polling: AtomicBool,
    woken: AtomicBool,
}

impl Wakes {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared {
            task: Mutex::new(Waker::noop().clone()),
            polling: AtomicBool::new(false),
            woken: AtomicBool::new(false),
        });
        Self { waker: Waker::from(Arc::clone(&shared)), shared }
    }

    /// Polls until the result is ready, or until a poll wakes nothing.
    pub(crate) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Shared { task, polling, woken } = &*self.shared;
        task.lock().clone_from(cx.waker());
        let own = &mut Context::from_waker(&self.waker);
        for _ in 0..POLLS_MAX {
            woken.store(false, Ordering::SeqCst);
            polling.store(true, Ordering::SeqCst);
            let polled = poll(own);
            polling.store(false, Ordering::SeqCst);
            // A caller that gets a result polls again for what comes next.
            if polled.is_ready() || !woken.load(Ordering::SeqCst) {
                return polled;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// `woken` is set before `polling` is read, and `poll` does these in the opposite order, so one
    /// of the two sees the other.
    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if !self.polling.load(Ordering::SeqCst) {
            let task = self.task.lock().clone();
            task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_within_a_poll_repeats_it_and_one_after_it_reaches_the_task() {
        let (wakes, count) = (Wakes::new(), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        let cx = &mut Context::from_waker(&waker);
        let (mut polls, mut kept) = (0, None);
        let polled: Poll<()> = wakes.poll(cx, |cx| {
            polls += 1;
            kept = Some(cx.waker().clone());
            if polls < 3 {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        });
        assert_eq!((polled, polls, count.0.load(Ordering::Relaxed)), (Poll::Pending, 3, 0));
        kept.unwrap().wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn one_that_always_wakes_itself_lets_others_have_their_turn() {
        let (wakes, count) = (Wakes::new(), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        let polled: Poll<()> = wakes.poll(&mut Context::from_waker(&waker), |cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        assert_eq!((polled, count.0.load(Ordering::Relaxed)), (Poll::Pending, 1));
    }
}
