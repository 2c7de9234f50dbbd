//! Amounts of US dollars, read from text into whole nanodollars.

/// Decimal places of a nanodollar.
const PLACES: usize = 9;

/// Reads a plain decimal such as `12.50`. Returns `None` for anything else, for amounts finer than
/// a nanodollar, and for amounts that do not fit.
pub fn nanodollars(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    if !plain(whole) || !plain(part) || part.len() > PLACES {
        return None;
    }
    let part: i64 = format!("{part:0<PLACES$}").parse().ok()?;
    whole.parse::<i64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::nanodollars;
    use proptest::prelude::*;

    #[test]
    fn amounts_are_read_exactly_or_not_at_all() {
        for (text, wanted) in [
            ("0", 0),
            ("5", 5_000_000_000),
            ("12.50", 12_500_000_000),
            ("0.000000001", 1),
            ("9223372036.854775807", i64::MAX),
        ] {
            assert_eq!(nanodollars(text), Some(wanted), "{text}");
        }
        for text in
            ["", ".", "1.", ".5", "-1", "+1", "1e3", " 1", "1,5", "0.0000000001", "9223372036.9"]
        {
            assert_eq!(nanodollars(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(amount in 0..i64::MAX) {
            let text = format!("{}.{:09}", amount / 1_000_000_000, amount % 1_000_000_000);
            prop_assert_eq!(nanodollars(&text), Some(amount));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9.e]{0,24}|\\PC{0,12}") {
            let _ = nanodollars(&text);
        }
    }
}
