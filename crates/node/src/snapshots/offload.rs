//! Moves the files of snapshots to a remote store, and fetches them when they are needed.
//!
//! A snapshot can leave if nothing on this machine stands on it. Each one of a chain is a stream of
//! its own, and leaves after those that lie over it. What stays here are the notes about it.
//!
//! After a kill, these states are possible, in the order of the steps. On the way out: the stream
//! is in the store but there is no note (the snapshot is here; the sweep removes the stream, or the
//! next try finds it); there are the note and the files (the files are removed at the next start);
//! there is only the note. On the way back: files half fetched (removed); all files in place and
//! the note still there (removed too, because the store still has them); no note, but the stream is
//! still there (the sweep removes it). So the snapshot is always complete in at least one place,
//! and the note says where.

use super::about::Sort;
use super::pack::{pack, unpack};
use super::place::{self, NOTES, Place};
use super::states::{All, CHAIN_MAX, SnapshotState, megabytes};
use super::{Hold, Snapshots};
use crate::error::SnapshotError;
use crate::names::{Owner, SnapshotName};
use crate::remote_store::{RemoteCopy, RemoteStore, compress, decompress};
use parking_lot::MutexGuard;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How many snapshots in a row may fail to leave before the store itself seems to be out of order.
const FAILURES_MAX: u32 = 5;

/// Keeps a snapshot, and those that it lies over, on this machine until dropped.
#[derive(Debug)]
pub struct Here {
    _hold: Hold,
}

/// Marks a snapshot as being moved. When dropped, its place becomes `ends`.
struct Move<'s> {
    snapshots: &'s Snapshots,
    name: SnapshotName,
    ends: Place,
}

/// What is known of a snapshot that may be idle.
struct Idle {
    path: PathBuf,
    parent: Option<SnapshotName>,
    used_at_s: Option<i64>,
    is_removed: bool,
    failed_to_leave: bool,
}

/// What a sweep may do with a snapshot's streams in the store.
enum Claim<'s> {
    /// Only the store has it, or soon will.
    Needed,
    Gone,
    /// The files are here, and cannot be moved to the store while this is kept.
    Here(Move<'s>),
}

impl Snapshots {
    /// Sets the store for files that nothing here needs. Only the first call counts.
    pub fn use_remote(&self, store: Arc<dyn RemoteStore>) {
        // The program has one store, and says so when it starts.
        let _ = self.remote.set(store);
    }

    /// Returns true if the files of a snapshot, and of those that it lies over, are on this
    /// machine.
    pub fn is_here(&self, name: &SnapshotName) -> bool {
        self.all.lock().is_here(name)
    }

    /// Moves the files of a snapshot to the store, if there is one and nothing here stands on it.
    pub fn offload(self: &Arc<Self>, name: &SnapshotName) -> Result<(), SnapshotError> {
        let left = self.leave(name);
        // It may have been removed meanwhile.
        self.collect();
        left
    }

    fn leave(&self, name: &SnapshotName) -> Result<(), SnapshotError> {
        let Some(remote) = self.remote.get() else { return Ok(()) };
        let Some((owner, sort, mut leaving)) = self.begin_leaving(name)? else { return Ok(()) };
        let files = self.files(&owner, name, sort);
        let put = remote.put(&owner, name.as_str(), &mut |into| pack_into(&files, into));
        let copy = put.map_err(SnapshotError::Remote)?;
        if !leaving.commit(&self.path(&owner, name), &copy)? {
            // Something started from it meanwhile. If this fails, the sweep removes the copy.
            forgive(
                remote.remove(&owner, name.as_str()),
                "a copy that is not needed stays for now",
            );
            return Ok(());
        }
        // What cannot be removed now is removed at the next start, or when it is fetched.
        forgive(place::clear(&files), "files that were given away stay for now");
        leaving.ends = Place::Remote(copy);
        Ok(())
    }

    /// Starts moving a snapshot out. `None` if it is out already, or has to stay.
    fn begin_leaving(
        &self,
        name: &SnapshotName,
    ) -> Result<Option<(Owner, Sort, Move<'_>)>, SnapshotError> {
        let mut all = self.settled(name);
        if !all.kept.contains_key(name) {
            return Err(SnapshotError::Missing(name.clone()));
        }
        if !all.may_leave(name, &self.volumes) {
            return Ok(None);
        }
        match all.kept.get_mut(name) {
            Some(kept) if kept.place == Place::Here => {
                kept.place = Place::Leaving;
                let moves = Move { snapshots: self, name: name.clone(), ends: Place::Here };
                Ok(Some((kept.owner.clone(), kept.sort, moves)))
            }
            _ => Ok(None),
        }
    }

