//! What the mounts of a RUN bind: files and folders of the sources, or copies of what is in an image
//! or a stage.

use super::Fault;
use super::copy::{As, Copying, too_much};
use super::items::{Bounds, Contents, Item, Sizes, digest, find};
use super::making::Build;
use super::pattern::Steps;
use super::supplies::From;
use crate::digest::Digest;
use crate::disk;
use crate::unpack::Tree;
use rustix::fs::FileType;
use std::path::{Path, PathBuf};

/// The name of a copy in its folder.
const COPY: &str = "it";

/// The mounts of one RUN. Together they may copy as much as any other step.
pub(super) struct Binds<'a> {
    pub(super) sources: &'a dyn Fn(&str) -> Result<From, Fault>,
    pub(super) bytes_left: u64,
    pub(super) entries_left: usize,
    pub(super) copies: Vec<Copied>,
}

/// Files to copy before the step runs, and the folder for the copies, which is removed when the
/// step is over.
pub(super) struct Copied {
    from: Tree,
    items: Vec<Item>,
    bytes: u64,
    folder: PathBuf,
}

impl Copied {
    fn path(&self) -> PathBuf {
        self.folder.join(COPY)
    }

    pub(super) fn make(&self) -> Result<(), Fault> {
        let target = Tree::open(&self.folder)?;
        let how = As { owner: None, mode: None, folders: (0, 0) };
        Copying::new(&self.from, &target, how, self.bytes).all(&self.items, Path::new(COPY))
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        // If this fails, the folder goes together with that of the build.
        let _ = disk::remove_tree(&self.folder);
    }
}

impl Build {
    /// Returns a path of this machine for what a mount binds, and a digest of it. What has to be
    /// copied is added to `binds`: a step that is cached needs no copies.
    pub(super) fn bound(
        &self,
        from: From,
        source: &str,
        binds: &mut Binds<'_>,
    ) -> Result<(PathBuf, Digest), Fault> {
        let steps = Steps::default();
        let paths = find(&from.tree, source, 1, &steps)?;
        // What is bound is opened by its path, so a link that leads nowhere here might lead to
        // something of this machine.
        let path = paths.first().filter(|path| from.tree.look(path, true).is_ok());
        let path = path.ok_or_else(|| Fault::Sources(format!("there is no `{source}`")))?;
        let (entries, bytes) = (binds.entries_left, binds.bytes_left);
        let bounds = Bounds { excludes: &[], entries, bytes, steps: &steps };
        let mut items = Vec::new();
        bounds.gather(&from.tree, path, Path::new(""), &mut items)?;
        binds.entries_left = entries.checked_sub(items.len()).ok_or_else(too_much)?;
        let digest = digest(&from.tree, &items, from.has_owners, &mut Contents::default())?;
        if let Some(folder) = &from.folder {
            // Links on the way are resolved within the sources only, so a path with links cannot be
            // bound.
            let stat = from.tree.look(path, false)?;
            let plain = FileType::from_raw_mode(stat.st_mode) != FileType::Symlink;
            if plain && no_links(&from.tree, path) {
                return Ok((folder.join(path), digest));
            }
        }
        let all = Sizes::default().of(&items);
        binds.bytes_left = bytes.checked_sub(all).ok_or_else(too_much)?;
        let folder = self.next_folder("bind")?;
        let copied = Copied { from: from.tree, items, bytes: all, folder };
        let path = copied.path();
        binds.copies.push(copied);
        Ok((path, digest))
    }
}

fn no_links(tree: &Tree, path: &Path) -> bool {
    let folder = |path: &Path| {
        tree.look(path, false)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    };
    path.ancestors().skip(1).all(|above| above.as_os_str().is_empty() || folder(above))
}
