//! Finds the snapshots that earlier nodes made. What cannot be used is set aside: it stays on disk
//! as it is, for somebody to look at, and the node goes on without it.

use super::about::{About, Sort};
use super::paths::{EMPTY, files};
use super::place::{self, Place};
use super::states::{MIB, SnapshotState, megabytes};
use crate::names::{Owner, SnapshotName};
use admission::Pool;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// All snapshots of a folder.
#[derive(Default)]
pub(super) struct Found {
    pub(super) kept: HashMap<SnapshotName, SnapshotState>,
    pub(super) aside: HashMap<SnapshotName, Owner>,
    /// What is not whole, to be removed.
    pub(super) leftovers: Vec<PathBuf>,
}

/// Finds all snapshots. What is not whole may have any number of files, so it is only moved out of
/// the way.
pub(super) fn find(folder: &Path, images: &Path, room: &Pool<Owner>) -> io::Result<Found> {
    let mut found = Found::default();
    for (owner, path) in folders(folder)? {
        let read = read(&path, images, &owner, room, &mut found.leftovers);
        match (name_of(&path), read) {
            (Some(name), Ok(Some(kept))) => drop(found.kept.insert(name, kept)),
            (Some(name), Err(error)) => {
                tracing::error!(%error, path = %path.display(), "a snapshot is damaged and set aside: nothing can begin with it");
                found.aside.insert(name, owner);
            }
            (None, Err(error)) => return Err(error),
            (name, Ok(_)) => {
                tracing::info!(path = %path.display(), "a snapshot that is not whole is removed");
                match name {
                    Some(_) => place::move_away(&path, &path, &mut found.leftovers)?,
                    None => found.leftovers.push(path),
                }
            }
        }
    }
    found.set_aside_what_lacks_another();
    found.keep_images(images)?;
    Ok(found)
}

/// Reads what is known of a snapshot. `None` if it is half made or about to be removed.
fn read(
    path: &Path,
    images: &Path,
    owner: &Owner,
    room: &Pool<Owner>,
    leftovers: &mut Vec<PathBuf>,
) -> io::Result<Option<SnapshotState>> {
    let Some(About { sort, parent, size_bytes, base }) = About::read(path)? else {
        return Ok(None);
    };
    let place = Place::found(path, &files(path, images, owner, sort), leftovers)?;
    Ok(Some(SnapshotState {
        owner: owner.clone(),
        sort,
        parent,
        base,
        size_bytes,
        is_removed: About::is_removed(path),
        users: 0,
        disks: About::disks(path)?,
        _room: room.adopt(owner, megabytes(place.bytes_here(size_bytes))),
        place,
        was_used: false,
        used_at_s: None,
        failed_to_leave: false,
    }))
}

impl Found {
    /// Sets aside what lies over something that is not there: without it, a part of its files would
    /// be missing.
    fn set_aside_what_lacks_another(&mut self) {
        let lacks = |found: &Self| {
            found.kept.iter().find_map(|(name, kept)| {
                let parent = kept.parent.as_ref().filter(|one| !found.kept.contains_key(*one))?;
                Some((name.clone(), parent.clone()))
            })
        };
        while let Some((name, parent)) = lacks(self) {
            tracing::error!(snapshot = %name, %parent, "a snapshot is set aside, because the one that it lies over cannot be used");
            let Some(kept) = self.kept.remove(&name) else { break };
            self.aside.insert(name, kept.owner);
        }
    }

    /// Removes images that belong to no snapshot.
    fn keep_images(&self, folder: &Path) -> io::Result<()> {
        if !folder.exists() {
            return Ok(());
        }
        let is_kept = |owner: &Owner, path: &Path| {
            name_of(path).is_some_and(|name| match self.kept.get(&name) {
                Some(kept) => kept.sort == Sort::Image && kept.owner == *owner,
                None => self.aside.get(&name) == Some(owner),
            })
        };
        for (owner, path) in folders(folder)? {
            if !is_kept(&owner, &path) {
                tracing::info!(path = %path.display(), "an image that is no snapshot's is removed");
                place::remove(&path)?;
            }
        }
        Ok(())
    }
}

fn name_of(path: &Path) -> Option<SnapshotName> {
    SnapshotName::new(path.file_name()?.to_str()?).ok()
}

