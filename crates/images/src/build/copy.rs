//! Copies files into the tree of an image. No link leads out of it: the kernel resolves every path
//! as if the tree were the root of the file system.

use super::Fault;
use super::items::Item;
use crate::error::Error;
use crate::unpack::{Place, Tree, is_folder};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const FOLDER_MODE: u32 = 0o755;
const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;
const CAPABILITIES: &[u8] = b"security.capability";

/// Owner and mode of the copies.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct As {
    /// `None` keeps the owner of the source.
    pub(super) owner: Option<(u32, u32)>,
    pub(super) mode: Option<u32>,
    /// Owner of folders that have to be created on the way.
    pub(super) folders: (u32, u32),
}

pub(super) struct Copying<'a> {
    pub(super) source: &'a Tree,
    pub(super) target: &'a Tree,
    pub(super) how: As,
    pub(super) bytes_left: u64,
    /// Files of the current source with several names (hard links), and the path of their first
    /// copy. The next source may write over it, so it begins without any.
    links: HashMap<(u64, u64), PathBuf>,
    /// Times of folders, set once nothing changes in them any more.
    times: Vec<(PathBuf, Timestamps)>,
}

impl<'a> Copying<'a> {
    pub(super) fn new(source: &'a Tree, target: &'a Tree, how: As, bytes_left: u64) -> Self {
        Self { source, target, how, bytes_left, links: HashMap::new(), times: Vec::new() }
    }

    /// Copies the gathered items to `place`.
    pub(super) fn all(&mut self, items: &[Item], place: &Path) -> Result<(), Fault> {
        let top = place.parent().unwrap_or(Path::new(""));
        make_folders(self.target, top, self.how.folders)?;
        self.links.clear();
        for (number, item) in items.iter().enumerate() {
            let path = match item.to.as_os_str().is_empty() {
                true => place.to_owned(),
                false => place.join(&item.to),
            };
            match item.kind() {
                FileType::Directory => self.folder(item, &path, number == 0)?,
                FileType::Symlink => self.link(item, &path)?,
                FileType::Fifo => self.fifo(item, &path)?,
                _ => self.file(item, &path)?,
            }
        }
        for (path, times) in self.times.drain(..) {
            rustix::fs::futimens(self.target.folder(&path)?, &times)?;
        }
        Ok(())
    }

    /// Copies a folder. The top one only holds what is copied: if it exists already, it stays as it
    /// was.
    fn folder(&mut self, item: &Item, path: &Path, is_top: bool) -> Result<(), Fault> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let fresh = match self.target.folder(path) {
            Ok(_) => false,
            Err(Errno::NOENT) => {
                self.target.place(path)?.make_folder()?;
                true
            }
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(in_the_way(path)),
            Err(error) => return Err(error.into()),
        };
        let folder = self.target.folder(path)?;
        if is_top {
            // Left as it was, or created like the folders above it.
            if fresh {
                let (uid, gid) = self.how.folders;
                rustix::fs::fchown(&folder, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
                let mode = self.how.mode.unwrap_or(FOLDER_MODE);
                rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode))?;
            }
            return Ok(());
        }
        let (uid, gid) = self.owner(item);
        rustix::fs::fchown(&folder, Some(uid), Some(gid))?;
        rustix::fs::fchmod(&folder, self.mode(item))?;
        self.times.push((path.to_owned(), times(item)));
        Ok(())
    }

    fn file(&mut self, item: &Item, path: &Path) -> Result<(), Fault> {
        let place = self.free_place(path)?;
        let several = (item.stat.st_nlink > 1).then_some((item.stat.st_dev, item.stat.st_ino));
        if let Some(first) = several.and_then(|number| self.links.get(&number)) {
            let original = self.target.place(first)?;
            return Ok(place.link_to(&original)?);
        }
        let mut from = self.source.read(&item.from)?;
        let mut file = place.create_file()?;
        let copied = io::copy(&mut io::Read::take(&mut from, self.bytes_left + 1), &mut file);
        let copied = copied.map_err(Error::io("copy", path))?;
        self.spend(copied)?;
        let (uid, gid) = self.owner(item);
        rustix::fs::fchown(&file, Some(uid), Some(gid))?;
        rustix::fs::fchmod(&file, self.mode(item))?;
        copy_attributes(&from, &file)?;
        rustix::fs::futimens(&file, &times(item))?;
        if let Some(number) = several {
            self.links.insert(number, path.to_owned());
        }
        Ok(())
    }

    /// Deducts bytes from what the step may write.
    pub(super) fn spend(&mut self, bytes: u64) -> Result<(), Fault> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(too_much)?;
        Ok(())
    }

    fn link(&mut self, item: &Item, path: &Path) -> Result<(), Fault> {
        let place = self.free_place(path)?;
        let target = item.target.as_deref().unwrap_or(Path::new(""));
        place.make_symlink(target.as_os_str())?;
        self.finish(item, &place)
    }

    fn fifo(&mut self, item: &Item, path: &Path) -> Result<(), Fault> {
        let place = self.free_place(path)?;
        place.make_node(FileType::Fifo)?;
        let (folder, name) = place.at();
        rustix::fs::chmodat(folder, name, self.mode(item), AtFlags::empty())?;
        self.finish(item, &place)
    }

    /// Sets owner and times of something that cannot be opened.
    fn finish(&self, item: &Item, place: &Place) -> Result<(), Fault> {
        let (folder, name) = place.at();
        let (uid, gid) = self.owner(item);
        let same = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(folder, name, Some(uid), Some(gid), same)?;
        Ok(rustix::fs::utimensat(folder, name, &times(item), same)?)
    }

    fn owner(&self, item: &Item) -> (Uid, Gid) {
        let (uid, gid) = self.how.owner.unwrap_or((item.stat.st_uid, item.stat.st_gid));
        (Uid::from_raw(uid), Gid::from_raw(gid))
    }

    fn mode(&self, item: &Item) -> Mode {
        Mode::from_raw_mode(self.how.mode.unwrap_or(item.stat.st_mode) & 0o7777)
    }

    fn free_place(&self, path: &Path) -> Result<Place, Fault> {
        free_place(self.target, path)
    }
}

