//! Lines of output: how they are stored, and what is read from lines that are JSON.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use types::instance::Stream;

/// A line, or a part of a line that was too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Nanoseconds since 1970. The machine counts milliseconds; the rest makes the time of each
    /// line of an attempt unique.
    pub at_ns: i64,
    pub severity: Severity,
    /// `None` for notes by the server about the output.
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

    /// Returns the name that the interface uses.
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

    /// Returns the number that OpenTelemetry uses: the first one of each range.
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

    /// Reads a word as programs write it, in upper or lower case.
    pub fn of_word(word: &str) -> Option<Self> {
        let named = |severity: &Self| word.eq_ignore_ascii_case(severity.name());
        Self::ALL.into_iter().find(named).or_else(|| match word.to_ascii_uppercase().as_str() {
            "WARN" => Some(Self::Warning),
            "NOTICE" => Some(Self::Info),
            "CRITICAL" | "ALERT" | "EMERGENCY" | "PANIC" => Some(Self::Fatal),
            _ => None,
        })
    }

    /// Returns the severity of a line that does not name one: standard error counts as errors.
    const fn of_stream(stream: Option<Stream>) -> Self {
        match stream {
            Some(Stream::Stdout) => Self::Info,
            Some(Stream::Stderr) => Self::Error,
            None => Self::Warning,
        }
    }
}

/// A line that is JSON, as published clients print it. `labels` also has the task and the
/// execution, but these are known more reliably from where the line was read.
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

/// Whether the line has other members, which would be lost if only the message was shown.
#[derive(Deserialize)]
#[serde(from = "std::collections::BTreeMap<String, serde::de::IgnoredAny>")]
struct More(bool);

impl From<std::collections::BTreeMap<String, serde::de::IgnoredAny>> for More {
    fn from(more: std::collections::BTreeMap<String, serde::de::IgnoredAny>) -> Self {
        Self(!more.is_empty())
    }
}

/// Longest identifier of a trace.
const TRACE_BYTES_MAX: usize = 64;

impl Line {
    /// Reads a line that a program printed.
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

    /// Makes a note by the server.
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

/// The stored form of a line: an array in JSON, so that no byte of it can be mistaken for the end
/// of the line.
#[derive(Serialize, Deserialize)]
struct Kept<'a>(
    i64,
    i64,
    i64,
    #[serde(borrow)] Cow<'a, str>,
    #[serde(borrow)] Option<Cow<'a, str>>,
);

/// Returns the stored text of one line, which ends with a newline.
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

/// Reads the lines of a chunk. Text that this program cannot have written is skipped.
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
