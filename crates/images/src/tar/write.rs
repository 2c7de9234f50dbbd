//! Writes the changes that an overlay has collected as a layer: its files, and whiteouts for the
//! files that it hides.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs as sys;

use super::header::BLOCK;
use crate::error::{BYTES_OF_LAYER, Error};
use crate::settings::{Limits, Overlay};
use crate::unpack::{OPAQUE, WHITEOUT};

/// Room for the path in a header. A longer one gets a PAX header before it.
const PATH_BYTES_MAX: usize = 100;
const OWNER_MAX: u32 = 0o7_777_777;
const SIZE_MAX: u64 = 0o77_777_777_777;
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// The changes that an overlay has collected.
pub(crate) struct Difference<'a> {
    pub(crate) upper: &'a Path,
    pub(crate) overlay: Overlay,
    /// The id on this machine that was root, if the changes were made in a user namespace.
    pub(crate) root: u32,
    /// Whether programs keep their file capabilities.
    pub(crate) with_capabilities: bool,
    /// The limits of layers. What goes beyond them could not be unpacked, so it is not packed
    /// either: a file with holes can be millions of times larger than the disk it is on.
    pub(crate) limits: &'a Limits,
}

/// Writes all of `upper` to `out`, sorted by name. Returns whether there was anything.
pub(crate) fn write_difference(
    difference: &Difference<'_>,
    out: impl Write,
) -> Result<bool, Error> {
    let mut writer =
        Writer { difference, out, is_empty: true, links: HashMap::new(), bytes: 0, entries: 0 };
    writer.folder(Path::new(""), 0)?;
    writer.out.write_all(&[0; 2 * BLOCK])?;
    Ok(!writer.is_empty)
}

/// Name and value of an extended attribute.
type Attribute = (Vec<u8>, Vec<u8>);

struct Writer<'a, W> {
    difference: &'a Difference<'a>,
    out: W,
    is_empty: bool,
    /// Where the first name of a file with several names was written, by inode number.
    links: HashMap<u64, PathBuf>,
    /// What was found so far, including what is about to be written.
    bytes: u64,
    entries: u64,
}

struct Entry<'a> {
    path: &'a [u8],
    kind: u8,
    link: &'a [u8],
    size: u64,
}

