//! The published view of a process.

use super::log::Log;
use super::process::{Asked, Phase, Process};
use crate::http::Error;
use crate::reaper::End;
use crate::utf8::cut_off;
use serde::Serialize;
use types::instance::Stream;

/// How much of each stream is included when a process is shown.
pub(crate) const EMBEDDED_TAIL_BYTES: usize = 64 << 10;
/// How much of each stream is included when the output is shown.
pub(crate) const LOGS_TAIL_BYTES: usize = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Running,
    Completed,
    Failed,
    Stopped,
    Killed,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProcessView {
    pub(crate) pid: String,
    pub(crate) name: String,
    pub(crate) command: String,
    pub(crate) status: Status,
    pub(crate) exit_code: i32,
    /// The signal that ended the process; `exitCode` is then -1.
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    started_at: String,
    /// Empty while it runs; null in a list.
    pub(crate) completed_at: Option<String>,
    working_dir: String,
    pub(crate) logs: String,
    stdout: String,
    stderr: String,
    keep_alive: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stdin: bool,
    restart_on_failure: bool,
    max_restarts: i64,
    restart_count: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct LogsView {
    pub(crate) logs: String,
    stdout: String,
    stderr: String,
}

/// Describes a process, with at most `tail_bytes` of each of its streams.
pub(crate) fn process_view(process: &Process, tail_bytes: usize) -> Result<ProcessView, Error> {
    let state = process.state.lock();
    let stdout = tail(&state.log, Stream::Stdout, tail_bytes)?.0;
    let stderr = tail(&state.log, Stream::Stderr, tail_bytes)?.0;
    let (exit_code, signal, completed_at) = match state.phase {
        Phase::Running { .. } | Phase::Restarting { .. } => (0, None, String::new()),
        Phase::Ended { end: End::Exited(code), at } => (code, None, at.http_date()),
        Phase::Ended { end: End::Signalled(signal), at } => (-1, Some(signal), at.http_date()),
    };
    Ok(ProcessView {
        pid: process.pid().to_string(),
        name: process.plan.name.clone(),
        command: process.plan.command.clone(),
        status: status(state.phase, state.asked),
        exit_code,
        signal,
        // Published clients expect the times of processes this way, unlike all others.
        started_at: process.started_at.http_date(),
        completed_at: Some(completed_at),
        working_dir: process.plan.working_dir.to_string_lossy().into_owned(),
        logs: format!("{stdout}{stderr}"),
        stdout,
        stderr,
        keep_alive: process.plan.keep_alive,
        stdin: process.plan.takes_input,
        restart_on_failure: process.plan.restart_on_failure,
        max_restarts: process.plan.max_restarts,
        restart_count: state.restarts,
    })
}

pub(crate) fn logs_view(process: &Process) -> Result<LogsView, Error> {
    let state = process.state.lock();
    let noted = |stream| -> Result<String, Error> {
        let (text, left_out) = tail(&state.log, stream, LOGS_TAIL_BYTES)?;
        Ok(match left_out {
            0 => text,
            bytes => format!("[{bytes} earlier bytes are left out]\n{text}"),
        })
    };
    let (stdout, stderr) = (noted(Stream::Stdout)?, noted(Stream::Stderr)?);
    Ok(LogsView { logs: format!("{stdout}{stderr}"), stdout, stderr })
}

fn tail(log: &Log, stream: Stream, limit: usize) -> Result<(String, u64), Error> {
    let tail = log
        .tail(stream, limit)
        .map_err(|error| Error::Internal(format!("failed to read output: {error}")))?;
    let skip = match tail.left_out {
        0 => 0,
        _ => cut_off(&tail.bytes),
    };
    Ok((String::from_utf8_lossy(&tail.bytes[skip..]).into_owned(), tail.left_out))
}

fn status(phase: Phase, asked: Option<Asked>) -> Status {
    match (phase, asked) {
        (Phase::Running { .. } | Phase::Restarting { .. }, _) => Status::Running,
        (Phase::Ended { .. }, Some(Asked::Stop)) => Status::Stopped,
        (Phase::Ended { .. }, Some(Asked::Kill)) => Status::Killed,
        (Phase::Ended { end: End::Exited(0), .. }, None) => Status::Completed,
        (Phase::Ended { .. }, None) => Status::Failed,
    }
}
