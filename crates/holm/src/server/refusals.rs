//! The log of requests refused for lack of credentials, rights or capacity, and of workloads that
//! did not answer.
//!
//! Its target is `refusals`, so `log.level` can filter it: `info,refusals=warn` leaves out refusals
//! that callers caused, and `info,refusals=off` leaves out all of them. Strangers can cause these
//! lines, so their rate is limited.

use crate::config::Log;
use http::{Method, Request, Response, Uri};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;
use types::Remote;
use types::error::Refusal;

const TARGET: &str = "refusals";
const REQUEST_ID: &str = "x-request-id";
/// Paths with these prefixes contain no secrets and are logged as they are. For all others, only
/// the name of the operation is logged.
const PLAIN_PATHS: [&str; 3] = ["/oauth/", "/v0/oauth/", "/login/"];

/// Longest text logged of those that a caller can make as long as it likes.
const TEXT_BYTES_MAX: usize = 256;

#[derive(Clone)]
pub(crate) struct Refusals {
    lines: Arc<Mutex<Lines>>,
    started: Instant,
}

/// What is remembered of a request in case it is refused.
pub(crate) struct Seen {
    from: Option<Remote>,
    method: Method,
    uri: Uri,
}

impl Seen {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let from = request.extensions().get::<Remote>().copied();
        Self { from, method: request.method().clone(), uri: request.uri().clone() }
    }
}

impl Refusals {
    pub(crate) fn new(log: &Log) -> Self {
        let lines =
            Lines { per_second: log.refusals_per_second, second: 0, written: 0, left_out: 0 };
        Self { lines: Arc::new(Mutex::new(lines)), started: Instant::now() }
    }

    pub(crate) fn log<B>(&self, seen: &Seen, response: &Response<B>) {
        let Some(refusal) = response.extensions().get::<Refusal>() else { return };
        let Admitted { line, left_out } = self.lines.lock().admit(self.started.elapsed().as_secs());
        if left_out > 0 {
            tracing::warn!(target: TARGET, left_out, "more was refused than is logged (log.refusals_per_second)");
        }
        if !line {
            return;
        }
        let status = response.status();
        let from = seen.from.map(tracing::field::display);
        let method = seen.method.as_str();
        let operation = refusal.operation.as_deref().or_else(|| plain(seen.uri.path())).map(short);
        let request_id = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
        let (reason, status_code) = (refusal.reason, status.as_u16());
        // The message may contain text from the caller. As a field it is quoted, so it cannot start
        // a new line in the log.
        let message = short(&refusal.message);
        if status.is_server_error() {
            tracing::warn!(target: TARGET, status = status_code, reason, from, method, operation, request_id, why = message, "failed");
        } else {
            tracing::info!(target: TARGET, status = status_code, reason, from, method, operation, request_id, why = message, "refused");
        }
    }
}

fn plain(path: &str) -> Option<&str> {
    PLAIN_PATHS.iter().any(|start| path.starts_with(start)).then_some(path)
}

fn short(text: &str) -> &str {
    let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
    let end = ends.take_while(|end| *end <= TEXT_BYTES_MAX).last();
    &text[..end.unwrap_or_default()]
}

/// Limits the lines per second, and counts those left out.
#[derive(Debug)]
struct Lines {
    per_second: u32,
    second: u64,
    written: u32,
    left_out: u64,
}

struct Admitted {
    line: bool,
    /// Lines left out in earlier seconds.
    left_out: u64,
}

impl Lines {
    fn admit(&mut self, second: u64) -> Admitted {
        let mut left_out = 0;
        if second != self.second {
            (self.second, self.written) = (second, 0);
            left_out = std::mem::take(&mut self.left_out);
        }
        let line = self.written < self.per_second;
        if line {
            self.written += 1;
        } else {
            self.left_out += 1;
        }
        Admitted { line, left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_that_may_hold_secrets_are_not_told() {
        assert_eq!(plain("/oauth/sign-in"), Some("/oauth/sign-in"));
        assert_eq!(plain("/v0/sandboxes/box/previews/main/tokens/value"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_cut_to_its_start(text in "\\PC{0,400}") {
            let cut = short(&text);
            prop_assert!(text.starts_with(cut) && cut.len() <= TEXT_BYTES_MAX);
            prop_assert!(cut.len() == text.len() || cut.len() + 4 > TEXT_BYTES_MAX);
        }

        #[test]
        fn every_line_is_written_or_counted_and_no_second_has_too_many(
            steps in proptest::collection::vec(0_u64..3, 1..200), per_second in 0_u32..5
        ) {
            let mut lines = Lines { per_second, second: 0, written: 0, left_out: 0 };
            let (mut now, mut written, mut left_out, mut this_second) = (0, 0, 0, 0);
            for step in &steps {
                if *step > 0 {
                    this_second = 0;
                }
                now += step;
                let admitted = lines.admit(now);
                left_out += admitted.left_out;
                this_second += u32::from(admitted.line);
                written += u64::from(admitted.line);
                prop_assert!(this_second <= per_second);
            }
            prop_assert_eq!(written + left_out + lines.left_out, steps.len() as u64);
        }
    }
}
