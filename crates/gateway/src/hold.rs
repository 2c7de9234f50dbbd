//! What an exchange holds until its answer is over or its socket has ended.

use crate::guard::BoxFuture;
use admission::{Busy, Permit};
use std::pin::Pin;
use std::task::{Context, Poll};

pub(crate) struct Hold {
    pub(crate) right: Right,
    /// The connection that the request came on. Its listener does not know that a socket goes on.
    pub(crate) busy: Option<Busy>,
    pub(crate) _permit: Permit<String>,
}

impl Hold {
    /// Waits until the exchange must end.
    pub(crate) async fn ends(&mut self) {
        let closing = async {
            match &self.busy {
                Some(busy) => busy.connection().closing().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.right.ends() => {}
            () = closing => {}
        }
    }
}

/// The right to an exchange, for as long as it lasts.
pub(crate) struct Right(Option<BoxFuture<'static, ()>>);

impl Right {
    pub(crate) fn until(end: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(Box::pin(end)))
    }

    /// Waits for the end of the right. May be dropped and called again.
    pub(crate) async fn ends(&mut self) {
        std::future::poll_fn(|cx| if self.is_over(cx) { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }

    pub(crate) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if self.0.as_mut().is_some_and(|end| Pin::new(end).poll(cx).is_ready()) {
            self.0 = None;
        }
        self.0.is_none()
    }
}
