//! MCP tools for processes.

use crate::guest::Guest;
use crate::http::Error;
use crate::processes::{self, Ask, Waited};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Longest wait. Callers of tools, and proxies on the way, give up after a minute.
const WAIT_MAX: Duration = Duration::from_secs(58);
const TIMEOUT_S: i64 = 30;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Identifier {
    /// The name of the process, or its process id.
    identifier: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Execute {
    /// The shell command to run.
    command: String,
    /// A name by which to find the process later.
    name: Option<String>,
    /// Working directory of the command. Default: `/`.
    working_dir: Option<String>,
    /// Variables in addition to those that every process gets.
    env: Option<BTreeMap<String, String>>,
    /// Whether to wait until it has ended, up to 58 seconds; after that `pollRequired` is true.
    wait_for_completion: Option<bool>,
    /// How many seconds to wait. Default: 30.
    timeout: Option<i64>,
    /// Answer only when something listens on all of these ports.
    wait_for_ports: Option<Vec<u16>>,
    /// Whether to restart the command when it fails.
    restart_on_failure: Option<bool>,
    /// How often to restart it; a negative number means without limit.
    max_restarts: Option<i64>,
    /// Whether the sandbox stays awake while the process runs; `timeout` then limits its run time.
    keep_alive: Option<bool>,
}

impl From<Execute> for Ask {
    fn from(execute: Execute) -> Self {
        Self {
            command: execute.command,
            name: execute.name,
            working_dir: Some(execute.working_dir.unwrap_or_else(|| "/".into())),
            env: execute.env,
            wait_for_completion: execute.wait_for_completion,
            timeout: execute.timeout.or((execute.keep_alive != Some(true)).then_some(TIMEOUT_S)),
            wait_for_ports: execute.wait_for_ports,
            restart_on_failure: execute.restart_on_failure,
            max_restarts: execute.max_restarts,
            keep_alive: execute.keep_alive,
            // No tool writes to it.
            stdin: None,
        }
    }
}

pub(super) async fn list(guest: &Guest) -> Result<Value, Error> {
    Ok(json!({"processes": processes::list(guest)?.into_json().await?}))
}

pub(super) async fn execute(guest: &Arc<Guest>, execute: Execute) -> Result<Value, Error> {
    let (process, waited) = processes::execute_within(guest, execute.into(), WAIT_MAX).await?;
    let (message, poll_required) = match waited {
        Waited::Done => ("Process executed successfully".to_owned(), false),
        Waited::Late { seconds } => (
            format!("the process goes on after {seconds} seconds; ask for it again by its name"),
            true,
        ),
    };
    Ok(json!({
        "pid": process.pid,
        "name": process.name,
        "status": process.status,
        "exitCode": process.exit_code,
        "logs": process.logs,
        "message": message,
        "pollRequired": poll_required,
    }))
}

pub(super) async fn get(guest: &Guest, of: &Identifier) -> Result<Value, Error> {
    processes::show(guest, &of.identifier)?.into_json().await
}

pub(super) async fn logs(guest: &Guest, of: &Identifier) -> Result<Value, Error> {
    let logs = processes::logs(guest, &of.identifier)?.into_json().await?;
    Ok(json!({"logs": logs["logs"]}))
}

pub(super) async fn stop(guest: &Guest, of: &Identifier) -> Result<Value, Error> {
    processes::stop(guest, &of.identifier).await?;
    status(guest, of).await
}

pub(super) async fn kill(guest: &Guest, of: &Identifier) -> Result<Value, Error> {
    processes::kill(guest, &of.identifier).await?;
    status(guest, of).await
}

async fn status(guest: &Guest, of: &Identifier) -> Result<Value, Error> {
    Ok(json!({"status": get(guest, of).await?["status"]}))
}
