//! Checks before a RUN starts that each of its mounts has a place.

use super::Fault;
use super::run::{Mount, What};
use crate::unpack::{Tree, is_folder};
use std::path::Path;

/// Puts mounts after those that they are below, which would hide them otherwise.
pub(super) fn sort(mounts: &mut [Mount]) {
    mounts.sort_by_key(|mount| Path::new(&mount.target).components().count());
}

/// Fails if a mount is below another one in which its place can neither be found nor be made.
pub(super) fn check(mounts: &[Mount]) -> Result<(), Fault> {
    for mount in mounts {
        let Some((above, inside)) = above(mounts, mount) else { continue };
        let fits = match &above.what {
            What::Bind(source) => has_place(source, inside, mount),
            What::File { .. } => false,
            // What is in it may be gone at any time.
            What::Cache { read_only, .. } => !read_only,
            What::Empty { .. } => true,
        };
        // Folders in memory are mounted first, so that anything else hides those below it.
        if !fits || (mount.is_in_memory() && !above.is_in_memory()) {
            return Err(Fault::Sources(format!(
                "RUN --mount: there is no place for {} in what is mounted at {}",
                mount.target, above.target
            )));
        }
    }
    Ok(())
}

/// Finds the mount that another one is below, and the path of that one inside it.
fn above<'m>(mounts: &'m [Mount], mount: &'m Mount) -> Option<(&'m Mount, &'m Path)> {
    let inside = |other: &'m Mount| {
        let inside = Path::new(&mount.target).strip_prefix(&other.target).ok()?;
        (!inside.as_os_str().is_empty()).then_some((other, inside))
    };
    mounts.iter().filter_map(inside).max_by_key(|(other, _)| other.target.len())
}

/// Returns whether what is bound has something of the same type at a path.
fn has_place(source: &Path, inside: &Path, mount: &Mount) -> bool {
    let wants_folder = match &mount.what {
        What::Bind(path) => path.is_dir(),
        What::File { .. } => false,
        What::Cache { .. } | What::Empty { .. } => true,
    };
    let found = Tree::open(source).ok().and_then(|tree| tree.look(inside, true).ok());
    found.is_some_and(|stat| is_folder(&stat) == wants_folder)
}
