//! Points in time as the interface writes them: RFC 3339, UTC, milliseconds.

use jiff::ToSpan;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub const MINUTE_MS: i64 = 60_000;
pub const HOUR_MS: i64 = 60 * MINUTE_MS;
pub const DAY_MS: i64 = 24 * HOUR_MS;
/// How headers of HTTP write times.
const HTTP_DATE: &str = "%a, %d %b %Y %H:%M:%S GMT";

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    pub const fn ms(self) -> i64 {
        self.0
    }

    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    pub const fn plus_s(self, seconds: i64) -> Self {
        self.plus_ms(seconds.saturating_mul(1000))
    }

    /// Returns the time `span` later. A span too large for any time leads to the last representable
    /// one: settings use such a span to say `never`.
    pub fn plus(self, span: Duration) -> Self {
        i64::try_from(span.as_millis()).map_or(Self(i64::MAX), |ms| self.plus_ms(ms))
    }

    /// Returns the time `span` earlier, and the first representable time if there is none, as with
    /// [`Timestamp::plus`].
    pub fn minus(self, span: Duration) -> Self {
        i64::try_from(span.as_millis()).map_or(Self(i64::MIN), |ms| self.plus_ms(-ms))
    }

    /// Returns the milliseconds from `earlier` to this time; negative when `earlier` is later.
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the beginning of the UTC calendar month that holds this time, and the beginning of
    /// the next month.
    pub fn month(self) -> (Self, Self) {
        let bounds = || {
            let day = jiff::Timestamp::from_millisecond(self.0)
                .ok()?
                .to_zoned(TimeZone::UTC)
                .date()
                .first_of_month();
            let next = day.checked_add(1.month()).ok()?;
            let begin = |day: jiff::civil::Date| {
                Some(day.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
            };
            Some((Self(begin(day)?), Self(begin(next)?)))
        };
        // Past the calendar's end, in the year 9999, there is no month; no clock of ours gets
        // there.
        bounds().unwrap_or((self, self))
    }

    /// Writes the time as headers of HTTP have it, such as `Fri, 24 May 2013 00:00:00 GMT`.
    pub fn http_date(self) -> String {
        jiff::Timestamp::from_second(self.seconds())
            .map_or_else(|_| self.to_string(), |time| time.strftime(HTTP_DATE).to_string())
    }

    /// Reads what [`Timestamp::http_date`] writes.
    pub fn from_http_date(text: &str) -> Option<Self> {
        let time = strtime::parse(HTTP_DATE, text.trim()).ok()?.to_datetime().ok()?;
        let time = time.to_zoned(TimeZone::UTC).ok()?;
        Some(Self(time.timestamp().as_millisecond()))
    }
}

/// Reads how long `Retry-After` asks to wait: it has seconds, or a date.
pub fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let until = Timestamp::from_http_date(text)?;
    let wait = until.ms().saturating_sub(now.ms()).max(0);
    Some(Duration::from_millis(wait.unsigned_abs()))
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = BadTime;

    fn from_str(text: &str) -> Result<Self, BadTime> {
        // A time without a zone is UTC: a published client writes times this way.
        let in_utc = || text.contains('T').then(|| format!("{text}Z").parse().ok()).flatten();
        let time: Option<jiff::Timestamp> = text.parse().ok().or_else(in_utc);
        time.map(|time| Self(time.as_millisecond())).ok_or_else(|| BadTime(text.to_owned()))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an RFC 3339 time such as `2026-04-16T09:30:00Z`")]
pub struct BadTime(String);

impl BadTime {
    pub(crate) fn of(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_back_as_written() {
        let time: Timestamp = "2026-04-16T09:30:00.125Z".parse().unwrap();
        assert_eq!(time.to_string(), "2026-04-16T09:30:00.125Z");
        assert_eq!("2026-04-16T11:30:00.125+02:00".parse::<Timestamp>().unwrap(), time);
        assert_eq!("2026-04-16T09:30:00.125000".parse::<Timestamp>().unwrap(), time);
        assert!("yesterday".parse::<Timestamp>().is_err());
        assert!("2026-04-16".parse::<Timestamp>().is_err());
    }

    #[test]
    fn a_date_of_http_reads_back_as_written() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Fri, 24 May 2013 00:00:00 GMT", 1_369_353_600),
            ("Thu, 29 Feb 2024 12:34:56 GMT", 1_709_210_096),
        ] {
            let time = Timestamp::from_ms(seconds * 1000);
            assert_eq!(time.plus_ms(999).http_date(), text);
            assert_eq!(Timestamp::from_http_date(text), Some(time));
        }
        let last = Timestamp::from_ms(i64::MAX);
        assert_eq!(last.http_date(), last.to_string());
        for bad in ["", "now", "Thu, 29 Xxx 2024 12:34:56 GMT", "Thu, 29 Feb 2024 12:34 GMT"] {
            assert_eq!(Timestamp::from_http_date(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_month_begins_and_ends_by_the_calendar() {
        let month = |time: &str| {
            let (begin, end) = time.parse::<Timestamp>().unwrap().month();
            (begin.to_string(), end.to_string())
        };
        let both = |begin: &str, end: &str| {
            (format!("{begin}-01T00:00:00.000Z"), format!("{end}-01T00:00:00.000Z"))
        };
        assert_eq!(month("2024-02-29T23:59:59.999Z"), both("2024-02", "2024-03"));
        assert_eq!(month("2026-01-01T00:00:00Z"), both("2026-01", "2026-02"));
        assert_eq!(month("2025-12-31T12:00:00Z"), both("2025-12", "2026-01"));
        assert_eq!(month("1969-12-31T12:00:00Z"), both("1969-12", "1970-01"));
    }
}
