//! The journal: records in files, each record with its length and checksum.
//!
//! A record is written before the call goes on, so it survives the end of the process. The
//! background task syncs the files, so that records also survive the end of the machine. Records
//! are numbered across all files. A file begins with the number of its first record and repeats all
//! reservations that are open at that time, so earlier files can be removed as soon as the store
//! has what they hold.

use super::hold::Asked;
use crc_fast::{CrcAlgorithm, Digest};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::model_books::LimitAccount;
use types::models::{ModelCall, ModelOutcome, TokenUsage};

/// Longest record. What a record says of a call is bounded where the call comes in.
const RECORD_MAX: usize = 1 << 20;
/// Bytes before each record: its length and checksum.
const FRAME: usize = 8;
const PREFIX: &str = "journal-";
/// Any name in the folder, for functions that take a path and act on its folder.
pub(super) const ANY: &str = "journal";

/// The content of a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Record {
    Reserved {
        id: u64,
        /// What is counted if no settlement follows.
        holds: Vec<(LimitAccount, i64)>,
        call: ModelCall,
    },
    Settled {
        id: u64,
        /// In the order of the holds.
        used: Vec<i64>,
        /// `None` means that the call was not made.
        end: Option<End>,
    },
}

/// What is known of a call only after it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    usage: TokenUsage,
    cost: u64,
    outcome: ModelOutcome,
}

impl End {
    pub(super) const fn of(call: &ModelCall) -> Self {
        Self { usage: call.usage, cost: call.cost, outcome: call.outcome }
    }

    pub(super) fn write_to(self, call: &mut ModelCall) {
        let Self { usage, cost, outcome } = self;
        (call.usage, call.cost, call.outcome) = (usage, cost, outcome);
    }
}

/// The first record of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) version: u32,
    /// The number of the first record after it.
    pub(super) begins: i64,
    pub(super) boot: String,
    /// Whether the store has counted every call that is open in earlier files.
    #[serde(default)]
    pub(super) is_all_counted: bool,
}

const VERSION: u32 = 1;
const HEADER: u8 = b'H';
const RESERVED: u8 = b'R';
const SETTLED: u8 = b'S';

/// The journal, open for writing.
pub(super) struct Journal {
    folder: PathBuf,
    boot: String,
    path: PathBuf,
    file: Arc<File>,
    length: u64,
    /// The number in the name of the current file.
    begins: i64,
    /// The number of the last record.
    last: i64,
    /// Earlier files, each with the number of its last record.
    old: Vec<(PathBuf, i64)>,
    /// Records that could not be written because the disk was full, with the ids of their calls.
    late: VecDeque<(u64, Vec<u8>)>,
    /// Calls whose late records were written since [`Journal::take_caught_up`] was called.
    caught_up: Vec<u64>,
    /// Whether the beginning of the current file, with everything that was open before it, is on
    /// disk.
    is_begun: bool,
    /// Whether nothing can be written to the current file: there may be part of a record after
    /// `length` that could not be cut off, or the file is an earlier process's.
    is_torn: bool,
    is_unsynced: bool,
    /// Whether the store has counted every call that is open in the files there are.
    is_all_counted: bool,
    /// Whether it was said that no new file can be begun.
    is_failure_told: bool,
}

/// Builds the record of a reservation. `call` is already JSON.
pub(super) fn reserved(id: u64, asked: &[Asked<'_>], call: &[u8]) -> io::Result<Vec<u8>> {
    let holds: Vec<(&LimitAccount, i64)> =
        asked.iter().map(|asked| (&asked.account, asked.most)).collect();
    payload(RESERVED, id, &serde_json::to_vec(&holds)?, call)
}

pub(super) fn settled(id: u64, used: &[i64], end: Option<End>) -> io::Result<Vec<u8>> {
    let end = end.map_or(Ok(Vec::new()), |end| serde_json::to_vec(&end))?;
    payload(SETTLED, id, &serde_json::to_vec(used)?, &end)
}

/// Builds a whole record: length, checksum, sort, id, length of the head, head, call.
fn payload(sort: u8, id: u64, head: &[u8], call: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(FRAME + 13 + head.len() + call.len());
    bytes.extend_from_slice(&[0; FRAME]);
    bytes.push(sort);
    bytes.extend_from_slice(&id.to_le_bytes());
    let length = u32::try_from(head.len()).map_err(io::Error::other)?;
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(call);
    framed(bytes)
}

fn framed(mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    let length = bytes.len() - FRAME;
    if length > RECORD_MAX {
        return Err(io::Error::other("a record of the journal is too long"));
    }
    let length = u32::try_from(length).map_err(io::Error::other)?;
    let sum = checksum(length, &bytes[FRAME..]);
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..FRAME].copy_from_slice(&sum.to_le_bytes());
    Ok(bytes)
}

/// Computes a checksum that includes the length, so that zeros are not read as empty records.
fn checksum(length: u32, payload: &[u8]) -> u32 {
    let mut sum = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    sum.update(&length.to_le_bytes());
    sum.update(b"holm");
    sum.update(payload);
    // The checksum has 32 bits in a number of 64.
    sum.finalize() as u32
}

