//! Times in the formats of headers, signatures and XML.

use jiff::fmt::strtime;
use types::Timestamp;

const HTTP: &str = "%a, %d %b %Y %H:%M:%S GMT";

pub(crate) fn http(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_second(time.seconds()).unwrap_or_default();
    time.strftime(HTTP).to_string()
}

pub(crate) fn parse_http(text: &str) -> Option<Timestamp> {
    let time = strtime::parse(HTTP, text.trim()).ok()?.to_datetime().ok()?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Timestamp::from_ms(time.timestamp().as_millisecond()))
}

/// Parses `20130524T000000Z`, and no other format.
pub(crate) fn parse_amz(text: &str) -> Option<Timestamp> {
    if text.len() != 16 {
        return None;
    }
    let time = strtime::parse("%Y%m%dT%H%M%SZ", text).ok()?.to_datetime().ok()?;
    let time = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Timestamp::from_ms(time.timestamp().as_millisecond()))
}

/// Writes a time with milliseconds, as in S3's lists.
pub(crate) fn xml(time: Timestamp) -> String {
    time.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        let time = Timestamp::from_ms(1_369_353_600_000);
        assert_eq!(http(time), "Fri, 24 May 2013 00:00:00 GMT");
        assert_eq!(parse_http("Fri, 24 May 2013 00:00:00 GMT"), Some(time));
        assert_eq!(parse_amz("20130524T000000Z"), Some(time));
        assert_eq!(xml(time), "2013-05-24T00:00:00.000Z");
        for bad in ["20130524T000000", "20131324T000000Z", "2013-05-24T00:00Z", "20130524T0000é0"]
        {
            assert_eq!(parse_amz(bad), None, "{bad}");
        }
    }
}
