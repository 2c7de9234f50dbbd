//! Calls that the server itself makes into an instance, such as those of schedules.

use crate::body::Body;
use crate::deployment::Deployed;
use crate::destination::{Destination, Pass};
use crate::exchange::{Answer, Ask, exchange};
use crate::headers;
use crate::inner::Inner;
use crate::problem::Problem;
use crate::standby::{EnterError, Standby};
use crate::timing::Timing;
use crate::wire::{BoxError, LastSent, RequestBody, Unanswered};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, EXPECT, HOST};
use http::request::Parts as Head;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use types::guest::{WANTS_HEADER, WANTS_PROGRAM};
use types::ids::ResourceId;
use types::instance::GUEST_PORT;

/// How long a workload may be silent during a call. Whoever makes the call ends it long before.
const SILENCE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    NotReady(#[from] EnterError),
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    #[error("the workload changed the protocol")]
    Switched,
    #[error("{0}")]
    Refused(String),
    #[error("its answer was cut off")]
    Cut(#[source] BoxError),
}

impl CallError {
    /// Returns the status that a waiting caller would get, if the workload was asked: it may have
    /// done what the call is for.
    pub fn asked(&self) -> Option<StatusCode> {
        match self {
            Self::Unanswered(Unanswered::Silent(_)) => Some(StatusCode::GATEWAY_TIMEOUT),
            Self::Unanswered(Unanswered::Broken { .. }) | Self::Switched | Self::Cut(_) => {
                Some(StatusCode::BAD_GATEWAY)
            }
            Self::Unanswered(
                Unanswered::NotListening(_)
                | Unanswered::Unreachable { .. }
                | Unanswered::ConnectTimedOut(_),
            )
            | Self::NotReady(_)
            | Self::Refused(_) => None,
        }
    }
}

impl Inner {
    /// Implements [`Gateway::call`](crate::Gateway::call).
    pub(crate) async fn call(
        &self,
        workload: &ResourceId,
        request: Request<Bytes>,
        body_max: usize,
    ) -> Result<(Response<Bytes>, u64), CallError> {
        let began = Instant::now();
        let (mut head, body) = request.into_parts();
        clean(&mut head.headers);
        let to = self.called(workload, &head)?;
        let refused = |problem: Problem| CallError::Refused(problem.to_string());
        let deployed = Deployed::of(&self.context, &head, &to.workload).map_err(refused)?;
        let mut deployed = deployed.ok_or_else(|| refused(Problem::NoWorkload))?;
        let workspace = &to.workload.workspace_name;
        let _open = self.open.take(workspace, 1).map_err(|full| refused(Problem::Crowded(full)))?;
        let ask = Ask {
            port: to.port,
            request: asked(head, &to, body),
            last_sent: Some(LastSent::now()),
            idle: SILENCE_MAX,
        };
        let mut timing = Timing::default();
        let answer = self.ask_deployment(&mut deployed, &to, ask, began, &mut timing).await;
        let status = answer.as_ref().map_or_else(Problem::status, |(answer, _)| answer.status());
        deployed.record(&self.context, began.elapsed(), Some(status));
        // The turn holds the replica until the whole answer is there.
        let (answer, _turn) = answer.map_err(|problem| match problem {
            Problem::Unanswered { why, .. } => CallError::Unanswered(why),
            other => refused(other),
        })?;
        match answer {
            Answer::Whole(response) => read(response, body_max).await,
            Answer::Switched { .. } => Err(CallError::Switched),
        }
    }

    /// Returns where a call goes. Only the path and query of its URI matter.
    fn called(&self, workload: &ResourceId, head: &Head) -> Result<Destination, CallError> {
        let refused = |problem: Problem| CallError::Refused(problem.to_string());
        let route = self.context.routes.workload_by_id(workload);
        let workload = route.ok_or_else(|| refused(Problem::NoWorkload))?;
        let port = workload.port.ok_or_else(|| refused(Problem::NoWorkload))?;
        let target = head.uri.path_and_query().cloned();
        let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Destination {
            workload,
            port,
            target,
            pass: Pass::default(),
            preview: None,
            root: None,
            fallback: None,
        })
    }
}

/// Reduces the headers to those that a workload gets from any caller.
fn clean(all: &mut HeaderMap) {
    headers::remove_hop(all);
    headers::remove_ours(all, None);
    for name in [EXPECT, CONTENT_LENGTH] {
        all.remove(name);
    }
    all.entry(HOST).or_insert(HeaderValue::from_static("localhost"));
    headers::forwarded(all, None, false);
}

fn asked(head: Head, to: &Destination, body: Bytes) -> Request<RequestBody> {
    let mut request = Request::new(RequestBody::Whole(Full::new(body)));
    *request.method_mut() = head.method;
    *request.uri_mut() = Uri::from(to.target.clone());
    *request.headers_mut() = head.headers;
    request
}

/// Reads an answer to its end, and keeps the first `body_max` bytes of it.
async fn read(
    response: Response<Body>,
    body_max: usize,
) -> Result<(Response<Bytes>, u64), CallError> {
    let (head, mut body) = response.into_parts();
    let (mut kept, mut length) = (BytesMut::new(), 0_u64);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| CallError::Cut(error.into()))?;
        let Ok(data) = frame.into_data() else { continue };
        length += data.len() as u64;
        let room = body_max.saturating_sub(kept.len()).min(data.len());
        kept.extend_from_slice(&data[..room]);
    }
    Ok((Response::from_parts(head, kept.freeze()), length))
}

impl Standby {
    /// Hands over the guest program of this server if the answer of a guest that was asked to
    /// upgrade itself says that it wants it. The answer goes to the caller only afterwards, so that
    /// the instance stays awake meanwhile. A guest that does not get the program gives up by
    /// itself, and reports that when its health is asked for.
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

    /// Sends a request to the guest of an instance, which is woken as for any visit. Only the path
    /// and query of the URI matter.
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
