//! Processes of a sandbox: starting one, and following its output even if connections break.

use super::lines::{Lines, Stopped};
use super::retries::may_pass;
use super::workload::{Workload, segment};
use crate::error::Error;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::{Method, StatusCode, header};
use serde::Deserialize;
use serde_json::Value;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use types::instance::Stream;

/// A sandbox sends something every five seconds. After this long without anything the connection
/// counts as cut.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long to retry while a sandbox cannot be reached.
const TIMEOUT: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(500);

/// A process, by the id that the sandbox gave it.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: String,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) exit_code: i32,
    pub(crate) signal: Option<i32>,
}

impl End {
    /// Returns the exit status as shells report it.
    pub(crate) fn number(&self) -> u8 {
        let signal = self.signal.map(|signal| signal.saturating_add(128));
        u8::try_from(signal.unwrap_or(self.exit_code)).unwrap_or(u8::MAX)
    }
}

/// One line of the stream.
#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    data: String,
    offset: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask {
    Stop,
    Kill,
}

impl Workload {
    pub(crate) async fn start(&self, body: &Value) -> Result<Process, Error> {
        let request = self.request(Method::POST, "/process").await?.json(body);
        let answer = self.ask_json(request).await?;
        let pid = answer.get("pid").and_then(Value::as_str);
        let pid = pid.ok_or_else(|| self.odd("it names no process"))?.to_owned();
        Ok(Process { pid })
    }

    /// Passes all output of the process to `out`, each byte once, until the process has ended.
    /// `out` returns an error when nobody reads the output any more.
    pub(crate) async fn follow(
        &self,
        process: &Process,
        out: &mut impl FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> Result<End, Error> {
        let mut position = 0;
        let mut until = Instant::now() + TIMEOUT;
        loop {
            let before = position;
            let error = match self.follow_once(process, &mut position, out).await {
                Ok(Some(end)) => return Ok(end),
                Ok(None) => self.odd("the connection was cut again and again"),
                Err(error) if may_pass(&error) => error,
                Err(error) => return Err(error),
            };
            if position > before {
                until = Instant::now() + TIMEOUT;
            }
            if Instant::now() >= until {
                return Err(error);
            }
            sleep(RETRY).await;
        }
    }

    /// Follows one connection; `None` if it was cut.
    async fn follow_once(
        &self,
        process: &Process,
        position: &mut u64,
        out: &mut impl FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> Result<Option<End>, Error> {
        let pid = segment(&process.pid);
        let path = format!("/process/{pid}/logs/stream?offset={position}&encoding=base64");
        let request = self.request(Method::GET, &path).await?;
        let response = self.ask(request.header(header::ACCEPT, "application/x-ndjson")).await?;
        let mut lines = Lines::new(response, Some(SILENCE_MAX));
        loop {
            let text = match lines.next().await {
                Ok(text) => text,
                Err(Stopped::Ended | Stopped::Cut) => return Ok(None),
                Err(Stopped::TooLong) => return Err(self.odd("a line of the stream has no end")),
            };
            // The last line of a cut stream may be incomplete; it is sent again.
            let Ok(line) = serde_json::from_str::<Line>(&text) else { return Ok(None) };
            if let Some(end) = self.take(&line, out)? {
                return Ok(Some(end));
            }
            *position = line.offset.unwrap_or(*position);
        }
    }

    fn take(
        &self,
        line: &Line,
        out: &mut impl FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> Result<Option<End>, Error> {
        let mut print = |stream, bytes: &[u8]| {
            out(stream, bytes).map_err(Error::io("write what the command prints"))
        };
        match line.kind.as_str() {
            "stdout" | "stderr" => {
                let bytes = STANDARD.decode(&line.data);
                let bytes = bytes.map_err(|_| self.odd("the output is not in base64"))?;
                let stream = if line.kind == "stdout" { Stream::Stdout } else { Stream::Stderr };
                print(stream, &bytes)?;
            }
            "error" => print(Stream::Stderr, format!("holm: {}\n", line.data).as_bytes())?,
            "result" => return self.read_end(&line.data).map(Some),
            _ => {}
        }
        Ok(None)
    }

    fn read_end(&self, text: &str) -> Result<End, Error> {
        let number = |view: &Value, name: &str| {
            view.get(name).and_then(Value::as_i64).and_then(|number| i32::try_from(number).ok())
        };
        let view: Value =
            serde_json::from_str(text).map_err(|_| self.odd("the result is not JSON"))?;
        let exit_code = number(&view, "exitCode").ok_or_else(|| self.odd("no exit code"))?;
        Ok(End { exit_code, signal: number(&view, "signal") })
    }

    /// Asks a process to end. It is fine if the process has ended already.
    pub(crate) async fn end(&self, process: &Process, ask: Ask) -> Result<(), Error> {
        let kill = match ask {
            Ask::Stop => "",
            Ask::Kill => "/kill",
        };
        let path = format!("/process/{}{kill}", segment(&process.pid));
        match self.ask(self.request(Method::DELETE, &path).await?).await {
            Ok(_) | Err(Error::Answer { status: StatusCode::NOT_FOUND, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_the_number_that_shells_give_it() {
        let number = |exit_code, signal| End { exit_code, signal }.number();
        assert_eq!(number(3, None), 3);
        assert_eq!(number(-1, Some(15)), 143);
        assert_eq!(number(-1, None), 255);
    }
}
