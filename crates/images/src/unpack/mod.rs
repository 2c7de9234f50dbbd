//! Unpacks one layer into a folder, in the form that overlayfs reads.
//!
//! The archive is not trusted. Paths are resolved by the kernel inside the folder ([`tree`]),
//! device nodes are never created, and every count has a limit. A later entry with the same name
//! wins, as in all programs that read layers.

mod metadata;
mod tree;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, XattrFlags};
use rustix::io::Errno;

pub(crate) use tree::{Place, Tree, is_folder, plain_path};

use crate::error::{BYTES_OF_LAYER, Error};
use crate::settings::{Devices, Limits, Names, Settings};
use crate::tar::{Content, Entry, Kind, Reader};

pub(crate) const WHITEOUT: &[u8] = b".wh.";
pub(crate) const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names with this prefix are an old file system's notes to itself.
const WHITEOUT_NOTES: &[u8] = b".wh..wh.";
/// Files are written in blocks of this size, and those that are all zeros are left out.
const BLOCK_BYTES: usize = 64 << 10;
static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// What an archive has unpacked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// Size of its files.
    pub(crate) bytes: u64,
    /// Files, folders and links.
    pub(crate) entries: u64,
}

/// Unpacks a tar archive into `folder`.
pub(crate) fn unpack(
    archive: impl Read,
    folder: &Path,
    settings: &Settings,
) -> Result<Unpacked, Error> {
    let mut layer =
        Layer { tree: Tree::open(folder)?, settings, entries: 0, bytes: 0, times: Vec::new() };
    let mut reader = Reader::new(archive, settings.limits.extension_bytes_max);
    while let Some(mut entry) = reader.next()? {
        if let Some((uid, gid)) = settings.rules.owner {
            (entry.uid, entry.gid) = (uid, gid);
        }
        layer.add(&entry, &mut reader)?;
    }
    reader.finish()?;
    layer.set_times()?;
    Ok(Unpacked { bytes: layer.bytes, entries: layer.entries })
}

struct Layer<'a> {
    tree: Tree,
    settings: &'a Settings,
    entries: u64,
    bytes: u64,
    /// Times of folders, set at the end. At most one per entry.
    times: Vec<(PathBuf, i64)>,
}

