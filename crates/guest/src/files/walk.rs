//! Walks a tree in order, without following links, until the visitor stops it.

use super::blocking::Stop;
use super::entry;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::FileType;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories skipped by default, because tools generate, fetch or maintain them.
const EXCLUDED: &str =
    "node_modules,vendor,.git,dist,build,target,__pycache__,.venv,.next,coverage";

/// What a walk skips. Its root is never skipped.
pub(crate) struct Exclusions {
    directories: HashSet<Vec<u8>>,
    hidden: bool,
}

impl Exclusions {
    /// `directories` is a comma-separated list of names. `None` means the default list, an empty
    /// list no names.
    pub(crate) fn new(directories: Option<&str>, hidden: bool) -> Self {
        let names = directories.unwrap_or(EXCLUDED).split(',').map(str::trim);
        Self { directories: names.map(|name| name.as_bytes().to_vec()).collect(), hidden }
    }

    fn leaves_out(&self, name: &OsStr, directory: bool) -> bool {
        let hidden = self.hidden && name.as_bytes().starts_with(b".");
        hidden || directory && self.directories.contains(name.as_bytes())
    }
}

pub(crate) struct WalkEntry<'a> {
    pub(crate) path: PathBuf,
    pub(crate) relative: &'a Path,
    pub(crate) name: &'a OsStr,
    pub(crate) kind: FileType,
}

/// Visits everything below `root`, each directory before its contents. Unreadable entries are
/// skipped, but `root` itself must be readable.
pub(crate) fn walk(
    root: &Path,
    exclusions: &Exclusions,
    stop: &Stop,
    mut visit: impl FnMut(WalkEntry<'_>) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut levels = vec![(PathBuf::new(), entry::entries(root)?.into_iter())];
    while let Some((inside, entries)) = levels.last_mut() {
        let Some((name, kind)) = entries.next() else {
            levels.pop();
            continue;
        };
        if stop.is_asked() {
            return Ok(());
        }
        if exclusions.leaves_out(&name, kind.is_dir()) {
            continue;
        }
        let relative = inside.join(&name);
        let path = root.join(&relative);
        let below = if kind.is_dir() { entry::entries(&path).ok() } else { None };
        if visit(WalkEntry { path, relative: &relative, name: &name, kind }).is_break() {
            return Ok(());
        }
        levels.extend(below.map(|below| (relative, below.into_iter())));
    }
    Ok(())
}
