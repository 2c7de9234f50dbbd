//! Slots for request bodies that are held in memory because something is injected into them.
//!
//! A body waits for a slot of its instance, then of its owner, then of the machine. Whoever has
//! too many bodies thus waits for its own, and takes nothing of its neighbours meanwhile.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use types::instance::InstanceName;

pub(super) struct BodySlots {
    of_instances: Each<InstanceName>,
    of_owners: Each<String>,
    of_all: Arc<Semaphore>,
}

/// The slot of one body, up to a mebibyte.
pub(super) struct BodySlot {
    _permits: [OwnedSemaphorePermit; 3],
}

impl BodySlots {
    /// `shared` limits each owner and all of them together.
    pub(super) fn new(of_instance: usize, shared: admission::Limits) -> Self {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            of_instances: Each::new(of_instance),
            of_owners: Each::new(count(shared.share)),
            of_all: semaphore(count(shared.total)),
        }
    }

    /// Waits for a slot.
    pub(super) async fn take(
        &self,
        instance: &InstanceName,
        owner: &String,
    ) -> Result<BodySlot, AcquireError> {
        let own = self.of_instances.of(instance).acquire_owned().await?;
        let shared = self.of_owners.of(owner).acquire_owned().await?;
        let all = Arc::clone(&self.of_all).acquire_owned().await?;
        Ok(BodySlot { _permits: [own, shared, all] })
    }
}

/// A semaphore for each key that is in use.
struct Each<K> {
    used: Mutex<HashMap<K, Weak<Semaphore>>>,
    max: usize,
}

impl<K: Eq + Hash + Clone> Each<K> {
    fn new(max: usize) -> Self {
        Self { used: Mutex::default(), max }
    }

    fn of(&self, key: &K) -> Arc<Semaphore> {
        let mut used = self.used.lock();
        if let Some(slots) = used.get(key).and_then(Weak::upgrade) {
            return slots;
        }
        used.retain(|_, slots| slots.strong_count() > 0);
        let slots = semaphore(self.max);
        used.insert(key.clone(), Arc::downgrade(&slots));
        slots
    }
}

fn semaphore(slots: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(slots.clamp(1, Semaphore::MAX_PERMITS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use admission::Limits;
    use futures_util::FutureExt as _;

    fn instance(number: u32) -> InstanceName {
        InstanceName::new(format!("i{number}")).unwrap()
    }

    #[test]
    fn an_owner_with_many_instances_has_one_share_of_the_memory() {
        let slots = BodySlots::new(2, Limits { total: 4, share: 3 });
        let take = |number: u32, owner: &str| {
            let (instance, owner) = (instance(number), owner.to_owned());
            let slot = slots.take(&instance, &owner).now_or_never()?;
            Some(slot.unwrap())
        };
        let mut held: Vec<BodySlot> = (0..2).map(|_| take(0, "a").unwrap()).collect();
        assert!(take(0, "a").is_none(), "the share of an instance");
        held.push(take(1, "a").unwrap());
        assert!(take(2, "a").is_none(), "the share of an owner");
        held.push(take(3, "b").unwrap());
        assert!(take(4, "c").is_none(), "what there is in all");
        held.clear();
        assert!(take(4, "c").is_some());
        assert!(take(2, "a").is_some());
    }
}
