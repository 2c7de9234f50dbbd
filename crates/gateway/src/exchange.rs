//! One request to a workload and its answer.

use crate::body::{Body, Outgoing, Relay};
use crate::keeper::Visit;
use crate::machine::Machine;
use crate::settings::Settings;
use crate::timing::Timing;
use crate::wire::{NoAnswer, Pulse, Wire};
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use std::io;
use std::time::Duration;
use tokio::time::Instant;
pub use types::instance::GUEST_PORT;

/// Between two looks whether a port is served by now.
const LISTEN_PAUSE: Duration = Duration::from_millis(20);

/// Why a workload did not answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    #[error("nothing listens on 127.0.0.1:{0} in the sandbox")]
    NotListening(u16),
    #[error("port {port} of the sandbox could not be reached")]
    Unreachable { port: u16, source: io::Error },
    #[error("port {0} of the sandbox did not accept a connection in time")]
    ConnectTimedOut(u16),
    #[error("port {0} of the sandbox was silent for too long")]
    Silent(u16),
    #[error("port {port} of the sandbox closed the connection before it answered")]
    Broken { port: u16, source: hyper::Error },
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

/// Sends the request to a port of the visited instance. A connection that was spare may turn out to
/// be closed: then, and only then, the request is sent once more, if it cannot have had an effect.
pub(crate) async fn exchange(
    visit: Visit,
    port: u16,
    request: Request<Outgoing>,
    pulse: Option<Pulse>,
    timing: &mut Timing,
) -> Result<Answer, Unanswered> {
    let inner = visit.inner();
    let spare = visit.spares().take(port, inner.settings.spare_life);
    let (request, pulse) = match spare {
        None => (request, pulse),
        Some(mut wire) => {
            let again = repeatable(&request);
            let began = Instant::now();
            match (wire.send(request, pulse.clone()).await, again) {
                (Ok(response), _) => {
                    timing.workload = began.elapsed();
                    return Ok(answer(response, wire, port, visit));
                }
                (Err(NoAnswer::Unsent(request, _)), _) => (*request, pulse),
                (Err(NoAnswer::Broken(_)), Some(request)) => (request, pulse),
                (Err(failed), _) => return Err(failed.at(port)),
            }
        }
    };
    let began = Instant::now();
    let mut wire = connect_when_started(&visit, port).await?;
    let connected = Instant::now();
    let response = wire.send(request, pulse).await.map_err(|failed| failed.at(port))?;
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
    let body =
        Body::relayed(Relay { incoming, wire: Some(wire), port, visit: Some(visit), hold: None });
    Answer::Whole(Response::from_parts(head, body))
}

/// The same request once more, if sending it twice does what sending it once does.
fn repeatable(request: &Request<Outgoing>) -> Option<Request<Outgoing>> {
    if !request.method().is_idempotent() || !request.body().is_empty() {
        return None;
    }
    let mut again = Request::new(Outgoing::empty());
    again.method_mut().clone_from(request.method());
    again.uri_mut().clone_from(request.uri());
    again.headers_mut().clone_from(request.headers());
    Some(again)
}

/// As `connect`, but the programs of a young instance may still be on their way to serving the
/// port.
async fn connect_when_started(visit: &Visit, port: u16) -> Result<Box<Wire>, Unanswered> {
    let inner = visit.inner();
    let until = visit.since() + inner.settings.launch_grace;
    loop {
        match connect(&*inner.machine, &inner.settings, visit.instance(), port).await {
            Err(Unanswered::NotListening(_)) if Instant::now() < until => {
                tokio::time::sleep(LISTEN_PAUSE).await
            }
            end => return end,
        }
    }
}

async fn connect(
    machine: &dyn Machine,
    settings: &Settings,
    instance: &str,
    port: u16,
) -> Result<Box<Wire>, Unanswered> {
    let unreachable = |source| Unanswered::Unreachable { port, source };
    let connected =
        tokio::time::timeout(settings.connect_timeout, machine.connect(instance, port)).await;
    let stream = match connected.map_err(|_| Unanswered::ConnectTimedOut(port))? {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return Err(Unanswered::NotListening(port));
        }
        Err(error) => return Err(unreachable(error)),
    };
    stream.set_nodelay(true).map_err(unreachable)?;
    Wire::open(stream, settings).await.map_err(|source| Unanswered::Broken { port, source })
}

impl NoAnswer {
    fn at(self, port: u16) -> Unanswered {
        match self {
            Self::Broken(source) | Self::Unsent(_, source) => Unanswered::Broken { port, source },
            Self::Silent => Unanswered::Silent(port),
        }
    }
}

/// Asks the guest how it is, without being a visit.
pub(crate) async fn ask_health(
    machine: &dyn Machine,
    settings: &Settings,
    instance: &str,
) -> Option<Body> {
    let mut wire = connect(machine, settings, instance, GUEST_PORT).await.ok()?;
    let mut request = Request::new(Outgoing::empty());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = Uri::from_static("/health");
    request.headers_mut().insert(http::header::HOST, http::HeaderValue::from_static("localhost"));
    let response = wire.send(request, None).await.ok()?;
    let (_, incoming) = response.into_parts();
    Some(Body::relayed(Relay {
        incoming,
        wire: Some(wire),
        port: GUEST_PORT,
        visit: None,
        hold: None,
    }))
}
