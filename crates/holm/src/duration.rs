//! Lengths of time in settings and flags, written as a number and a unit.

use serde::{Deserialize, Deserializer, de};
use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

/// A length of time, at most [`LONGEST_DAYS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) Duration);

/// Longer times are assumed to be mistakes.
const LONGEST_DAYS: u64 = 36_500;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a length of time such as `500ms`, `30s`, `15m`, `2h` or `30d`")]
pub(crate) struct BadSpan(String);

impl FromStr for Span {
    type Err = BadSpan;

    fn from_str(text: &str) -> Result<Self, BadSpan> {
        parse(text.trim()).ok_or_else(|| BadSpan(text.chars().take(40).collect()))
    }
}

fn parse(text: &str) -> Option<Span> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 7 * 86_400_000,
        _ => return None,
    };
    let ms = number.parse::<u64>().ok()?.checked_mul(unit_ms)?;
    (ms <= LONGEST_DAYS * 86_400_000).then(|| Span(Duration::from_millis(ms)))
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_length_is_a_number_and_a_unit() {
        assert_eq!("90s".parse(), Ok(Span(Duration::from_secs(90))));
        assert_eq!("2w".parse(), Ok(Span(Duration::from_secs(14 * 86_400))));
        for wrong in
            ["", "5", "s", "-1s", "1.5h", "1 h", "5y", "999999999999999999999s", "99999999d"]
        {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = text.parse::<Span>();
        }

        #[test]
        fn every_number_of_minutes_reads_back(minutes in 0_u64..50_000_000) {
            prop_assert_eq!(format!("{minutes}m").parse(), Ok(Span(Duration::from_secs(minutes * 60))));
        }
    }
}
