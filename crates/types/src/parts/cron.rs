//! Cron lines of exactly five fields: minute, hour, day of month, month, day of week. Times are in
//! UTC or in a named zone.
//!
//! Where clocks are set forward, a fixed time that does not exist is due at the first instant that
//! does; where they are set back, a fixed time that occurs twice is due once, the first time. Lines
//! with a `*` in the minute or the hour keep their rhythm: they skip times that do not exist and
//! are due at both occurrences of a repeated time.

use crate::Timestamp;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned, civil};

const FIELDS: [&str; 5] = ["minute", "hour", "day of month", "month", "day of week"];
/// Longest line in bytes; longer than anything a person writes.
const LENGTH_MAX: usize = 256;
/// Time from which [`Cron::parse`] checks that a line fires at all. Any fixed time will do, because
/// the calendar repeats.
const REFERENCE: Timestamp = Timestamp::from_ms(1_767_225_600_000);

/// In so many years each date falls on each day of the week.
const YEARS_OF_ALL_DATES: i32 = 28;
const YEAR_DAYS: i32 = 366;
/// A leap year.
const FIRST_DAY: civil::Date = civil::date(2024, 1, 1);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCron {
    #[error(
        "must have five fields (minute, hour, day of month, month, day of week), such as `*/15 * * * *`, not {found}"
    )]
    FieldCount { found: usize },
    #[error(
        "has a wrong {field} field (the fields are minute, hour, day of month, month, day of week)"
    )]
    Field { field: &'static str },
    #[error("must be a cron line of five fields such as `*/15 * * * *`")]
    Form,
    #[error("never fires: no date has that day and month")]
    Never,
    #[error("must be the name of a time zone such as `Europe/Paris`")]
    Zone,
}

/// A recurring time.
#[derive(Debug, Clone)]
pub struct Cron {
    line: croner::Cron,
    zone: TimeZone,
}

impl Cron {
    pub fn parse(line: &str) -> Result<Self, BadCron> {
        // The parser would accept nicknames such as `@daily` as five fields.
        if line.len() > LENGTH_MAX || line.contains('@') {
            return Err(BadCron::Form);
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.len() != FIELDS.len() {
            return Err(BadCron::FieldCount { found: fields.len() });
        }
        let parser =
            CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        for (index, field) in FIELDS.into_iter().enumerate() {
            let mut alone = ["*"; FIELDS.len()];
            alone[index] = fields[index];
            parser.parse(&alone.join(" ")).map_err(|_| BadCron::Field { field })?;
        }
        let line = parser.parse(&fields.join(" ")).map_err(|_| BadCron::Form)?;
        // Searching for the next time would look at three thousand years.
        if let [_, _, day, month, weekday] = fields[..]
            && !has_a_date(&parser, [day, month, weekday])
        {
            return Err(BadCron::Never);
        }
        let cron = Self { line, zone: TimeZone::UTC };
        cron.next_after(REFERENCE).ok_or(BadCron::Never)?;
        Ok(cron)
    }

    /// Returns the same line on the clocks of the zone with this IANA name.
    pub fn in_zone(self, name: &str) -> Result<Self, BadCron> {
        Ok(Self { zone: TimeZone::get(name).map_err(|_| BadCron::Zone)?, ..self })
    }

    pub fn check_zone(name: &str) -> Result<(), BadCron> {
        TimeZone::get(name).map(drop).map_err(|_| BadCron::Zone)
    }

    /// Returns the first time after `time` at which it is due.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let from = self.local(time)?;
        self.line.find_next_occurrence(&from, false).ok().map(|next| instant(&next))
    }

    /// Returns the last time up to and including `time` at which it was due.
    pub fn latest_until(&self, time: Timestamp) -> Option<Timestamp> {
        let from = self.local(time)?;
        self.line.find_previous_occurrence(&from, true).ok().map(|last| instant(&last))
    }

    /// Converts to the zone's local time, cut to whole seconds because a cron line is no finer.
    fn local(&self, time: Timestamp) -> Option<Zoned> {
        Some(jiff::Timestamp::from_second(time.seconds()).ok()?.to_zoned(self.zone.clone()))
    }
}

/// Returns whether there is any date with these fields: day of month, month and day of week.
fn has_a_date(parser: &CronParser, [day, month, weekday]: [&str; 3]) -> bool {
    let days = match weekday {
        "*" | "?" => YEAR_DAYS,
        // The date has to have both.
        weekday if weekday.contains('+') => YEARS_OF_ALL_DATES * YEAR_DAYS,
        // A day of the week is enough.
        _ => return true,
    };
    let Ok(line) = parser.parse(&format!("0 0 {day} {month} {weekday}")) else { return true };
    let fits = |days: i32| {
        let midnight = FIRST_DAY.saturating_add(days.days()).to_zoned(TimeZone::UTC);
        midnight.is_ok_and(|midnight| line.is_time_matching(&midnight).unwrap_or(false))
    };
    (0..days).any(fits)
}

