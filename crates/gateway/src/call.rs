//! Calls of the server itself into an instance, such as those of schedules.

use crate::body::Body;
use crate::exchange::{Answer, Ask, exchange};
use crate::standby::{EnterError, Standby};
use crate::timing::Timing;
use crate::wire::{LastSent, RequestBody, Unanswered};
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use tokio::time::timeout;
use types::guest::{WANTS_HEADER, WANTS_PROGRAM};
use types::instance::GUEST_PORT;

#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    NotReady(#[from] EnterError),
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    #[error("the guest changed the protocol")]
    Switched,
}

impl Standby {
    /// A guest that is asked to upgrade itself may want the program of this server: its answer says
    /// so. The answer goes to the caller after the program has been handed over, so that the
    /// instance stays awake meanwhile. Without the program the guest gives up by itself, and says
    /// so when its health is asked for.
    pub(crate) async fn give_wanted_program(&self, instance: &str, answer: &mut HeaderMap) {
        let wanted = answer.remove(WANTS_HEADER);
        if wanted.is_none_or(|wanted| wanted != WANTS_PROGRAM) {
            return;
        }
        let inner = self.inner();
        let given =
            timeout(inner.settings.wait_timeout, inner.machine.give_program(instance)).await;
        match given {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(instance, %error, "the guest program was not handed over")
            }
            Err(_) => tracing::warn!(instance, "the guest program was not handed over in time"),
        }
    }

    /// Asks the guest of an instance, which is woken for it as for any visit. Only path and query of
    /// the URI count.
    pub async fn call(
        &self,
        instance: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, CallError> {
        let visit = self.enter(instance).await?;
        let (head, body) = request.into_parts();
        let mut request = Request::new(RequestBody::Whole(body));
        *request.method_mut() = head.method;
        *request.uri_mut() =
            head.uri.into_parts().path_and_query.map_or_else(Uri::default, Uri::from);
        *request.headers_mut() = head.headers;
        request.headers_mut().entry(HOST).or_insert(HeaderValue::from_static("localhost"));
        let (last_sent, mut timing) = (Some(LastSent::now()), Timing::default());
        let idle = self.inner().settings.answer_idle;
        let ask = Ask { port: GUEST_PORT, request, last_sent, idle };
        match exchange(visit, ask, &mut timing).await.map_err(|failed| failed.why)? {
            Answer::Whole(response) => Ok(response),
            Answer::Switched { .. } => Err(CallError::Switched),
        }
    }
}
