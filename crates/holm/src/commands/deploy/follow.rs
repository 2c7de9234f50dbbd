//! Waiting for a deployment to finish, while showing the log of its build.

use super::poller::{Guard, Verdict};
use crate::client::Client;
use crate::client::log_lines::{Ask, Line, Tail};
use crate::commands::progress;
use crate::error::Error;
use crate::project::resource::image_of;
use crate::term::{self, Style};
use crate::world;
use indicatif::ProgressBar;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use types::Timestamp;

const POLL: Duration = Duration::from_secs(1);
/// The last log lines arrive a little after the build ends.
const LAST_LINES: Duration = Duration::from_millis(500);

/// The deployment to follow.
pub(crate) struct Followed<'a> {
    /// API path of the object.
    pub(crate) path: &'a str,
    /// True if the object exists already.
    pub(crate) is_there: bool,
    /// Kind and name, for messages.
    pub(crate) what: &'a str,
    /// Which log lines to show, if a build prints some.
    pub(crate) log: Option<Ask>,
    pub(crate) since: Timestamp,
    pub(crate) timeout: Duration,
}

/// Waits until the requested version serves, and returns the object.
pub(crate) async fn to_the_end(
    followed: Followed<'_>,
    mut guard: Guard,
    client: &mut Client,
) -> Result<Value, Error> {
    let begun = Instant::now();
    let mut screen = Screen::new(followed.log.map(|log| Tail::new(log, followed.since)));
    let mut was_there = followed.is_there;
    loop {
        let object = client.find_with_retries(followed.path).await?;
        if object.is_none() && was_there {
            return Err(Error::Failed(format!("{} was deleted meanwhile", followed.what)));
        }
        was_there |= object.is_some();
        // An image does not exist before its build begins.
        let object = object.unwrap_or_default();
        let status = status_of(&object);
        screen.status(status);
        screen.lines(client).await;
        match guard.see(status, image_of(&object), begun.elapsed()) {
            Verdict::Deployed => {
                screen.finish();
                return Ok(object);
            }
            Verdict::Wait if begun.elapsed() < followed.timeout => sleep(POLL).await,
            verdict => {
                sleep(LAST_LINES).await;
                screen.lines(client).await;
                screen.finish();
                return Err(Error::Failed(why(verdict, followed.what, status, &object)));
            }
        }
    }
}

fn why(verdict: Verdict, what: &str, status: &str, object: &Value) -> String {
    let status = term::harmless(status);
    match verdict {
        Verdict::Failed => {
            let reason = reason(object).unwrap_or_else(|| "the server gives no reason".into());
            format!("{what} failed: {reason}")
        }
        Verdict::Gone => format!("{what} does not serve any more: it is {status}"),
        Verdict::Wait | Verdict::Deployed => {
            format!("{what} is still {status}; it goes on, and --timeout waits longer")
        }
    }
}

/// Returns the status of an object. Images keep theirs elsewhere than other kinds.
pub(crate) fn status_of(object: &Value) -> &str {
    let places = ["/status", "/metadata/status"];
    places.iter().find_map(|at| object.pointer(at)?.as_str()).unwrap_or_default()
}

/// Returns the message of the last event that says why it failed. Images keep theirs elsewhere
/// than other kinds.
pub(crate) fn reason(object: &Value) -> Option<String> {
    let places = ["/events", "/metadata/events"];
    let events = places.iter().find_map(|at| object.pointer(at)?.as_array())?;
    let text = |event: &Value, name: &str| {
        let text = event.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.map(term::harmless)
    };
    let failure = |event: &&Value| event.get("status").is_some_and(|status| status == "FAILED");
    let failures = events.iter().rev().filter(failure);
    failures.chain(events.last()).find_map(|event| text(event, "message"))
}

/// A spinner with the status and the log above it, or plain lines if there is no terminal.
struct Screen {
    bar: ProgressBar,
    shown: String,
    tail: Option<Tail>,
}

impl Screen {
    fn new(tail: Option<Tail>) -> Self {
        Self { bar: progress::spinner(""), shown: String::new(), tail }
    }

    fn status(&mut self, status: &str) {
        if self.shown == status {
            return;
        }
        status.clone_into(&mut self.shown);
        let status = term::harmless(status);
        if self.bar.is_hidden() {
            term::note(&status);
        }
        self.bar.set_message(status);
    }

    /// Shows new log lines. If the log cannot be read now, the next round may succeed; that is no
    /// reason to stop waiting.
    async fn lines(&mut self, client: &mut Client) {
        let Some(tail) = &mut self.tail else { return };
        let Ok(lines) = tail.read(world::system().now().plus_s(1), client).await else { return };
        self.bar.suspend(|| lines.iter().for_each(show));
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn show(line: &Line) {
    const WORSE_THAN_INFORMATION: i64 = 13;
    let style = if line.severity >= WORSE_THAN_INFORMATION { Style::Warning } else { Style::Dim };
    term::note(term::styled_note(style, term::harmless(&line.message)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_failure_is_told_by_its_last_event() {
        let object = json!({"events": [
            {"status": "FAILED", "message": "old"},
            {"status": "FAILED", "message": "RUN failed\u{1b}[2J"},
            {"status": "DEPLOYED", "message": "the old one serves"},
        ]});
        assert_eq!(reason(&object).unwrap(), "RUN failed[2J");
        assert_eq!(reason(&json!({"events": [{"message": "x"}]})).unwrap(), "x");
        let image = json!({"metadata": {"events": [{"status": "FAILED", "message": "no FROM"}]}});
        assert_eq!(reason(&image).unwrap(), "no FROM");
        assert_eq!(reason(&json!({})), None);
    }
}
