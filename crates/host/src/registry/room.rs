//! The room that the content of repositories takes of the shares of their workspaces.
//!
//! Content counts once for each workspace that has it in its repositories. Removed content counts
//! until it was collected.

use super::kib;
use admission::{Limits, Permit, Pool};
use control::registry::{Place, RegistryFault};
use images::Digest;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};

pub(super) struct RegistryRoom {
    disk: Pool<String>,
    /// By workspace and digest.
    counted: Mutex<HashMap<(String, Digest), Counted>>,
    /// Removed content that is not collected yet.
    leaving: Mutex<Vec<Permit<String>>>,
}

struct Counted {
    /// The names of the repositories that have it.
    repositories: HashSet<String>,
    permit: Permit<String>,
}

impl RegistryRoom {
    pub(super) fn new(kib: Limits) -> Self {
        let disk = Pool::new("KB of pushed images", kib);
        Self { disk, counted: Mutex::default(), leaving: Mutex::default() }
    }

    pub(super) fn disk(&self) -> &Pool<String> {
        &self.disk
    }

    /// Counts what a repository has, whatever the limits say.
    pub(super) fn count(&self, name: &str, digest: Digest, bytes: u64) {
        let workspace = workspace_of(name).to_owned();
        let mut counted = self.counted.lock();
        let new = || {
            let permit = self.disk.adopt(&workspace, kib(bytes));
            Counted { repositories: HashSet::new(), permit }
        };
        let counted = counted.entry((workspace.clone(), digest)).or_insert_with(new);
        counted.repositories.insert(name.to_owned());
    }

    /// Takes room for something that is about to be written.
    pub(super) fn take(&self, place: &Place, bytes: u64) -> Result<Permit<String>, RegistryFault> {
        self.disk.take(&place.workspace.to_string(), kib(bytes)).map_err(RegistryFault::Full)
    }

    /// Takes room for those of `contents` that the workspace does not have yet.
    pub(super) fn take_for(
        &self,
        place: &Place,
        contents: &[(Digest, u64)],
    ) -> Result<Permit<String>, RegistryFault> {
        let workspace = place.workspace.to_string();
        let counted = self.counted.lock();
        let is_new = |digest: &Digest| !counted.contains_key(&(workspace.clone(), *digest));
        let new: HashMap<_, _> =
            contents.iter().copied().filter(|(digest, _)| is_new(digest)).collect();
        let all = new.into_values().map(kib).fold(0_u64, u64::saturating_add);
        self.disk.take(&workspace, all).map_err(RegistryFault::Full)
    }

    /// Notes that a repository no longer has some content. Its room is given back with the next
    /// collection, unless another repository of the workspace has it.
    pub(super) fn leave(&self, name: &str, gone: &[Digest]) {
        let (mut counted, mut leaving) = (self.counted.lock(), self.leaving.lock());
        for digest in gone {
            let key = (workspace_of(name).to_owned(), *digest);
            let Some(content) = counted.get_mut(&key) else { continue };
            content.repositories.remove(name);
            if content.repositories.is_empty() {
                leaving.extend(counted.remove(&key).map(|content| content.permit));
            }
        }
    }

    /// Runs a collection, and gives back the room of what had left before, if it succeeds.
    pub(super) fn collected<T, E>(&self, collect: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let before = std::mem::take(&mut *self.leaving.lock());
        let collected = collect();
        if collected.is_err() {
            self.leaving.lock().extend(before);
        }
        collected
    }
}

/// Returns the workspace of a repository, whose name begins with it.
fn workspace_of(name: &str) -> &str {
    name.split_once('/').map_or(name, |(workspace, _)| workspace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        Place::known(name).unwrap()
    }

    #[test]
    fn content_of_several_repositories_counts_once_until_none_has_it() {
        let room = RegistryRoom::new(Limits { total: 10_000, share: 1_000 });
        let (layer, other) = (Digest::of(b"layer"), Digest::of(b"other"));
        let contents = [(layer, 800 << 10), (layer, 800 << 10)];
        for name in ["wsp_a/agent/one", "wsp_a/agent/two", "wsp_a/agent/three"] {
            let _room = room.take_for(&place(name), &contents).unwrap();
            room.count(name, layer, 800 << 10);
        }
        assert_eq!(room.disk().held(), 800);
        let refused = room.take_for(&place("wsp_a/agent/four"), &[(other, 300 << 10)]);
        assert!(matches!(refused, Err(RegistryFault::Full(_))));
        drop(room.take_for(&place("wsp_b/agent/one"), &contents).unwrap());
        room.leave("wsp_a/agent/one", &[layer]);
        room.leave("wsp_a/agent/two", &[layer, other]);
        room.collected(|| Ok::<_, ()>(())).unwrap();
        assert_eq!(room.disk().held(), 800, "a repository still has it");
        room.leave("wsp_a/agent/three", &[layer]);
        assert!(room.collected(|| Err::<(), ()>(())).is_err());
        assert_eq!(room.disk().held(), 800, "it is still on disk");
        room.collected(|| Ok::<_, ()>(())).unwrap();
        assert_eq!(room.disk().held(), 0);
    }
}
