//! What an exchange holds until its answer is complete or its socket has ended.

use crate::problem::Problem;
use crate::traffic::Turn;
use admission::{Busy, Permit};
use futures_util::future::BoxFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use types::KindName;

pub(crate) struct Hold {
    pub(crate) right: Right,
    /// Fires when the exchange has taken as long as one may.
    pub(crate) time: Option<Time>,
    /// The connection that the request came on, kept busy: its listener cannot see that a socket is
    /// still in use.
    pub(crate) busy: Option<Busy>,
    /// The turn at the replica that the request was given to.
    pub(crate) turn: Option<Turn>,
    /// Its place among the workspace's open requests. A call of a model keeps it until its tokens
    /// are counted.
    pub(crate) permit: Arc<Permit<String>>,
    pub(crate) _of_stranger: Option<Permit<String>>,
}

/// How long an exchange may take.
pub(crate) struct Time {
    limit: Duration,
    left: Pin<Box<Sleep>>,
}

impl Time {
    pub(crate) fn new(began: Instant, limit: Duration) -> Self {
        Self { limit, left: Box::pin(sleep_until(began + limit)) }
    }
}

/// Why an exchange must end early.
#[derive(Debug)]
pub(crate) enum End {
    /// The request would be refused if it came now, for this reason.
    Revoked(Problem),
    OutOfTime(Duration),
}

impl End {
    /// Returns what the caller is told if there was no answer yet.
    pub(crate) fn into_problem(self, kind: KindName) -> Problem {
        match self {
            Self::OutOfTime(limit) => Problem::OutOfTime { kind, limit },
            Self::Revoked(why) => why,
        }
    }
}

impl Hold {
    pub(crate) fn new(right: Right, busy: Option<Busy>, permit: Permit<String>) -> Self {
        let permit = Arc::new(permit);
        Self { right, time: None, busy, turn: None, permit, _of_stranger: None }
    }

    /// Must not be called again once it has returned an end.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        if let Poll::Ready(why) = self.right.0.as_mut().poll(cx) {
            return Poll::Ready(End::Revoked(why));
        }
        match &mut self.time {
            Some(time) => time.left.as_mut().poll(cx).map(|()| End::OutOfTime(time.limit)),
            None => Poll::Pending,
        }
    }

    /// Waits until the exchange must end. May be dropped and called again until then.
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

/// The right to an exchange. Pending for as long as the right lasts, and then why it ended.
pub(crate) struct Right(BoxFuture<'static, Problem>);

impl Right {
    pub(crate) fn until(end: impl Future<Output = Problem> + Send + 'static) -> Self {
        Self(Box::pin(end))
    }
}
