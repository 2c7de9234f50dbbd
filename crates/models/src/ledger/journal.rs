//! The journal: records in files, each with its length and checksum.
//!
//! A record is written before the call goes on, so it survives the end of the process; the background
//! syncs it for the end of the machine. Records are numbered through all files. A file begins with
//! the number of its first record, and again with all reservations that were open then, so that the
//! files before it can go as soon as the store has what is in them.

use super::state::Asked;
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

/// No record is longer: what a call is told by is bounded where it comes in.
const RECORD_MAX: usize = 1 << 20;
/// Length and checksum.
const FRAME: usize = 8;
const PREFIX: &str = "journal-";
/// A name in the folder, for what is done to the folder of a path.
pub(super) const ANY: &str = "journal";

/// What a record says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Record {
    Reserved {
        id: u64,
        /// What counts if nothing else is said.
        holds: Vec<(LimitAccount, i64)>,
        call: ModelCall,
    },
    Settled {
        id: u64,
        /// In the order of the holds.
        used: Vec<i64>,
        /// None: the call was not made.
        end: Option<End>,
    },
}

/// What is known of a call when it is over, and was not when it was reserved.
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

/// What a file begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) version: u32,
    /// The number of the first record.
    pub(super) begins: i64,
    pub(super) boot: String,
}

const VERSION: u32 = 1;
const HEADER: u8 = b'H';
const RESERVED: u8 = b'R';
const SETTLED: u8 = b'S';

/// The journal, as it is written.
pub(super) struct Journal {
    folder: PathBuf,
    boot: String,
    path: PathBuf,
    file: Arc<File>,
    length: u64,
    /// The number in its name.
    begins: i64,
    /// The number of the last record.
    last: i64,
    /// Files before, with the number of their last record.
    old: Vec<(PathBuf, i64)>,
    /// Records that could not be written, and of which calls: the disk is full.
    late: VecDeque<(u64, Vec<u8>)>,
    /// Calls whose late records were written since somebody asked.
    caught_up: Vec<u64>,
    /// Whether its beginning is on the disk, with all that was open in the files before it.
    is_begun: bool,
    /// What is in the file behind `length` cannot be cut off.
    is_torn: bool,
    is_unsynced: bool,
}

/// `call` is JSON already.
pub(super) fn reserved(id: u64, asked: &[Asked<'_>], call: &[u8]) -> io::Result<Vec<u8>> {
    let holds: Vec<(&LimitAccount, i64)> =
        asked.iter().map(|asked| (&asked.account, asked.most)).collect();
    payload(RESERVED, id, &serde_json::to_vec(&holds)?, call)
}

pub(super) fn settled(id: u64, used: &[i64], end: Option<End>) -> io::Result<Vec<u8>> {
    let end = end.map_or(Ok(Vec::new()), |end| serde_json::to_vec(&end))?;
    payload(SETTLED, id, &serde_json::to_vec(used)?, &end)
}

/// The whole frame: length, checksum, sort, id, length of the head, head, call.
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

/// Of the length too, so that a file of zeros is no list of empty records.
fn checksum(length: u32, payload: &[u8]) -> u32 {
    let mut sum = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    sum.update(&length.to_le_bytes());
    sum.update(b"holm");
    sum.update(payload);
    // A sum of 32 bits in a number of 64.
    sum.finalize() as u32
}

impl Journal {
    /// Begins a file, whose first record has the number `begins`.
    pub(super) fn begin(folder: &Path, boot: &str, begins: i64) -> io::Result<Self> {
        let (path, file, length) = new_file(folder, boot, begins)?;
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
        })
    }

    pub(super) const fn last(&self) -> i64 {
        self.last
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Writes one record, or nothing.
    pub(super) fn append(&mut self, record: &[u8]) -> io::Result<()> {
        if self.is_torn {
            return Err(io::Error::other("the journal waits for a new file"));
        }
        if let Err(error) = (&*self.file).write_all(record) {
            // Half a record would hide those after it.
            self.is_torn = self.file.set_len(self.length).is_err();
            return Err(error);
        }
        self.length += record.len() as u64;
        self.last += 1;
        self.is_unsynced = true;
        Ok(())
    }

    /// As [`Journal::append`]; what cannot be written now is kept, and written before anything else.
    pub(super) fn append_late(&mut self, id: u64, record: Vec<u8>) {
        self.late.push_back((id, record));
        if let Err(error) = self.catch_up() {
            tracing::error!(%error, "the journal of models cannot be written");
        }
    }

    /// Writes what could not be written before.
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

    /// The file, if there is something in it that a power cut would take.
    pub(super) fn unsynced(&mut self) -> Option<Arc<File>> {
        std::mem::take(&mut self.is_unsynced).then(|| self.file.clone())
    }

    pub(super) const fn sync_failed(&mut self) {
        self.is_unsynced = true;
    }

    /// All that was in this file when it was handed out is on the disk.
    pub(super) fn synced(&mut self, file: &Arc<File>) {
        self.is_begun |= Arc::ptr_eq(file, &self.file);
    }

    /// Goes on in a new file, which begins with what is open. The old one has to stay until that is
    /// synced.
    pub(super) fn rotate<'o>(
        &mut self,
        open: impl Iterator<Item = &'o Arc<[u8]>>,
    ) -> io::Result<()> {
        // One without records has the name already that the next would get.
        let begins = self.last.max(self.begins) + 1;
        let mut next = Self::begin(&self.folder, &self.boot, begins)?;
        // One call for all: this is done while others wait.
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

    /// Files before this one whose records are all in the store by `position`. None may go before the
    /// disk has how this one begins.
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

fn new_file(folder: &Path, boot: &str, begins: i64) -> io::Result<(PathBuf, File, u64)> {
    let path = folder.join(format!("{PREFIX}{begins:020}"));
    // A start that failed may have left one without records.
    files::remove(&path)?;
    let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path)?;
    let header = Header { version: VERSION, begins, boot: boot.to_owned() };
    let mut bytes = vec![0; FRAME];
    bytes.push(HEADER);
    bytes.extend_from_slice(&serde_json::to_vec(&header)?);
    let bytes = framed(bytes)?;
    (&file).write_all(&bytes)?;
    Ok((path, file, bytes.len() as u64))
}

/// Makes the folder if it is not there.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The files of a folder, oldest first.
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

/// The number in the name of a file.
pub(super) fn begins(path: &Path) -> i64 {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix(PREFIX).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Reads a file up to its end, or up to where it is torn. Without a header there is nothing in it.
pub(super) fn read(
    path: &Path,
    mut take: impl FnMut(i64, Record),
) -> io::Result<Option<(Header, i64)>> {
    let mut file = BufReader::new(File::open(path)?);
    let header = match next(&mut file)? {
        Some(payload) if payload.first() == Some(&HEADER) => {
            serde_json::from_slice::<Header>(&payload[1..])?
        }
        _ => return Ok(None),
    };
    if header.version != VERSION {
        let message = format!("{} was written by another release", path.display());
        return Err(io::Error::other(message));
    }
    let mut number = header.begins;
    while let Some(payload) = next(&mut file)? {
        take(number, parse(&payload)?);
        number += 1;
    }
    Ok(Some((header, number - 1)))
}

/// The next payload that is whole.
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

/// Whether there was enough to fill it.
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

#[cfg(test)]
impl Journal {
    /// The disk is full from now on.
    pub(super) fn fill_disk(&mut self) {
        let full = OpenOptions::new().append(true).open("/dev/full");
        self.file = Arc::new(full.expect("Linux has it"));
    }
}
