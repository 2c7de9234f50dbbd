//! A closure on its way to a database thread and back.

use super::Tx;
use crate::Error;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokio::sync::oneshot;

/// A closure with room for its result, whose types the threads need not know. There are hundreds of
/// closures, so whatever can be done without knowing the types is done by [`Job`].
pub(super) trait Work: Send {
    /// Runs the closure, and returns whether it succeeded.
    fn run(&mut self, tx: &mut Tx<'_>) -> bool;
    /// Makes an error the result.
    fn fail(&mut self, error: Error);
    /// Returns where the result is: an `Option<Result<T, E>>`.
    fn result(&mut self) -> &mut dyn Any;
}

struct Closure<F, T, E> {
    closure: F,
    result: Option<Result<T, E>>,
}

impl<F, T, E> Work for Closure<F, T, E>
where
    F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> bool {
        let result = (self.closure)(tx);
        self.result.insert(result).is_ok()
    }

    fn fail(&mut self, error: Error) {
        self.result = Some(Err(error.into()));
    }

    fn result(&mut self) -> &mut dyn Any {
        &mut self.result
    }
}

/// Wraps a closure, whose result [`result`] takes out again.
pub(super) fn of<T, E>(
    closure: impl FnMut(&mut Tx<'_>) -> Result<T, E> + Send + 'static,
) -> Box<dyn Work>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    Box::new(Closure { closure, result: None })
}

/// Takes the result of work that a thread has done.
pub(super) fn result<T: 'static, E: From<Error> + 'static>(work: &mut dyn Work) -> Result<T, E> {
    let result = work.result().downcast_mut::<Option<Result<T, E>>>().and_then(Option::take);
    result.unwrap_or_else(|| Err(Error::Unusable("work came back without a result".into()).into()))
}

/// Work with the caller who waits for it.
pub(super) struct Job {
    work: Box<dyn Work>,
    caller: oneshot::Sender<Box<dyn Work>>,
}

impl Job {
    /// The work comes back through the receiver, once its result is durable or it has failed.
    pub(super) fn new(work: Box<dyn Work>) -> (Self, oneshot::Receiver<Box<dyn Work>>) {
        let (caller, done) = oneshot::channel();
        (Self { work, caller }, done)
    }

    /// Runs inside a transaction; returns `false` to have it undone. May be called again after an
    /// undone attempt.
    pub(super) fn run(&mut self, tx: &mut Tx<'_>) -> bool {
        // A panic must not end the thread, and with it all later work.
        let failure = match catch_unwind(AssertUnwindSafe(|| self.work.run(tx))) {
            Err(_) => "a function of the store panicked",
            // PostgreSQL undoes a transaction in which a statement failed, whatever the function
            // did about it.
            Ok(true) if tx.broken => "a transaction went on after one of its statements failed",
            Ok(keep) => return keep,
        };
        self.work.fail(Error::Unusable(failure.into()));
        false
    }

    /// Gives the work back, once its result is durable.
    pub(super) fn answer(self) {
        // The caller may have gone away; the work is done all the same.
        let _ = self.caller.send(self.work);
    }

    /// Gives the work back with an error instead of its result.
    pub(super) fn fail(mut self, error: Error) {
        self.work.fail(error);
        self.answer();
    }
}
