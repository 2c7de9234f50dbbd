//! Reads untrusted zip archives: the list at the end is read, each entry is unpacked into a folder
//! that cannot be left, and no size in a header is believed.

use super::Fault;
use super::copy::{free_place, make_folders};
use crate::contents::{self, Measuring};
use crate::error::Error;
use crate::settings::Limits;
use crate::unpack::{Tree, plain_path};
use rustix::fs::{AtFlags, FileType, Mode, Timespec, Timestamps};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const END: &[u8] = b"PK\x05\x06";
const END_BYTES: u64 = 22;
const COMMENT_BYTES_MAX: u64 = 65_535;
const WIDE_END_LOCATOR: &[u8] = b"PK\x06\x07";
const ENTRY: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";
/// Largest list of entries, which is held in memory.
const LIST_BYTES_MAX: u64 = 64 << 20;
const ENCRYPTED: u16 = 1;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;
/// 1980-01-01, the first date that zip can express.
const FIRST_SECOND: i64 = 315_532_800;

pub(crate) fn is_zip(start: &[u8]) -> bool {
    start.starts_with(LOCAL) || start.starts_with(END)
}

struct Entry {
    name: Vec<u8>,
    method: u16,
    flags: u16,
    packed: u64,
    offset: u64,
    mode: Option<u32>,
    modified: i64,
}

impl Entry {
    /// Returns the name with Unix separators.
    fn plain_name(&self) -> Result<Vec<u8>, Fault> {
        if self.flags & ENCRYPTED != 0 {
            return Err(wrong("it is encrypted"));
        }
        Ok(self.name.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect())
    }

    fn kind(&self) -> FileType {
        self.mode.map_or(FileType::RegularFile, FileType::from_raw_mode)
    }
}

/// Counts what an archive unpacks to, and refuses everything but files and folders.
pub(crate) fn each(
    file: &File,
    limits: &Limits,
    measuring: &mut Measuring<'_>,
) -> Result<(), Fault> {
    let size = file.metadata().map_err(|error| Fault::from(Error::from(error)))?.len();
    let mut bytes = 0_u64;
    for entry in list(file, size, limits)? {
        let name = entry.plain_name()?;
        let is_folder = name.ends_with(b"/");
        measuring.name(&name, is_folder)?;
        match entry.kind() {
            _ if is_folder => continue,
            FileType::RegularFile | FileType::Unknown => {}
            FileType::Symlink => return Err(contents::link(&name).into()),
            FileType::Directory => return Err(wrong("a folder has the name of a file")),
            _ => return Err(contents::special(&name).into()),
        }
        let mut data = data(file, &entry)?.take(measuring.left() + 1);
        let unpacked = io::copy(&mut data, &mut io::sink()).map_err(broken)?;
        measuring.bytes(unpacked)?;
        bytes = bytes.saturating_add(unpacked);
        require_dense(bytes, size, limits)?;
    }
    Ok(())
}

/// Refuses an archive that unpacks to far more than its own size.
fn require_dense(bytes: u64, packed: u64, limits: &Limits) -> Result<(), Fault> {
    match bytes > limits.ratio_free_bytes && bytes > packed.saturating_mul(limits.ratio_max) {
        true => Err(Fault::Sources(format!(
            "the archive unpacks to more than {} times its size",
            limits.ratio_max
        ))),
        false => Ok(()),
    }
}

