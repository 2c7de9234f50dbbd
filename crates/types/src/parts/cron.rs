//! Cron lines of exactly five fields: minute, hour, day of month, month, day of week. Times are in
//! UTC or in a named zone.
//!
//! Where clocks are set forward, a fixed time that does not exist is due at the first instant that
//! does; where they are set back, a fixed time that occurs twice is due once, the first time. Lines
//! with a `*` in the minute or the hour keep their rhythm: they skip times that do not exist and
//! are due at both occurrences of a repeated time.

use crate::Timestamp;
use croner::Direction;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{ToSpan, Zoned, civil};
use std::iter::successors;

/// What makes a field mean every value.
const EVERY: [char; 2] = ['*', '?'];
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
    /// Whether it names times of day, as opposed to a rhythm.
    is_fixed: bool,
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
        let is_fixed = !fields[..2].iter().any(|field| field.contains(EVERY));
        let cron = Self { line, zone: TimeZone::UTC, is_fixed };
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
        if !self.is_fixed {
            return self.line.find_next_occurrence(&from, false).ok().map(|next| instant(&next));
        }
        let shown = self.shown(from.datetime(), false, Direction::Forward);
        let shown = successors(shown, |at| self.shown(*at, false, Direction::Forward));
        let mut due = shown.map_while(|at| self.first_instant(at));
        due.find(|due| *due > from.timestamp()).map(timestamp)
    }

    /// Returns the last time up to and including `time` at which it was due.
    pub fn latest_until(&self, time: Timestamp) -> Option<Timestamp> {
        let from = self.local(time)?;
        if !self.is_fixed {
            return self.line.find_previous_occurrence(&from, true).ok().map(|last| instant(&last));
        }
        // While clocks show times again, everything up to the end of those was due before.
        let end = from.datetime().checked_add(self.repeated_s(&from).seconds()).ok()?;
        let shown = self.shown(end, true, Direction::Backward);
        let shown = successors(shown, |at| self.shown(*at, false, Direction::Backward));
        let mut due = shown.map_while(|at| self.first_instant(at));
        due.find(|due| *due <= from.timestamp()).map(timestamp)
    }

    /// Returns the nearest date and time that the line names, as if clocks were never set.
    fn shown(
        &self,
        from: civil::DateTime,
        inclusive: bool,
        direction: Direction,
    ) -> Option<civil::DateTime> {
        let from = from.to_zoned(TimeZone::UTC).ok()?;
        let found = match direction {
            Direction::Forward => self.line.find_next_occurrence(&from, inclusive),
            Direction::Backward => self.line.find_previous_occurrence(&from, inclusive),
        };
        found.ok().map(|found| found.datetime())
    }

    /// Returns when clocks first show this time or, if they never do, a later one. A later time
    /// never gives an earlier instant.
    fn first_instant(&self, at: civil::DateTime) -> Option<jiff::Timestamp> {
        let found = self.zone.to_ambiguous_timestamp(at);
        if let AmbiguousOffset::Gap { before, .. } = found.offset() {
            // Clocks that were not set forward would show it then: after the others were.
            let after = before.to_timestamp(at).ok()?.checked_add(1.second()).ok()?;
            return self.zone.preceding(after).next().map(|change| change.timestamp());
        }
        found.earlier().ok()
    }

    /// Returns how many seconds clocks show twice around this time.
    fn repeated_s(&self, time: &Zoned) -> i32 {
        match self.zone.to_ambiguous_timestamp(time.datetime()).offset() {
            AmbiguousOffset::Fold { before, after } => before.seconds() - after.seconds(),
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Gap { .. } => 0,
        }
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
    timestamp(time.timestamp())
}