/// Returns how much disk space the snapshots in a node's folder take, in MB.
pub(crate) fn allocated_mb(folder: &Path) -> io::Result<u64> {
    let folder = folder.join("snapshots");
    if !folder.exists() {
        return Ok(0);
    }
    let size_bytes = |path: &Path| match About::read(path)? {
        // Images are counted with the pool.
        Some(about) if about.sort == Sort::Layer && place::read_note(path)?.is_none() => {
            Ok(about.size_bytes)
        }
        _ => io::Result::Ok(0),
    };
    // Damaged ones are told of when the snapshots are opened.
    let sizes = folders(&folder)?.into_iter().map(|(_, path)| size_bytes(&path).unwrap_or(0));
    Ok(sizes.sum::<u64>().div_ceil(MIB))
}

/// Lists the folders of all owners, complete or not.
fn folders(folder: &Path) -> io::Result<Vec<(Owner, PathBuf)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == EMPTY {
            continue;
        }
        let owner = entry.file_name().to_str().and_then(|name| Owner::new(name).ok());
        let Some(owner) = owner.filter(|_| entry.path().is_dir()) else {
            tracing::warn!(path = %entry.path().display(), "a folder of snapshots is nobody's");
            continue;
        };
        for one in std::fs::read_dir(entry.path())? {
            found.push((owner.clone(), one?.path()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SnapshotError;
    use crate::snapshots::Snapshots;
    use crate::volumes::Volumes;
    use std::fs;
    use std::sync::Arc;

    fn named(name: &str) -> SnapshotName {
        SnapshotName::new(name).unwrap()
    }

    fn opened(folder: &Path) -> Arc<Snapshots> {
        let pool = crate::pool::Pool::open(folder, 1_000).unwrap();
        let room = crate::capacity::divided(1_000, 100);
        let volumes = Arc::new(Volumes::open(folder, room, &pool).unwrap());
        Snapshots::open(folder, &volumes).unwrap()
    }

    fn make(folder: &Path, name: &str, sort: Sort, parent: Option<&str>) -> PathBuf {
        let notes = folder.join("snapshots/space").join(name);
        let files = files(&notes, &folder.join("images"), &Owner::new("space").unwrap(), sort);
        fs::create_dir_all(&notes).unwrap();
        fs::create_dir_all(&files).unwrap();
        About { sort, parent: parent.map(named), size_bytes: 1, base: None }.write(&notes).unwrap();
        files
    }

    #[test]
    fn a_damaged_snapshot_is_set_aside_with_what_lies_over_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let image = make(folder, "damaged", Sort::Image, None);
        let over = make(folder, "over", Sort::Layer, Some("damaged"));
        make(folder, "further", Sort::Layer, Some("over"));
        make(folder, "whole", Sort::Layer, None);
        let torn = make(folder, "torn", Sort::Layer, None);
        fs::write(folder.join("snapshots/space/damaged/about"), "{\"sort\":").unwrap();
        fs::write(torn.join("remote"), "").unwrap();
        assert_eq!(allocated_mb(folder).unwrap(), 1);

        let snapshots = opened(folder);
        let names: Vec<_> = snapshots.list().into_iter().map(|one| one.name).collect();
        assert_eq!(names, [named("whole")]);
        let refused = snapshots.hold(&named("over"));
        assert!(matches!(refused, Err(SnapshotError::Missing(_))), "{refused:?}");
        assert!(image.exists() && over.exists() && torn.exists(), "it can still be repaired");

        // When it is not wanted any more, it goes.
        snapshots.remove(&named("damaged")).unwrap();
        assert!(!image.exists() && !folder.join("snapshots/space/damaged").exists());
        assert!(over.exists());
    }

    /// A node opens in between.
    #[test]
    fn what_is_half_made_is_found_first_and_removed_later() {
        let folder = tempfile::tempdir().unwrap();
        let half = folder.path().join("snapshots/space/.making-half");
        fs::create_dir_all(half.join("layer/d")).unwrap();
        let snapshots = opened(folder.path());
        assert!(half.join("layer/d").exists());
        snapshots.clear_leftovers();
        while half.exists() {
            std::thread::yield_now();
        }
        assert_eq!(snapshots.list(), []);
    }

    #[test]
    fn what_a_damaged_snapshot_may_lie_over_stays_as_long_as_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let base = make(folder, "base", Sort::Layer, None);
        make(folder, "damaged", Sort::Layer, Some("base"));
        About::mark_removed(&base).unwrap();
        fs::write(folder.join("snapshots/space/damaged/about"), "").unwrap();
        let snapshots = opened(folder);
        snapshots.collect();
        assert!(base.exists());
        snapshots.remove(&named("damaged")).unwrap();
        assert!(!base.exists());
    }
}
