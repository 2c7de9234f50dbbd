//! Time windows on the command line.

use crate::duration::Span;
use crate::error::Error;
use jiff::tz::TimeZone;
use types::Timestamp;

/// A time window as users write it: with days, points in time, or ages.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Window {
    /// Start of the window: a day such as 2026-04-01 (UTC), a time such as 2026-04-01T12:00:00Z, or
    /// an age such as 30d; by default the start of this month
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// End of the window, not included; by default now
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
}

impl Window {
    /// Returns start and end.
    pub(crate) fn read(&self, now: Timestamp) -> Result<(Timestamp, Timestamp), Error> {
        let to = self.to.as_deref().map_or(Ok(now), |text| read(text, now))?;
        let from =
            self.from.as_deref().map_or(Ok(to.plus_ms(-1).month().0), |text| read(text, now))?;
        if from >= to {
            return Err(Error::Usage(format!(
                "the window is empty: it begins at {from} and ends at {to}"
            )));
        }
        Ok((from, to))
    }
}

/// Parses a time as users write it.
pub(crate) fn read(text: &str, now: Timestamp) -> Result<Timestamp, Error> {
    let day = || text.parse::<jiff::civil::Date>().ok()?.to_zoned(TimeZone::UTC).ok();
    let day = || day().map(|day| Timestamp::from_ms(day.timestamp().as_millisecond()));
    let ago =
        || text.parse::<Span>().ok().map(|Span(span)| now.plus_ms(-(span.as_millis() as i64)));
    let time = ago().or_else(|| text.parse().ok()).or_else(day);
    time.ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        Error::Usage(format!(
            "`{text}` is no time: write 2026-04-01, 2026-04-01T12:00:00Z or how long ago, such as 30d"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(from: Option<&str>, to: Option<&str>, expect: (&str, &str)) {
        let now = "2026-04-16T09:30:00Z".parse().unwrap();
        let window = Window { from: from.map(str::to_owned), to: to.map(str::to_owned) };
        let (from, to) = window.read(now).unwrap();
        assert_eq!(
            (from.to_string(), to.to_string()),
            (format!("{}Z", expect.0), format!("{}Z", expect.1))
        );
    }

    #[test]
    fn a_window_is_days_times_or_how_long_ago() {
        check(None, None, ("2026-04-01T00:00:00.000", "2026-04-16T09:30:00.000"));
        check(Some("7d"), None, ("2026-04-09T09:30:00.000", "2026-04-16T09:30:00.000"));
        check(
            Some("2024-02-29"),
            Some("2024-03-01"),
            ("2024-02-29T00:00:00.000", "2024-03-01T00:00:00.000"),
        );
        check(None, Some("2026-04-01"), ("2026-03-01T00:00:00.000", "2026-04-01T00:00:00.000"));
        check(
            Some("2026-04-01T00:30:00Z"),
            Some("1h"),
            ("2026-04-01T00:30:00.000", "2026-04-16T08:30:00.000"),
        );
    }

    #[test]
    fn a_wrong_window_says_what_is_right() {
        let window = |from: &str, to: &str| Window { from: Some(from.into()), to: Some(to.into()) };
        let message = |window: Window| {
            window.read(Timestamp::from_ms(1_776_300_000_000)).unwrap_err().to_string()
        };
        assert!(message(window("soon", "1h")).contains("how long ago"));
        assert!(message(window("2026-02-30", "1h")).contains("2026-02-30"));
        assert!(message(window("2026-04-02", "2026-04-01")).contains("empty"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_window_or_refused(from in ".{0,30}", to in "[0-9dhmTZ:-]{0,25}") {
            let window = Window { from: Some(from), to: Some(to) };
            if let Ok((from, to)) = window.read(Timestamp::from_ms(1_776_300_000_000)) {
                prop_assert!(from < to);
            }
        }
    }
}
