//! What a line of output is, how it is kept, and what is read from lines that are JSON.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use types::instance::Stream;

/// A line, or a part of one that was too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Nanoseconds since 1970. The machine counts milliseconds; the rest gives each line of an
    /// attempt its own time.
    pub at_ns: i64,
    pub severity: Severity,
    /// `None` for what the server has to say of the output.
    pub stream: Option<Stream>,
    pub message: String,
    pub trace: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Unknown,
    Trace,
    Debug,
    Info,
    Warning,
    Error,
    Fatal,
}

impl Severity {
    pub const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Trace,
        Self::Debug,
        Self::Info,
        Self::Warning,
        Self::Error,
        Self::Fatal,
    ];

    /// As the interface names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
        }
    }

    /// As OpenTelemetry counts; the first number of each range.
    pub const fn number(self) -> i64 {
        match self {
            Self::Unknown => 0,
            Self::Trace => 1,
            Self::Debug => 5,
            Self::Info => 9,
            Self::Warning => 13,
            Self::Error => 17,
            Self::Fatal => 21,
        }
    }

    pub const fn bit(self) -> u32 {
        1 << self as u32
    }

    const fn of_number(number: i64) -> Self {
        match number {
            1..=4 => Self::Trace,
            5..=8 => Self::Debug,
            9..=12 => Self::Info,
            13..=16 => Self::Warning,
            17..=20 => Self::Error,
            21..=24 => Self::Fatal,
            _ => Self::Unknown,
        }
    }

    /// A word as programs write it, in whatever case.
    pub fn of_word(word: &str) -> Option<Self> {
        let named = |severity: &Self| word.eq_ignore_ascii_case(severity.name());
        Self::ALL.into_iter().find(named).or_else(|| match word.to_ascii_uppercase().as_str() {
            "WARN" => Some(Self::Warning),
            "NOTICE" => Some(Self::Info),
            "CRITICAL" | "ALERT" | "EMERGENCY" | "PANIC" => Some(Self::Fatal),
            _ => None,
        })
    }

    /// Of a line that does not say: what goes to standard error is taken for errors.
    const fn of_stream(stream: Option<Stream>) -> Self {
        match stream {
            Some(Stream::Stdout) => Self::Info,
            Some(Stream::Stderr) => Self::Error,
            None => Self::Warning,
        }
    }
}

/// A line as JSON, as the published clients print them. Which task and execution a line is from is
/// in `labels` too, but that is known better from where it was read.
#[derive(Deserialize)]
struct Structured<'a> {
    #[serde(borrow)]
    message: Cow<'a, str>,
    #[serde(borrow, default)]
    severity: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    trace_id: Option<Cow<'a, str>>,
    #[serde(default, rename = "span_id")]
    _span_id: Option<serde::de::IgnoredAny>,
    #[serde(default, rename = "labels")]
    _labels: Option<serde::de::IgnoredAny>,
    #[serde(flatten)]
    more: More,
}

/// Whether there is anything else in the line; it would be lost if only the message was shown.
#[derive(Deserialize)]
#[serde(from = "std::collections::BTreeMap<String, serde::de::IgnoredAny>")]
struct More(bool);

impl From<std::collections::BTreeMap<String, serde::de::IgnoredAny>> for More {
    fn from(more: std::collections::BTreeMap<String, serde::de::IgnoredAny>) -> Self {
        Self(!more.is_empty())
    }
}

/// No identifier of a trace is longer.
const TRACE_BYTES_MAX: usize = 64;

impl Line {
    /// Reads what a program printed.
    pub fn read(at_ns: i64, stream: Stream, bytes: &[u8]) -> Self {
        let (text, stream) = (String::from_utf8_lossy(bytes), Some(stream));
        let plain = |message: String| Self {
            at_ns,
            severity: Severity::of_stream(stream),
            stream,
            message,
            trace: None,
        };
        if !text.starts_with('{') {
            return plain(text.into_owned());
        }
        let Ok(read) = serde_json::from_str::<Structured<'_>>(&text) else {
            return plain(text.into_owned());
        };
        let severity = read.severity.map_or(Severity::of_stream(stream), |word| {
            Severity::of_word(&word).unwrap_or(Severity::Unknown)
        });
        let trace = read
            .trace_id
            .filter(|id| !id.is_empty() && id.len() <= TRACE_BYTES_MAX)
            .map(Cow::into_owned);
        let message =
            if read.more.0 { text.clone().into_owned() } else { read.message.into_owned() };
        Self { at_ns, severity, stream, message, trace }
    }

    /// A word of the server's own.
    pub fn note(at_ns: i64, message: impl Into<String>) -> Self {
        Self {
            at_ns,
            severity: Severity::of_stream(None),
            stream: None,
            message: message.into(),
            trace: None,
        }
    }
}