/// Returns the place for something other than a folder, and removes whatever is there, unless that
/// is a folder.
pub(super) fn free_place(tree: &Tree, path: &Path) -> Result<Place, Fault> {
    let place = match tree.place(path) {
        Ok(place) => place,
        Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => return Err(in_the_way(path)),
        Err(error) => return Err(error.into()),
    };
    match place.stat()? {
        Some(stat) if is_folder(&stat) => Err(Fault::Sources(format!(
            "there is a folder at /{} already, which a file cannot replace",
            path.display()
        ))),
        Some(_) => {
            place.remove()?;
            Ok(place)
        }
        None => Ok(place),
    }
}

/// Creates a folder and all missing folders above it.
pub(super) fn make_folders(tree: &Tree, path: &Path, owner: (u32, u32)) -> Result<(), Fault> {
    if path.as_os_str().is_empty() || tree.folder(path).is_ok() {
        return Ok(());
    }
    let mut steps: Vec<&Path> =
        path.ancestors().filter(|step| !step.as_os_str().is_empty()).collect();
    steps.reverse();
    for step in steps {
        match tree.folder(step) {
            Ok(_) => continue,
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(in_the_way(step)),
            Err(error) => return Err(error.into()),
        }
        match tree.place(step)?.make_folder() {
            Ok(()) => {}
            // A dangling link.
            Err(Errno::EXIST) => return Err(in_the_way(step)),
            Err(error) => return Err(error.into()),
        }
        let folder = tree.folder(step)?;
        let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
        rustix::fs::fchown(&folder, Some(uid), Some(gid))?;
        rustix::fs::fchmod(&folder, Mode::from_raw_mode(FOLDER_MODE))?;
    }
    Ok(())
}

/// Attributes of a file that is newly written.
pub(super) struct About {
    pub(super) mode: u32,
    /// `None` means root.
    pub(super) owner: Option<(u32, u32)>,
    pub(super) modified: i64,
}

/// Writes a file, and returns its size.
pub(super) fn write(
    tree: &Tree,
    path: &Path,
    about: &About,
    content: &mut impl io::Read,
) -> Result<u64, Fault> {
    let mut file: File = free_place(tree, path)?.create_file()?;
    let bytes = io::copy(content, &mut file).map_err(Error::io("write", path))?;
    let (uid, gid) = about.owner.unwrap_or((0, 0));
    rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(about.mode & 0o7777))?;
    let time = Timespec { tv_sec: about.modified, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::futimens(&file, &times)?;
    Ok(bytes)
}

/// Opens a file for reading, in blocking mode.
pub(super) fn open_file(tree: &Tree, path: &Path) -> Result<File, Fault> {
    let file = tree.read(path)?;
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}

fn times(item: &Item) -> Timestamps {
    let time = Timespec { tv_sec: item.stat.st_mtime, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

/// Copies the attributes that users set, and file capabilities.
fn copy_attributes(from: &File, to: &File) -> Result<(), Fault> {
    let mut names = vec![0; ATTRIBUTES_BYTES_MAX];
    let length = match rustix::fs::flistxattr(from, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let kept = |name: &&[u8]| {
        *name == CAPABILITIES || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
    };
    for name in names[..length].split(|byte| *byte == 0).filter(kept) {
        let mut value = vec![0; ATTRIBUTES_BYTES_MAX];
        let length = rustix::fs::fgetxattr(from, name, &mut value[..])?;
        rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty())?;
    }
    Ok(())
}

fn in_the_way(path: &Path) -> Fault {
    Fault::Sources(format!("there is something else than a folder at /{}", path.display()))
}

pub(super) fn too_much() -> Fault {
    Fault::Sources("it is more than a step of a build may copy".to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::items::Bounds;
    use super::super::pattern::Steps;
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_never_linked_to_what_replaced_its_first_copy() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["one", "two"] {
            fs::create_dir(source.path().join(name)).unwrap();
        }
        fs::write(source.path().join("one/a"), "linked").unwrap();
        fs::hard_link(source.path().join("one/a"), source.path().join("two/b")).unwrap();
        fs::write(source.path().join("two/a"), "other").unwrap();
        let trees = [&source, &target].map(|folder| Tree::open(folder.path()).unwrap());
        let how = As { owner: None, mode: None, folders: (0, 0) };
        let mut copying = Copying::new(&trees[0], &trees[1], how, 100);
        let steps = Steps::default();
        let bounds = Bounds { excludes: &[], entries: 10, bytes: 100, steps: &steps };
        for name in ["one", "two"] {
            let mut items = Vec::new();
            bounds.gather(&trees[0], Path::new(name), Path::new(""), &mut items).unwrap();
            items.sort_by(|left, right| left.to.cmp(&right.to));
            copying.all(&items, Path::new("x")).unwrap();
        }
        assert_eq!(fs::read(target.path().join("x/a")).unwrap(), b"other");
        assert_eq!(fs::read(target.path().join("x/b")).unwrap(), b"linked");
    }
}
