//! Cron lines of exactly five fields: minute, hour, day of month, month, day of week. Times are UTC.

use crate::Timestamp;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;

const FIELDS: [&str; 5] = ["minute", "hour", "day of month", "month", "day of week"];
/// Longer than any line that a person writes.
const LENGTH_MAX: usize = 256;
/// From where "can it fire at all" is asked: any fixed time will do, for the calendar repeats.
const REFERENCE: Timestamp = Timestamp::from_ms(1_767_225_600_000);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCron {
    #[error(
        "must have five fields (minute, hour, day of month, month, day of week), such as `*/15 * * * *`, not {found}"
    )]
    FieldCount { found: usize },
    #[error("has a wrong {field} field (the fields are minute, hour, day of month, month, day of week)")]
    Field { field: &'static str },
    #[error("must be a cron line of five fields such as `*/15 * * * *`")]
    Form,
    #[error("never fires: no date has that day and month")]
    Never,
}

/// When something is due, again and again.
#[derive(Debug, Clone)]
pub struct Cron(croner::Cron);

impl Cron {
    pub fn parse(line: &str) -> Result<Self, BadCron> {
        // The parser would take nicknames such as `@daily` for five fields.
        if line.len() > LENGTH_MAX || line.contains('@') {
            return Err(BadCron::Form);
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields.len() != FIELDS.len() {
            return Err(BadCron::FieldCount { found: fields.len() });
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        for (index, field) in FIELDS.into_iter().enumerate() {
            let mut alone = ["*"; FIELDS.len()];
            alone[index] = fields[index];
            parser.parse(&alone.join(" ")).map_err(|_| BadCron::Field { field })?;
        }
        let cron = Self(parser.parse(&fields.join(" ")).map_err(|_| BadCron::Form)?);
        cron.next_after(REFERENCE).ok_or(BadCron::Never)?;
        Ok(cron)
    }

    /// The first time later than `time` at which it is due.
    pub fn next_after(&self, time: Timestamp) -> Option<Timestamp> {
        let from = jiff::Timestamp::from_millisecond(time.ms()).ok()?.to_zoned(TimeZone::UTC).datetime();
        let next = self.0.find_next_occurrence(&from, false).ok()?;
        let next = next.to_zoned(TimeZone::UTC).ok()?;
        Some(Timestamp::from_ms(next.timestamp().as_millisecond()))
    }
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

    proptest! {
        #[test]
        fn no_line_is_too_odd(line in "\\PC{0,40}|([0-9*/,LW#?-]{1,6} ){4}[0-9A-Z*/,LW#?-]{1,6}") {
            let _ = Cron::parse(&line);
        }
    }
}
