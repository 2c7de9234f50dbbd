//! Calls of the server itself into a sandbox, such as those of schedules.

use super::{EnterError, Keeper};
use crate::body::{Body, Outgoing};
use crate::exchange::{Answer, GUEST_PORT, Unanswered, exchange};
use crate::timing::Timing;
use crate::wire::Pulse;
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    NotReady(#[from] EnterError),
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    #[error("the guest changed the protocol")]
    Switched,
}

impl Keeper {
    /// Asks the guest of an instance, which is woken for it like for any visit. Of the URI, path and query count.
    pub async fn call(&self, instance: &str, request: Request<Full<Bytes>>) -> Result<Response<Body>, CallError> {
        let visit = self.enter(instance).await?;
        let (head, body) = request.into_parts();
        let mut request = Request::new(Outgoing::Whole(body));
        *request.method_mut() = head.method;
        *request.uri_mut() = head.uri.into_parts().path_and_query.map_or_else(Uri::default, Uri::from);
        *request.headers_mut() = head.headers;
        request.headers_mut().entry(HOST).or_insert(HeaderValue::from_static("localhost"));
        match exchange(visit, GUEST_PORT, request, Some(Pulse::new()), &mut Timing::default()).await? {
            Answer::Whole(response) => Ok(response),
            Answer::Switched { .. } => Err(CallError::Switched),
        }
    }
}