fn instant(time: &Zoned) -> Timestamp {
    Timestamp::from_ms(time.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn next(line: &str, from: &str) -> String {
        Cron::parse(line).unwrap().next_after(from.parse().unwrap()).unwrap().to_string()
    }

    #[test]
    fn the_next_time_is_later_than_now() {
        assert_eq!(next("*/15 * * * *", "2026-04-16T09:30:00Z"), "2026-04-16T09:45:00.000Z");
        assert_eq!(next("0 0 29 2 *", "2026-04-16T09:30:00Z"), "2028-02-29T00:00:00.000Z");
        assert_eq!(next("0 9 * * MON", "2026-04-16T09:30:00Z"), "2026-04-20T09:00:00.000Z");
    }

    fn in_berlin(line: &str, from: &str, count: usize) -> Vec<String> {
        let cron = Cron::parse(line).unwrap().in_zone("Europe/Berlin").unwrap();
        let times = std::iter::successors(cron.next_after(from.parse().unwrap()), |last| {
            cron.next_after(*last)
        });
        times.take(count).map(|time| time.to_string()[..16].to_owned()).collect()
    }

    #[test]
    fn a_time_that_does_not_exist_is_due_at_once_after_and_one_that_comes_twice_is_due_once() {
        // Clocks went from 02:00 to 03:00 on 29 March (01:00 UTC).
        let spring = in_berlin("30 2 * * *", "2026-03-28T00:00:00Z", 3);
        assert_eq!(spring, ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]);
        // Clocks went from 03:00 back to 02:00 on 25 October (01:00 UTC).
        let autumn = in_berlin("30 2 * * *", "2026-10-24T00:00:00Z", 3);
        assert_eq!(autumn, ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]);
        let hourly = in_berlin("0 * * * *", "2026-10-24T23:30:00Z", 4);
        assert_eq!(
            hourly,
            ["2026-10-25T00:00", "2026-10-25T01:00", "2026-10-25T02:00", "2026-10-25T03:00"]
        );
        assert_eq!(
            Cron::parse("* * * * *").unwrap().in_zone("Europe/Nowhere").unwrap_err(),
            BadCron::Zone
        );
    }

    #[test]
    fn a_wrong_line_says_what_is_wrong() {
        assert_eq!(Cron::parse("* * * *").unwrap_err(), BadCron::FieldCount { found: 4 });
        assert_eq!(Cron::parse("0 * * * * *").unwrap_err(), BadCron::FieldCount { found: 6 });
        assert_eq!(Cron::parse("* 24 * * *").unwrap_err(), BadCron::Field { field: "hour" });
        assert_eq!(Cron::parse("* * * 13 *").unwrap_err(), BadCron::Field { field: "month" });
        assert_eq!(Cron::parse("0 0 30 2 *").unwrap_err(), BadCron::Never);
        assert_eq!(Cron::parse("@daily").unwrap_err(), BadCron::Form);
        assert_eq!(Cron::parse("").unwrap_err(), BadCron::FieldCount { found: 0 });
    }

    fn parser() -> CronParser {
        CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build()
    }

    #[test]
    fn dates_that_no_year_has_are_known_without_a_search() {
        for (date, is_there) in [
            (["30", "2", "*"], false),
            (["31", "2,4,6,9,11", "*"], false),
            (["28", "2", "+MON#5"], false),
            (["31W", "4", "?"], false),
            (["29", "2", "*"], true),
            (["29", "2", "+MON#5"], true),
            (["31", "2", "MON"], true),
            (["L", "2", "*"], true),
        ] {
            assert_eq!(has_a_date(&parser(), date), is_there, "{date:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        /// A search to the end of all years agrees.
        #[test]
        fn every_line_with_a_date_fires(
            day in "(2[89]|3[01]|L)W?|3[01],30",
            month in "[1-9]|2,4|6,9,11",
            weekday in "\\*|\\?|\\+?[0-6](#[1-5])?",
        ) {
            let Ok(line) = parser().parse(&format!("7 5 {day} {month} {weekday}")) else { return Ok(()) };
            let from = jiff::Timestamp::from_second(REFERENCE.seconds()).unwrap();
            let found = line.find_next_occurrence(&from.to_zoned(TimeZone::UTC), false);
            prop_assert_eq!(has_a_date(&parser(), [&day, &month, &weekday]), found.is_ok());
        }
    }

    proptest! {
        #[test]
        fn no_line_is_too_odd(line in "\\PC{0,40}|([0-9*/,LW#?-]{1,6} ){4}[0-9A-Z*/,LW#?-]{1,6}") {
            let _ = Cron::parse(&line);
        }

        /// Looking back finds what looking forward would have found, even where clocks are set.
        #[test]
        fn backwards_and_forwards_agree(
            line in "([0-9]|[1-5][0-9]|\\*|\\*/7) ([0-9]|1[0-9]|2[0-3]|\\*|\\*/5) (\\*|[1-9]|[12][0-8]) \\* (\\*|MON|SUN)",
            zone in proptest::sample::select(&["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"][..]),
            ms in 1_767_225_600_000..1_830_297_600_000_i64,
        ) {
            let cron = Cron::parse(&line).unwrap().in_zone(zone).unwrap();
            let time = Timestamp::from_ms(ms);
            let next = cron.next_after(time).unwrap();
            prop_assert!(next > time);
            prop_assert_eq!(cron.latest_until(next), Some(next));
            let last = cron.latest_until(time).unwrap();
            prop_assert!(last <= time);
            prop_assert_eq!(cron.next_after(last), Some(next));
        }
    }
}
