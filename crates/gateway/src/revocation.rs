//! Exchanges that last: a request that would not be let in any more does not go on.
//!
//! Terminals, WebSockets, long answers and long polls outlive the look at their credentials. So the
//! same request is decided on again, by the same function, whenever credentials or previews change,
//! and now and then for what ends by itself.

use crate::gateway::{Inner, Peer};
use crate::guard::{BoxFuture, Refused};
use crate::problem::Problem;
use crate::way::{Decided, Way, decide};
use admission::{Busy, Permit, Verdict};
use http::Request;
use http::request::Parts as Head;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use types::ids::ResourceId;

/// Waits for the end of the right to an exchange.
pub(crate) struct Lasting(Option<BoxFuture<'static, ()>>);

impl Lasting {
    /// `head` is the request as it came.
    pub(crate) fn new(gateway: &Arc<Inner>, head: &Head, peer: Peer, way: &Way) -> Self {
        let (gateway, head) = (Arc::clone(gateway), asked(head));
        let (sandbox, port) = (way.sandbox.id.clone(), way.port);
        Self(Some(Box::pin(async move {
            let changes = vec![gateway.guard.changes(), gateway.routes.changes()];
            let look = || look(&gateway, &head, peer, &sandbox, port);
            let why = gateway.recheck.until_refused(changes, look).await;
            metrics::counter!("holm_gateway_ended_total").increment(1);
            tracing::debug!(%why, "an exchange ends with the right to it");
        })))
    }

    /// Ends when the right does. May be dropped and called again.
    pub(crate) async fn outlived(&mut self) {
        std::future::poll_fn(|cx| if self.is_over(cx) { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }

    pub(crate) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if self.0.as_mut().is_some_and(|waiting| Pin::new(waiting).poll(cx).is_ready()) {
            self.0 = None;
        }
        self.0.is_none()
    }
}

/// What an exchange holds as long as its answer comes, or its socket goes on.
pub(crate) struct Hold {
    pub(crate) lasting: Lasting,
    /// The connection that it came on, which a socket outlives as far as the one who accepted it
    /// knows.
    pub(crate) busy: Option<Busy>,
    pub(crate) _place: Permit<String>,
}

impl Hold {
    /// Ends when the exchange must.
    pub(crate) async fn ends(&mut self) {
        let closing = async {
            match &self.busy {
                Some(busy) => busy.connection().closing().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.lasting.outlived() => {}
            () = closing => {}
        }
    }
}

/// What the decision depends on: without the connection, which must not be held by what waits for
/// its end.
fn asked(head: &Head) -> Head {
    let (mut asked, ()) = Request::new(()).into_parts();
    asked.method = head.method.clone();
    asked.uri = head.uri.clone();
    asked.version = head.version;
    asked.headers = head.headers.clone();
    asked
}

async fn look(
    gateway: &Inner,
    head: &Head,
    peer: Peer,
    sandbox: &ResourceId,
    port: u16,
) -> Verdict<Problem> {
    match decide(gateway, head, peer).await {
        Ok(Decided::Way(way)) if way.sandbox.id == *sandbox && way.port == port => Verdict::Good,
        Ok(_) => Verdict::Refused(Problem::NoRoute),
        Err(why @ Problem::Refused(Refused::Broken | Refused::TooMany { .. })) => {
            Verdict::Unsure(why)
        }
        Err(why) => Verdict::Refused(why),
    }
}
