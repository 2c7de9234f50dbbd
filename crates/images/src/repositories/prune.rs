//! Removes things from a repository. The next collection then removes content that no repository,
//! name or instance needs any more.

use std::collections::{HashMap, HashSet};

use super::{BlobNote, Filed, Repository};
use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::manifest;

/// What [`Repository::prune`] keeps.
#[derive(Debug, Clone, Default)]
pub struct Keep {
    /// Manifests that must stay, with everything they need and everything that refers to them.
    pub manifests: Vec<Digest>,
    /// Content that arrived at this time (in milliseconds) or later stays too, because it may be
    /// part of an unfinished push.
    pub since: i64,
    /// Manifests that are removed whenever they arrived, unless a manifest that stays needs them.
    /// With each of them go the blobs that arrived before it and that nothing else needs.
    pub except: Vec<Digest>,
}

impl Repository {
    /// Removes what is not kept. Returns the digests that the repository no longer has at all.
    pub fn prune(&self, keep: &Keep) -> Result<Vec<Digest>, Error> {
        let _turn = self.lock();
        let mut all = HashMap::new();
        for digest in self.digests()? {
            all.extend(self.filed(&digest)?.map(|filed| (digest, filed)));
        }
        let doomed: HashSet<Digest> =
            keep.except.iter().flat_map(|digest| needed(&all, vec![*digest])).collect();
        let fresh = |filed: &&Filed| filed.at >= keep.since && !doomed.contains(&filed.digest);
        let roots = keep.manifests.iter().copied();
        let roots = roots.chain(all.values().filter(fresh).map(|filed| filed.digest)).collect();
        let kept = with_referrers(&all, needed(&all, roots));
        let (mut gone, mut loose) = (Vec::new(), HashMap::<Digest, i64>::new());
        for filed in all.values().filter(|filed| !kept.contains(&filed.digest)) {
            self.unnote(filed)?;
            gone.push(filed.digest);
            for blob in &filed.blobs {
                let at = loose.entry(*blob).or_insert(filed.at);
                *at = filed.at.max(*at);
            }
        }
        let used: HashSet<Digest> = kept
            .iter()
            .filter_map(|digest| all.get(digest))
            .flat_map(|filed| filed.blobs.iter().copied())
            .collect();
        for blob in self.blobs()?.into_iter().filter(|blob| !used.contains(blob)) {
            // What arrived after the manifest that is gone was pushed again, for another one.
            let before =
                loose.get(&blob).map_or(keep.since, |at| keep.since.max(at.saturating_add(1)));
            if self.is_older(&blob, before)? {
                disk::remove_file(&self.blob_path(&blob))?;
                gone.push(blob);
            }
        }
        self.forget_if_empty()?;
        gone.retain(|digest| !self.holds(digest));
        Ok(gone)
    }

    /// Removes a blob. Returns `false`, and keeps it, if a manifest here needs it.
    pub fn remove_blob(&self, blob: &Digest) -> Result<bool, Error> {
        let _turn = self.lock();
        for digest in self.digests()? {
            if self.filed(&digest)?.is_some_and(|filed| filed.blobs.contains(blob)) {
                return Ok(false);
            }
        }
        disk::remove_file(&self.blob_path(blob))?;
        Ok(true)
    }

    fn holds(&self, digest: &Digest) -> bool {
        self.blob_path(digest).exists() || self.manifest_path(digest).exists()
    }

    fn is_older(&self, blob: &Digest, since: i64) -> Result<bool, Error> {
        let path = self.blob_path(blob);
        match std::fs::read(&path) {
            Ok(note) => Ok(manifest::read::<BlobNote>("note", &note)?.at < since),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    /// Removes the repository if it is empty.
    fn forget_if_empty(&self) -> Result<(), Error> {
        let something = !self.blobs()?.is_empty() || !self.digests()?.is_empty();
        if something { Ok(()) } else { disk::remove_tree(&self.folder) }
    }
}

/// Returns the manifests, with those that indexes among them list.
fn needed(all: &HashMap<Digest, Filed>, mut open: Vec<Digest>) -> HashSet<Digest> {
    let mut found = HashSet::new();
    while let Some(digest) = open.pop() {
        if let Some(filed) = all.get(&digest).filter(|_| found.insert(digest)) {
            open.extend(&filed.manifests);
        }
    }
    found
}

/// Adds everything that refers to the kept manifests.
fn with_referrers(all: &HashMap<Digest, Filed>, mut kept: HashSet<Digest>) -> HashSet<Digest> {
    loop {
        let speaks = |filed: &&Filed| {
            !kept.contains(&filed.digest) && filed.subject.is_some_and(|it| kept.contains(&it))
        };
        let more: Vec<Digest> = all.values().filter(speaks).map(|filed| filed.digest).collect();
        if more.is_empty() {
            return kept;
        }
        kept.extend(needed(all, more));
    }
}
