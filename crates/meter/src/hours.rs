//! Uses as amounts per hour.

use crate::fold::Use;
use std::collections::BTreeMap;
use store::usage::Added;
use types::time::HOUR_MS;

/// Amounts by class, hour and series.
#[derive(Debug, Default)]
pub(crate) struct Hours(BTreeMap<(i64, i64, i64), i64>);

impl Hours {
    pub(crate) fn add(&mut self, (class, series): (i64, i64), uses: &[Use]) {
        for one in uses {
            each_hour(*one, |hour, amount| {
                let sum = self.0.entry((class, hour, series)).or_default();
                *sum = sum.saturating_add(amount);
            });
        }
    }

    /// Returns what is to be added, without amounts that cancelled out.
    pub(crate) fn added(&self) -> Vec<Added> {
        let changed = self.0.iter().filter(|(_, amount)| **amount != 0);
        changed
            .map(|((class, hour, series), amount)| Added {
                class: *class,
                hour: *hour,
                series: *series,
                amount: *amount,
            })
            .collect()
    }
}

/// Splits a use at the boundaries of hours.
pub(crate) fn each_hour(one: Use, mut visit: impl FnMut(i64, i64)) {
    match one {
        Use::Point { at, count } => visit(at.div_euclid(HOUR_MS), count),
        Use::Span { from, to, level } if to < from => {
            each_hour_up(to, from, |hour, ms| visit(hour, -ms * level))
        }
        Use::Span { from, to, level } => each_hour_up(from, to, |hour, ms| visit(hour, ms * level)),
    }
}

fn each_hour_up(from: i64, to: i64, mut visit: impl FnMut(i64, i64)) {
    let mut at = from;
    while at < to {
        let hour = at.div_euclid(HOUR_MS);
        let end = to.min((hour + 1).saturating_mul(HOUR_MS));
        visit(hour, end - at);
        at = end;
    }
}

/// Returns the part of a use that lies from `from` up to `to`.
pub(crate) fn clip(one: Use, from: i64, to: i64) -> i64 {
    match one {
        Use::Point { at, count } => {
            if (from..to).contains(&at) {
                count
            } else {
                0
            }
        }
        Use::Span { from: begin, to: end, level } => {
            let within = |moment: i64| moment.clamp(from, to.max(from));
            (within(end) - within(begin)) * level
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_split_at_the_hours_and_taken_back_whole() {
        let span = Use::Span { from: HOUR_MS - 10, to: 2 * HOUR_MS + 5, level: 3 };
        let mut seen = Vec::new();
        each_hour(span, |hour, amount| seen.push((hour, amount)));
        assert_eq!(seen, [(0, 30), (1, 3 * HOUR_MS), (2, 15)]);
        let mut hours = Hours::default();
        hours.add((1, 1), &[span, Use::Span { from: 2 * HOUR_MS + 5, to: HOUR_MS - 10, level: 3 }]);
        assert_eq!(hours.added(), []);
        assert_eq!(clip(span, HOUR_MS, HOUR_MS + 7), 21);
        assert_eq!(clip(span, 5 * HOUR_MS, 6 * HOUR_MS), 0);
        assert_eq!(clip(Use::Point { at: 7, count: 2 }, 7, 8), 2);
    }
}
