//! The steps of a series, by the calendar in UTC: hours, days, weeks from Monday, months.

use jiff::ToSpan as _;
use jiff::civil::{Date, Time};
use jiff::tz::Offset;
use types::wire::Resolution;

/// 1 January 1970 was a Thursday.
const MONDAY_OFFSET_HOURS: i64 = 3 * 24;

/// Returns the hours at which the steps begin that a range of hours touches.
pub(crate) fn steps(resolution: Resolution, first: i64, end: i64) -> Vec<i64> {
    let mut steps = Vec::new();
    let mut at = begin(resolution, first);
    while at < end {
        steps.push(at);
        let next = next(resolution, at);
        if next <= at {
            // The end of the calendar.
            break;
        }
        at = next;
    }
    steps
}

fn begin(resolution: Resolution, hour: i64) -> i64 {
    match resolution {
        Resolution::Hourly => hour,
        Resolution::Daily => hour.div_euclid(24) * 24,
        Resolution::Weekly => {
            (hour + MONDAY_OFFSET_HOURS).div_euclid(7 * 24) * 7 * 24 - MONDAY_OFFSET_HOURS
        }
        Resolution::Monthly => date(hour).map_or(hour, |date| hour_of(date.first_of_month())),
    }
}

fn next(resolution: Resolution, hour: i64) -> i64 {
    match resolution {
        Resolution::Hourly => hour + 1,
        Resolution::Daily => hour + 24,
        Resolution::Weekly => hour + 7 * 24,
        Resolution::Monthly => {
            date(hour).and_then(|date| date.checked_add(1.month()).ok()).map_or(hour, hour_of)
        }
    }
}

fn date(hour: i64) -> Option<Date> {
    let moment = jiff::Timestamp::from_second(hour.checked_mul(3600)?).ok()?;
    Some(Offset::UTC.to_datetime(moment).date())
}

fn hour_of(date: Date) -> i64 {
    let moment = Offset::UTC.to_timestamp(date.to_datetime(Time::midnight()));
    moment.map_or(i64::MAX, |moment| moment.as_second().div_euclid(3600))
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Timestamp;

    #[track_caller]
    fn check(resolution: Resolution, from: &str, to: &str, expect: &[&str]) {
        let hour = |text: &str| text.parse::<Timestamp>().unwrap().ms().div_euclid(3_600_000);
        let shown = |hour: &i64| Timestamp::from_ms(hour * 3_600_000).to_string()[..13].to_owned();
        assert_eq!(
            steps(resolution, hour(from), hour(to)).iter().map(shown).collect::<Vec<_>>(),
            expect
        );
    }

    #[test]
    fn steps_follow_the_calendar() {
        check(
            Resolution::Hourly,
            "2026-04-16T22:00:00Z",
            "2026-04-17T00:00:00Z",
            &["2026-04-16T22", "2026-04-16T23"],
        );
        check(
            Resolution::Daily,
            "2028-02-28T23:00:00Z",
            "2028-03-01T01:00:00Z",
            &["2028-02-28T00", "2028-02-29T00", "2028-03-01T00"],
        );
        // 20 April 2026 is a Monday.
        check(
            Resolution::Weekly,
            "2026-04-19T23:00:00Z",
            "2026-04-20T01:00:00Z",
            &["2026-04-13T00", "2026-04-20T00"],
        );
        check(
            Resolution::Monthly,
            "2025-12-31T00:00:00Z",
            "2026-02-01T00:00:00Z",
            &["2025-12-01T00", "2026-01-01T00"],
        );
        check(
            Resolution::Monthly,
            "1969-12-31T00:00:00Z",
            "1970-01-01T01:00:00Z",
            &["1969-12-01T00", "1970-01-01T00"],
        );
        assert_eq!(
            steps(Resolution::Monthly, 0, i64::MAX / 3_600_000).len(),
            12 * (9999 - 1970 + 1)
        );
    }
}