/// How a line is kept: an array in JSON, since then no byte of it can be mistaken for the end of
/// the line.
#[derive(Serialize, Deserialize)]
struct Kept<'a>(
    i64,
    i64,
    i64,
    #[serde(borrow)] Cow<'a, str>,
    #[serde(borrow)] Option<Cow<'a, str>>,
);

/// The text of one line, which ends it with a newline.
pub(crate) fn write(line: &Line) -> String {
    let stream = match line.stream {
        Some(Stream::Stdout) => 1,
        Some(Stream::Stderr) => 2,
        None => 3,
    };
    let trace = line.trace.as_deref().map(Cow::Borrowed);
    let kept =
        Kept(line.at_ns, line.severity.number(), stream, Cow::Borrowed(&line.message), trace);
    #[expect(clippy::expect_used, reason = "numbers and texts can always be written")]
    let mut text = serde_json::to_string(&kept).expect("a line of numbers and texts");
    text.push('\n');
    text
}

/// The lines of a chunk. What this program cannot have written is left out.
pub(crate) fn read_all(text: &str) -> impl DoubleEndedIterator<Item = Line> + '_ {
    text.lines().filter_map(|line| {
        let Kept(at_ns, severity, stream, message, trace) = serde_json::from_str(line).ok()?;
        let stream = match stream {
            1 => Some(Stream::Stdout),
            2 => Some(Stream::Stderr),
            _ => None,
        };
        let severity = Severity::of_number(severity);
        Some(Line {
            at_ns,
            severity,
            stream,
            message: message.into_owned(),
            trace: trace.map(Cow::into_owned),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(printed: &str, severity: Severity, message: &str, trace: Option<&str>) {
        let line = Line::read(1, Stream::Stdout, printed.as_bytes());
        assert_eq!(
            (line.severity, line.message.as_str(), line.trace.as_deref()),
            (severity, message, trace)
        );
    }

    #[test]
    fn a_line_of_the_published_clients_is_its_message() {
        let printed = r#"{"message":"hi\nyou","severity":"WARNING","labels":{"blaxel-task":"3","blaxel-execution":"x"},"trace_id":"t1","span_id":"s1"}"#;
        check(printed, Severity::Warning, "hi\nyou", Some("t1"));
    }

    #[test]
    fn nothing_of_a_line_is_lost() {
        let printed = r#"{"message":"paid","amount":12,"severity":"error"}"#;
        check(printed, Severity::Error, printed, None);
        check(r#"{"severity":"INFO"}"#, Severity::Info, r#"{"severity":"INFO"}"#, None);
        check("{not json", Severity::Info, "{not json", None);
        check(r#"{"message":"m","severity":"LOUD"}"#, Severity::Unknown, "m", None);
        check(r#"{"message":7}"#, Severity::Info, r#"{"message":7}"#, None);
    }

    #[test]
    fn a_plain_line_has_the_severity_of_its_stream() {
        assert_eq!(Line::read(1, Stream::Stderr, b"bad \xff").severity, Severity::Error);
        assert_eq!(Line::read(1, Stream::Stderr, b"bad \xff").message, "bad \u{fffd}");
    }

    proptest! {
        #[test]
        fn a_kept_line_reads_back(
            at_ns in any::<i64>(), severity in 0..7_usize, message in any::<String>(), trace in proptest::option::of(".{1,9}"),
        ) {
            let line = Line { at_ns, severity: Severity::ALL[severity], stream: Some(Stream::Stderr), message, trace };
            let text = write(&line);
            prop_assert!(!text.contains('\0'));
            prop_assert_eq!(read_all(&text).collect::<Vec<_>>(), [line]);
        }

        #[test]
        fn any_bytes_are_a_line(bytes in any::<Vec<u8>>()) {
            Line::read(1, Stream::Stdout, &bytes);
        }

        #[test]
        fn any_object_is_a_line(message in any::<String>(), severity in any::<String>(), trace in any::<String>()) {
            let printed = serde_json::json!({"message": message, "severity": severity, "trace_id": trace}).to_string();
            prop_assert_eq!(Line::read(1, Stream::Stdout, printed.as_bytes()).message, message);
        }
    }
}
