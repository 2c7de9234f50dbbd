//! Where the files of snapshots are below the node's folder and in its pool.

use super::about::Sort;
use crate::names::Owner;
use std::path::{Path, PathBuf};

/// Prefixes of folders that are half made, or about to be removed. No name begins with a dot.
pub(super) const MAKING: &str = ".making-";
pub(super) const GONE: &str = ".gone-";
pub(super) const LAYER: &str = "layer";
pub(super) const IMAGES: &str = "images";
pub(super) const DISK: &str = "disk";
/// Beside the folders of owners, none of whom has this name.
pub(super) const EMPTY: &str = ".empty";

/// Returns the folder of a snapshot's files. `notes` is the folder that describes it.
pub(super) fn files(notes: &Path, images: &Path, owner: &Owner, sort: Sort) -> PathBuf {
    match sort {
        Sort::Layer => notes.to_owned(),
        Sort::Image => images.join(owner.as_str()).join(notes.file_name().unwrap_or_default()),
    }
}
