//! Runs work that may block on threads beside the one that serves requests.
//!
//! These threads are our own, because those of tokio panic when the kernel refuses the first one,
//! as it does while a sandbox has as many processes as it may have. This program must survive that:
//! it is the first process of the instance, which ends with it. So the pool keeps its last thread
//! for good, and one is started before anything else runs. While there is none, work is refused,
//! and each piece of work tries to start one. `tokio::fs` and `tokio::net::lookup_host` would go
//! around this, so `clippy.toml` bans them. `TcpStream::connect` with the name of a host would, too.

use crate::http;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tokio::sync::oneshot;

/// Work beyond this waits for a thread.
const THREADS_MAX: usize = 512;
/// How long a thread waits for more work, if it is not the last one.
const IDLE_MAX: Duration = Duration::from_secs(10);

static POOL: Pool = Pool::new(IDLE_MAX, start_thread);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no thread can be started for this ({0}): end some processes and try again")]
    NoThread(#[source] io::Error),
    #[error("the operation was cut off")]
    CutOff,
}

impl From<Error> for http::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::NoThread(_) => Self::Unavailable(error.to_string()),
            Error::CutOff => Self::Internal(error.to_string()),
        }
    }
}

/// Starts the thread that stays. If the kernel refuses it now, later work tries again.
pub(crate) fn begin() {
    let _ = POOL.submit(Box::new(|| {}));
}

/// Runs work that may block. It runs to its end even if nobody waits for it any more.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    POOL.run(work).await
}

struct Pool {
    state: Mutex<State>,
    wake: Condvar,
    idle_max: Duration,
    /// Starts a thread that calls [`Pool::serve`].
    start_thread: fn(&'static Pool) -> io::Result<()>,
}

struct State {
    queue: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for work, including those that were woken but have not taken it yet.
    idle: usize,
}

fn start_thread(pool: &'static Pool) -> io::Result<()> {
    std::thread::Builder::new().name("blocking".into()).spawn(|| pool.serve()).map(drop)
}

impl Pool {
    const fn new(idle_max: Duration, start_thread: fn(&'static Self) -> io::Result<()>) -> Self {
        let state = State { queue: VecDeque::new(), threads: 0, idle: 0 };
        Self { state: Mutex::new(state), wake: Condvar::new(), idle_max, start_thread }
    }

    async fn run<T: Send + 'static>(
        &'static self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (done, result) = oneshot::channel();
        // Whoever wanted the result may have gone.
        let job = move || drop(done.send(work()));
        self.submit(Box::new(job)).map_err(Error::NoThread)?;
        result.await.map_err(|_| Error::CutOff)
    }

    fn submit(&'static self, job: Job) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.queue.len() >= state.idle && state.threads < THREADS_MAX {
            match (self.start_thread)(self) {
                Ok(()) => state.threads += 1,
                Err(error) if state.threads == 0 => return Err(error),
                // One of those that are there takes it when it has time.
                Err(_) => {}
            }
        }
        state.queue.push_back(job);
        self.wake.notify_one();
        Ok(())
    }

    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            while let Some(job) = state.queue.pop_front() {
                MutexGuard::unlocked(&mut state, || {
                    // The thread is counted, so a panic in a test must not end it. In the program
                    // itself, a panic ends everything.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                });
            }
            state.idle += 1;
            let is_late = match state.threads {
                // The last one stays, and does not even wake an instance that sleeps.
                1 => {
                    self.wake.wait(&mut state);
                    false
                }
                _ => self.wake.wait_for(&mut state, self.idle_max).timed_out(),
            };
            state.idle -= 1;
            if is_late && state.queue.is_empty() && state.threads > 1 {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    fn pool(start_thread: fn(&'static Pool) -> io::Result<()>) -> &'static Pool {
        Box::leak(Box::new(Pool::new(Duration::from_millis(1), start_thread)))
    }

    fn refuse() -> io::Result<()> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    #[tokio::test]
    async fn without_any_thread_work_is_refused_until_one_can_be_started() {
        static TRIES: AtomicUsize = AtomicUsize::new(0);
        let pool = pool(|pool| match TRIES.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => refuse(),
            _ => start_thread(pool),
        });
        for _ in 0..2 {
            let refused = pool.run(|| 1).await.map_err(http::Error::from);
            assert!(matches!(refused, Err(http::Error::Unavailable(_))), "{refused:?}");
        }
        assert_eq!(pool.run(|| 1).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn what_finds_no_further_thread_waits_for_the_one_that_stays() {
        static TRIES: AtomicUsize = AtomicUsize::new(0);
        let pool = pool(|pool| match TRIES.fetch_add(1, Ordering::SeqCst) {
            0 => start_thread(pool),
            _ => refuse(),
        });
        let (go_on, wait) = mpsc::channel::<()>();
        let first = tokio::spawn(pool.run(move || wait.recv()));
        let second = tokio::spawn(pool.run(|| 2));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!second.is_finished());
        drop(go_on);
        assert!(first.await.unwrap().is_ok());
        assert_eq!(second.await.unwrap().unwrap(), 2);
    }

    #[tokio::test]
    async fn threads_end_when_they_are_idle_but_for_the_last() {
        let pool = pool(start_thread);
        let barrier = std::sync::Arc::new(std::sync::Barrier::new(3));
        let meet = || {
            let barrier = barrier.clone();
            pool.run(move || barrier.wait().is_leader())
        };
        let (first, second, third) = tokio::join!(meet(), meet(), meet());
        assert!(first.is_ok() && second.is_ok() && third.is_ok());
        while pool.state.lock().threads > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(pool.state.lock().threads, 1);
        assert_eq!(pool.run(|| 1).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn work_that_panics_takes_no_thread_along() {
        let pool = pool(start_thread);
        let cut = pool.run(|| panic!("on purpose")).await;
        assert!(matches!(cut, Err(Error::CutOff)));
        assert_eq!(pool.run(|| 1).await.unwrap(), 1);
        // A second one may have been started before the first was idle again, and ends. One that had
        // ended with its work would be counted for ever.
        while pool.state.lock().threads > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
