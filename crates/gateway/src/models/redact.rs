//! Masks in the request log what a model's `redact` matches.

use super::patterns::{MASK, TooSlow, boundary_before, compiled, masked};
use regex::Regex;
use serde_json::Value;
use std::time::{Duration, Instant};
use types::models::ModelRoute;

/// How deep JSON within texts of JSON is read, such as the arguments of a tool's call.
pub(super) const DEPTH_MAX: usize = 4;
/// How long searching may hold up an entry of the request log.
const TIME: Duration = Duration::from_secs(1);
/// The end of a text that was cut is left out, in bytes: a secret that is cut off there could not
/// be recognised.
const END: usize = 4 << 10;
/// The longest escape of one character in JSON, in bytes.
const ESCAPE_MAX: usize = 12;
/// Stands for a body in which a secret might be written in a way that no pattern finds.
pub(crate) const NOT_SHOWN: &str =
    "(not shown: it cannot be read, so nothing in it could be redacted)";

/// What is removed from the request log of a model.
#[derive(Default)]
pub(crate) struct Redaction {
    patterns: Vec<Result<Regex, String>>,
}

impl Redaction {
    pub(crate) fn new(route: &ModelRoute) -> Self {
        let redact = route.request_log.iter().flat_map(|log| log.redact.iter().flatten());
        Self { patterns: redact.map(|text| compiled(text)).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Returns the part of a body that may be logged, at most `max` bytes.
    pub(crate) fn shown(&self, body: &[u8], max: usize) -> String {
        // Longer bodies are cut before they are searched, to limit the work.
        let limit = 2 * max;
        let begin = &body[..body.len().min(limit)];
        if self.is_empty() {
            let mut text = String::from_utf8_lossy(begin).into_owned();
            text.truncate(boundary_before(&text, max));
            return text;
        }
        let Some(text) = readable(begin) else { return NOT_SHOWN.to_owned() };
        let until = Instant::now() + TIME;
        let looked = self.texts(text, 0, until).and_then(|text| self.masked(text, until));
        // Without a pattern that works and ends in time nothing is known to be harmless.
        let Ok(mut text) = looked else { return MASK.to_owned() };
        let end = match body.len() < limit {
            true => max,
            false => max.min(text.len().saturating_sub(END.min(max))),
        };
        text.truncate(boundary_before(&text, end));
        text
    }

    /// Masks each text of JSON by what it means, however it is written, and writes it in one way.
    fn texts(&self, json: &str, depth: usize, until: Instant) -> Result<String, TooSlow> {
        let (mut out, mut rest) = (String::with_capacity(json.len()), json);
        while let Some(at) = memchr::memchr(b'"', rest.as_bytes()) {
            out.push_str(&rest[..at]);
            let (end, is_closed) = end_of_text(&rest.as_bytes()[at..]);
            let text = meaning(&rest[at..at + end], is_closed);
            rest = &rest[at + end..];
            let text = match text {
                Some(text) => self.text(text, depth, until)?,
                None => MASK.to_owned(),
            };
            out.push_str(&Value::String(text).to_string());
            if !is_closed {
                out.pop();
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    fn text(&self, text: String, depth: usize, until: Instant) -> Result<String, TooSlow> {
        let text = match begins_json(&text) && text.contains('"') {
            true if depth == DEPTH_MAX => MASK.to_owned(),
            true => self.texts(&text, depth + 1, until)?,
            false => text,
        };
        self.masked(text, until)
    }

    fn masked(&self, text: String, until: Instant) -> Result<String, TooSlow> {
        self.patterns.iter().try_fold(text, |text, pattern| {
            let pattern = pattern.as_ref().map_err(|_| TooSlow)?;
            Ok(masked(pattern, &text, until)?.unwrap_or(text))
        })
    }
}

/// Returns a body, or its beginning, if it is JSON as far as can be told without its end.
fn readable(body: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(body) {
        Ok(text) => text,
        // Cut within a character.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&body[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    // Some parsers would read JSON in UTF-16 too.
    let is_read = !text.contains('\0') && (begins_json(text) || text.trim().is_empty());
    is_read.then_some(text)
}

pub(super) fn begins_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// Returns where a text of JSON ends that begins with a quote, and whether it has its last quote.
pub(super) fn end_of_text(json: &[u8]) -> (usize, bool) {
    let mut at = 1;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return (at + 1, true),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    (json.len(), false)
}

/// Returns what a text of JSON means. The end of one that was cut may lie within an escape.
fn meaning(written: &str, is_closed: bool) -> Option<String> {
    if is_closed {
        return serde_json::from_str(written).ok();
    }
    (0..=ESCAPE_MAX).find_map(|less| {
        let text = written.get(..written.len().checked_sub(less)?)?;
        serde_json::from_str(&format!("{text}\"")).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::served::tests::route;
    use serde_json::json;
    use types::kinds::model::ModelRequestLog;

    fn redaction(patterns: &[&str]) -> Redaction {
        let mut route = route("m", None);
        let redact = Some(patterns.iter().map(|&pattern| pattern.to_owned()).collect());
        route.request_log =
            Some(ModelRequestLog { enabled: Some(true), bodies: Some(true), redact });
        Redaction::new(&route)
    }

    #[track_caller]
    fn check(patterns: &[&str], body: &str, expect: &str) {
        assert_eq!(redaction(patterns).shown(body.as_bytes(), 1000), expect);
    }

    #[test]
    fn a_secret_is_masked_however_it_is_written() {
        check(&["Müller"], r#"{"a":"M\u00fcller"}"#, r#"{"a":"***"}"#);
        check(&["sk-[A-Z0-9]+"], r#"["sk\u002dABC123", "so"]"#, r#"["***", "so"]"#);
        let password = [r#"password: "[^"]+""#];
        check(&password, r#"{"a":"my password: \"hunter2\"!"}"#, r#"{"a":"my ***!"}"#);
        // The arguments of a tool's call are JSON within JSON.
        let call = json!({"a": json!({"b": "my password: \"hunter2\""}).to_string()}).to_string();
        check(&password, &call, r#"{"a":"{\"b\":\"my ***\"}"}"#);
        // Names and numbers are found as well, and what lies between texts.
        check(&["k-x", "[0-9]{16}"], r#"{"k-x":4111111111111111}"#, r#"{"***":***}"#);
        check(&[r#""pin": *"[^"]+""#], r#"{"p\u0069n": "1"}"#, "{***}");
        check(&["k"], "", "");
    }

    #[test]
    fn what_cannot_be_read_is_not_shown() {
        let redaction = redaction(&["k"]);
        for body in [&b"no JSON"[..], b"{\"a\":\"\xff\"}", b"{\0\"\0a\0", b"\x1f\x8b"] {
            assert_eq!(redaction.shown(body, 1000), NOT_SHOWN);
        }
        check(&["k"], r#"{"a":"\x"}"#, r#"{"a":"***"}"#);
        check(&["("], r#"{"a":"b"}"#, MASK);
        let deep = (0..6).fold(json!({"a": "k"}), |inner, _| json!([inner.to_string()]));
        assert!(!redaction.shown(deep.to_string().as_bytes(), 1000).contains('k'));
    }

    #[test]
    fn a_long_body_is_cut_and_no_part_of_a_secret_is_left() {
        const MAX: usize = 16 << 10;
        let redaction = redaction(&["[0-9]{16}", "x+"]);
        for escape in ["é", r"\u00e9", r"\ud83d\ude00"] {
            for before in 0..24 {
                let text = format!("{}{}", "a".repeat(before), escape.repeat(50_000));
                let shown = redaction.shown(format!("{{\"a\":\"{text}\"}}").as_bytes(), MAX);
                assert!((MAX / 4..=MAX).contains(&shown.len()), "{}", shown.len());
            }
        }
        // The mask is so short that the end of what is searched would be shown.
        let text = format!("{{\"a\":\"{} {}\"}}", "x".repeat(2 * MAX - 20), "1".repeat(16));
        let shown = redaction.shown(text.as_bytes(), MAX);
        assert!(!shown.contains('1'), "{shown}");
    }

    #[test]
    fn without_patterns_any_body_is_shown() {
        assert_eq!(redaction(&[]).shown("no é".as_bytes(), 4), "no ");
    }
}
