//! Recursive listing of a local folder.

use crate::error::Error;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Most entries in a folder; with more, it is assumed to be a mistake, such as `/`.
const ENTRIES_MAX: usize = 500_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Path relative to the root, with `/` as separator.
    pub(crate) path: String,
    pub(crate) full: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) size: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Folders come before their content; otherwise sorted by name.
    pub(crate) entries: Vec<Entry>,
    /// Skipped paths, with the reason for each.
    pub(crate) left_out: Vec<(PathBuf, &'static str)>,
}

impl Walk {
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.size).sum()
    }

    pub(crate) fn files(&self) -> usize {
        self.entries.iter().filter(|entry| entry.kind == Kind::File).count()
    }
}

/// Lists `root`, except for paths that are `ignored`. A link to a file inside the folder counts as
/// that file. All other links are skipped, since a folder that somebody else wrote could point to
/// any file on this machine.
pub(crate) fn walk(root: &Path, ignored: &dyn Fn(&str, Kind) -> bool) -> Result<Walk, Error> {
    let act = || Error::io(format!("read {}", root.display()));
    let inside = root.canonicalize().map_err(act())?;
    let mut found = Walk::default();
    let mut waiting = vec![(String::new(), root.to_owned())];
    while let Some((path, full)) = waiting.pop() {
        let mut names = names(&full).map_err(Error::io(format!("read {}", full.display())))?;
        names.sort_unstable();
        // The stack is popped from its end, so folders are pushed in reverse order.
        let mut folders = Vec::new();
        for name in names {
            let full = full.join(&name);
            let Some(name) = name.to_str() else {
                found.left_out.push((full, "its name is not UTF-8"));
                continue;
            };
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            match look(&full, &inside) {
                Ok(Look::Of(kind, about)) if !ignored(&path, kind) => {
                    let size = if kind == Kind::File { about.len() } else { 0 };
                    let mode = about.permissions().mode() & 0o777;
                    if kind == Kind::Folder {
                        folders.push((path.clone(), full.clone()));
                    }
                    found.entries.push(Entry { path, full, kind, mode, size });
                }
                Ok(Look::LeftOut(why)) if !ignored(&path, Kind::File) => {
                    found.left_out.push((full, why));
                }
                Ok(_) => {}
                // Deleted since it was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(Error::Io { act: format!("read {}", full.display()), source });
                }
            }
            if found.entries.len() > ENTRIES_MAX {
                let message = format!("{} holds more than {ENTRIES_MAX} entries", root.display());
                return Err(Error::Usage(message));
            }
        }
        waiting.extend(folders.into_iter().rev());
    }
    Ok(found)
}

fn names(folder: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
}

enum Look {
    Of(Kind, Metadata),
    LeftOut(&'static str),
}

fn look(full: &Path, inside: &Path) -> io::Result<Look> {
    let about = full.symlink_metadata()?;
    if about.is_dir() {
        return Ok(Look::Of(Kind::Folder, about));
    }
    if about.is_file() {
        return Ok(Look::Of(Kind::File, about));
    }
    if !about.is_symlink() {
        return Ok(Look::LeftOut("it is neither a file nor a folder"));
    }
    let Ok(target) = full.canonicalize() else {
        return Ok(Look::LeftOut("its link leads nowhere"));
    };
    if !target.starts_with(inside) {
        return Ok(Look::LeftOut("its link leads out of the folder"));
    }
    let about = target.metadata()?;
    match about.is_file() {
        true => Ok(Look::Of(Kind::File, about)),
        false => Ok(Look::LeftOut("it is a link to a folder")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_out_of_the_folder_are_left_out() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(place.path().join("secret"), "s").unwrap();
        fs::write(root.join("sub/real"), "abc").unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink("sub/real", root.join("in")).unwrap();
        symlink("sub", root.join("loop")).unwrap();
        let walk = walk(&root, &|_, _| false).unwrap();
        let paths: Vec<_> = walk.entries.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["in", "sub", "sub/real"]);
        assert_eq!((walk.left_out.len(), walk.bytes(), walk.files()), (2, 6, 2));
    }

    #[test]
    fn what_is_ignored_is_not_entered() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("skip/deep")).unwrap();
        fs::write(place.path().join("skip/deep/a"), "").unwrap();
        fs::write(place.path().join("keep"), "").unwrap();
        let walk = walk(place.path(), &|path, _| path == "skip").unwrap();
        assert_eq!(walk.entries.len(), 1);
    }
}