impl<W: Write> Writer<'_, W> {
    fn folder(&mut self, path: &Path, depth: usize) -> Result<(), Error> {
        let max = self.difference.limits.depth_max;
        if depth > max {
            return Err(Error::Limit { what: "folders in one path", max: max as u64 });
        }
        let mut names = self.names(path)?;
        names.sort();
        names.into_iter().try_for_each(|name| self.add(&path.join(name), depth))
    }

    /// Lists a folder. Counts its entries meanwhile, because all names of a folder are in memory.
    fn names(&mut self, path: &Path) -> Result<Vec<OsString>, Error> {
        let folder = self.difference.upper.join(path);
        let failed = |error| Error::io("list", &folder)(error);
        let (mut names, max) = (Vec::new(), self.difference.limits.entries_max);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            names.push(entry.map_err(failed)?.file_name());
            self.entries += 1;
            if self.entries > max {
                return Err(Error::Limit { what: "entries in one layer", max });
            }
        }
        Ok(names)
    }

    fn add(&mut self, path: &Path, depth: usize) -> Result<(), Error> {
        let full = self.difference.upper.join(path);
        let about = fs::symlink_metadata(&full).map_err(Error::io("look at", &full))?;
        let kind = about.file_type();
        let name = path.file_name().unwrap_or_default().as_bytes();
        if name.starts_with(WHITEOUT) {
            return Err(Error::hostile(
                path.as_os_str().as_bytes(),
                "a name that no layer can have",
            ));
        }
        if kind.is_char_device() && about.rdev() == 0 {
            return self
                .whiteout(&path.with_file_name(OsString::from_vec([WHITEOUT, name].concat())));
        }
        if kind.is_dir() {
            return self.add_folder(path, &full, &about, depth);
        }
        if !kind.is_file() && !kind.is_symlink() && !kind.is_fifo() {
            // Sockets and devices have no meaning in an image.
            return Ok(());
        }
        if about.nlink() > 1 {
            if let Some(first) = self.links.get(&about.ino()).cloned() {
                let link = first.as_os_str().as_bytes();
                return self.header(&Entry { link, ..Entry::new(path, b'1') }, &about, &[]);
            }
            self.links.insert(about.ino(), path.to_owned());
        }
        if kind.is_symlink() {
            let target = fs::read_link(&full).map_err(Error::io("read", &full))?;
            let link = target.as_os_str().as_bytes();
            return self.header(&Entry { link, ..Entry::new(path, b'2') }, &about, &[]);
        }
        if kind.is_fifo() {
            self.header(&Entry::new(path, b'6'), &about, &[])
        } else {
            self.add_file(path, &full)
        }
    }

    fn add_folder(
        &mut self,
        path: &Path,
        full: &Path,
        about: &Metadata,
        depth: usize,
    ) -> Result<(), Error> {
        let attributes = self.attributes(full)?;
        self.header(&Entry::new(path, b'5'), about, &attributes)?;
        let mut value = [0; 1];
        if sys::lgetxattr(full, self.difference.overlay.opaque_attribute(), &mut value) == Ok(1)
            && value == *b"y"
        {
            self.whiteout(&path.join(OsString::from_vec(OPAQUE.to_vec())))?;
        }
        self.folder(path, depth + 1)
    }

    fn add_file(&mut self, path: &Path, full: &Path) -> Result<(), Error> {
        let file = File::open(full).map_err(Error::io("open", full))?;
        let about = file.metadata().map_err(Error::io("look at", full))?;
        let (size, max) = (about.len(), self.difference.limits.layer_bytes_max);
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > max {
            return Err(Error::Limit { what: BYTES_OF_LAYER, max });
        }
        self.header(&Entry { size, ..Entry::new(path, b'0') }, &about, &self.attributes(full)?)?;
        let written = io::copy(&mut file.take(size), &mut self.out)?;
        if written < size {
            return Err(Error::io("read", full)(io::ErrorKind::UnexpectedEof.into()));
        }
        self.pad(size)
    }

    fn whiteout(&mut self, path: &Path) -> Result<(), Error> {
        self.block(&Entry::new(path, b'0'), 0o600, (0, 0), 0)
    }

    fn header(
        &mut self,
        entry: &Entry<'_>,
        about: &Metadata,
        attributes: &[Attribute],
    ) -> Result<(), Error> {
        let mut records = Vec::new();
        for (name, value) in attributes {
            record(&mut records, &[b"SCHILY.xattr.", name.as_slice()].concat(), value);
        }
        if entry.path.len() > PATH_BYTES_MAX {
            record(&mut records, b"path", entry.path);
        }
        if entry.link.len() > PATH_BYTES_MAX {
            record(&mut records, b"linkpath", entry.link);
        }
        if entry.size > SIZE_MAX {
            record(&mut records, b"size", entry.size.to_string().as_bytes());
        }
        let (uid, gid) = self.owner(entry.path, about)?;
        for (key, id) in [(b"uid", uid), (b"gid", gid)] {
            if id > OWNER_MAX {
                record(&mut records, key, id.to_string().as_bytes());
            }
        }
        if !records.is_empty() {
            let size = records.len() as u64;
            self.block(&Entry { size, ..Entry::new(Path::new("pax"), b'x') }, 0o644, (0, 0), 0)?;
            self.out.write_all(&records)?;
            self.pad(size)?;
        }
        let owner = (uid.min(OWNER_MAX), gid.min(OWNER_MAX));
        self.block(entry, about.mode() & 0o7777, owner, about.mtime().try_into().unwrap_or(0))
    }

    fn owner(&self, path: &[u8], about: &Metadata) -> Result<(u32, u32), Error> {
        let inside = |id: u32| {
            let own = id.checked_sub(self.difference.root);
            own.ok_or_else(|| Error::hostile(path, "an owner that the instance does not have"))
        };
        Ok((inside(about.uid())?, inside(about.gid())?))
    }

    fn attributes(&self, path: &Path) -> Result<Vec<Attribute>, Error> {
        attributes(path, self.difference)
    }

    fn block(
        &mut self,
        entry: &Entry<'_>,
        mode: u32,
        owner: (u32, u32),
        modified: u64,
    ) -> Result<(), Error> {
        self.is_empty = false;
        let mut block = [0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &entry.path[..entry.path.len().min(PATH_BYTES_MAX)]);
        put(100, format!("{mode:07o}").as_bytes());
        put(108, format!("{:07o}", owner.0).as_bytes());
        put(116, format!("{:07o}", owner.1).as_bytes());
        put(124, format!("{:011o}", entry.size.min(SIZE_MAX)).as_bytes());
        put(136, format!("{:011o}", modified.min(SIZE_MAX)).as_bytes());
        put(148, b"        ");
        put(156, &[entry.kind]);
        put(157, &entry.link[..entry.link.len().min(PATH_BYTES_MAX)]);
        put(257, b"ustar\x0000");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        Ok(self.out.write_all(&block)?)
    }

    fn pad(&mut self, size: u64) -> Result<(), Error> {
        let padding = (size.wrapping_neg() % BLOCK as u64) as usize;
        Ok(self.out.write_all(&[0; BLOCK][..padding])?)
    }
}

