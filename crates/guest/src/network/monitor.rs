//! Calls a given address for each port that a process opens.

use super::proc::{LISTEN, Port};
use super::scans::Scans;
use crate::http::Error;
use crate::http_client;
use bytes::Bytes;
use http::{Uri, header};
use http_body_util::Full;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

const MONITORS_MAX: usize = 64;
const POLL: Duration = Duration::from_millis(500);
const CALLBACK_WAIT: Duration = Duration::from_secs(10);

struct Monitor {
    callback: String,
    task: JoinHandle<()>,
}

#[derive(Default)]
pub(crate) struct Monitors {
    running: Mutex<HashMap<i32, Monitor>>,
}

impl Monitors {
    /// Starts watching a process. A second monitor for the same process replaces the first.
    pub(crate) fn start(&self, scans: &Arc<Scans>, pid: i32, callback: &str) -> Result<(), Error> {
        let address = http_client::parse(callback).map_err(|_| {
            Error::BadRequest("`callback` is not an address of HTTP or HTTPS".into())
        })?;
        let mut running = self.running.lock();
        running.retain(|_, monitor| !monitor.task.is_finished());
        if running.len() >= MONITORS_MAX && !running.contains_key(&pid) {
            return Err(Error::Unprocessable(format!(
                "{MONITORS_MAX} processes are monitored already"
            )));
        }
        let monitor = Monitor {
            callback: callback.to_owned(),
            task: tokio::spawn(watch(scans.clone(), pid, address)),
        };
        if let Some(replaced) = running.insert(pid, monitor) {
            replaced.task.abort();
        }
        Ok(())
    }

    pub(crate) fn stop(&self, pid: i32) {
        if let Some(monitor) = self.running.lock().remove(&pid) {
            monitor.task.abort();
        }
    }

    /// Returns the watched processes with their callback addresses.
    pub(crate) fn all(&self) -> Vec<(i32, String)> {
        self.running.lock().iter().map(|(pid, monitor)| (*pid, monitor.callback.clone())).collect()
    }
}

async fn watch(scans: Arc<Scans>, pid: i32, callback: Uri) {
    let (mut told, watch) = (HashSet::new(), scans.watch());
    loop {
        // Without a thread for the look, the next one may have one.
        if let Ok(seen) = watch.look().await {
            if !seen.is_alive(pid) {
                return;
            }
            if let Ok(ports) = seen.ports_of(pid).await {
                tell_new(&mut told, &ports, pid, &callback).await;
            }
        }
        sleep(POLL).await;
    }
}

/// Reports the open ports that have not been told yet.
async fn tell_new(told: &mut HashSet<u16>, ports: &[Port], pid: i32, callback: &Uri) {
    let open: HashSet<u16> =
        ports.iter().filter(|port| port.state == LISTEN).map(|port| port.local_port).collect();
    // A port that was closed and opened again counts as new.
    told.retain(|port| open.contains(port));
    for port in open {
        if !told.contains(&port)
            && matches!(timeout(CALLBACK_WAIT, tell(callback, pid, port)).await, Ok(Ok(())))
        {
            told.insert(port);
        }
    }
}

/// Reports one port. An answer with any status counts as delivered; without an answer, the next
/// look tries again.
async fn tell(callback: &Uri, pid: i32, port: u16) -> Result<(), http_client::Error> {
    let body = serde_json::json!({"pid": pid, "port": port}).to_string();
    let request = http::Request::post(callback)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|_| http_client::Error::Address)?;
    http_client::send(request).await.map(drop)
}
