//! What an exchange holds until its answer is complete or its socket has ended.

use crate::guard::BoxFuture;
use crate::traffic::Turn;
use admission::{Busy, Permit};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::Sleep;

pub(crate) struct Hold {
    pub(crate) right: Right,
    /// Fires when the exchange has taken as long as one may.
    pub(crate) time: Option<Pin<Box<Sleep>>>,
    /// The connection that the request came on, kept busy: its listener cannot see that a socket is
    /// still in use.
    pub(crate) busy: Option<Busy>,
    /// The turn at the replica that the request was given to.
    pub(crate) turn: Option<Turn>,
    pub(crate) _permit: Permit<String>,
    pub(crate) _of_stranger: Option<Permit<String>>,
}

/// Why an exchange must end early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Revoked,
    OutOfTime,
}

impl Hold {
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if self.right.is_over(cx) {
            return Poll::Ready(End::Revoked);
        }
        match &mut self.time {
            Some(time) => time.as_mut().poll(cx).map(|()| End::OutOfTime),
            None => Poll::Pending,
        }
    }

    /// Waits until the exchange must end. May be dropped and called again.
    pub(crate) async fn end(&mut self) -> End {
        std::future::poll_fn(|cx| self.poll_end(cx)).await
    }

    /// Waits like [`end`](Self::end), or until the connection has to close.
    pub(crate) async fn ends(&mut self) {
        let connection = self.busy.as_ref().map(|busy| busy.connection().clone());
        let closing = async {
            match &connection {
                Some(connection) => connection.closing().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.end() => {}
            () = closing => {}
        }
    }
}

/// The right to an exchange. Pending for as long as the right lasts.
pub(crate) struct Right(Option<BoxFuture<'static, ()>>);

impl Right {
    pub(crate) fn until(end: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(Box::pin(end)))
    }

    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if self.0.as_mut().is_some_and(|end| Pin::new(end).poll(cx).is_ready()) {
            self.0 = None;
        }
        self.0.is_none()
    }
}
