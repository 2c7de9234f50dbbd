//! Calls of the server itself into a sandbox, such as those of schedules.

use super::{EnterError, Keeper};
use crate::body::{Body, Outgoing};
use crate::exchange::{Answer, GUEST_PORT, Unanswered, exchange};
use crate::timing::Timing;
use crate::wire::Pulse;
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use tokio::time::timeout;
use types::guest::{WANTS_HEADER, WANTS_PROGRAM};

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
    /// A guest that is asked to upgrade itself may want the program of this server: its answer says
    /// so. The answer goes to the caller after the program has come, so that the instance is awake
    /// meanwhile. Without it the guest gives up by itself, and tells whoever asks for its health.
    pub(crate) async fn give_what_it_wants(&self, instance: &str, answer: &mut HeaderMap) {
        let wanted = answer.remove(WANTS_HEADER);
        if wanted.is_none_or(|wanted| wanted != WANTS_PROGRAM) {
            return;
        }
        let given =
            timeout(self.0.settings.wait_timeout, self.0.machine.give_program(instance)).await;
        match given {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(instance, %error, "the guest program was not handed over")
            }
            Err(_) => tracing::warn!(instance, "the guest program was not handed over in time"),
        }
    }

    /// Asks the guest of an instance, which is woken for it like for any visit. Of the URI, path
    /// and query count.
    pub async fn call(
        &self,
        instance: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, CallError> {
        let visit = self.enter(instance).await?;
        let (head, body) = request.into_parts();
        let mut request = Request::new(Outgoing::Whole(body));
        *request.method_mut() = head.method;
        *request.uri_mut() =
            head.uri.into_parts().path_and_query.map_or_else(Uri::default, Uri::from);
        *request.headers_mut() = head.headers;
        request.headers_mut().entry(HOST).or_insert(HeaderValue::from_static("localhost"));
        match exchange(visit, GUEST_PORT, request, Some(Pulse::new()), &mut Timing::default())
            .await?
        {
            Answer::Whole(response) => Ok(response),
            Answer::Switched { .. } => Err(CallError::Switched),
        }
    }
}
