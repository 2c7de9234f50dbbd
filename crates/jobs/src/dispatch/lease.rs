//! Leases: this machine's own, and those of others as it sees them.

use crate::settings::Settings;
use std::collections::HashMap;
use std::time::Duration;
use store::executions::holders::Holder;
use tokio::time::Instant;
use types::Timestamp;

pub(super) struct Lease {
    lease: Duration,
    safe: Duration,
    heartbeat: Duration,
    /// When the last successful renewal was begun.
    renewed: Option<Instant>,
    /// When this machine last saw the others' rows.
    watched: Option<Instant>,
    /// The renewal time in each of the others' rows, and when it was first seen.
    seen: HashMap<String, (Timestamp, Instant)>,
}

impl Lease {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            lease: settings.lease,
            safe: settings.lease_is_safe_for(),
            heartbeat: settings.heartbeat,
            renewed: None,
            watched: None,
            seen: HashMap::new(),
        }
    }

    pub(super) fn renew_at(&self, now: Instant) -> Instant {
        self.renewed.map_or(now, |renewed| renewed + self.heartbeat)
    }

    /// Returns when this machine must have ended its tasks, unless it renews before.
    pub(super) fn safe_until(&self, now: Instant) -> Instant {
        self.renewed.unwrap_or(now) + self.safe
    }

    pub(super) fn is_safe(&self, now: Instant) -> bool {
        self.renewed.is_some_and(|renewed| now < renewed + self.safe)
    }

    /// Returns whether this machine once had its lease, and may not count on it any more.
    pub(super) fn has_run_out(&self, now: Instant) -> bool {
        self.renewed.is_some() && !self.is_safe(now)
    }

    pub(super) fn renewed(&mut self, begun: Instant) {
        self.renewed = Some(begun);
    }

    /// Notes the leases of others, as they were read between these two times. What is new counts
    /// from the later one, since it may have been renewed just before it was read.
    pub(super) fn watch(&mut self, others: Vec<Holder>, (begun, now): (Instant, Instant)) {
        if !self.sees(begun) {
            self.seen.clear();
        }
        let before = std::mem::take(&mut self.seen);
        let since = |other: &Holder| match before.get(&other.name) {
            Some((renewed_at, since)) if *renewed_at == other.renewed_at => *since,
            _ => now,
        };
        self.seen = others
            .into_iter()
            .map(|other| (other.name.clone(), (other.renewed_at, since(&other))))
            .collect();
        self.watched = Some(begun);
    }

    /// Returns whether this machine has seen the others' rows lately. If it has not, the database
    /// may have been away from everybody, and the others had no way to renew their leases either:
    /// their time begins anew.
    fn sees(&self, now: Instant) -> bool {
        self.watched.is_some_and(|watched| now.duration_since(watched) <= self.lease / 2)
    }

    /// Returns the machines whose lease has run out.
    pub(super) fn run_out(&self, now: Instant) -> Vec<(String, Timestamp)> {
        if !self.sees(now) {
            return Vec::new();
        }
        let out =
            self.seen.iter().filter(|(_, (_, since))| now.duration_since(*since) >= self.lease);
        out.map(|(name, (renewed_at, _))| (name.clone(), *renewed_at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(name: &str, renewed_ms: i64) -> Holder {
        Holder {
            name: name.into(),
            slots: 1,
            memory_mb: 1,
            renewed_at: Timestamp::from_ms(renewed_ms),
        }
    }

    fn watch(lease: &mut Lease, others: Vec<Holder>, at: Instant) {
        lease.watch(others, (at, at));
    }

    #[test]
    fn a_lease_runs_out_when_it_did_not_change_for_its_time() {
        let settings = Settings::default();
        let (mut lease, start) = (Lease::new(&settings), Instant::now());
        let later = |part: u32| start + settings.lease / 4 * part;
        watch(&mut lease, vec![holder("a", 1), holder("b", 1)], start);
        watch(&mut lease, vec![holder("a", 1), holder("b", 2)], later(2));
        assert!(lease.run_out(later(3)).is_empty());
        assert_eq!(lease.run_out(later(4)), [("a".to_owned(), Timestamp::from_ms(1))]);
        watch(&mut lease, vec![holder("b", 2)], later(4));
        assert!(lease.run_out(later(5)).is_empty());
        assert_eq!(lease.run_out(later(6)).len(), 1);
    }

    #[test]
    fn who_saw_nothing_for_long_takes_nothing_from_others() {
        let settings = Settings::default();
        let (mut lease, start) = (Lease::new(&settings), Instant::now());
        watch(&mut lease, vec![holder("a", 1)], start);
        let back = start + settings.lease * 2;
        assert!(lease.run_out(back).is_empty(), "nobody could renew");
        watch(&mut lease, vec![holder("a", 1)], back);
        let later = |part: u32| back + settings.lease / 4 * part;
        watch(&mut lease, vec![holder("a", 1)], later(2));
        assert!(lease.run_out(later(3)).is_empty(), "it has had less than its time");
        assert_eq!(lease.run_out(later(4)).len(), 1);
    }

    #[test]
    fn a_machine_gives_up_before_others_take() {
        let settings = Settings::default();
        let (mut lease, start) = (Lease::new(&settings), Instant::now());
        assert!(!lease.is_safe(start), "it was never renewed");
        lease.renewed(start);
        assert!(lease.is_safe(start + settings.heartbeat));
        assert!(!lease.is_safe(lease.safe_until(start)));
        assert!(lease.safe_until(start) < start + settings.lease);
    }
}