    /// Waits until this snapshot is not being moved.
    fn settled(&self, name: &SnapshotName) -> MutexGuard<'_, All> {
        let mut all = self.all.lock();
        while all.kept.get(name).is_some_and(|kept| !kept.place.is_settled()) {
            self.moved.wait(&mut all);
        }
        all
    }

    /// Fetches the missing files of a snapshot and of those that it lies over. They stay while the
    /// returned value is kept.
    pub fn fetch(self: &Arc<Self>, name: &SnapshotName) -> Result<Here, SnapshotError> {
        let missing = || SnapshotError::Missing(name.clone());
        let hold = self.hold_again(name).ok_or_else(missing)?;
        // Lowest first: a snapshot keeps the ones below it here.
        for (owner, link, sort) in hold.chain().into_iter().rev() {
            self.bring(&owner, &link, sort)?;
        }
        Ok(Here { _hold: hold })
    }

    fn bring(&self, owner: &Owner, name: &SnapshotName, sort: Sort) -> Result<(), SnapshotError> {
        let Some((copy, size_bytes, mut coming)) = self.begin_coming(name) else { return Ok(()) };
        let Some(remote) = self.remote.get() else { return Err(SnapshotError::NoRemote) };
        let room = self.room.take(owner, megabytes(size_bytes))?;
        let files = self.files(owner, name, sort);
        // An earlier try may have left something.
        place::clear(&files)?;
        let fetched = place::make_fetched(&files)?;
        let mut unpack = |from: &mut dyn Read| unpack_from(from, &fetched);
        let got = remote.get(owner, name.as_str(), &copy.digest, &mut unpack);
        if let Err(error) = got {
            forgive(place::clear_fetched(&files), "what was fetched stays until the next try");
            return Err(SnapshotError::Remote(error));
        }
        place::place_fetched(&files)?;
        place::remove_note(&self.path(owner, name))?;
        coming.ends = Place::Here;
        // This comes before it can leave again, which would find what is just being removed.
        forgive(remote.remove(owner, name.as_str()), "a copy that is not needed stays for now");
        if let Some(kept) = self.all.lock().kept.get_mut(name) {
            kept._room = room;
        }
        drop(coming);
        Ok(())
    }

    /// Starts fetching a snapshot. `None` if it is here.
    fn begin_coming(&self, name: &SnapshotName) -> Option<(RemoteCopy, u64, Move<'_>)> {
        let mut all = self.all.lock();
        loop {
            let kept = all.kept.get_mut(name)?;
            if kept.place.is_here() {
                return None;
            }
            if let Place::Remote(copy) = kept.place.clone() {
                let ends = std::mem::replace(&mut kept.place, Place::Coming);
                let moves = Move { snapshots: self, name: name.clone(), ends };
                return Some((copy, kept.size_bytes, moves));
            }
            self.moved.wait(&mut all);
        }
    }

    /// Moves out what was not used for this long, and what was removed and is kept only for others
    /// that are out themselves. One that cannot be moved does not keep the others here; the next
    /// call tries it again. Returns the first failure.
    pub fn offload_idle(
        self: &Arc<Self>,
        now_s: i64,
        after: Duration,
    ) -> Result<(), SnapshotError> {
        let (mut first, mut in_a_row) = (None, 0);
        for name in self.idle(now_s, after) {
            let left = self.offload(&name);
            if let Some(kept) = self.all.lock().kept.get_mut(&name) {
                kept.failed_to_leave = left.is_err();
            }
            match left {
                // It may have been removed meanwhile.
                Ok(()) | Err(SnapshotError::Missing(_)) => in_a_row = 0,
                Err(error) => {
                    tracing::warn!(error = types::chain(&error), snapshot = %name, "a snapshot stays here for now");
                    first.get_or_insert(error);
                    in_a_row += 1;
                }
            }
            if in_a_row == FAILURES_MAX {
                break;
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Returns what can be moved out, in the order in which it can: what lies over others first.
    /// What failed the last time comes last.
    fn idle(&self, now_s: i64, after: Duration) -> Vec<SnapshotName> {
        let after_s = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
        let here = self.here(now_s);
        // The disk is asked, and chains are followed, while nobody waits.
        let old = here.iter().filter(|(_, one)| {
            // The folder's time changes whenever a node works on it. It may be gone by now.
            let changed_s = std::fs::metadata(&one.path).map(|about| about.mtime());
            one.is_removed
                || changed_s.is_ok_and(|changed_s| {
                    let used_s = changed_s.max(one.used_at_s.unwrap_or(i64::MIN));
                    now_s.saturating_sub(used_s) >= after_s
                })
        });
        let mut order: Vec<_> = old
            .map(|(name, one)| (one.failed_to_leave, Reverse(depth(&here, name)), name))
            .collect();
        order.sort();
        order.into_iter().map(|(_, _, name)| name.clone()).collect()
    }

    /// Lists what is here, and notes what was used since the last call.
    fn here(&self, now_s: i64) -> HashMap<SnapshotName, Idle> {
        let mut all = self.all.lock();
        for kept in all.kept.values_mut().filter(|kept| kept.users > 0 || kept.was_used) {
            (kept.was_used, kept.used_at_s) = (false, Some(now_s));
        }
        let here = all.kept.iter().filter(|(_, kept)| kept.place == Place::Here);
        let one = |(name, kept): (&SnapshotName, &SnapshotState)| {
            let path = self.path(&kept.owner, name);
            let SnapshotState { used_at_s, is_removed, failed_to_leave, .. } = *kept;
            let parent = kept.parent.clone();
            (name.clone(), Idle { path, parent, used_at_s, is_removed, failed_to_leave })
        };
        here.map(one).collect()
    }

    /// Removes what the store has but nobody needs any more.
    pub fn sweep_remote(self: &Arc<Self>) -> io::Result<()> {
        let Some(remote) = self.remote.get() else { return Ok(()) };
        for (owner, name) in remote.list()? {
            // Anything else there is not ours.
            let Ok(name) = SnapshotName::new(name) else { continue };
            match self.claim(&owner, &name)? {
                Claim::Needed => continue,
                Claim::Gone => remote.remove(&owner, name.as_str())?,
                Claim::Here(_claimed) => remote.remove(&owner, name.as_str())?,
            }
        }
        self.collect();
        Ok(())
    }

    /// Decides whether the store has to keep anything of a snapshot.
    fn claim(&self, owner: &Owner, name: &SnapshotName) -> io::Result<Claim<'_>> {
        let mut all = self.all.lock();
        if all.aside.contains_key(name) {
            return Ok(Claim::Needed);
        }
        // Its name is never used again.
        let Some(kept) = all.kept.get_mut(name).filter(|kept| kept.owner == *owner) else {
            return Ok(Claim::Gone);
        };
        if kept.place != Place::Here {
            return Ok(Claim::Needed);
        }
        // The note may have been written before something failed.
        place::remove_note(&self.path(owner, name))?;
        kept.place = Place::Leaving;
        Ok(Claim::Here(Move { snapshots: self, name: name.clone(), ends: Place::Here }))
    }
}

impl Move<'_> {
    /// Records that the files are in the store now, unless they are needed here by now.
    fn commit(&mut self, notes: &Path, copy: &RemoteCopy) -> io::Result<bool> {
        let snapshots = self.snapshots;
        let mut all = snapshots.all.lock();
        if !all.may_leave(&self.name, &snapshots.volumes) {
            return Ok(false);
        }
        place::write_note(notes, copy)?;
        let Some(kept) = all.kept.get_mut(&self.name) else { return Ok(false) };
        kept.place = Place::Clearing;
        Ok(true)
    }
}

