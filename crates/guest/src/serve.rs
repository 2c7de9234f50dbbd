//! The HTTP server: accepts connections and answers requests.

use crate::guest::Guest;
use crate::http::{Answer, Body, Error, Request};
use crate::route::{self, Miss, Route};
use crate::{
    drives, environment, files, mcp, network, processes, proxy, reference, system, terminals,
    upgrade, work,
};
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

const CONNECTIONS_MAX: usize = 1024;
/// Also how much of an answer waits in a connection for its reader.
const HEADER_BYTES_MAX: usize = 128 << 10;
/// Longest wait for the headers of a request, and for the next request on a kept connection.
const HEADERS_WAIT: Duration = Duration::from_secs(120);
/// Pause after a failed accept, which nearly always means that descriptors have run out and some
/// connection must free one first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Makes what everything in this program runs on: one thread that waits for all of it.
pub(crate) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

pub(crate) async fn run(guest: Arc<Guest>, listener: TcpListener) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let guest = guest.clone();
                tokio::spawn(async move {
                    serve_connection(guest, stream).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve_connection(guest: Arc<Guest>, stream: TcpStream) {
    // Small answers must not wait for a full packet. This only affects speed, so a failure is
    // ignored.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let guest = guest.clone();
        async move { Ok::<_, Infallible>(answer(&guest, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WAIT)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // A connection ends in an error when its caller goes away, which does not matter to anybody
    // here.
    let _ = connection.await;
}

async fn answer(guest: &Arc<Guest>, request: http::Request<Incoming>) -> Response<Body> {
    let method = request.method().clone();
    if method == Method::OPTIONS {
        return Answer::empty(StatusCode::NO_CONTENT).into_response();
    }
    if let Some(work) = &guest.work {
        let path = request.uri().path().to_owned();
        let request = Request::new(request.map(BodyExt::boxed_unsync));
        let answer = work::answer(work, &path, &request);
        return answer
            .map_or_else(missing, |answer| answer.unwrap_or_else(Error::into_answer))
            .into_response();
    }
    let route = match route::find(&method, request.uri().path()) {
        Ok(route) => route,
        Err(Miss::Path) => return missing().into_response(),
        Err(Miss::Method(methods)) => return Error::Method(methods).into_answer().into_response(),
    };
    // HEAD only says that the operation exists; it does not look at the target.
    if method == Method::HEAD {
        return Answer::empty(StatusCode::OK).into_response();
    }
    let request = request.map(BodyExt::boxed_unsync);
    let answer = dispatch(guest, route, Request::new(request)).await;
    answer.unwrap_or_else(Error::into_answer).into_response()
}

/// Answers that a path does not exist, in plain text unlike all other errors. By that, clients tell
/// an operation that this version lacks from an object that does not exist, and do without the
/// operation.
fn missing() -> Answer {
    Answer::new(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "there is nothing at this path")
}

async fn dispatch(guest: &Arc<Guest>, route: Route, request: Request) -> Result<Answer, Error> {
    match (route, request.method.clone()) {
        (Route::Welcome, _) => system::welcome(),
        (Route::Reference, _) => reference::page(),
        (Route::Upgrade, _) => upgrade::start(guest, request).await,
        (Route::UpgradeProgram, _) => upgrade::take_program(guest, request).await,
        (Route::Start, _) => {
            guest.require_machine(&request)?;
            Ok(guest.start.failure().await)
        }
        (Route::Proxy, _) => proxy::set(guest, request).await,
        (Route::Tunnel, _) => network::tunnel::remove(),
        (Route::TunnelSettings, _) => network::tunnel::set(request).await,
        (Route::Drives, Method::POST) => drives::mount(request).await,
        (Route::Drives, _) => drives::list(),
        (Route::Drive(path), _) => drives::unmount(&path),
        (Route::Health, _) => system::health(guest),
        (Route::ReloadEnvironment, _) => {
            environment::reload(&guest.instance.settings, &guest.instance.environment)
        }
        (Route::Processes, Method::POST) => processes::run(guest, request).await,
        (Route::Processes, _) => processes::list(guest),
        (Route::Process(id), Method::DELETE) => processes::stop(guest, &id).await,
        (Route::Process(id), _) => processes::show(guest, &id),
        (Route::ProcessKill(id), _) => processes::kill(guest, &id).await,
        (Route::ProcessInput(id), Method::DELETE) => processes::close_input(guest, &id).await,
        (Route::ProcessInput(id), _) => processes::write_input(guest, &id, request).await,
        (Route::ProcessWait(id), _) => processes::wait(guest, &id, request).await,
        (Route::ProcessLogs(id), _) => processes::logs(guest, &id),
        (Route::ProcessLogStream(id), _) => processes::stream_logs(guest, &id, &request),
        (Route::Ports(pid), _) => network::ports(&guest.scans, &pid).await,
        (Route::PortMonitor(pid), Method::DELETE) => network::stop_monitor(&guest.monitors, &pid),
        (Route::PortMonitor(pid), _) => {
            network::start_monitor(&guest.monitors, &guest.scans, &pid, request).await
        }
        (Route::Tools, _) => mcp::serve(guest, request).await,
        (Route::Files(route), _) => files::handle(&guest.instance, route, request).await,
        (Route::Terminal, _) => terminals::page(&guest.instance.settings),
        (Route::TerminalSocket, _) => {
            terminals::connect(&guest.terminals, &guest.instance, request)
        }
    }
}
