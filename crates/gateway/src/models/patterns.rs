//! Searches for patterns that users write. A pattern may be as slow as its user likes, so texts are
//! searched in pieces, and only until a deadline.

use regex::{Regex, RegexBuilder};
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::time::Instant;
use types::parts::limits::MODEL_PATTERN_BYTES_MAX;

/// How much is searched between two checks of the deadline, in bytes.
const PIECE: usize = 64 << 10;
/// In texts that are longer than a piece, how long a match across two pieces may be, in bytes.
const OVERLAP: usize = 4 << 10;

/// Replaces what was found.
pub(super) const MASK: &str = "***";

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooSlow;

pub(super) fn compiled(pattern: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(pattern)
        .size_limit(MODEL_PATTERN_BYTES_MAX)
        .dfa_size_limit(MODEL_PATTERN_BYTES_MAX)
        .build();
    built.map_err(|error| error.to_string())
}

/// Returns the first match at or after `from`.
pub(super) fn find(
    pattern: &Regex,
    text: &str,
    from: usize,
    until: Instant,
) -> Result<Option<Range<usize>>, TooSlow> {
    let mut at = from;
    loop {
        if Instant::now() > until {
            return Err(TooSlow);
        }
        let end = boundary_before(text, at + PIECE);
        match pattern.find_at(&text[..end], at) {
            // A match that reaches the end of a piece may go on after it, or not be a match there
            // at all.
            Some(found) if found.end() == end && end < text.len() && found.start() > at => {
                at = found.start();
            }
            Some(found) => return Ok(Some(found.range())),
            None if end == text.len() => return Ok(None),
            None => at = boundary_before(text, end - OVERLAP),
        }
    }
}

/// Returns the last position up to `at` that lies between two characters.
pub(super) fn boundary_before(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// Returns the text with all matches masked, if there are any.
pub(super) fn masked(
    pattern: &Regex,
    text: &str,
    until: Instant,
) -> Result<Option<String>, TooSlow> {
    let (mut out, mut at, mut from) = (String::new(), 0, 0);
    while let Some(found) = find(pattern, text, from, until)? {
        out.push_str(&text[at..found.start]);
        out.push_str(MASK);
        at = found.end;
        if found.end == text.len() {
            break;
        }
        let step =
            if found.is_empty() { text[at..].chars().next().map_or(0, char::len_utf8) } else { 0 };
        from = at + step;
    }
    if out.is_empty() {
        return Ok(None);
    }
    out.push_str(&text[at..]);
    Ok(Some(out))
}

pub(super) fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

/// Returns whether a JSON object has a member twice: some parsers take the first, others the last.
pub(super) fn says_twice(json: &[u8]) -> bool {
    serde_json::from_slice::<Once>(json).is_err_and(|error| error.is_data())
}

/// Any JSON in which no object has a member twice.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Self;

    fn expecting(&self, told: &mut fmt::Formatter<'_>) -> fmt::Result {
        told.write_str("JSON without a member that is there twice")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Self, A::Error> {
        while values.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if !names.insert(name) {
                return Err(de::Error::custom("a member is there twice"));
            }
            members.next_value::<Self>()?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn members_that_are_there_twice_are_found() {
        let twice = [r#"{"a":1,"a":2}"#, r#"[{"b":{"a":1,"\u0061":[]}}]"#];
        assert!(twice.iter().all(|json| says_twice(json.as_bytes())));
        let once =
            [r#"{"a":{"a":1.5e300},"b":{"a":-1,"c":null}}"#, "1e999", "no JSON", r#"{"a":1"#];
        assert!(once.iter().all(|json| !says_twice(json.as_bytes())));
    }

    #[test]
    fn a_slow_pattern_ends_in_time() {
        let slow = compiled("a[ab]{3000}[c-z]").unwrap();
        let text = "a".repeat(32 << 20);
        let soon = Instant::now() + Duration::from_millis(1);
        assert_eq!(find(&slow, &text, 0, soon), Err(TooSlow));
        assert_eq!(masked(&slow, &text, soon), Err(TooSlow));
    }

    #[test]
    fn what_lies_across_pieces_is_found() {
        let pattern = compiled(r"\bb{1000,}\b").unwrap();
        for before in (PIECE - 2000..PIECE + 2000).step_by(97) {
            let text = format!("{} {} c", "a".repeat(before), "b".repeat(1500));
            let found = find(&pattern, &text, 0, later()).unwrap();
            assert_eq!(found, Some(before + 1..before + 1501), "{before}");
        }
        let end = compiled("b$").unwrap();
        let text = format!("{}c", "b".repeat(PIECE));
        assert_eq!(find(&end, &text, 0, later()), Ok(None));
    }

    proptest! {
        #[test]
        fn short_texts_are_masked_as_the_library_does(
            pattern in prop_oneof![
                Just("[a-c]"), Just("[a-c]{1,3}"), Just("a|bc"), Just("\\bé"), Just("(?i)B+"),
            ],
            text in "[a-cB é]{0,40}",
        ) {
            let pattern = compiled(pattern).unwrap();
            let ours = masked(&pattern, &text, later()).unwrap();
            prop_assert_eq!(ours.as_deref().unwrap_or(&text), pattern.replace_all(&text, MASK));
        }
    }
}
