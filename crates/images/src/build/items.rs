//! What a copy instruction copies: the files that its sources name, and a digest of them.

use super::Fault;
use super::pattern::{Kind as PatternKind, Pattern, Steps};
use crate::digest::{Digest, Hasher};
use crate::unpack::{Tree, is_folder};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const DEPTH_MAX: usize = 256;
const BUFFER_BYTES: usize = 64 << 10;

/// One file, folder or link to copy.
pub(super) struct Item {
    /// Path in the tree that it is copied from.
    pub(super) from: PathBuf,
    /// Path below the target; empty for a file that is copied to the target itself.
    pub(super) to: PathBuf,
    pub(super) stat: Stat,
    pub(super) target: Option<PathBuf>,
}

impl Item {
    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

/// Finds the files that a source names, sorted by name. A plain name, without wildcards, must
/// exist. Wildcards also mean links that lead nowhere.
pub(super) fn find(
    tree: &Tree,
    source: &str,
    bound: usize,
    steps: &Steps,
) -> Result<Vec<PathBuf>, Fault> {
    let (mut found, mut by_pattern) = (vec![PathBuf::new()], false);
    for part in source.split('/').filter(|part| !part.is_empty() && *part != ".") {
        by_pattern = false;
        if part == ".." {
            // Like `..` at the root of a file system, which stays there.
            for path in &mut found {
                path.pop();
            }
            continue;
        }
        let pattern = Pattern::new(part, PatternKind::Path).map_err(Fault::Sources)?;
        if pattern.is_plain() {
            let name = part.replace('\\', "");
            found.iter_mut().for_each(|path| path.push(&name));
            continue;
        }
        by_pattern = true;
        let mut next = Vec::new();
        for folder in found {
            for name in names(tree, &folder)? {
                if pattern.matches_within(&name.to_string_lossy(), steps).map_err(Fault::Sources)? {
                    next.push(folder.join(name));
                }
            }
            if next.len() > bound {
                return Err(Fault::Sources(format!("`{source}` means more than {bound} files")));
            }
        }
        found = next;
    }
    found.retain(|path| tree.look(path, !by_pattern).is_ok());
    match found.is_empty() {
        true => Err(Fault::Sources(format!("there is no `{source}` to copy"))),
        false => Ok(found),
    }
}

fn names(tree: &Tree, folder: &Path) -> Result<Vec<std::ffi::OsString>, Fault> {
    match tree.names(folder) {
        Ok(names) => Ok(names),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Limits on what a copy gathers, and what it leaves out.
pub(super) struct Bounds<'a> {
    pub(super) excludes: &'a [Pattern],
    pub(super) entries: usize,
    pub(super) bytes: u64,
    pub(super) steps: &'a Steps,
}

impl Bounds<'_> {
    /// Adds what is at a path of a tree, with everything below it. A link at the path itself is
    /// followed, but never out of the tree. One that leads nowhere is copied as it is.
    pub(super) fn gather(
        &self,
        tree: &Tree,
        from: &Path,
        to: &Path,
        all: &mut Vec<Item>,
    ) -> Result<(), Fault> {
        let (stat, target) = match tree.look(from, true) {
            Err(Errno::NOENT | Errno::LOOP) => (tree.look(from, false)?, Some(tree.link(from)?)),
            found => (found?, None),
        };
        self.add(tree, Item { from: from.into(), to: to.into(), stat, target }, 0, all)
    }

    fn add(&self, tree: &Tree, item: Item, depth: usize, all: &mut Vec<Item>) -> Result<(), Fault> {
        if depth > DEPTH_MAX {
            return Err(Fault::Sources(format!("folders are nested more than {DEPTH_MAX} deep")));
        }
        let bytes: u64 = match is_file(&item.stat) {
            true => u64::try_from(item.stat.st_size).unwrap_or(u64::MAX),
            false => 0,
        };
        if all.len() >= self.entries || bytes > self.bytes {
            return Err(Fault::Sources("it is more than a step of a build may copy".to_owned()));
        }
        let (from, to, folder) = (item.from.clone(), item.to.clone(), is_folder(&item.stat));
        all.push(item);
        if !folder {
            return Ok(());
        }
        for name in tree.names(&from)? {
            let from = from.join(&name);
            let to = to.join(&name);
            if self.is_excluded(&to)? {
                continue;
            }
            let stat = tree.look(&from, false)?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            if !matches!(
                kind,
                FileType::Directory | FileType::RegularFile | FileType::Symlink | FileType::Fifo
            ) {
                // Sockets and devices have no meaning in an image.
                continue;
            }
            let target = (kind == FileType::Symlink).then(|| tree.link(&from)).transpose()?;
            self.add(tree, Item { from, to, stat, target }, depth + 1, all)?;
        }
        Ok(())
    }

    /// Returns whether a path is left out. It begins where the patterns do: below the source, or at
    /// the root if folders above the source are copied too.
    pub(super) fn is_excluded(&self, path: &Path) -> Result<bool, Fault> {
        let path = path.to_string_lossy();
        for pattern in self.excludes {
            if pattern.matches_within(&path, self.steps).map_err(Fault::Sources)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn is_file(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Digests of files with several names (hard links), which are read only once.
#[derive(Default)]
pub(super) struct Contents(HashMap<(u64, u64), Digest>);

impl Contents {
    fn digest(&mut self, tree: &Tree, path: &Path, stat: &Stat) -> Result<Digest, Fault> {
        let Some(file) = shared(stat) else { return content(tree, path) };
        if let Some(known) = self.0.get(&file) {
            return Ok(*known);
        }
        let found = content(tree, path)?;
        self.0.insert(file, found);
        Ok(found)
    }
}

/// Returns the number of a file that has several names.
fn shared(stat: &Stat) -> Option<(u64, u64)> {
    (stat.st_nlink > 1).then_some((stat.st_dev, stat.st_ino))
}

/// Counts the bytes of files that are read, each once.
#[derive(Default)]
pub(super) struct Sizes(HashSet<(u64, u64)>);

impl Sizes {
    pub(super) fn of(&mut self, items: &[Item]) -> u64 {
        let files = items.iter().filter(|item| is_file(&item.stat));
        let counted =
            files.filter(|item| shared(&item.stat).is_none_or(|file| self.0.insert(file)));
        let sizes = counted.map(|item| u64::try_from(item.stat.st_size).unwrap_or(u64::MAX));
        sizes.fold(0, u64::saturating_add)
    }
}

/// Hashes everything that makes a difference in the result. Times are left out, so that a folder
/// that was fetched again counts as the same folder.
pub(super) fn digest(
    tree: &Tree,
    items: &[Item],
    with_owners: bool,
    contents: &mut Contents,
) -> Result<Digest, Fault> {
    let mut hasher = Hasher::default();
    for Item { from, to, stat, target } in items {
        let to = to.as_os_str().as_bytes();
        hasher.update(&(to.len() as u64).to_le_bytes());
        hasher.update(to);
        hasher.update(&stat.st_mode.to_le_bytes());
        let owner = if with_owners { (stat.st_uid, stat.st_gid) } else { (0, 0) };
        hasher.update(&owner.0.to_le_bytes());
        hasher.update(&owner.1.to_le_bytes());
        let target = target.as_ref().map_or(&b""[..], |target| target.as_os_str().as_bytes());
        hasher.update(&(target.len() as u64).to_le_bytes());
        hasher.update(target);
        if is_file(stat) {
            let content = contents.digest(tree, from, stat)?;
            hasher.update(content.to_string().as_bytes());
        }
    }
    Ok(hasher.finish())
}

fn content(tree: &Tree, path: &Path) -> Result<Digest, Fault> {
    let failed = |error: Fault| match error {
        Fault::Store(crate::error::Error::Read(error)) => {
            crate::error::Error::io("read", path)(error).into()
        }
        other => other,
    };
    file_digest(&tree.read(path)?).map_err(failed)
}

/// Hashes the bytes of a file.
pub(super) fn file_digest(mut file: &std::fs::File) -> Result<Digest, Fault> {
    let (mut hasher, mut buffer) = (Hasher::default(), vec![0; BUFFER_BYTES]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(read) => hasher.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(crate::error::Error::from(error).into()),
        }
    }
}
