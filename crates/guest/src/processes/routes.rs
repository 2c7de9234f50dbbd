//! The operations on processes.

use super::ask::{Ask, Wait};
use super::process::{Asked, Process};
use super::stream::{Lines, error_line, timed_out, write_lines, write_text};
use super::view::{EMBEDDED_TAIL_BYTES, ProcessView, logs_view, process_view};
use crate::guest::Guest;
use crate::http::{Answer, Error, Request};
use http::{HeaderName, HeaderValue, header};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Limit for the output that a list shows of all processes together. The newest processes come
/// first.
const LIST_TAILS_BYTES_MAX: usize = 4 << 20;
const PORT_POLL: Duration = Duration::from_millis(200);
const JSON_LINES: &str = "application/x-ndjson";
/// How long a request waits for the end of a process by default, and at most, in seconds.
const END_WAIT_S: u64 = 60;
const END_WAIT_S_MAX: u64 = 600;
/// The most that one request writes to a process.
const INPUT_BYTES_MAX: usize = 8 << 20;
/// Tells the caller the name of the process, in case it has to resume a stream.
const PROCESS_NAME: HeaderName = HeaderName::from_static("x-process-name");

pub(crate) fn list(guest: &Guest) -> Result<Answer, Error> {
    let mut left = LIST_TAILS_BYTES_MAX;
    let mut views = Vec::new();
    for process in guest.processes.all().iter().rev() {
        let mut view = process_view(process, EMBEDDED_TAIL_BYTES.min(left / 2))?;
        left -= view.logs.len().min(left);
        view.completed_at = view.completed_at.filter(|at| !at.is_empty());
        views.push(view);
    }
    views.reverse();
    Answer::json(&views)
}

pub(crate) async fn run(guest: &Arc<Guest>, mut request: Request) -> Result<Answer, Error> {
    let ask: Ask = request.json().await?;
    let streams =
        request.header(header::ACCEPT).is_some_and(|accept| accept.contains("text/event-stream"));
    if streams { run_streaming(guest, ask) } else { Answer::json(&execute(guest, ask).await?) }
}

/// Starts a process and waits for what was requested.
async fn execute(guest: &Arc<Guest>, ask: Ask) -> Result<ProcessView, Error> {
    let wait = ask.wait();
    let process = guest.processes.start(&guest.instance, ask.plan(&guest.instance)?)?;
    match wait_for(guest, &process, wait).await? {
        Waited::Done => process_view(&process, EMBEDDED_TAIL_BYTES),
        Waited::Late { seconds } => Err(timed_out(seconds)),
    }
}

/// How waiting for a process has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Done,
    Late { seconds: u64 },
}

/// Like `execute`, but also shows the process if the wait ends before the requested condition.
pub(crate) async fn execute_within(
    guest: &Arc<Guest>,
    ask: Ask,
    longest: Duration,
) -> Result<(ProcessView, Waited), Error> {
    let wait = ask.wait().within(longest);
    let process = guest.processes.start(&guest.instance, ask.plan(&guest.instance)?)?;
    let waited = wait_for(guest, &process, wait).await?;
    Ok((process_view(&process, EMBEDDED_TAIL_BYTES)?, waited))
}

async fn wait_for(guest: &Guest, process: &Process, wait: Wait) -> Result<Waited, Error> {
    let (done, within) = match wait {
        Wait::Nothing => return Ok(Waited::Done),
        Wait::Completion { within: None } => {
            process.ended().await;
            return Ok(Waited::Done);
        }
        Wait::Completion { within: Some(within) } => {
            (timeout(within, process.ended()).await.map(Ok), within)
        }
        Wait::Ports { ports, within } => {
            (timeout(within, listening(guest, process, &ports)).await, within)
        }
    };
    match done {
        Ok(done) => done.map(|()| Waited::Done),
        Err(_) => Ok(Waited::Late { seconds: within.as_secs() }),
    }
}

/// Waits until the process, or what it left behind, listens on all of the ports.
async fn listening(guest: &Guest, process: &Process, ports: &[u16]) -> Result<(), Error> {
    let watch = guest.scans.watch();
    loop {
        let has_ended = process.has_ended();
        let seen = watch.look().await?;
        let roots = [Some(process.pid()), process.running_pid()].into_iter().flatten().collect();
        let open = seen.reachable_ports(roots).await?;
        if ports.iter().all(|port| open.contains(port)) {
            return Ok(());
        }
        if has_ended && !seen.is_alive(process.pid()) {
            return Err(Error::Unprocessable(format!(
                "process '{}' ended before its ports were open",
                process.name()
            )));
        }
        sleep(PORT_POLL).await;
    }
}