impl Journal {
    /// Begins a file whose first record has the number `begins`.
    pub(super) fn begin(folder: &Path, boot: &str, begins: i64) -> io::Result<Self> {
        Self::begin_after(folder, boot, begins, false)
    }

    fn begin_after(
        folder: &Path,
        boot: &str,
        begins: i64,
        is_all_counted: bool,
    ) -> io::Result<Self> {
        let header = Header { version: VERSION, begins, boot: boot.to_owned(), is_all_counted };
        let (path, file, length) = new_file(folder, &header)?;
        Ok(Self {
            folder: folder.to_owned(),
            boot: boot.to_owned(),
            path,
            file: Arc::new(file),
            length,
            begins,
            last: begins - 1,
            old: Vec::new(),
            late: VecDeque::new(),
            caught_up: Vec::new(),
            is_begun: false,
            is_torn: false,
            is_unsynced: true,
            is_all_counted: false,
            is_failure_told: false,
        })
    }

    /// Goes on with the files of an earlier process until there is room for a new one. Nothing is
    /// written to them, so `last` is the number of a record that does not exist: whoever reads the
    /// files and finds that the store is further than they are knows that it has counted all calls
    /// in them.
    pub(super) fn waiting(
        folder: &Path,
        boot: &str,
        last: i64,
        mut earlier: Vec<(PathBuf, i64)>,
    ) -> io::Result<Self> {
        let (path, begins) = earlier.pop().ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            folder: folder.to_owned(),
            boot: boot.to_owned(),
            file: Arc::new(File::open(&path)?),
            path,
            length: 0,
            begins,
            last,
            old: earlier,
            late: VecDeque::new(),
            caught_up: Vec::new(),
            is_begun: false,
            is_torn: true,
            is_unsynced: false,
            is_all_counted: true,
            is_failure_told: true,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether it was not yet said that no new file can be begun. That is tried many times a
    /// second.
    pub(super) const fn is_failure_new(&mut self) -> bool {
        !std::mem::replace(&mut self.is_failure_told, true)
    }

    pub(super) const fn last(&self) -> i64 {
        self.last
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Writes one record completely or not at all.
    pub(super) fn append(&mut self, record: &[u8]) -> io::Result<()> {
        if self.is_torn {
            return Err(io::Error::other("the journal waits for a new file"));
        }
        if let Err(error) = (&*self.file).write_all(record) {
            // Part of a record would hide the records after it.
            self.is_torn = self.file.set_len(self.length).is_err();
            return Err(error);
        }
        self.length += record.len() as u64;
        self.last += 1;
        self.is_unsynced = true;
        Ok(())
    }

    /// Like [`Journal::append`], but a record that cannot be written now is kept and written before
    /// any other.
    pub(super) fn append_late(&mut self, id: u64, record: Vec<u8>) {
        self.late.push_back((id, record));
        if let Err(error) = self.catch_up() {
            tracing::error!(%error, "the journal of models cannot be written");
        }
    }

    /// Writes the records that could not be written before.
    pub(super) fn catch_up(&mut self) -> io::Result<()> {
        while let Some((id, record)) = self.late.pop_front() {
            if let Err(error) = self.append(&record) {
                self.late.push_front((id, record));
                return Err(error);
            }
            self.caught_up.push(id);
        }
        Ok(())
    }

    pub(super) fn take_caught_up(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.caught_up)
    }

    pub(super) fn is_behind(&self) -> bool {
        !self.late.is_empty()
    }

    #[cfg(test)]
    pub(super) const fn is_unsynced(&self) -> bool {
        self.is_unsynced
    }

    pub(super) const fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Returns the current file if it holds anything that was not synced.
    pub(super) fn unsynced(&mut self) -> Option<Arc<File>> {
        std::mem::take(&mut self.is_unsynced).then(|| self.file.clone())
    }

    pub(super) const fn sync_failed(&mut self) {
        self.is_unsynced = true;
    }

    /// Notes that everything the file held when [`Journal::unsynced`] returned it is on disk.
    pub(super) fn synced(&mut self, file: &Arc<File>) {
        self.is_begun |= Arc::ptr_eq(file, &self.file);
    }

    /// Continues in a new file that begins with the open reservations. The old file must stay until
    /// the new one is synced.
    pub(super) fn rotate<'o>(
        &mut self,
        open: impl Iterator<Item = &'o Arc<[u8]>>,
    ) -> io::Result<()> {
        // A file without records already has the name that the next one would get.
        let begins = self.last.max(self.begins) + 1;
        let mut next = Self::begin_after(&self.folder, &self.boot, begins, self.is_all_counted)?;
        // One write for all of them, because calls wait for the lock meanwhile.
        let all = open.fold((Vec::new(), 0), |(mut all, count), record| {
            all.extend_from_slice(record);
            (all, count + 1)
        });
        if let Err(error) = (&*next.file).write_all(&all.0) {
            files::remove(&next.path)?;
            return Err(error);
        }
        next.length += all.0.len() as u64;
        next.last += all.1;
        next.late = std::mem::take(&mut self.late);
        next.caught_up = std::mem::take(&mut self.caught_up);
        next.old = std::mem::take(&mut self.old);
        next.old.push((self.path.clone(), self.last));
        *self = next;
        Ok(())
    }

