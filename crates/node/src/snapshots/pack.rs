//! Packs the files of a snapshot into one stream, and unpacks it.
//!
//! ```text
//! MAGIC  entries of the root folder  END
//! entry: kind, name, and except for ALIAS: permissions, owners, times, attributes
//!        FILE:    number (for aliases), size, extents (offset, length, content), an empty extent
//!        LINK:    target
//!        FOLDER:  entries  END
//!        ALIAS:   number of the file that it is another name of
//! ```
//!
//! It is not a tar: a tar has holes, whiteouts and nanoseconds only by extensions, which want the
//! map of a file before its content, and it has paths, which a reader must not trust. Here every
//! name is a single name in the folder that is open. The same files always make the same stream.

use super::entry::{attribute_names, is_whiteout};
use super::folder::{kind, look, names};
use crate::sparse::{Carrier, broken, read_number, write_number};
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Statx, Timespec, Timestamps, Uid, XattrFlags, chmodat,
    chownat, fchmod, fchown, fgetxattr, fsetxattr, ftruncate, futimens, linkat, makedev, mkdirat,
    mknodat, openat, readlinkat, symlinkat, utimensat,
};
use rustix::io::dup;
use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"holmpk01";
const END: u8 = 0;
const FILE: u8 = 1;
const FOLDER: u8 = 2;
const LINK: u8 = 3;
const PIPE: u8 = 4;
const WHITEOUT: u8 = 5;
const ALIAS: u8 = 6;
/// The number of a file that has only one name.
const ALONE: u64 = u64::MAX;
/// Deeper than any snapshot: paths are at most as long as the kernel accepts, and each folder takes
/// a name and a slash.
const DEPTH_MAX: usize = 2_100;
/// The kernel's limits.
const NAME_BYTES_MAX: usize = 255;
const LINK_BYTES_MAX: usize = 4_096;
const ATTRIBUTES_BYTES_MAX: usize = 64 << 10;
/// The only attributes that a stream may set.
const ATTRIBUTES: [&[u8]; 4] =
    [b"user.", b"security.capability", b"system.posix_acl_access", b"system.posix_acl_default"];

/// What a file has besides its content.
#[derive(Debug)]
struct About {
    mode: u32,
    owners: (u32, u32),
    times: Timestamps,
    attributes: Vec<(CString, Vec<u8>)>,
}

/// Writes everything in a folder except the `left_out` entries of its top level.
pub(super) fn pack(top: &OwnedFd, left_out: &[&str], into: &mut dyn Write) -> io::Result<()> {
    let mut packer = Packer { into, aliases: HashMap::new(), carrier: Carrier::new() };
    packer.bytes(MAGIC)?;
    let mut first = sorted(top)?;
    first.retain(|name| !left_out.iter().any(|out| OsStr::new(out) == name));
    let mut open = vec![(dup(top)?, first)];
    while let Some((folder, names)) = open.last_mut() {
        let Some(name) = names.pop() else {
            packer.bytes(&[END])?;
            open.pop();
            continue;
        };
        if let Some(inner) = packer.entry(folder, &name)? {
            let names = sorted(&inner)?;
            open.push((inner, names));
            require(open.len() <= DEPTH_MAX, "its folders are too deep")?;
        }
    }
    Ok(())
}

/// Returns the names in a folder in reverse order.
fn sorted(folder: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = names(folder).map_err(io::Error::other)?;
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

struct Packer<'w> {
    into: &'w mut dyn Write,
    /// Numbers of files with several names, by inode.
    aliases: HashMap<u64, u64>,
    carrier: Carrier,
}