impl Layer<'_> {
    fn add(&mut self, entry: &Entry, data: &mut impl Read) -> Result<(), Error> {
        self.count(1)?;
        let files_only = self.settings.rules.names == Names::Files;
        if files_only && entry.path.starts_with(b"/") {
            return Err(Error::hostile(&entry.path, "an absolute name"));
        }
        let path = plain_path(&entry.path, &self.settings.limits)?;
        let Some(name) = path.file_name() else { return self.add_root(entry) };
        let (place, made) =
            self.tree.place_anew(&path).map_err(|error| refused(&entry.path, error))?;
        self.count(made)?;
        if !files_only && name.as_bytes().starts_with(WHITEOUT) {
            return self.hide(&place, name, entry);
        }
        match &entry.kind {
            Kind::Folder => self.add_folder(&place, path, entry)?,
            Kind::File(content) => self.add_file(&place, entry, content, data)?,
            Kind::HardLink { target } => self.add_hard_link(&place, &path, entry, target)?,
            Kind::Symlink { target } => add_symlink(&place, entry, target, &self.settings.limits)?,
            Kind::Fifo => {
                place.remove()?;
                place.make_node(FileType::Fifo)?;
                metadata::of_place(&place, entry, true)?;
            }
            Kind::Device => match self.settings.rules.devices {
                Devices::Skip => {}
                Devices::Refuse => return Err(Error::hostile(&entry.path, "a device node")),
            },
        }
        Ok(())
    }

    fn count(&mut self, entries: u64) -> Result<(), Error> {
        self.entries += entries;
        let max = self.settings.limits.entries_max;
        if self.entries > max {
            Err(Error::Limit { what: "entries in one layer", max })
        } else {
            Ok(())
        }
    }

    fn add_root(&mut self, entry: &Entry) -> Result<(), Error> {
        if !matches!(entry.kind, Kind::Folder) {
            return Err(Error::hostile(&entry.path, "a root that is not a folder"));
        }
        metadata::of_folder(self.tree.folder(Path::new(""))?, entry, &self.settings.rules)?;
        self.times.push((PathBuf::new(), entry.modified));
        Ok(())
    }

    fn add_folder(&mut self, place: &Place, path: PathBuf, entry: &Entry) -> Result<(), Error> {
        let before = place.stat()?;
        if before.as_ref().is_none_or(|stat| !is_folder(stat)) {
            place.remove()?;
            place.make_folder()?;
        }
        let folder = place.open_folder()?;
        if before.is_some_and(|stat| is_whiteout(&stat)) {
            self.make_opaque(&folder)?;
        }
        metadata::of_folder(folder, entry, &self.settings.rules)?;
        self.times.push((path, entry.modified));
        Ok(())
    }

    fn add_file(
        &mut self,
        place: &Place,
        entry: &Entry,
        content: &Content,
        data: &mut impl Read,
    ) -> Result<(), Error> {
        let max = self.settings.limits.layer_bytes_max;
        self.bytes = self.bytes.saturating_add(content.size);
        if self.bytes > max {
            return Err(Error::Limit { what: BYTES_OF_LAYER, max });
        }
        place.remove()?;
        let mut file = place.create_file()?;
        write(&mut file, content, data)?;
        metadata::of_file(&file, entry, &self.settings.rules)?;
        Ok(())
    }

    fn add_hard_link(
        &self,
        place: &Place,
        path: &Path,
        entry: &Entry,
        target: &[u8],
    ) -> Result<(), Error> {
        let target = plain_path(target, &self.settings.limits)?;
        let refuse = |why| Err(Error::hostile(&entry.path, why));
        if target == path {
            return refuse("a hard link to itself");
        }
        let original = self.tree.place(&target).map_err(|error| refused(&entry.path, error))?;
        match original.stat()? {
            None => return refuse("a hard link to a file that is not in the layer"),
            Some(stat) if is_folder(&stat) => return refuse("a hard link to a folder"),
            Some(stat) if is_whiteout(&stat) => return refuse("a hard link to a removed file"),
            Some(_) => {}
        }
        place.remove()?;
        // This fails if the place was a folder that contained the original.
        place.link_to(&original).map_err(|error| refused(&entry.path, error))
    }

    /// Hides what lower layers have under a name. Entries of this layer under the same name stay,
    /// whichever came first.
    fn hide(&mut self, place: &Place, name: &OsStr, entry: &Entry) -> Result<(), Error> {
        let name = name.as_bytes();
        if name == OPAQUE {
            let (folder, _) = place.at();
            return self.make_opaque(folder);
        }
        let hidden = &name[WHITEOUT.len()..];
        if name.starts_with(WHITEOUT_NOTES) || matches!(hidden, b"" | b"." | b"..") {
            return Err(Error::hostile(&entry.path, "a whiteout of no file"));
        }
        let hidden = place.sibling(OsStr::from_bytes(hidden))?;
        match hidden.stat()? {
            Some(stat) if is_folder(&stat) => self.make_opaque(hidden.open_folder()?),
            Some(_) => Ok(()),
            None => Ok(hidden.make_node(FileType::CharacterDevice)?),
        }
    }

    fn make_opaque(&self, folder: impl std::os::fd::AsFd) -> Result<(), Error> {
        let name = self.settings.overlay.opaque_attribute();
        Ok(rustix::fs::fsetxattr(folder, name, b"y", XattrFlags::empty())?)
    }

    fn set_times(&self) -> Result<(), Error> {
        for (path, seconds) in &self.times {
            match self.tree.folder(path) {
                Ok(folder) => rustix::fs::futimens(folder, &metadata::times(*seconds))?,
                // A later entry has replaced the folder.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn add_symlink(place: &Place, entry: &Entry, target: &[u8], limits: &Limits) -> Result<(), Error> {
    if target.is_empty() || target.len() > limits.path_bytes_max || target.contains(&0) {
        return Err(Error::hostile(&entry.path, "a symbolic link to nothing"));
    }
    place.remove()?;
    place.make_symlink(OsStr::from_bytes(target))?;
    Ok(metadata::of_place(place, entry, false)?)
}

/// Writes the content of a new file. Holes stay holes, also those that the archive has as zeros:
/// otherwise a file that took nothing where it was packed would fill the disk here.
fn write(file: &mut File, content: &Content, data: &mut impl Read) -> Result<(), Error> {
    for (offset, length) in &content.extents {
        file.seek(SeekFrom::Start(*offset))?;
        let mut blocks = BufWriter::with_capacity(BLOCK_BYTES, Sparse(file));
        let written = io::copy(&mut data.take(*length), &mut blocks)?;
        blocks.flush()?;
        if written < *length {
            return Err(Error::malformed("tar archive", "a file ends before its size"));
        }
    }
    Ok(file.set_len(content.size)?)
}

/// A new file in which blocks of zeros become holes. Its length has to be set at the end.
struct Sparse<'a>(&'a mut File);

impl Write for Sparse<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let zeros = ZEROS.get(..bytes.len());
        match (zeros == Some(bytes), i64::try_from(bytes.len())) {
            (true, Ok(length)) => self.0.seek(SeekFrom::Current(length)).map(|_| bytes.len()),
            _ => self.0.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_whiteout(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// Converts an error about a path that leads through files, loops or nowhere, which is the
/// archive's fault.
fn refused(path: &[u8], error: Errno) -> Error {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::EXIST => {
            Error::hostile(path, "a path through something that is not a folder")
        }
        Errno::NAMETOOLONG => Error::hostile(path, "a path that is too long"),
        other => other.into(),
    }
}