    /// Returns the earlier files whose records are all in the store at `position`. There are none
    /// before the beginning of the current file is on disk.
    pub(super) fn done(&mut self, position: i64) -> Vec<PathBuf> {
        if !self.is_begun {
            return Vec::new();
        }
        let (done, kept) =
            std::mem::take(&mut self.old).into_iter().partition(|(_, last)| *last <= position);
        self.old = kept;
        let done: Vec<(PathBuf, i64)> = done;
        done.into_iter().map(|(path, _)| path).collect()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

fn new_file(folder: &Path, header: &Header) -> io::Result<(PathBuf, File, u64)> {
    #[cfg(test)]
    if folder.join(FULL).exists() {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let path = folder.join(format!("{PREFIX}{:020}", header.begins));
    // A start that failed may have left a file without records.
    files::remove(&path)?;
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
    let mut bytes = vec![0; FRAME];
    bytes.push(HEADER);
    bytes.extend_from_slice(&serde_json::to_vec(header)?);
    let bytes = framed(bytes)?;
    if let Err(error) = (&file).write_all(&bytes) {
        files::remove(&path)?;
        return Err(error);
    }
    Ok((path, file, bytes.len() as u64))
}

/// Creates the folder if it is missing.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Lists the files in a folder, oldest first.
pub(super) fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            found.push(entry.path());
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the number in the name of a file.
pub(super) fn begins(path: &Path) -> i64 {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix(PREFIX).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Reads a file up to its end or to the first damaged record. Returns `None` if it has no header,
/// and so no records.
pub(super) fn read(
    path: &Path,
    mut take: impl FnMut(i64, Record),
) -> io::Result<Option<(Header, i64)>> {
    let mut file = BufReader::new(File::open(path)?);
    let Some(header) = header_of(&mut file, path)? else { return Ok(None) };
    let mut number = header.begins;
    while let Some(payload) = next(&mut file)? {
        take(number, parse(&payload)?);
        number += 1;
    }
    Ok(Some((header, number - 1)))
}

/// Reads only how a file begins.
pub(super) fn header(path: &Path) -> io::Result<Option<Header>> {
    header_of(&mut BufReader::new(File::open(path)?), path)
}

fn header_of(file: &mut impl Read, path: &Path) -> io::Result<Option<Header>> {
    let header = match next(file)? {
        Some(payload) if payload.first() == Some(&HEADER) => {
            serde_json::from_slice::<Header>(&payload[1..])?
        }
        _ => return Ok(None),
    };
    if header.version != VERSION {
        let message = format!("{} was written by another release", path.display());
        return Err(io::Error::other(message));
    }
    Ok(Some(header))
}

/// Reads the next record, or returns `None` if there is no complete one.
fn next(file: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut frame = [0; FRAME];
    if !fill(file, &mut frame)? {
        return Ok(None);
    }
    let [a, b, c, d, sum @ ..] = frame;
    let length = u32::from_le_bytes([a, b, c, d]);
    if length as usize > RECORD_MAX {
        return Ok(None);
    }
    let mut payload = vec![0; length as usize];
    let is_whole =
        fill(file, &mut payload)? && checksum(length, &payload) == u32::from_le_bytes(sum);
    Ok(is_whole.then_some(payload))
}

/// Fills `bytes`. Returns false if the file ends before that.
fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn parse(payload: &[u8]) -> io::Result<Record> {
    let wrong = || io::Error::other("a record of the journal is none of this release");
    let (&sort, rest) = payload.split_first().ok_or_else(wrong)?;
    let (id, rest) = rest.split_first_chunk::<8>().ok_or_else(wrong)?;
    let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (head, call) = rest.split_at_checked(length).ok_or_else(wrong)?;
    let id = u64::from_le_bytes(*id);
    match sort {
        RESERVED => Ok(Record::Reserved {
            id,
            holds: serde_json::from_slice(head)?,
            call: serde_json::from_slice(call)?,
        }),
        SETTLED => {
            let end = if call.is_empty() { None } else { Some(serde_json::from_slice(call)?) };
            Ok(Record::Settled { id, used: serde_json::from_slice(head)?, end })
        }
        _ => Err(wrong()),
    }
}

/// A file of this name in the folder stands for a full disk: no other file can be made there.
#[cfg(test)]
pub(super) const FULL: &str = "full";

#[cfg(test)]
impl Journal {
    /// Makes every write fail from now on, as if the disk were full.
    pub(super) fn fill_disk(&mut self) {
        let full = OpenOptions::new().append(true).open("/dev/full");
        self.file = Arc::new(full.expect("Linux has it"));
    }
}