impl Packer<'_> {
    /// Writes an entry. Returns the folder if it is one, whose entries come next.
    fn entry(&mut self, folder: &OwnedFd, name: &OsStr) -> io::Result<Option<OwnedFd>> {
        let stat = look(folder, name)?;
        match kind(&stat) {
            FileType::RegularFile => self.file(folder, name, &stat)?,
            FileType::Directory => {
                let inner = open(folder, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
                self.head(FOLDER, name)?;
                self.about(&stat, Some(&inner))?;
                return Ok(Some(inner));
            }
            FileType::Symlink => {
                self.head(LINK, name)?;
                self.about(&stat, None)?;
                let target = readlinkat(folder, name, Vec::new())?;
                self.text(target.as_bytes())?;
            }
            FileType::Fifo => {
                self.head(PIPE, name)?;
                self.about(&stat, None)?;
            }
            FileType::CharacterDevice if is_whiteout(&stat) => {
                self.head(WHITEOUT, name)?;
                self.about(&stat, None)?;
            }
            _ => return Err(broken("it holds a device or a socket")),
        }
        Ok(None)
    }

    fn file(&mut self, folder: &OwnedFd, name: &OsStr, stat: &Statx) -> io::Result<()> {
        let next = self.aliases.len() as u64;
        let number = match stat.stx_nlink {
            0 | 1 => ALONE,
            _ => match self.aliases.insert(stat.stx_ino, next) {
                None => next,
                Some(number) => {
                    self.aliases.insert(stat.stx_ino, number);
                    self.head(ALIAS, name)?;
                    return self.number(number);
                }
            },
        };
        let file = open(folder, name, OFlags::RDONLY)?;
        self.head(FILE, name)?;
        self.about(stat, Some(&file))?;
        self.number(number)?;
        self.number(stat.stx_size)?;
        self.carrier.write(&file, stat.stx_size, self.into)
    }

    fn head(&mut self, kind: u8, name: &OsStr) -> io::Result<()> {
        self.bytes(&[kind])?;
        self.text(name.as_bytes())
    }

    fn about(&mut self, stat: &Statx, open: Option<&OwnedFd>) -> io::Result<()> {
        self.number(u64::from(stat.stx_mode) & 0o7777)?;
        self.number(stat.stx_uid.into())?;
        self.number(stat.stx_gid.into())?;
        for time in [stat.stx_atime, stat.stx_mtime] {
            self.bytes(&time.tv_sec.to_le_bytes())?;
            self.number(time.tv_nsec.into())?;
        }
        let attributes = open.map(attributes).transpose()?.unwrap_or_default();
        self.number(attributes.len() as u64)?;
        for (name, value) in attributes {
            self.text(name.to_bytes())?;
            self.text(&value)?;
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) -> io::Result<()> {
        self.number(text.len() as u64)?;
        self.bytes(text)
    }

    fn number(&mut self, number: u64) -> io::Result<()> {
        write_number(self.into, number)
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.into.write_all(bytes)
    }
}

fn attributes(file: &OwnedFd) -> io::Result<Vec<(CString, Vec<u8>)>> {
    let mut found = Vec::new();
    let names = attribute_names(file)?.into_iter();
    for name in names.filter(|name| is_kept(name.to_bytes())) {
        let mut value = vec![0; ATTRIBUTES_BYTES_MAX];
        let length = fgetxattr(file, &name, &mut value[..])?;
        value.truncate(length);
        found.push((name, value));
    }
    found.sort_unstable();
    Ok(found)
}

fn is_kept(name: &[u8]) -> bool {
    ATTRIBUTES.iter().any(|kept| match kept.ends_with(b".") {
        true => name.starts_with(kept),
        false => name == *kept,
    })
}

/// Unpacks a stream into an empty folder, in which nobody else works.
pub(super) fn unpack(from: &mut dyn Read, top: &OwnedFd) -> io::Result<()> {
    let mut unpacker = Unpacker { from, named: Vec::new(), carrier: Carrier::new() };
    let mut magic = [0; MAGIC.len()];
    unpacker.from.read_exact(&mut magic)?;
    require(magic == *MAGIC, "it is no stream of files")?;
    let mut open = vec![Level { folder: dup(top)?, about: None }];
    let mut path = PathBuf::new();
    while let Some(level) = open.last() {
        let kind = unpacker.byte()?;
        if kind == END {
            if let Some(about) = &level.about {
                about.dress(&level.folder)?;
            }
            open.pop();
            path.pop();
            continue;
        }
        let name = unpacker.name()?;
        path.push(&name);
        match unpacker.entry(kind, top, &level.folder, &name, &path)? {
            Some(inner) => open.push(inner),
            None => drop(path.pop()),
        }
        require(open.len() <= DEPTH_MAX, "its folders are too deep")?;
    }
    // Nothing may follow, because content that is not looked at would not be noticed as different.
    match unpacker.from.read(&mut magic)? {
        0 => Ok(()),
        _ => Err(broken("more follows than files")),
    }
}

struct Level {
    folder: OwnedFd,
    /// Set once the folder is complete, because each new entry changes its times. `None` for the
    /// root.
    about: Option<About>,
}

struct Unpacker<'r> {
    from: &'r mut dyn Read,
    /// Paths of files with several names, by number.
    named: Vec<PathBuf>,
    carrier: Carrier,
}

