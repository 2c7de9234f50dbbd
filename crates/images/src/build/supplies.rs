//! What a step copies from: images and downloads that the caller fetched, and trees.

use crate::digest::Digest;
use crate::unpack::Tree;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a step needs from outside, after the caller has fetched it.
#[derive(Default)]
pub struct Supplies {
    /// Images by their names in the Dockerfile.
    pub images: BTreeMap<String, Supply>,
    /// Downloads by their addresses.
    pub downloads: BTreeMap<String, Download>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supply {
    Image(Digest),
    /// Stands for the vendor's sandbox image.
    StandIn,
}

pub struct Download {
    pub file: PathBuf,
    /// The last part of its address; empty if that has none.
    pub name: String,
    /// Seconds since 1970.
    pub modified: i64,
}

/// The tree that something is copied from.
pub(super) struct From {
    pub(super) tree: Tree,
    /// Whether files keep their owners when they are copied from this tree.
    pub(super) has_owners: bool,
    pub(super) is_stand_in: bool,
    /// The folder of this machine that holds the tree, if there is one.
    pub(super) folder: Option<PathBuf>,
}
