//! When each followed row is due.

use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::sync::Notify;
use types::ids::ResourceId;
use types::{KindName, Timestamp};

/// The longest sleep, because the machine's clock may be set meanwhile.
pub(super) const NAP_MAX: Duration = Duration::from_secs(5);

/// The rows with a due time, in order.
#[derive(Default)]
pub(super) struct Alarm {
    times: Mutex<Times>,
    pub(super) changed: Notify,
}

#[derive(Default)]
struct Times {
    order: BTreeMap<(Timestamp, ResourceId), KindName>,
    rows: HashMap<ResourceId, Timestamp>,
}

impl Alarm {
    /// Replaces the due time of a row; `None` removes it.
    pub(super) fn set(&self, id: ResourceId, kind: KindName, due: Option<Timestamp>) {
        let mut times = self.times.lock();
        if let Some(old) = times.rows.remove(&id) {
            times.order.remove(&(old, id.clone()));
        }
        if let Some(due) = due {
            times.order.insert((due, id.clone()), kind);
            times.rows.insert(id, due);
            self.changed.notify_one();
        }
    }

    /// Takes the first row that is due, or returns how long to sleep.
    pub(super) fn take(&self, now: Timestamp) -> Result<(ResourceId, KindName), Duration> {
        let mut times = self.times.lock();
        let Some(first) = times.order.first_entry() else { return Err(NAP_MAX) };
        let until = first.key().0.since(now);
        // A time in the past gives a negative difference, which is no `u64`, so the row is due.
        if let Ok(nap @ 1..) = u64::try_from(until) {
            return Err(Duration::from_millis(nap).min(NAP_MAX));
        }
        let ((_, id), kind) = first.remove_entry();
        times.rows.remove(&id);
        Ok((id, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_due_comes_first_and_a_row_has_one_time() {
        let alarm = Alarm::default();
        let id = |name: &str| ResourceId::known(format!("res_{name}"));
        alarm.set(id("late"), KindName::Sandbox, Some(Timestamp::from_ms(9_000)));
        alarm.set(id("early"), KindName::Preview, Some(Timestamp::from_ms(1_000)));
        alarm.set(id("moved"), KindName::Sandbox, Some(Timestamp::from_ms(500)));
        alarm.set(id("moved"), KindName::Sandbox, Some(Timestamp::from_ms(2_000)));
        alarm.set(id("gone"), KindName::Sandbox, Some(Timestamp::from_ms(1)));
        alarm.set(id("gone"), KindName::Sandbox, None);
        let now = Timestamp::from_ms(2_000);
        assert_eq!(alarm.take(now), Ok((id("early"), KindName::Preview)));
        assert_eq!(alarm.take(now), Ok((id("moved"), KindName::Sandbox)));
        assert_eq!(alarm.take(now), Err(NAP_MAX));
        assert_eq!(alarm.take(Timestamp::from_ms(8_900)), Err(Duration::from_millis(100)));
    }
}
