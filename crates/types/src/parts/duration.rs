//! Lengths of time as the interface writes them: a number and one unit, such as `30m`.

/// Ten years in seconds, the longest lifetime of anything that expires.
pub const MAX_S: i64 = 3653 * 86_400;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadDuration {
    #[error("must be a number and one unit of s, m, h, d or w, such as `30m`")]
    Form,
    #[error("must be longer than nothing and at most 10 years")]
    Range,
}

/// Returns the length of time in seconds.
pub fn parse_s(text: &str) -> Result<i64, BadDuration> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(BadDuration::Form),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadDuration::Form);
    }
    let count: i64 = digits.parse().map_err(|_| BadDuration::Range)?;
    let seconds = count.checked_mul(unit_s).ok_or(BadDuration::Range)?;
    if (1..=MAX_S).contains(&seconds) { Ok(seconds) } else { Err(BadDuration::Range) }
}

/// Reports `text` unless it is a length of time. An empty text means "none" and passes.
pub fn check(text: Option<&str>, field: &str, problems: &mut crate::Problems) {
    if let Some(Err(error)) = text.filter(|text| !text.is_empty()).map(parse_s) {
        problems.add(field, error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_unit_is_known() {
        let seconds = ["90s", "30m", "24h", "7d", "2w", " 1h "].map(parse_s);
        assert_eq!(seconds, [Ok(90), Ok(1800), Ok(86_400), Ok(604_800), Ok(1_209_600), Ok(3600)]);
    }

    #[test]
    fn what_is_no_length_of_time_is_refused() {
        for text in ["", "30", "m", "1y", "1.5h", "-1h", "1h30m", "30 m", "30M", "٣m"] {
            assert_eq!(parse_s(text), Err(BadDuration::Form), "{text}");
        }
        for text in ["0s", "3654d", "99999999999999999999w"] {
            assert_eq!(parse_s(text), Err(BadDuration::Range), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_odd(text in "\\PC*|[0-9]{0,30}[smhdw]") {
            if let Ok(seconds) = parse_s(&text) {
                prop_assert!((1..=MAX_S).contains(&seconds));
            }
        }
    }
}
