//! The first decision for a request on either listener: control plane or data plane.

use super::refusals::{Refusals, Seen};
use admission::Lingering;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use gateway::{Address, BadAddress, Gateway, Peer, Site};
use http::Request;
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::future::Future;
use tokio::runtime::Handle;
use tokio_util::context::TokioContext;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt;

/// Only requests with smaller bodies are answered on the thread of their connection: parsing or
/// hashing more would keep the other connections of that thread waiting. Bodies that are passed on
/// unread may have any size.
const SMALL_BODY_MAX: u64 = 256 << 10;

/// A request's body.
type Asked = Lingering<Incoming>;

/// Everything that answers requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) router: Router,
    pub(crate) gateway: Option<Gateway>,
    pub(crate) refusals: Refusals,
    /// What the control plane spawns lasts longer than the connection that asked for it.
    pub(crate) main: Handle,
}

impl Front {
    /// Returns the address of the workload that a request is for; `None` if it is for the control
    /// plane.
    async fn address_of(&self, request: &Request<Asked>) -> Option<Result<Address, BadAddress>> {
        let gateway = self.gateway.as_ref()?;
        let address = gateway.address_of(request)?;
        match &address {
            Ok(address) if !gateway.admits(request, address).await => None,
            _ => Some(address),
        }
    }

    /// Notes the refusal of a request that nothing else has seen.
    pub(crate) fn refuse(&self, request: &Request<Asked>, response: Response) -> Response {
        self.refusals.log(&Seen::of(request), &response);
        response
    }

    pub(crate) async fn answer(mut self, request: Request<Asked>) -> Result<Response, Infallible> {
        let is_content =
            request.extensions().get::<Peer>().is_some_and(|peer| peer.site == Site::Content);
        let seen = Seen::of(&request);
        let address = self.address_of(&request).await;
        let is_large = is_large(request.body());
        let response = match self.gateway.take() {
            // The listener for content serves nothing of the server's own.
            Some(gateway) if is_content || address.is_some() => {
                let is_read = matches!(&address, Some(Ok(address)) if address.is_of_model());
                let answer = async move { gateway.serve(request, address).await.map(Body::new) };
                if is_read && is_large { among_all(&self.main, answer).await } else { answer.await }
            }
            _ => {
                let answer = self.router.oneshot(request.map(Body::new));
                match is_large {
                    true => among_all(&self.main, answer).await?,
                    false => TokioContext::new(answer, self.main.clone()).await?,
                }
            }
        };
        self.refusals.log(&seen, &response);
        Ok(response)
    }
}

/// Returns whether the body is large, or has no known size.
fn is_large(body: &impl HttpBody) -> bool {
    body.size_hint().upper().is_none_or(|bytes| bytes > SMALL_BODY_MAX)
}

/// Answers in the main runtime, whose threads share the work. Ends with the caller.
async fn among_all<F>(main: &Handle, answer: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    match AbortOnDropHandle::new(main.spawn(answer)).await {
        Ok(answer) => answer,
        // As if it had been answered here.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Bytes;
    use futures_util::stream;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;
    use tokio::runtime::Builder;

    #[test]
    fn a_body_is_large_by_its_size_or_if_nobody_knows_it() {
        let whole = |bytes| Body::from(vec![0; bytes]);
        assert!(!is_large(&Body::empty()));
        assert!(!is_large(&whole(SMALL_BODY_MAX as usize)));
        assert!(is_large(&whole(SMALL_BODY_MAX as usize + 1)));
        let pieces = stream::iter([Ok::<_, Infallible>(Bytes::new())]);
        assert!(is_large(&Body::from_stream(pieces)));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_large_request_is_answered_elsewhere_and_ends_with_its_caller() {
        let main = Handle::current();
        let held = Arc::new(());
        let holding = Arc::clone(&held);
        let (here, there) = thread::scope(|scope| {
            let serving = scope.spawn(|| {
                let runtime = Builder::new_current_thread().build().unwrap();
                let there = runtime.block_on(among_all(&main, async { thread::current().id() }));
                (thread::current().id(), there)
            });
            serving.join().unwrap()
        });
        assert_ne!(here, there);
        let endless = among_all(&main, async move {
            let _holding = holding;
            std::future::pending::<()>().await;
        });
        assert!(tokio::time::timeout(Duration::ZERO, endless).await.is_err());
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }
}
