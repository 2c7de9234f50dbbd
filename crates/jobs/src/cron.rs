//! Decides what is due for the cron triggers of an object: a pure function of triggers, marks and
//! time.
//!
//! A mark says up to which time a trigger has been handled. If several times were missed, only the
//! newest is made up for. If the clock was set back, marks lie ahead and nothing fires twice. If
//! marks lie so far ahead that the clock must have been wrong when they were made, they begin anew.

use store::cron::Mark;
use types::parts::{Cron, Trigger};
use types::{Timestamp, World};

/// A mark further ahead than this was made by a wrong clock.
const AHEAD_MAX_S: i64 = 86_400;

/// A cron trigger that is on.
#[derive(Debug, Clone)]
pub struct Timed {
    pub trigger: String,
    /// Schedule and time zone. A trigger with another line counts as changed.
    pub line: String,
    pub cron: Cron,
}

/// A time at which a trigger is due now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    pub trigger: String,
    pub at: Timestamp,
}

/// What to write and start together, and when to look again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Steps {
    pub moved: Vec<Mark>,
    /// Triggers whose marks are no longer of use.
    pub removed: Vec<String>,
    pub due: Vec<Due>,
    pub next: Option<Timestamp>,
}

impl Timed {
    pub fn of(trigger: &Trigger) -> Option<Self> {
        let (cron, set) = (trigger.cron()?, trigger.configuration.as_ref()?);
        let line = format!("{} {}", set.schedule.as_deref()?.trim(), set.zone().unwrap_or("UTC"));
        Some(Self { trigger: trigger.id.clone()?, line, cron })
    }
}

/// Returns what to do for triggers. `changed_at` is when the object was last written: from then on
/// a trigger counts if it has no mark, or another line than its mark.
pub fn steps(timed: &[Timed], marks: &[Mark], changed_at: Timestamp, now: Timestamp) -> Steps {
    let mut steps = Steps::default();
    for one in timed {
        let old = marks.iter().find(|mark| mark.trigger == one.trigger && mark.line == one.line);
        let known = old.map_or(changed_at, |mark| mark.handled_at);
        let start = if known.since(now) > AHEAD_MAX_S * 1000 { now } else { known };
        let due = one.cron.latest_until(now).filter(|due| *due > start);
        let handled_at = due.unwrap_or(start);
        if old.is_none_or(|mark| mark.handled_at != handled_at) {
            steps.moved.push(Mark {
                trigger: one.trigger.clone(),
                line: one.line.clone(),
                handled_at,
            });
        }
        steps.due.extend(due.map(|at| Due { trigger: one.trigger.clone(), at }));
        steps.next = steps.next.into_iter().chain(one.cron.next_after(handled_at)).min();
    }
    let of_none = |mark: &&Mark| timed.iter().all(|one| one.trigger != mark.trigger);
    steps.removed = marks.iter().filter(of_none).map(|mark| mark.trigger.clone()).collect();
    steps
}

