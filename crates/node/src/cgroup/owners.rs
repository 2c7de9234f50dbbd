//! The groups of owners, between the node's own group and those of instances. They limit what one
//! owner may use, in however many instances. The kernel shares processors evenly between groups on
//! the same level, so a hundred busy instances of one owner get as much as one instance of another.
//!
//! A group is made with its owner's first instance. When the last one is gone it is kept for the
//! next, up to [`EMPTY_KEPT`] groups. Whatever a killed node has left is found when the next one
//! opens.

use super::files::on;
use super::resources::Bounds;
use super::version::Version;
use super::{v1, v2};
use crate::names::Owner;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// No instance's name starts like this, because instance names have no dots.
const PREFIX: &str = "owner.";
/// How many empty groups to keep, so that an owner who makes and removes one instance after the
/// other need not wait for the group each time.
const EMPTY_KEPT: usize = 32;

#[derive(Debug)]
pub(crate) struct Owners {
    version: Version,
    node: PathBuf,
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    members: HashMap<Owner, usize>,
    /// Owners of groups without instances, the longest empty first.
    empty: VecDeque<Owner>,
}

/// Keeps an owner's group from being removed.
#[derive(Debug)]
pub(crate) struct Membership {
    owners: Arc<Owners>,
    owner: Owner,
}

impl Owners {
    pub(super) fn new(version: Version, node: &str, bounds: Bounds) -> Self {
        Self { version, node: node.into(), bounds, state: Mutex::default() }
    }

    /// Makes the owner's group if it does not exist.
    pub(super) fn join(self: &Arc<Self>, owner: &Owner) -> io::Result<Membership> {
        let mut state = self.state.lock();
        if !state.members.contains_key(owner) {
            match state.empty.iter().position(|empty| empty == owner) {
                Some(at) => drop(state.empty.remove(at)),
                None => self.make(owner)?,
            }
        }
        *state.members.entry(owner.clone()).or_default() += 1;
        Ok(Membership { owners: Arc::clone(self), owner: owner.clone() })
    }

    /// Sets the group's limits even if it exists: an earlier node may have had others, or was
    /// killed before it wrote them.
    fn make(&self, owner: &Owner) -> io::Result<()> {
        let name = name(&self.node, owner);
        let made = match self.version {
            Version::V1 => v1::make_owner(&name, &self.bounds),
            Version::V2 => v2::make_owner(&v2::folder(&name), &self.bounds),
        };
        made.map_err(|error| on("make the control group of an owner", error))
    }

    fn leave(&self, owner: &Owner) {
        let mut state = self.state.lock();
        let Some(members) = state.members.get_mut(owner) else { return };
        *members = members.saturating_sub(1);
        if *members > 0 {
            return;
        }
        state.members.remove(owner);
        state.empty.push_back(owner.clone());
        if state.empty.len() > EMPTY_KEPT
            && let Some(oldest) = state.empty.pop_front()
        {
            self.forget(&oldest);
        }
    }

    fn forget(&self, owner: &Owner) {
        if let Err(error) = self.remove(owner) {
            // The last instance may not be removed completely yet, or somebody else put something
            // into the group. The next start tries again.
            tracing::debug!(%error, owner = owner.as_str(), "the control group of an owner stays");
        }
    }

    fn remove(&self, owner: &Owner) -> io::Result<()> {
        let name = name(&self.node, owner);
        match self.version {
            Version::V1 => v1::remove_everywhere(&name),
            Version::V2 => v2::remove(&v2::folder(&name)),
        }
    }

    /// Removes the groups of all owners that have no instance.
    pub(super) fn remove_empty(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.empty.clear();
        for folder in self.folders()? {
            for owner in listed(&folder)? {
                if !state.members.contains_key(&owner) {
                    self.forget(&owner);
                }
            }
        }
        Ok(())
    }

    /// Returns all folders in which an owner's group may be, including ones from a node that was
    /// killed before it had made the rest.
    fn folders(&self) -> io::Result<Vec<PathBuf>> {
        match self.version {
            Version::V1 => v1::folders_everywhere(&self.node),
            Version::V2 => Ok(vec![v2::folder(&self.node)]),
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.owners.leave(&self.owner);
    }
}

pub(super) fn name(node: &Path, owner: &Owner) -> PathBuf {
    node.join(format!("{PREFIX}{}", owner.as_str()))
}

/// Returns the owner to whom a folder of this name belongs.
pub(super) fn of_folder(name: &str) -> Option<Owner> {
    Owner::new(name.strip_prefix(PREFIX)?).ok()
}

fn listed(folder: &Path) -> io::Result<Vec<Owner>> {
    let mut owners = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        owners.extend(entry?.file_name().to_str().and_then(of_folder));
    }
    Ok(owners)
}
