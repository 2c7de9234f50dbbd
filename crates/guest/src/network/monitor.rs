//! Tells a caller of each port that a process opens.
//!
//! The callback is made from inside of the sandbox, so it reaches what any process in it reaches, and nothing more.

use super::proc::{LISTEN, ports_of};
use crate::http::Error;
use bytes::Bytes;
use http::{Method, Uri, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const MONITORS_MAX: usize = 64;
const POLL: Duration = Duration::from_millis(500);
const CALLBACK_WAIT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Monitors {
    running: Mutex<HashMap<i32, JoinHandle<()>>>,
}

impl Monitors {
    /// Begins to watch a process. A second monitor of the same process takes the place of the first.
    pub(crate) fn start(&self, pid: i32, callback: &str) -> Result<(), Error> {
        let callback = parse(callback)?;
        let mut running = self.running.lock();
        running.retain(|_, task| !task.is_finished());
        if running.len() >= MONITORS_MAX && !running.contains_key(&pid) {
            return Err(Error::Unprocessable(format!("{MONITORS_MAX} processes are monitored already")));
        }
        if let Some(replaced) = running.insert(pid, tokio::spawn(watch(pid, callback))) {
            replaced.abort();
        }
        Ok(())
    }

    pub(crate) fn stop(&self, pid: i32) {
        if let Some(task) = self.running.lock().remove(&pid) {
            task.abort();
        }
    }
}

fn parse(callback: &str) -> Result<Uri, Error> {
    let refuse = || Error::BadRequest("`callback` is not an http:// address".into());
    let uri: Uri = callback.parse().map_err(|_| refuse())?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(_)) => Ok(uri),
        _ => Err(refuse()),
    }
}

async fn watch(pid: i32, callback: Uri) {
    let mut told = HashSet::new();
    while super::is_alive(pid) {
        let open: HashSet<u16> =
            ports_of(pid).iter().filter(|port| port.state == LISTEN).map(|port| port.local_port).collect();
        // A port that was closed and is opened again is new.
        told.retain(|port| open.contains(port));
        for port in open {
            if !told.contains(&port) && matches!(timeout(CALLBACK_WAIT, tell(&callback, pid, port)).await, Ok(Ok(()))) {
                told.insert(port);
            }
        }
        sleep(POLL).await;
    }
}

/// Tells of one port. An answer of any status counts as told; without one it is tried again at the next look.
async fn tell(callback: &Uri, pid: i32, port: u16) -> io::Result<()> {
    let host = callback.host().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, callback.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let body = serde_json::json!({"pid": pid, "port": port}).to_string();
    let request = http::Request::builder()
        .method(Method::POST)
        .uri(callback.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, callback.authority().map_or("", |authority| authority.as_str()))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(io::Error::other)?;
    tokio::select! {
        answer = sender.send_request(request) => answer.map(drop).map_err(io::Error::other),
        ended = connection => ended.map_err(io::Error::other).and(Err(io::Error::other("closed without an answer"))),
    }
}
