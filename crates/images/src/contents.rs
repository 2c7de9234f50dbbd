//! Initial contents of volumes: an untrusted archive of plain files.
//!
//! An archive is read twice: once to learn how much room its files take and whether it contains
//! anything that a volume does not accept, then to unpack it. So nothing is begun that cannot be
//! completed.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::path::Path;

use crate::build::sources::{self, SourceLimits};
use crate::build::{Fault, zip};
use crate::error::Error;
use crate::packing;
use crate::settings::Limits;
use crate::tar::{Entry, Kind, Reader};
use crate::unpack::plain_path;

const BLOCK_BYTES: u64 = 4_096;
const MIB: u64 = 1 << 20;
/// Space that each file and folder takes besides its bytes, an upper bound for all file systems of
/// volumes.
const ENTRY_BYTES: u64 = 4_096;
/// Space that a file system needs for its journal and tables; `OWN_PART` is the share that grows
/// with its size.
const OWN_MB: u64 = 24;
const OWN_PART: u64 = 8;
/// From this size on, a different file system with a larger journal is used.
const LARGE_MB: u64 = 236;
const LARGE_OWN_MB: u64 = 64;

/// The space that the files of an archive need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of all files, including holes.
    pub bytes: u64,
    /// Files and folders, including those that only occur in the paths of others.
    pub entries: u64,
    /// Bytes on disk, where the last block of each file counts as a whole.
    pub block_bytes: u64,
}

impl Needs {
    /// Returns the size in megabytes of a file system that has room for them.
    pub fn volume_mb(&self) -> u64 {
        let bytes = self.block_bytes.saturating_add(self.entries.saturating_mul(ENTRY_BYTES));
        let mb = bytes.div_ceil(MIB);
        let all = mb + mb / OWN_PART + OWN_MB;
        if all > LARGE_MB { all + LARGE_OWN_MB } else { all }
    }
}

/// Reads an archive (zip, or tar, plain or packed with gzip or zstd) to its end, and refuses what
/// cannot be the content of a volume.
pub fn measure(archive: &Path, limits: SourceLimits) -> Result<Needs, Fault> {
    let (file, is_zip) = sources::open_archive(archive)?;
    let limits = limits.of_archive();
    let mut measuring = Measuring::new(&limits);
    if is_zip {
        zip::each(&file, &limits, &mut measuring)?;
        return Ok(measuring.needs);
    }
    let tar = packing::unpacked(file, &limits).map_err(Error::from);
    tar.and_then(|tar| measuring.read(tar)).map_err(|error| sources::as_archive(refused(error)))?;
    Ok(measuring.needs)
}

/// Rewords a limit that is phrased for images, because this is not an image.
fn refused(error: Error) -> Error {
    match error {
        Error::Limit { what, max } => over(what, max),
        other => other,
    }
}

fn over(what: &'static str, max: u64) -> Error {
    Error::Hostile { entry: format!("{max} {what}"), why: "it unpacks to more than it may" }
}

/// Unpacks an archive that was measured before into an empty folder. Everything belongs to root.
pub fn unpack(archive: &Path, folder: &Path, limits: SourceLimits) -> Result<(), Fault> {
    sources::unpack_archive(archive, folder, limits)
}

pub(crate) struct Measuring<'l> {
    limits: &'l Limits,
    needs: Needs,
    /// Folders already counted, as hashes, because their names could take too much memory.
    folders: HashSet<u64>,
    hasher: RandomState,
}

impl<'l> Measuring<'l> {
    fn new(limits: &'l Limits) -> Self {
        let hasher = RandomState::new();
        Self { limits, needs: Needs::default(), folders: HashSet::new(), hasher }
    }

    fn read(&mut self, tar: impl Read) -> Result<(), Error> {
        let mut reader = Reader::new(tar, self.limits.extension_bytes_max);
        while let Some(entry) = reader.next()? {
            self.add_of_tar(&entry)?;
        }
        reader.finish()
    }

    fn add_of_tar(&mut self, entry: &Entry) -> Result<(), Error> {
        match &entry.kind {
            Kind::File(content) => {
                self.name(&entry.path, false)?;
                self.bytes(content.size)
            }
            Kind::Folder => self.name(&entry.path, true),
            Kind::Symlink { .. } | Kind::HardLink { .. } => Err(link(&entry.path)),
            Kind::Fifo | Kind::Device => Err(special(&entry.path)),
        }
    }

    /// Counts an entry and the folders on the way to it.
    pub(crate) fn name(&mut self, name: &[u8], is_folder: bool) -> Result<(), Error> {
        if name.starts_with(b"/") {
            return Err(Error::hostile(name, "an absolute name"));
        }
        let path = plain_path(name, self.limits)?;
        let mut folders = path.ancestors();
        if !is_folder {
            folders.next();
            self.count()?;
        }
        for folder in folders {
            if !self.folders.insert(self.hasher.hash_one(folder)) {
                break;
            }
            self.count()?;
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), Error> {
        self.needs.entries += 1;
        let max = self.limits.entries_max;
        match self.needs.entries > max {
            true => Err(over("files and folders", max)),
            false => Ok(()),
        }
    }

    pub(crate) fn bytes(&mut self, bytes: u64) -> Result<(), Error> {
        self.needs.bytes = self.needs.bytes.saturating_add(bytes);
        let blocks = bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES);
        self.needs.block_bytes = self.needs.block_bytes.saturating_add(blocks);
        let max = self.limits.layer_bytes_max;
        match self.needs.bytes > max {
            true => Err(over("bytes in its files", max)),
            false => Ok(()),
        }
    }

    /// Returns how many more bytes are allowed.
    pub(crate) fn left(&self) -> u64 {
        self.limits.layer_bytes_max.saturating_sub(self.needs.bytes)
    }
}

pub(crate) fn link(name: &[u8]) -> Error {
    Error::hostile(name, "a volume template takes no symbolic and no hard links")
}

pub(crate) fn special(name: &[u8]) -> Error {
    Error::hostile(name, "a volume template takes files and folders, no devices and no pipes")
}
