//! Archives that ADD unpacks.

use super::Fault;
use super::copy::open_file;
use super::items::{Bounds, Contents, digest};
use super::pattern::Steps;
use crate::digest::Digest;
use crate::error::Error;
use crate::packing;
use crate::settings::{Devices, Names, Overlay, Privileges, Rules, Settings};
use crate::unpack::{Tree, Unpacked, unpack};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// A tar archive, plain or packed.
pub(super) enum Archive {
    /// Its path in the tree that is copied from.
    InTree(PathBuf),
    Downloaded {
        address: String,
        file: PathBuf,
        digest: Digest,
    },
}

impl Archive {
    /// Returns the archive at a path of a tree, and its size, if the file there is one.
    pub(super) fn in_tree(tree: &Tree, path: &Path) -> Result<Option<(Self, u64)>, Fault> {
        let stat = match tree.look(path, true) {
            // A link that leads nowhere.
            Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
            found => found?,
        };
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
            return Ok(None);
        }
        let bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        let found = is_archive(open_file(tree, path)?)?;
        Ok(found.then(|| (Self::InTree(path.to_owned()), bytes)))
    }

    /// Returns what was fetched from an address if it is an archive.
    pub(super) fn downloaded(
        address: &str,
        file: &Path,
        digest: Digest,
    ) -> Result<Option<Self>, Fault> {
        let found = is_archive(open_download(file)?)?;
        let (address, file) = (address.to_owned(), file.to_owned());
        Ok(found.then_some(Self::Downloaded { address, file, digest }))
    }

    pub(super) fn digest(&self, tree: &Tree, contents: &mut Contents) -> Result<Digest, Fault> {
        let path = match self {
            Self::Downloaded { digest, .. } => return Ok(*digest),
            Self::InTree(path) => path,
        };
        let mut items = Vec::new();
        let steps = &Steps::default();
        let bounds = Bounds { excludes: &[], entries: 1, bytes: u64::MAX, steps };
        bounds.gather(tree, path, Path::new(""), &mut items)?;
        digest(tree, &items, false, contents)
    }

    /// Unpacks it into a folder, within what is left to the step, and returns what that took.
    pub(super) fn extract(
        &self,
        tree: &Tree,
        into: &OwnedFd,
        owner: Option<(u32, u32)>,
        left: Unpacked,
    ) -> Result<Unpacked, Fault> {
        let (file, name) = match self {
            Self::InTree(path) => (open_file(tree, path)?, format!("/{}", path.display())),
            Self::Downloaded { address, file, .. } => {
                (open_download(file)?, format!("what {address} answers"))
            }
        };
        let (devices, privileges) = (Devices::Skip, Privileges::Keep);
        let rules = Rules { devices, privileges, names: Names::Files, owner };
        let mut settings = Settings { rules, overlay: Overlay::User, ..Settings::default() };
        settings.limits.layer_bytes_max = left.bytes;
        settings.limits.entries_max = left.entries;
        let archive = packing::unpacked(file, &settings.limits);
        let way = PathBuf::from(format!("/proc/self/fd/{}", into.as_raw_fd()));
        archive.map_err(Error::from).and_then(|archive| unpack(archive, &way, &settings)).map_err(
            |error| match error {
                Error::Malformed { .. } | Error::Read(_) => {
                    Fault::Sources(format!("{name} is not a sound tar archive"))
                }
                other => other.into(),
            },
        )
    }
}

fn open_download(file: &Path) -> Result<File, Fault> {
    Ok(File::open(file).map_err(Error::io("open", file))?)
}

/// Returns whether a file is an archive that ADD unpacks, judging by its content.
fn is_archive(mut file: File) -> Result<bool, Fault> {
    let mut start = Vec::new();
    (&file).take(6).read_to_end(&mut start).map_err(Error::from)?;
    let packed = match start.as_slice() {
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some("bzip2"),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Some("xz"),
        _ => None,
    };
    if let Some(packed) = packed {
        return Err(Fault::Sources(format!(
            "ADD unpacks tar archives, plain or packed with gzip or zstd; this one is packed with \
             {packed}, and `--unpack=false` copies it as it is"
        )));
    }
    file.rewind().map_err(Error::from)?;
    // A file that is only compressed, or not an archive at all, is copied as it is.
    let Ok(mut archive) = packing::unpacked(file, &Settings::default().limits) else {
        return Ok(false);
    };
    let mut block = [0; 512];
    let is_tar = archive.read_exact(&mut block).is_ok() && &block[257..262] == b"ustar";
    Ok(is_tar)
}