/// Starts a process and streams its output to its end. A bad request is answered with an error
/// status, a failure to start with a line of the stream.
fn run_streaming(guest: &Arc<Guest>, mut ask: Ask) -> Result<Answer, Error> {
    ask.wait_for_completion = Some(true);
    let deadline = match ask.wait() {
        Wait::Completion { within: Some(within) } => {
            Some((Instant::now() + within, within.as_secs()))
        }
        _ => None,
    };
    let reader = guest.processes.readers.enter()?;
    let started = ask
        .plan(&guest.instance)
        .and_then(|plan| guest.processes.start(&guest.instance, plan).map_err(Error::from));
    match started {
        Ok(process) => {
            Ok(stream_lines(process, Lines { position: 0, base64: false, deadline })
                .keeping(reader))
        }
        Err(error @ Error::Unprocessable(_)) => {
            let line = format!("{}\n", error_line(&error));
            Ok(Answer::new(http::StatusCode::OK, JSON_LINES, line))
        }
        Err(error) => Err(error),
    }
}

fn stream_lines(process: Arc<Process>, lines: Lines) -> Answer {
    let (sender, answer) = Answer::stream(JSON_LINES);
    let name = HeaderValue::from_str(process.name());
    tokio::spawn(write_lines(process, lines, sender));
    match name {
        Ok(name) => answer.with_value(PROCESS_NAME, name),
        // A name that no header can contain is left out; the caller has chosen it and knows it.
        Err(_) => answer,
    }
}

pub(crate) fn show(guest: &Guest, identifier: &str) -> Result<Answer, Error> {
    let process = guest.processes.get(identifier)?;
    Answer::json(&process_view(&process, EMBEDDED_TAIL_BYTES)?)
}

/// Shows a process as soon as it has ended, or as it is when the time is over. A caller who goes
/// away takes the wait along: it is part of the connection's task.
pub(crate) async fn wait(
    guest: &Guest,
    identifier: &str,
    request: Request,
) -> Result<Answer, Error> {
    let longest = end_wait(&request)?;
    let process = guest.processes.get(identifier)?;
    if !process.has_ended() {
        let _place = guest.processes.waiters.enter()?;
        // If it goes on, its state says so.
        let _ = timeout(longest, process.ended()).await;
    }
    Answer::json(&process_view(&process, EMBEDDED_TAIL_BYTES)?)
}

fn end_wait(request: &Request) -> Result<Duration, Error> {
    let Some(text) = request.query("timeout").filter(|text| !text.is_empty()) else {
        return Ok(Duration::from_secs(END_WAIT_S));
    };
    match text.parse() {
        Ok(seconds) if seconds <= END_WAIT_S_MAX => Ok(Duration::from_secs(seconds)),
        _ => Err(Error::BadRequest(format!(
            "`timeout` must be a whole number of seconds from 0 to {END_WAIT_S_MAX}"
        ))),
    }
}

pub(crate) fn logs(guest: &Guest, identifier: &str) -> Result<Answer, Error> {
    Answer::json(&logs_view(&*guest.processes.get(identifier)?)?)
}

pub(crate) fn stream_logs(
    guest: &Guest,
    identifier: &str,
    request: &Request,
) -> Result<Answer, Error> {
    let process = guest.processes.get(identifier)?;
    let position = request.query_number("offset")?.unwrap_or(0);
    let end = process.output_end();
    if position > end {
        return Err(Error::BadRequest(format!(
            "`offset` lies after the end of the output, which is {end}"
        )));
    }
    let reader = guest.processes.readers.enter()?;
    if request.header(header::ACCEPT).is_some_and(|accept| accept.contains(JSON_LINES)) {
        let base64 = request.query("encoding").is_some_and(|encoding| encoding == "base64");
        return Ok(
            stream_lines(process, Lines { position, base64, deadline: None }).keeping(reader)
        );
    }
    let (sender, answer) = Answer::stream("text/plain; charset=utf-8");
    tokio::spawn(write_text(process, position, sender));
    Ok(answer.keeping(reader))
}

pub(crate) async fn stop(guest: &Guest, identifier: &str) -> Result<Answer, Error> {
    guest.processes.get(identifier)?.ask(Asked::Stop).await?;
    Answer::json(&json!({"message": "Process stopped successfully"}))
}

pub(crate) async fn kill(guest: &Guest, identifier: &str) -> Result<Answer, Error> {
    guest.processes.get(identifier)?.ask(Asked::Kill).await?;
    Answer::json(&json!({"message": "Process killed successfully"}))
}

/// Writes to the standard input of a process, and answers when all of it is in the pipe.
pub(crate) async fn write_input(
    guest: &Guest,
    identifier: &str,
    mut request: Request,
) -> Result<Answer, Error> {
    let process = taking_input(guest, identifier)?;
    let bytes = request.bytes(INPUT_BYTES_MAX).await?;
    process.input.write(&bytes).await?;
    Answer::json(&json!({"message": "Bytes written to stdin"}))
}

pub(crate) async fn close_input(guest: &Guest, identifier: &str) -> Result<Answer, Error> {
    taking_input(guest, identifier)?.input.close().await;
    Answer::json(&json!({"message": "Stdin closed"}))
}

fn taking_input(guest: &Guest, identifier: &str) -> Result<Arc<Process>, Error> {
    let process = guest.processes.get(identifier)?;
    if process.plan.takes_input {
        return Ok(process);
    }
    Err(Error::Conflict(format!("process '{}' was not started with `stdin: true`", process.name())))
}