/// Unpacks an archive into a tree.
pub(crate) fn unpack(file: &File, tree: &Tree, limits: &Limits) -> Result<(), Fault> {
    let size = file.metadata().map_err(|error| Fault::from(Error::from(error)))?.len();
    let entries = list(file, size, limits)?;
    let mut unpacking =
        Unpacking { file, tree, limits, bytes: 0, packed: size, folders: Vec::new() };
    for entry in &entries {
        unpacking.add(entry)?;
    }
    for (path, mode) in unpacking.folders {
        rustix::fs::fchmod(tree.folder(&path)?, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

fn wrong(why: &str) -> Fault {
    Fault::Sources(format!("the zip archive cannot be read: {why}"))
}

fn read_at(mut file: &File, at: u64, length: u64) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(at)).map_err(Error::from)?;
    file.take(length).read_to_end(&mut bytes).map_err(Error::from)?;
    match bytes.len() as u64 == length {
        true => Ok(bytes),
        false => Err(wrong("it ends too early")),
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> Result<u64, Fault> {
    let bytes = at.checked_add(length).and_then(|end| bytes.get(at..end));
    let bytes = bytes.ok_or_else(|| wrong("a header ends too early"))?;
    Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// Finds the list of entries; returns its offset, its length in bytes, and the number of entries.
fn place_of_list(file: &File, size: u64) -> Result<(u64, u64, u64), Fault> {
    let tail = size.min(END_BYTES + COMMENT_BYTES_MAX);
    let bytes = read_at(file, size - tail, tail)?;
    let ends = bytes.windows(END.len()).rposition(|window| window == END);
    let at = ends.filter(|at| bytes.len() - at >= 22).ok_or_else(|| wrong("it has no end"))?;
    let end = &bytes[at..];
    let (count, length, offset) = (number(end, 10, 2)?, number(end, 12, 4)?, number(end, 16, 4)?);
    if count != 0xffff && length != 0xffff_ffff && offset != 0xffff_ffff {
        return Ok((offset, length, count));
    }
    let locator = at.checked_sub(20).map(|from| &bytes[from..at]);
    let locator = locator
        .filter(|locator| locator.starts_with(WIDE_END_LOCATOR))
        .ok_or_else(|| wrong("the place of its list is missing"))?;
    let wide = read_at(file, number(locator, 8, 8)?.min(size), 56)?;
    Ok((number(&wide, 48, 8)?, number(&wide, 40, 8)?, number(&wide, 32, 8)?))
}

fn list(file: &File, size: u64, limits: &Limits) -> Result<Vec<Entry>, Fault> {
    let (offset, length, count) = place_of_list(file, size)?;
    if count > limits.entries_max || length > LIST_BYTES_MAX {
        return Err(Fault::Sources(format!(
            "the archive has more than {} files",
            limits.entries_max
        )));
    }
    if offset.checked_add(length).is_none_or(|end| end > size) {
        return Err(wrong("its list is not in it"));
    }
    let bytes = read_at(file, offset, length)?;
    let (mut entries, mut rest) = (Vec::new(), bytes.as_slice());
    while !rest.is_empty() && (entries.len() as u64) < count {
        let (entry, length) = entry(rest)?;
        entries.push(entry);
        rest = rest.get(length..).ok_or_else(|| wrong("its list ends too early"))?;
    }
    if entries.len() as u64 != count {
        return Err(wrong("its list is not complete"));
    }
    Ok(entries)
}

/// Parses one entry of the list; returns it with its length.
fn entry(bytes: &[u8]) -> Result<(Entry, usize), Fault> {
    if !bytes.starts_with(ENTRY) {
        return Err(wrong("an entry of its list is none"));
    }
    let field = |at, length| number(bytes, at, length);
    let part = |at: usize, length: u64| {
        let end = usize::try_from(length).ok().and_then(|length| at.checked_add(length));
        end.and_then(|end| bytes.get(at..end)).ok_or_else(|| wrong("its list ends too early"))
    };
    let (name, extra, comment) = (field(28, 2)?, field(30, 2)?, field(32, 2)?);
    let extra_at = 46 + usize::from(name as u16);
    let (wide, unix) = extras(part(extra_at, extra)?)?;
    let mut wide = wide.into_iter();
    let mut sized = |value: u64| match value == 0xffff_ffff {
        true => wide.next().unwrap_or(value),
        false => value,
    };
    // In this order, and only those that do not fit into their regular fields.
    let (_size, packed, offset) =
        (sized(field(24, 4)?), sized(field(20, 4)?), sized(field(42, 4)?));
    let is_unix = field(5, 1)? == 3 || field(5, 1)? == 19;
    let mode = (field(38, 4)? >> 16) as u32;
    let entry = Entry {
        name: part(46, name)?.to_vec(),
        method: field(10, 2)? as u16,
        flags: field(8, 2)? as u16,
        packed,
        offset,
        mode: Some(mode).filter(|mode| is_unix && *mode != 0),
        modified: unix.unwrap_or(seconds(field(14, 2)?, field(12, 2)?)),
    };
    let length = 46 + name + extra + comment;
    Ok((entry, usize::try_from(length).map_err(|_| wrong("an entry is too long"))?))
}

/// Returns the sizes and offsets that are too large for the header, and the Unix time.
fn extras(mut bytes: &[u8]) -> Result<(Vec<u64>, Option<i64>), Fault> {
    let (mut wide, mut unix) = (Vec::new(), None);
    while bytes.len() >= 4 {
        let (kind, length) = (number(bytes, 0, 2)?, number(bytes, 2, 2)? as usize);
        let Some(value) = bytes.get(4..4 + length) else { break };
        match kind {
            1 => {
                wide = value
                    .chunks_exact(8)
                    .map(|part| number(part, 0, 8))
                    .collect::<Result<_, _>>()?
            }
            0x5455 if value.len() >= 5 && value[0] & 1 == 1 => {
                unix = i64::try_from(number(value, 1, 4)?).ok();
            }
            _ => {}
        }
        bytes = &bytes[4 + length..];
    }
    Ok((wide, unix))
}

/// Converts a DOS date and time to seconds since 1970.
fn seconds(date: u64, time: u64) -> i64 {
    let (year, month, day) = (1980 + (date >> 9), date >> 5 & 15, date & 31);
    let (month, day) = (month.clamp(1, 12), day.clamp(1, 31));
    let of_day = (time >> 11) * 3_600 + (time >> 5 & 63) * 60 + (time & 31) * 2;
    // Days since 1970, computed with years that begin in March.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    i64::try_from(days * 86_400 + of_day).map_or(FIRST_SECOND, |all| all - 719_468 * 86_400)
}

struct Unpacking<'a> {
    file: &'a File,
    tree: &'a Tree,
    limits: &'a Limits,
    bytes: u64,
    packed: u64,
    /// Set at the end, because a mode may keep even the owner out of a folder.
    folders: Vec<(PathBuf, u32)>,
}

impl Unpacking<'_> {
    fn add(&mut self, entry: &Entry) -> Result<(), Fault> {
        let name = entry.plain_name()?;
        let shown = || String::from_utf8_lossy(&name).chars().take(200).collect::<String>();
        if name.starts_with(b"/") {
            return Err(Fault::Sources(format!("the archive has an absolute name: {}", shown())));
        }
        let path = plain_path(&name, self.limits)?;
        let is_folder = name.ends_with(b"/");
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let kind = entry.kind();
        if is_folder {
            make_folders(self.tree, &path, (0, 0))?;
            self.folders.push((path, entry.mode.unwrap_or(FOLDER_MODE) & 0o777 | 0o700));
            return Ok(());
        }
        make_folders(self.tree, path.parent().unwrap_or(Path::new("")), (0, 0))?;
        match kind {
            FileType::Symlink => self.link(entry, &path),
            FileType::RegularFile | FileType::Unknown => self.write(entry, &path),
            FileType::Directory => Err(wrong("a folder has the name of a file")),
            _ => Err(Fault::Sources(format!("the archive has a device: {}", shown()))),
        }
    }

    fn link(&mut self, entry: &Entry, path: &Path) -> Result<(), Fault> {
        let mut target = Vec::new();
        let max = self.limits.path_bytes_max as u64;
        data(self.file, entry)?.take(max + 1).read_to_end(&mut target).map_err(broken)?;
        if target.is_empty() || target.len() as u64 > max || target.contains(&0) {
            return Err(wrong("a link leads nowhere"));
        }
        let place = free_place(self.tree, path)?;
        place.make_symlink(OsStr::from_bytes(&target))?;
        let (folder, name) = place.at();
        let times = times(entry);
        Ok(rustix::fs::utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn write(&mut self, entry: &Entry, path: &Path) -> Result<(), Fault> {
        let mut file = free_place(self.tree, path)?.create_file()?;
        let left = self.limits.layer_bytes_max.saturating_sub(self.bytes);
        let data = data(self.file, entry)?;
        let written = io::copy(&mut data.take(left + 1), &mut file).map_err(broken)?;
        self.bytes = self.bytes.saturating_add(written);
        let too_dense = self.bytes > self.limits.ratio_free_bytes
            && self.bytes > self.packed.saturating_mul(self.limits.ratio_max);
        if written > left || too_dense {
            return Err(Fault::Sources(format!(
                "the archive unpacks to more than {} bytes, or to more than {} times its size",
                self.limits.layer_bytes_max, self.limits.ratio_max
            )));
        }
        let mode = entry.mode.unwrap_or(FILE_MODE) & 0o777;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        Ok(rustix::fs::futimens(&file, &times(entry))?)
    }
}

/// Returns the unpacked bytes of an entry.
fn data<'f>(mut file: &'f File, entry: &Entry) -> Result<Box<dyn Read + 'f>, Fault> {
    let head = read_at(file, entry.offset, 30)?;
    if !head.starts_with(LOCAL) {
        return Err(wrong("an entry is not where it should be"));
    }
    let start = number(&head, 26, 2)? + number(&head, 28, 2)? + 30;
    let start = entry.offset.checked_add(start).ok_or_else(|| wrong("an entry is too far"))?;
    file.seek(SeekFrom::Start(start)).map_err(Error::from)?;
    let packed = file.take(entry.packed);
    match entry.method {
        STORED => Ok(Box::new(packed)),
        DEFLATED => Ok(Box::new(flate2::read::DeflateDecoder::new(packed))),
        other => Err(wrong(&format!("an entry is packed in a way that is not known: {other}"))),
    }
}

fn broken(error: io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
            wrong("an entry is not what it should be")
        }
        _ => Error::from(error).into(),
    }
}

fn times(entry: &Entry) -> Timestamps {
    let time = Timespec { tv_sec: entry.modified, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_dos_are_those_of_everybody() {
        let date = (2024 - 1980) << 9 | 2 << 5 | 29;
        assert_eq!(seconds(date, 12 << 11 | 34 << 5 | 28), 1_709_210_096);
        assert_eq!(seconds(1 << 5 | 1, 0), FIRST_SECOND);
        assert!(seconds(0, 0xffff) > 0);
    }
}
