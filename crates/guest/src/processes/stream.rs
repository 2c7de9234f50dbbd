//! Streams output as it arrives, in the two published forms.

use super::log::Read;
use super::process::{Phase, Process};
use super::view::{EMBEDDED_TAIL_BYTES, process_view};
use crate::http::{Error, StreamSender};
use crate::utf8::unfinished;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use types::instance::Stream;

const PIECE_BYTES_MAX: usize = 16 << 10;
const TEXT_KEEPALIVE: Duration = Duration::from_secs(30);
const LINES_KEEPALIVE: Duration = Duration::from_secs(5);

/// Follows the log of a process from a position on.
struct Follower {
    process: Arc<Process>,
    changed: watch::Receiver<()>,
    position: u64,
    /// Whether the start of a character is held back until it is complete.
    whole_characters: bool,
}

enum Followed {
    Output {
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// The next output is no longer kept, or never was.
    Lost {
        begin: u64,
    },
    Ended,
}

impl Follower {
    fn new(process: Arc<Process>, position: u64, whole_characters: bool) -> Self {
        let changed = process.changed.subscribe();
        Self { process, changed, position, whole_characters }
    }

    /// Returns the next output. Can be cancelled safely: the position only moves when there is a
    /// result.
    async fn next(&mut self) -> Followed {
        loop {
            self.changed.mark_unchanged();
            if let Some(followed) = self.look() {
                return followed;
            }
            if self.changed.changed().await.is_err() {
                return Followed::Ended;
            }
        }
    }

    fn look(&mut self) -> Option<Followed> {
        let state = self.process.state.lock();
        let ended = matches!(state.phase, Phase::Ended { .. });
        // If the log cannot be read, its content counts as lost.
        match state
            .log
            .read(self.position, PIECE_BYTES_MAX)
            .unwrap_or(Read::Outside { begin: state.log.end(), end: 0 })
        {
            Read::Outside { begin, .. } => Some(Followed::Lost { begin }),
            Read::End => ended.then_some(Followed::Ended),
            Read::Piece(mut piece) => {
                let length = piece.bytes.len();
                let more_may_come = !ended && self.position + length as u64 == state.log.end();
                if self.whole_characters
                    && !piece.closed
                    && (more_may_come || length == PIECE_BYTES_MAX)
                {
                    piece.bytes.truncate(length - unfinished(&piece.bytes));
                }
                self.position += piece.bytes.len() as u64;
                let output = Followed::Output { stream: piece.stream, bytes: piece.bytes };
                (!matches!(&output, Followed::Output { bytes, .. } if bytes.is_empty()))
                    .then_some(output)
            }
        }
    }
}

/// Formats output as lines prefixed with the name of their stream. The same output always gives the
/// same text, however it arrived, because clients that reconnect compare what they get with what
/// they had.
#[derive(Default)]
struct Layout {
    /// The stream whose line is not finished.
    open: Option<Stream>,
}

impl Layout {
    fn lay_out(&mut self, stream: Stream, bytes: &[u8]) -> Vec<u8> {
        let prefix: &[u8] = match stream {
            Stream::Stdout => b"stdout:",
            Stream::Stderr => b"stderr:",
        };
        let mut text = Vec::with_capacity(bytes.len() + 64);
        if self.open.is_some_and(|open| open != stream) {
            text.push(b'\n');
            self.open = None;
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.open.is_none() {
                text.extend_from_slice(prefix);
            }
            text.extend_from_slice(line);
            self.open = (!line.ends_with(b"\n")).then_some(stream);
        }
        text
    }
}

/// Writes plain text until the process ends or the reader disconnects.
pub(super) async fn write_text(process: Arc<Process>, position: u64, mut sender: StreamSender) {
    let mut follower = Follower::new(process, position, false);
    let mut layout = Layout::default();
    loop {
        let text = match timeout(TEXT_KEEPALIVE, follower.next()).await {
            // Within an unfinished line of output, a line of ours would become part of it.
            Err(_) if layout.open.is_some() => continue,
            Err(_) => b"[keepalive]\n".to_vec(),
            Ok(Followed::Output { stream, bytes }) => layout.lay_out(stream, &bytes),
            Ok(Followed::Lost { begin }) => {
                follower.position = begin;
                let end_of_line = if layout.open.take().is_some() { "\n" } else { "" };
                format!("{end_of_line}stderr:[output before position {begin} is no longer kept]\n")
                    .into_bytes()
            }
            Ok(Followed::Ended) => break,
        };
        if sender.send_data(text.into()).await.is_err() {
            return;
        }
    }
    if layout.open.is_some() {
        // The reader may have gone, which does not matter any more.
        let _ = sender.send_data(Bytes::from_static(b"\n")).await;
    }
}

/// How to write newline-delimited JSON.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lines {
    pub(super) position: u64,
    /// Whether to write exact bytes instead of text.
    pub(super) base64: bool,
    /// When to stop waiting for the process, and the number of seconds that were requested.
    pub(super) deadline: Option<(Instant, u64)>,
}

