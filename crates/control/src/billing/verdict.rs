//! What checking a budget decides. Pure: no clock, no database.

use meter::Money;
use store::budgets::Crossing;
use types::Timestamp;

/// The state of a budget.
#[derive(Debug, Clone)]
pub(super) struct Standing<'s> {
    pub(super) amount: Money,
    /// The amount as written, which crossings repeat.
    pub(super) amount_text: &'s str,
    pub(super) thresholds: &'s [i64],
    pub(super) hard_limit: bool,
    pub(super) spent: Money,
    /// The end of the month.
    pub(super) period_end: Timestamp,
    /// The crossings that were reported this month.
    pub(super) told: &'s [Crossing],
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Thresholds to report.
    pub(super) reached: Vec<i64>,
    /// Crossings that were reported for another amount and are not reached with this one. They will
    /// be reported again.
    pub(super) void: Vec<i64>,
    pub(super) exhausted_until: Option<Timestamp>,
}

pub(super) fn decide(standing: &Standing<'_>) -> Verdict {
    let Standing { amount, spent, told, .. } = *standing;
    let reached =
        |threshold: i64| spent >= amount.percent(u32::try_from(threshold).unwrap_or(u32::MAX));
    let is_told = |threshold: &i64| told.iter().any(|crossing| crossing.threshold == *threshold);
    let void = |crossing: &&Crossing| {
        crossing.amount != standing.amount_text && !reached(crossing.threshold)
    };
    Verdict {
        reached: standing
            .thresholds
            .iter()
            .copied()
            .filter(|one| reached(*one) && !is_told(one))
            .collect(),
        void: told.iter().filter(void).map(|crossing| crossing.threshold).collect(),
        exhausted_until: (standing.hard_limit && spent >= amount).then_some(standing.period_end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn money(text: &str) -> Money {
        text.parse().unwrap()
    }

    fn crossing(threshold: i64, amount: &str) -> Crossing {
        let (period, crossed_at) = (Timestamp::default(), Timestamp::default());
        Crossing { period, threshold, amount: amount.into(), spent: String::new(), crossed_at }
    }

    #[track_caller]
    fn check(amount: &str, spent: &str, told: &[Crossing], expect: (&[i64], &[i64], bool)) {
        let standing = Standing {
            amount: money(amount),
            amount_text: amount,
            thresholds: &[50, 100],
            hard_limit: true,
            spent: money(spent),
            period_end: Timestamp::from_ms(7),
            told,
        };
        let verdict = decide(&standing);
        let found = (
            verdict.reached.as_slice(),
            verdict.void.as_slice(),
            verdict.exhausted_until.is_some(),
        );
        assert_eq!(found, expect);
    }

    #[test]
    fn thresholds_are_told_of_when_they_are_reached_and_once() {
        check("100", "49.999999999999", &[], (&[], &[], false));
        check("100", "50", &[], (&[50], &[], false));
        check("100", "99.999999999999", &[crossing(50, "100")], (&[], &[], false));
        check("100", "100", &[crossing(50, "100")], (&[100], &[], true));
        check("100", "500", &[crossing(50, "100"), crossing(100, "100")], (&[], &[], true));
    }

    #[test]
    fn another_amount_has_other_shares() {
        check("400", "150", &[crossing(50, "100"), crossing(100, "100")], (&[], &[50, 100], false));
        check("200", "150", &[crossing(50, "100"), crossing(100, "100")], (&[], &[100], false));
        // A correction of past usage is no reason to report the same amount twice.
        check("100", "20", &[crossing(50, "100")], (&[], &[], false));
    }

    proptest! {
        #[test]
        fn money_that_is_there_is_never_refused(amount in 1_u32..1_000_000_000, spent in 0_u32..1_000_000_000, hard in any::<bool>()) {
            let (amount_text, spent_text) = (amount.to_string(), spent.to_string());
            let verdict = decide(&Standing {
                amount: money(&amount_text),
                amount_text: &amount_text,
                thresholds: &[100],
                hard_limit: hard,
                spent: money(&spent_text),
                period_end: Timestamp::from_ms(7),
                told: &[],
            });
            prop_assert_eq!(verdict.exhausted_until.is_some(), hard && spent >= amount);
            prop_assert_eq!(verdict.reached.len(), usize::from(spent >= amount));
        }
    }
}