impl<'a> Entry<'a> {
    fn new(path: &'a Path, kind: u8) -> Self {
        Self { path: path.as_os_str().as_bytes(), kind, link: b"", size: 0 }
    }
}

/// Appends a record `length key=value
/// `, in which the length includes its own digits.
fn record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let digits = (1..20).find(|digits| (rest + digits).to_string().len() == *digits).unwrap_or(20);
    records.extend_from_slice(format!("{} ", rest + digits).as_bytes());
    records.extend_from_slice(&[key, b"=", value, b"\n"].concat());
}

const CAPABILITIES: &[u8] = b"security.capability";
/// Version 3 of file capabilities also stores the root id of the user namespace in which they
/// count, in its last four bytes. Version 2 is the same without these.
const CAPABILITIES_OF_ROOT: u8 = 3;
const CAPABILITIES_OF_ALL: u8 = 2;
const CAPABILITIES_BYTES: usize = 20;

/// Converts the capabilities of a program to the form that counts for everybody, if they are those
/// of the instance's root.
fn capabilities(mut value: Vec<u8>, root: u32) -> Option<Vec<u8>> {
    let names_root = value.len() == CAPABILITIES_BYTES + 4 && value[3] == CAPABILITIES_OF_ROOT;
    match names_root {
        true if value[CAPABILITIES_BYTES..] == root.to_le_bytes() => {
            value.truncate(CAPABILITIES_BYTES);
            value[3] = CAPABILITIES_OF_ALL;
            Some(value)
        }
        true => None,
        false => Some(value),
    }
}

/// Returns the attributes that a layer keeps: capabilities, and `user.*` except those that
/// overlayfs would obey.
fn attributes(path: &Path, difference: &Difference<'_>) -> Result<Vec<Attribute>, Error> {
    let failed = |error: rustix::io::Errno| Error::io("look at", path)(error.into());
    let mut names = vec![0; ATTRIBUTE_BYTES_MAX];
    let length = match sys::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(failed(error)),
    };
    let kept = |name: &&[u8]| {
        (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."))
            || (difference.with_capabilities && *name == CAPABILITIES)
    };
    let mut found = Vec::new();
    for name in names[..length].split(|byte| *byte == 0).filter(kept) {
        let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
        let length = sys::lgetxattr(path, name, &mut value[..]).map_err(failed)?;
        value.truncate(length);
        let value = match name == CAPABILITIES {
            true => capabilities(value, difference.root),
            false => Some(value),
        };
        found.extend(value.map(|value| (name.to_vec(), value)));
    }
    Ok(found)
}
