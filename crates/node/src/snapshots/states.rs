//! What the node remembers of the snapshots that it has.

use super::about::Sort;
use super::place::Place;
use crate::names::{Owner, SnapshotName};
use crate::volumes::Volumes;
use admission::Permit;
use std::collections::{HashMap, HashSet};
use types::instance::VolumeName;

/// The longest chain. Each layer without a file makes looking it up slower, and the kernel accepts
/// 500 for image and chain together. The snapshot of a disk, which makes no chain longer, may lie
/// over as many.
pub(crate) const CHAIN_MAX: usize = 100;
pub(super) const MIB: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct All {
    pub(super) kept: HashMap<SnapshotName, SnapshotState>,
    /// Damaged ones, which only their removal concerns.
    pub(super) aside: HashMap<SnapshotName, Owner>,
    pub(super) making: HashSet<SnapshotName>,
}

#[derive(Debug)]
pub(super) struct SnapshotState {
    pub(super) owner: Owner,
    pub(super) sort: Sort,
    pub(super) parent: Option<SnapshotName>,
    pub(super) base: Option<String>,
    pub(super) size_bytes: u64,
    pub(super) is_removed: bool,
    /// The number of instances that stand on it and of snapshots being made over it.
    pub(super) users: usize,
    /// Disks that stay and were started from it.
    pub(super) disks: HashSet<VolumeName>,
    pub(super) place: Place,
    /// Whether it was used since the last look for idle ones.
    pub(super) was_used: bool,
    pub(super) used_at_s: Option<i64>,
    /// Whether the last try to move it out failed.
    pub(super) failed_to_leave: bool,
    /// Given back once its files are gone.
    pub(super) _room: Permit<Owner>,
}

impl All {
    /// Returns a removed snapshot that nothing stands on any more.
    pub(super) fn unneeded(&self, volumes: &Volumes) -> Option<SnapshotName> {
        let is_parent =
            |name: &SnapshotName| self.kept.values().any(|kept| kept.parent.as_ref() == Some(name));
        let unneeded = |(name, kept): &(&SnapshotName, &SnapshotState)| {
            let has_disk = || kept.disks.iter().any(|disk| volumes.size_mb(disk).is_some());
            let is_settled = kept.place.is_settled();
            // What a damaged one lies over cannot be known.
            let has_aside = || self.aside.values().any(|owner| *owner == kept.owner);
            let needed = || is_parent(name) || has_disk() || has_aside();
            kept.is_removed && kept.users == 0 && is_settled && !needed()
        };
        self.kept.iter().find(unneeded).map(|(name, _)| name.clone())
    }

    /// Returns true if the whole chain of a snapshot is on this machine.
    pub(super) fn is_here(&self, name: &SnapshotName) -> bool {
        let mut next = Some(name);
        while let Some(kept) = next.and_then(|name| self.kept.get(name)) {
            if !kept.place.is_here() {
                return false;
            }
            next = kept.parent.as_ref();
        }
        true
    }

    /// Returns true if nothing here stands on its files.
    pub(super) fn may_leave(&self, name: &SnapshotName, volumes: &Volumes) -> bool {
        let Some(kept) = self.kept.get(name) else { return false };
        let has_disk = || kept.disks.iter().any(|disk| volumes.size_mb(disk).is_some());
        kept.users == 0 && !has_disk() && !self.is_under_another(name)
    }

    /// Returns true if something here lies over a snapshot.
    fn is_under_another(&self, name: &SnapshotName) -> bool {
        let needs = |kept: &&SnapshotState| kept.users > 0 || !kept.place.is_away();
        let mut seen = HashSet::new();
        for kept in self.kept.values().filter(needs) {
            let mut next = kept.parent.as_ref();
            // Chains meet: what is below here was looked at already.
            while let Some(parent) = next.filter(|parent| seen.insert(*parent)) {
                if parent == name {
                    return true;
                }
                next = self.kept.get(parent).and_then(|kept| kept.parent.as_ref());
            }
        }
        false
    }
}

/// Counts at least one, so that nothing is free.
pub(super) fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(MIB).max(1)
}
