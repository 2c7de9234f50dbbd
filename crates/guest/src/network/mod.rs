//! Lists the ports on which processes listen, and watches for new ones.

mod monitor;
mod proc;
mod scans;
pub(crate) mod tunnel;

pub(crate) use monitor::Monitors;
pub(crate) use scans::Scans;

use crate::http::{Answer, Error, Request};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;

#[derive(Default, Deserialize)]
#[serde(default)]
struct MonitorAsk {
    callback: String,
}

/// Parses a process id. Only the canonical spelling counts: `02280` and `+1` may be names.
pub(crate) fn process_number(text: &str) -> Option<i32> {
    text.parse().ok().filter(|number: &i32| *number > 0 && number.to_string() == text)
}

pub(crate) async fn ports(scans: &Scans, pid: &str) -> Result<Answer, Error> {
    let pid = number(pid)?;
    let ports = scans.watch().look().await?.ports_of(pid).await?;
    Answer::json(&json!({"pid": pid, "ports": ports}))
}

pub(crate) async fn start_monitor(
    monitors: &Monitors,
    scans: &Arc<Scans>,
    pid: &str,
    mut request: Request,
) -> Result<Answer, Error> {
    let pid = number(pid)?;
    let ask: MonitorAsk = request.json().await?;
    monitors.start(scans, pid, &ask.callback)?;
    Answer::json(&json!({"message": "Port monitoring started"}))
}

pub(crate) fn stop_monitor(monitors: &Monitors, pid: &str) -> Result<Answer, Error> {
    monitors.stop(number(pid)?);
    Answer::json(&json!({"message": "Port monitoring stopped"}))
}

fn number(pid: &str) -> Result<i32, Error> {
    process_number(pid)
        .ok_or_else(|| Error::BadRequest(format!("'{pid}' is not the number of a process")))
}
