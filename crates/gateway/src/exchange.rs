//! One request to a workload and its answer.

use crate::body::{Body, Relay};
use crate::standby::Visit;
use crate::timing::Timing;
use crate::wire::{self, LastSent, NoAnswer, RequestBody, Unanswered, Wire};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two attempts to connect to a port that is not served yet.
const LISTEN_PAUSE: Duration = Duration::from_millis(20);

/// A request for an instance.
pub(crate) struct Ask {
    pub(crate) port: u16,
    pub(crate) request: Request<RequestBody>,
    /// When a part of the body was last read, if there is a body.
    pub(crate) last_sent: Option<LastSent>,
    /// An exchange in which neither side sends anything for this long is given up.
    pub(crate) idle: Duration,
}

/// Why there is no answer.
pub(crate) struct Failed {
    pub(crate) why: Unanswered,
    /// The request, if nothing of it was sent: another instance may be asked.
    pub(crate) unsent: Option<Box<Ask>>,
}

impl From<Unanswered> for Failed {
    fn from(why: Unanswered) -> Self {
        Self { why, unsent: None }
    }
}

pub(crate) enum Answer {
    Whole(Response<Body>),
    /// The workload speaks another protocol from here on.
    Switched {
        response: Response<Body>,
        wire: Box<Wire>,
        visit: Visit,
    },
}

impl Answer {
    pub(crate) fn status(&self) -> StatusCode {
        let (Self::Whole(response) | Self::Switched { response, .. }) = self;
        response.status()
    }
}

/// Sends the request to a port of the visited instance. A spare connection may turn out to be
/// closed. Then, and only then, the request is sent once more, if doing it twice does the same as
/// doing it once. Only to this instance: if it had crashed because of the request, so would the
/// next one.
pub(crate) async fn exchange(
    visit: Visit,
    ask: Ask,
    timing: &mut Timing,
) -> Result<Answer, Failed> {
    let Ask { port, request, last_sent, idle } = ask;
    let spare = visit.spares().take(port, visit.inner().settings.spare_life);
    let (request, last_sent, broken) = match spare {
        None => (request, last_sent, None),
        Some(mut wire) => {
            let again = repeatable(&request);
            let began = Instant::now();
            match (wire.send(request, last_sent.clone(), idle).await, again) {
                (Ok(response), _) => {
                    timing.workload = began.elapsed();
                    return Ok(answer(response, wire, port, visit));
                }
                (Err(NoAnswer::Unsent(request, _)), _) => (*request, last_sent, None),
                (Err(broken @ NoAnswer::Broken(_)), Some(request)) => {
                    (request, last_sent, Some(Unanswered::at(port, broken)))
                }
                (Err(failed), _) => return Err(Unanswered::at(port, failed).into()),
            }
        }
    };
    let ask = Ask { port, request, last_sent, idle };
    // Boxed: connecting is rare, and requests over spare connections need not carry its state.
    Box::pin(exchange_anew(visit, ask, broken, timing)).await
}

/// Sends the request over a new connection. `broken` says why an earlier one, over which it was
/// sent already, gave no answer.
async fn exchange_anew(
    visit: Visit,
    ask: Ask,
    broken: Option<Unanswered>,
    timing: &mut Timing,
) -> Result<Answer, Failed> {
    let began = Instant::now();
    let mut wire = match connect_when_started(&visit, ask.port).await {
        Ok(wire) => wire,
        Err(why) => {
            return Err(match broken {
                Some(broken) => broken.into(),
                None => Failed { why, unsent: Some(Box::new(ask)) },
            });
        }
    };
    let connected = Instant::now();
    let Ask { port, request, last_sent, idle } = ask;
    let response = wire.send(request, last_sent, idle).await;
    let response = response.map_err(|failed| Unanswered::at(port, failed))?;
    timing.connect = connected - began;
    timing.workload = connected.elapsed();
    Ok(answer(response, wire, port, visit))
}

fn answer(response: Response<Incoming>, wire: Box<Wire>, port: u16, visit: Visit) -> Answer {
    let (head, incoming) = response.into_parts();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Answer::Switched {
            response: Response::from_parts(head, Body::own("")),
            wire,
            visit,
        };
    }
    // What is announced and not part of the answer, as to `HEAD`, some programs send all the same.
    // After this answer it would come to whoever asks next over the connection, as theirs.
    let may_follow = incoming.is_end_stream() && announces_body(&head.headers);
    let body = Body::relayed(Relay {
        incoming,
        wire: (!may_follow).then_some(wire),
        port,
        visit: Some(visit),
        hold: None,
        listen: None,
        failed: None,
    });
    Answer::Whole(Response::from_parts(head, body))
}

fn announces_body(headers: &HeaderMap) -> bool {
    headers.contains_key(TRANSFER_ENCODING)
        || headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0")
}

/// Returns a copy of the request, if sending it twice does the same as sending it once.
fn repeatable(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    if !request.method().is_idempotent() || !request.body().is_empty() {
        return None;
    }
    let mut again = Request::new(RequestBody::empty());
    again.method_mut().clone_from(request.method());
    again.uri_mut().clone_from(request.uri());
    again.headers_mut().clone_from(request.headers());
    Some(again)
}

/// Connects like `wire::connect`, but retries while the programs of a young instance may not serve
/// the port yet.
async fn connect_when_started(visit: &Visit, port: u16) -> Result<Box<Wire>, Unanswered> {
    let inner = visit.inner();
    let until = visit.since() + inner.settings.launch_grace;
    loop {
        match wire::connect(&*inner.machine, &inner.settings, visit.instance(), port).await {
            Err(Unanswered::NotListening(_)) if Instant::now() < until => {
                tokio::time::sleep(LISTEN_PAUSE).await
            }
            end => return end,
        }
    }
}