/// Writes newline-delimited JSON; the last line is the process.
pub(super) async fn write_lines(process: Arc<Process>, lines: Lines, mut sender: StreamSender) {
    let mut follower = Follower::new(process.clone(), lines.position, !lines.base64);
    let late = async {
        match lines.deadline {
            Some((at, seconds)) => {
                sleep_until(at).await;
                seconds
            }
            None => std::future::pending().await,
        }
    };
    tokio::pin!(late);
    loop {
        let line = tokio::select! {
            // The time-out is checked first, because endless output would postpone it forever.
            biased;
            seconds = &mut late => {
                // It does not matter whether anybody still reads it.
                let _ = send(&mut sender, &error_line(&timed_out(seconds))).await;
                return;
            }
            followed = follower.next() => match followed {
                Followed::Output { stream, bytes } => output_line(stream, &bytes, follower.position, lines.base64),
                Followed::Lost { begin } => {
                    follower.position = begin;
                    json!({"type": "error", "data": format!("output before position {begin} is no longer kept"), "offset": begin})
                }
                Followed::Ended => break,
            },
            () = sleep(LINES_KEEPALIVE) => json!({"type": "keepalive"}),
        };
        if send(&mut sender, &line).await.is_none() {
            return;
        }
    }
    // The last line; it does not matter whether anybody still reads it.
    let _ = send(&mut sender, &result_line(&process)).await;
}

async fn send(sender: &mut StreamSender, line: &Value) -> Option<()> {
    sender.send_data(format!("{line}\n").into()).await.ok()
}

fn output_line(stream: Stream, bytes: &[u8], offset: u64, base64: bool) -> Value {
    let kind = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    match base64 {
        true => {
            json!({"type": kind, "data": STANDARD.encode(bytes), "encoding": "base64", "offset": offset})
        }
        false => json!({"type": kind, "data": String::from_utf8_lossy(bytes), "offset": offset}),
    }
}

/// The error of a request whose process did not end in time.
pub(super) fn timed_out(seconds: u64) -> Error {
    Error::Unprocessable(format!("process timed out after {seconds} seconds"))
}

pub(super) fn error_line(error: &Error) -> Value {
    json!({"type": "error", "data": error.to_string()})
}

fn result_line(process: &Process) -> Value {
    let view = process_view(process, EMBEDDED_TAIL_BYTES).and_then(|view| {
        serde_json::to_string(&view).map_err(|error| Error::Internal(error.to_string()))
    });
    match view {
        Ok(view) => json!({"type": "result", "data": view}),
        Err(error) => error_line(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_that_the_other_stream_breaks_is_taken_up_again() {
        let mut layout = Layout::default();
        let mut text = layout.lay_out(Stream::Stdout, b"one\ntw");
        text.extend(layout.lay_out(Stream::Stdout, b"o"));
        text.extend(layout.lay_out(Stream::Stderr, b"oops\n"));
        text.extend(layout.lay_out(Stream::Stdout, b"three\n"));
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "stdout:one\nstdout:two\nstderr:oops\nstdout:three\n"
        );
    }

    proptest! {
        #[test]
        fn the_layout_does_not_depend_on_how_output_arrived(
            writes in proptest::collection::vec((any::<bool>(), "[a\n]{0,6}"), 0..8), cut in 1..4_usize,
        ) {
            let (mut whole, mut pieces) = (Layout::default(), Layout::default());
            let (mut expect, mut found) = (Vec::new(), Vec::new());
            for (stderr, text) in &writes {
                let stream = if *stderr { Stream::Stderr } else { Stream::Stdout };
                if text.is_empty() { continue }
                expect.extend(whole.lay_out(stream, text.as_bytes()));
                text.as_bytes().chunks(cut).for_each(|piece| found.extend(pieces.lay_out(stream, piece)));
            }
            prop_assert_eq!(expect, found);
        }
    }
}