fn timestamp(time: jiff::Timestamp) -> Timestamp {
    Timestamp::from_ms(time.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

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
    fn each_of_several_fixed_times_is_due_once_when_clocks_are_set() {
        for (line, spring, autumn) in [
            (
                "0 2,14 * * *",
                ["29T01:00", "29T12:00", "30T00:00"],
                ["25T00:00", "25T13:00", "26T01:00"],
            ),
            (
                "0,30 2 * * *",
                ["29T01:00", "30T00:00", "30T00:30"],
                ["25T00:00", "25T00:30", "26T01:00"],
            ),
            (
                "0 2-4 * * *",
                ["29T01:00", "29T02:00", "30T00:00"],
                ["25T00:00", "25T02:00", "25T03:00"],
            ),
            (
                "15 2-3/1 * * *",
                ["29T01:00", "29T01:15", "30T00:15"],
                ["25T00:15", "25T02:15", "26T01:15"],
            ),
        ] {
            let spring = spring.map(|time| format!("2026-03-{time}"));
            assert_eq!(in_berlin(line, "2026-03-28T20:00:00Z", 3), spring, "{line}");
            let autumn = autumn.map(|time| format!("2026-10-{time}"));
            assert_eq!(in_berlin(line, "2026-10-24T20:00:00Z", 3), autumn, "{line}");
        }
    }

    #[test]
    fn a_time_of_a_day_that_a_zone_left_out_is_due_when_the_next_day_begins() {
        let cron = Cron::parse("0 5,17 * * *").unwrap().in_zone("Pacific/Apia").unwrap();
        // Samoa went from 29 to 31 December 2011.
        let begin = "2011-12-30T10:00:00Z".parse().unwrap();
        assert_eq!(cron.next_after("2011-12-30T04:00:00Z".parse().unwrap()), Some(begin));
        assert_eq!(cron.latest_until("2011-12-30T14:59:00Z".parse().unwrap()), Some(begin));
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
            line in "([0-9]|[1-5][0-9]|0,30|5-9|0-50/7|\\*|\\*/7) ([0-9]|1[0-9]|2[0-3]|0,[1-4]|2,14|0-4|0-23/2|\\*|\\*/5) (\\*|[1-9]|[12][0-8]) \\* (\\*|MON|SUN)",
            zone in zones(),
            time in times(),
        ) {
            let cron = Cron::parse(&line).unwrap().in_zone(zone).unwrap();
            let next = cron.next_after(time).unwrap();
            prop_assert!(next > time);
            prop_assert_eq!(cron.latest_until(next), Some(next));
            let last = cron.latest_until(time).unwrap();
            prop_assert!(last <= time);
            prop_assert_eq!(cron.next_after(last), Some(next));
        }

        /// A list is due when one of its times is.
        #[test]
        fn a_line_of_several_times_is_as_many_lines(
            minutes in proptest::collection::btree_set(0..60_u32, 1..4),
            hours in proptest::collection::btree_set(0..5_u32, 1..4),
            zone in zones(),
            time in times(),
        ) {
            let cron = |minutes: &str, hours: &str| {
                Cron::parse(&format!("{minutes} {hours} * * *")).unwrap().in_zone(zone).unwrap()
            };
            let list = |values: &BTreeSet<u32>| {
                values.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
            };
            let all = cron(&list(&minutes), &list(&hours));
            let each = minutes.iter().flat_map(|minute| {
                hours.iter().map(|hour| cron(&minute.to_string(), &hour.to_string()))
            });
            let each: Vec<Cron> = each.collect();
            prop_assert_eq!(all.next_after(time), each.iter().map(|one| one.next_after(time).unwrap()).min());
            prop_assert_eq!(all.latest_until(time), each.iter().map(|one| one.latest_until(time).unwrap()).max());
        }
    }

    /// Zones whose clocks are set at different hours, two of them at midnight.
    fn zones() -> impl Strategy<Value = &'static str> {
        proptest::sample::select(
            &[
                "UTC",
                "Europe/Berlin",
                "America/New_York",
                "Australia/Lord_Howe",
                "Asia/Kolkata",
                "Africa/Cairo",
                "America/Santiago",
            ][..],
        )
    }

    /// Times of two years, half of them within a day of one at which some clock is set.
    fn times() -> impl Strategy<Value = Timestamp> {
        let changes = [
            "2026-03-29T01:00:00Z",
            "2026-10-25T01:00:00Z",
            "2026-04-23T22:00:00Z",
            "2026-10-29T21:00:00Z",
            "2026-04-05T03:00:00Z",
            "2026-09-06T04:00:00Z",
        ];
        let changes = changes.map(|time| time.parse::<Timestamp>().unwrap());
        let near = (proptest::sample::select(changes.to_vec()), -86_400_000..86_400_000_i64);
        prop_oneof![
            (1_767_225_600_000..1_830_297_600_000_i64).prop_map(Timestamp::from_ms),
            near.prop_map(|(change, ms)| change.plus_ms(ms)),
        ]
    }
}