impl Unpacker<'_> {
    fn entry(
        &mut self,
        kind: u8,
        top: &OwnedFd,
        folder: &OwnedFd,
        name: &OsStr,
        path: &Path,
    ) -> io::Result<Option<Level>> {
        if kind == ALIAS {
            let number = self.number()?;
            let first = usize::try_from(number).ok().and_then(|number| self.named.get(number));
            let first = first.ok_or_else(|| broken("a second name of no file"))?;
            // Only names of files are stored here, in folders that this code made, so no link is on
            // the way.
            linkat(top, first, folder, name, AtFlags::empty())?;
            return Ok(None);
        }
        let about = self.about()?;
        match kind {
            FILE => self.file(&about, folder, name, path)?,
            FOLDER => {
                mkdirat(folder, name, Mode::from_raw_mode(0o700))?;
                let inner = open(folder, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
                return Ok(Some(Level { folder: inner, about: Some(about) }));
            }
            LINK => {
                let target = self.text(LINK_BYTES_MAX)?;
                symlinkat(OsStr::from_bytes(&target), folder, name)?;
                about.dress_name(folder, name, false)?;
            }
            PIPE | WHITEOUT => {
                let file_type =
                    if kind == PIPE { FileType::Fifo } else { FileType::CharacterDevice };
                mknodat(folder, name, file_type, Mode::from_raw_mode(0o600), makedev(0, 0))?;
                about.dress_name(folder, name, true)?;
            }
            _ => return Err(broken("an entry of no kind")),
        }
        Ok(None)
    }

    fn file(
        &mut self,
        about: &About,
        folder: &OwnedFd,
        name: &OsStr,
        path: &Path,
    ) -> io::Result<()> {
        let (number, size) = (self.number()?, self.number()?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o600);
        let file = openat(folder, name, flags | OFlags::CLOEXEC, mode)?;
        ftruncate(&file, size)?;
        self.carrier.read(self.from, &file, size)?;
        about.dress(&file)?;
        if number != ALONE {
            require(number == self.named.len() as u64, "files are numbered in their order")?;
            self.named.push(path.to_path_buf());
        }
        Ok(())
    }

    fn about(&mut self) -> io::Result<About> {
        let small = |number: u64| u32::try_from(number).map_err(|_| broken("too large a number"));
        let mode = small(self.number()?)?;
        require(mode <= 0o7777, "rights that there are not")?;
        let owners = (small(self.number()?)?, small(self.number()?)?);
        // To the kernel, all ones mean to leave the owner as it is.
        require(owners.0 != u32::MAX && owners.1 != u32::MAX, "an owner that there is not")?;
        let times = Timestamps { last_access: self.time()?, last_modification: self.time()? };
        let mut attributes = Vec::new();
        let count = self.number()?;
        require(count <= ATTRIBUTES_BYTES_MAX as u64, "too many attributes")?;
        for _ in 0..count {
            let name = self.text(NAME_BYTES_MAX)?;
            require(is_kept(&name), "an attribute that none of these has")?;
            attributes.push((CString::new(name)?, self.text(ATTRIBUTES_BYTES_MAX)?));
        }
        Ok(About { mode, owners, times, attributes })
    }

    fn time(&mut self) -> io::Result<Timespec> {
        let tv_sec = self.number()?.cast_signed();
        let nanoseconds = self.number()?;
        require(nanoseconds < 1_000_000_000, "no time")?;
        Ok(Timespec { tv_sec, tv_nsec: nanoseconds.cast_signed() })
    }

    fn name(&mut self) -> io::Result<OsString> {
        let name = self.text(NAME_BYTES_MAX)?;
        let bad = name.is_empty()
            || name == b"."
            || name == b".."
            || name.iter().any(|byte| [0, b'/'].contains(byte));
        require(!bad, "a name that no file has")?;
        Ok(OsString::from_vec(name))
    }

    fn text(&mut self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        require(length <= bytes_max, "a text that is too long")?;
        let mut text = vec![0; length];
        self.from.read_exact(&mut text)?;
        Ok(text)
    }

    fn number(&mut self) -> io::Result<u64> {
        read_number(self.from)
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.from.read_exact(&mut byte)?;
        Ok(byte[0])
    }
}

impl About {
    fn dress(&self, file: &OwnedFd) -> io::Result<()> {
        let (uid, gid) = self.owners();
        fchown(file, Some(uid), Some(gid))?;
        // This comes after the owner, because changing the owner clears some permissions and
        // capabilities.
        fchmod(file, Mode::from_raw_mode(self.mode))?;
        for (name, value) in &self.attributes {
            fsetxattr(file, name, value, XattrFlags::empty())?;
        }
        Ok(futimens(file, &self.times)?)
    }

    /// Sets owner, permissions and times of an entry that cannot be opened.
    fn dress_name(&self, folder: &OwnedFd, name: &OsStr, has_rights: bool) -> io::Result<()> {
        let (uid, gid) = self.owners();
        chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        if has_rights {
            chmodat(folder, name, Mode::from_raw_mode(self.mode), AtFlags::empty())?;
        }
        Ok(utimensat(folder, name, &self.times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn owners(&self) -> (Uid, Gid) {
        (Uid::from_raw(self.owners.0), Gid::from_raw(self.owners.1))
    }
}

fn open(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(openat(folder, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

fn require(holds: bool, what: &'static str) -> io::Result<()> {
    if holds { Ok(()) } else { Err(broken(what)) }
}

#[cfg(test)]
mod tests;
