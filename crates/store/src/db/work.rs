//! A closure on its way to a database thread and back.

use super::Tx;
use crate::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tokio::sync::oneshot;

/// A closure with its result, whose types the threads need not know.
pub(super) trait Job: Send {
    /// Runs inside a transaction; returns `false` to have it undone. May be called again after an
    /// undone attempt.
    fn run(&mut self, tx: &mut Tx<'_>) -> bool;
    /// Sends the result, once it is durable.
    fn answer(self: Box<Self>);
    /// Sends an error instead of the result.
    fn fail(self: Box<Self>, error: Error);
}

pub(super) struct Work<F, T, E> {
    work: F,
    answer: oneshot::Sender<Result<T, E>>,
    done: Option<Result<T, E>>,
}

impl<F, T, E> Work<F, T, E> {
    pub(super) fn new(work: F) -> (Box<Self>, oneshot::Receiver<Result<T, E>>) {
        let (answer, result) = oneshot::channel();
        (Box::new(Self { work, answer, done: None }), result)
    }
}

impl<F, T, E> Job for Work<F, T, E>
where
    F: FnMut(&mut Tx<'_>) -> Result<T, E> + Send,
    T: Send,
    E: From<Error> + Send,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> bool {
        // A panic must not end the thread, and with it all later work.
        let result = match catch_unwind(AssertUnwindSafe(|| (self.work)(tx))) {
            Err(_) => Err(Error::Unusable("a function of the store panicked".into()).into()),
            // PostgreSQL undoes a transaction in which a statement failed, whatever the function
            // did about it.
            Ok(Ok(_)) if tx.broken => Err(Error::Unusable(
                "a transaction went on after one of its statements failed".into(),
            )
            .into()),
            Ok(result) => result,
        };
        let keep = result.is_ok();
        self.done = Some(result);
        keep
    }

    fn answer(self: Box<Self>) {
        if let Some(done) = self.done {
            // The caller may have gone away; the work is done all the same.
            let _ = self.answer.send(done);
        }
    }

    fn fail(self: Box<Self>, error: Error) {
        let _ = self.answer.send(Err(error.into()));
    }
}
