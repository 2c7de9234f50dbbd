//! The windows of limits: when each begins and ends. They follow the calendar in UTC, counted from
//! 1970.

use types::Timestamp;
use types::kinds::policy::Granularity;
use types::time::{DAY_MS, HOUR_MS, MINUTE_MS};

/// Cap for the step, so that no window outgrows the range of dates. 100,000 months are more than
/// 8,000 years.
const STEP_MAX: i64 = 100_000;

/// Returns the begin and the end of the window that contains `now`.
pub fn window(now: Timestamp, granularity: Granularity, step: u32) -> (Timestamp, Timestamp) {
    let step = i64::from(step).clamp(1, STEP_MAX);
    let length = match granularity {
        Granularity::Minute => MINUTE_MS,
        Granularity::Hour => HOUR_MS,
        Granularity::Day => DAY_MS,
        Granularity::Month => return months(now, step),
    };
    let length = length * step;
    let begin = now.ms().div_euclid(length) * length;
    (Timestamp::from_ms(begin), Timestamp::from_ms(begin + length))
}

fn months(now: Timestamp, step: i64) -> (Timestamp, Timestamp) {
    let (year, month) = year_and_month(now.ms().div_euclid(DAY_MS));
    let number = (year - 1970) * 12 + month - 1;
    let begin = number.div_euclid(step) * step;
    (month_begin(begin), month_begin(begin + step))
}

/// Returns the begin of a month. `number` counts months since January 1970.
fn month_begin(number: i64) -> Timestamp {
    let (year, month) = (1970 + number.div_euclid(12), number.rem_euclid(12) + 1);
    Timestamp::from_ms(days_before(year, month) * DAY_MS)
}

/// Returns the days from 1970 to the first of a month, in the proleptic Gregorian calendar. Years
/// are counted from March, so that a leap day is the last day of its year.
fn days_before(year: i64, month: i64) -> i64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

fn year_and_month(days: i64) -> (i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let after_new_year = month >= 10;
    let month = if after_new_year { month - 9 } else { month + 3 };
    (era * 400 + year + i64::from(after_new_year), month)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(now: &str, granularity: Granularity, step: u32) -> (String, String) {
        let (begin, end) = window(now.parse().unwrap(), granularity, step);
        (begin.to_string(), end.to_string())
    }

    #[test]
    fn windows_follow_the_calendar() {
        for (granularity, step, begin, end) in [
            (Granularity::Minute, 1, "2024-02-29T23:59:00Z", "2024-03-01T00:00:00Z"),
            (Granularity::Minute, 15, "2024-02-29T23:45:00Z", "2024-03-01T00:00:00Z"),
            (Granularity::Hour, 6, "2024-02-29T18:00:00Z", "2024-03-01T00:00:00Z"),
            (Granularity::Day, 1, "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z"),
            (Granularity::Month, 1, "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"),
            (Granularity::Month, 3, "2024-01-01T00:00:00Z", "2024-04-01T00:00:00Z"),
            (Granularity::Month, 12, "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"),
        ] {
            let wanted = [begin, end].map(|time| time.parse::<Timestamp>().unwrap().to_string());
            let (begin, end) = of("2024-02-29T23:59:59.999Z", granularity, step);
            assert_eq!([begin, end], wanted, "{granularity:?} {step}");
        }
    }

    fn granularity() -> impl Strategy<Value = Granularity> {
        prop_oneof![
            Just(Granularity::Minute),
            Just(Granularity::Hour),
            Just(Granularity::Day),
            Just(Granularity::Month)
        ]
    }

    proptest! {
        /// Every moment is in its window, windows touch, and all moments of a window agree on it.
        #[test]
        fn windows_cut_all_time(ms in -10_000_000_000_000i64..10_000_000_000_000, granularity in granularity(), step in 0u32..500) {
            let at = |ms| window(Timestamp::from_ms(ms), granularity, step);
            let (begin, end) = at(ms);
            prop_assert!(begin.ms() <= ms && ms < end.ms());
            prop_assert_eq!(at(begin.ms()), (begin, end));
            prop_assert_eq!(at(end.ms() - 1), (begin, end));
            prop_assert_eq!(at(end.ms()).0, end);
        }

        #[test]
        fn months_agree_with_the_calendar(ms in 0i64..10_000_000_000_000) {
            let now = Timestamp::from_ms(ms);
            prop_assert_eq!(window(now, Granularity::Month, 1), now.month());
        }
    }
}