impl Due {
    /// Returns a name for the execution that it starts: the due time, and random text that makes it
    /// unique.
    pub fn execution_name(&self, world: &World) -> String {
        let digits: String =
            self.at.to_string().chars().filter(char::is_ascii_digit).take(12).collect();
        format!("cron-{digits}-{}", world.random_text(8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MINUTE: i64 = 60_000;
    const START: i64 = 1_776_300_000_000;

    fn timed(line: &str) -> Timed {
        Timed { trigger: "t".into(), line: line.into(), cron: Cron::parse(line).unwrap() }
    }

    /// A clock, the marks, and what has been fired.
    struct Desk {
        timed: Vec<Timed>,
        marks: Vec<Mark>,
        changed_at: Timestamp,
        fired: Vec<Timestamp>,
    }

    impl Desk {
        fn new(line: &str) -> Self {
            let changed_at = Timestamp::from_ms(START);
            Self { timed: vec![timed(line)], marks: Vec::new(), changed_at, fired: Vec::new() }
        }

        fn look(&mut self, now_ms: i64) -> Steps {
            let steps =
                steps(&self.timed, &self.marks, self.changed_at, Timestamp::from_ms(now_ms));
            self.marks.retain(|mark| !steps.removed.contains(&mark.trigger));
            for moved in &steps.moved {
                self.marks.retain(|mark| mark.trigger != moved.trigger);
                self.marks.push(moved.clone());
            }
            self.fired.extend(steps.due.iter().map(|due| due.at));
            steps
        }
    }

    #[test]
    fn each_due_time_of_a_week_fires_once() {
        let mut desk = Desk::new("*/20 * * * *");
        let mut now = START + 1;
        let end = START + 7 * 24 * 60 * MINUTE;
        while now < end {
            let next = desk.look(now).next.unwrap();
            // Two servers look at every time.
            assert_eq!(desk.look(now).due, []);
            assert!(next.ms() > now);
            now = next.ms();
        }
        assert_eq!(desk.fired.len(), 7 * 24 * 3 - 1);
        assert_eq!(desk.fired.iter().collect::<BTreeSet<_>>().len(), desk.fired.len());
    }

    #[test]
    fn of_what_was_missed_only_the_newest_is_made_up_for() {
        let mut desk = Desk::new("0 * * * *");
        desk.look(START);
        desk.look(START + 50 * 60 * MINUTE + 1);
        assert_eq!(desk.fired.len(), 1);
        assert!(START + 50 * 60 * MINUTE - desk.fired[0].ms() < 60 * MINUTE);
        assert_eq!(desk.look(START + 50 * 60 * MINUTE + 2).due, []);
    }

    #[test]
    fn another_line_begins_anew_and_what_is_off_is_forgotten() {
        let mut desk = Desk::new("0 * * * *");
        desk.look(START);
        let on = std::mem::take(&mut desk.timed);
        assert_eq!(desk.look(START + 90 * MINUTE).removed, ["t"]);
        desk.timed = on;
        desk.changed_at = Timestamp::from_ms(START + 200 * MINUTE);
        // What was due while it was off is not made up for.
        assert_eq!(desk.look(START + 200 * MINUTE).due, []);
        desk.timed = vec![timed("30 * * * *")];
        desk.changed_at = Timestamp::from_ms(START + 300 * MINUTE);
        assert_eq!(desk.look(START + 300 * MINUTE).due, []);
        assert_eq!(desk.look(START + 360 * MINUTE).due.len(), 1);
    }

    #[test]
    fn a_clock_that_was_wrong_for_years_stops_nothing_for_years() {
        let mut desk = Desk::new("0 * * * *");
        desk.look(START);
        desk.look(START + 1000 * 24 * 60 * MINUTE);
        assert_eq!(desk.fired.len(), 1);
        assert_eq!(desk.look(START + 5 * MINUTE).due, []);
        assert_eq!(desk.look(START + 65 * MINUTE).due.len(), 1);
    }

    proptest! {
        /// However the clock jumps within a day, no time fires twice, and none before it has come.
        #[test]
        fn no_time_fires_twice(
            line in "(\\*|\\*/[1-9]|[0-9]|[1-5][0-9]) (\\*|[0-9]|1[0-9]|2[0-3]) \\* \\* \\*",
            looks in proptest::collection::vec(0..1440_i64, 1..60),
        ) {
            let mut desk = Desk::new(&line);
            let mut latest = i64::MIN;
            for minute in looks {
                let now = START + minute * MINUTE;
                latest = latest.max(now);
                let steps = desk.look(now);
                prop_assert!(steps.due.iter().all(|due| due.at.ms() <= now));
                prop_assert!(steps.next.is_some_and(|next| next.ms() > now));
            }
            let distinct: BTreeSet<_> = desk.fired.iter().collect();
            prop_assert_eq!(distinct.len(), desk.fired.len());
            prop_assert!(desk.fired.iter().all(|time| time.ms() > START && time.ms() <= latest));
        }
    }
}