impl Drop for Move<'_> {
    fn drop(&mut self) {
        let mut all = self.snapshots.all.lock();
        if let Some(kept) = all.kept.get_mut(&self.name) {
            kept.place = self.ends.clone();
            if matches!(kept.place, Place::Remote(_)) {
                let mb = megabytes(kept.place.bytes_here(kept.size_bytes));
                kept._room = self.snapshots.room.adopt(&kept.owner, mb);
            }
        }
        drop(all);
        self.snapshots.moved.notify_all();
    }
}

/// Returns how many of these snapshots one lies over.
fn depth(here: &HashMap<SnapshotName, Idle>, name: &SnapshotName) -> usize {
    let below = |name: &&SnapshotName| here.get(*name).and_then(|one| one.parent.as_ref());
    std::iter::successors(Some(name), below).take(CHAIN_MAX).count()
}

fn pack_into(folder: &Path, into: &mut dyn Write) -> io::Result<()> {
    compress(into, |into| pack(&place::open(folder)?, &NOTES, into))
}

fn unpack_from(from: &mut dyn Read, folder: &Path) -> io::Result<()> {
    decompress(from, |from| unpack(from, &place::open(folder)?))
}

/// Logs a failure that the sweep or the next start makes good.
fn forgive(done: io::Result<()>, what: &'static str) {
    if let Err(error) = done {
        tracing::warn!(%error, "{what}");
    }
}

#[cfg(test)]
mod tests;
