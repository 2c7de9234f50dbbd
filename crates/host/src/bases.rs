//! Keeps the images below snapshots. Each is kept as long as the node has a snapshot over it,
//! wherever the snapshot's files are and whatever the image's name has come to mean.
//!
//! Which images these are is stored with the snapshots. The leases are taken again at each start,
//! before any image is removed.

use images::{Digest, InvalidDigest, Lease, Store};
use node::{SnapshotName, Snapshots};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};

#[derive(Default)]
pub(crate) struct Bases(Mutex<HashMap<Digest, Lease>>);

/// What lies below a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    /// This image, which is here.
    Image(Digest),
    /// This image, which is not here.
    Lost(Digest),
    /// Unknown, because the snapshot is older than such notes.
    Unnoted,
}

impl Below {
    pub(crate) fn of(
        snapshot: &SnapshotName,
        snapshots: &Snapshots,
        images: &Store,
    ) -> Result<Self, InvalidDigest> {
        let Some(noted) = snapshots.base(snapshot) else { return Ok(Self::Unnoted) };
        let digest: Digest = noted.parse()?;
        Ok(if images.has(&digest) { Self::Image(digest) } else { Self::Lost(digest) })
    }
}

impl Bases {
    /// Keeps the images that snapshots lie over, and releases those that no snapshot needs any
    /// more.
    pub(crate) fn follow(&self, snapshots: &Snapshots, images: &Store) {
        let mut held = self.0.lock();
        let wanted: HashSet<Digest> = snapshots.bases().iter().filter_map(|it| read(it)).collect();
        held.retain(|digest, _| wanted.contains(digest));
        for digest in wanted {
            if held.contains_key(&digest) {
                continue;
            }
            match images.lease(&digest) {
                Some(lease) => drop(held.insert(digest, lease)),
                None => tracing::warn!(%digest, "the image below a snapshot is not there"),
            }
        }
    }
}

fn read(noted: &str) -> Option<Digest> {
    let read = noted.parse();
    if read.is_err() {
        tracing::error!(noted, "what a snapshot lies over is no digest");
    }
    read.ok()
}
