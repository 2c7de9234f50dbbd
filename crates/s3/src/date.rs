//! Times in the format of signatures.

use jiff::fmt::strtime;
use types::Timestamp;

/// Parses `20130524T000000Z`, and no other format.
pub(crate) fn parse_amz(text: &str) -> Option<Timestamp> {
    if text.len() != 16 {
        return None;
    }
    let time = strtime::parse("%Y%m%dT%H%M%SZ", text).ok()?.to_datetime().ok()?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Timestamp::from_ms(time.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_in_this_format_are_read() {
        let time = Timestamp::from_ms(1_369_353_600_000);
        assert_eq!(parse_amz("20130524T000000Z"), Some(time));
        for bad in ["20130524T000000", "20131324T000000Z", "2013-05-24T00:00Z", "20130524T0000é0"]
        {
            assert_eq!(parse_amz(bad), None, "{bad}");
        }
    }
}
