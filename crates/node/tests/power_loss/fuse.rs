//! A disk that is one file of FUSE, served by this process. Writes and flushes are recorded in a
//! journal, one entry after the other, before the kernel gets its answer.

use crate::recorded::{IMAGE, JOURNAL};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The size of a request, apart from the data to write.
const HEADER: usize = 40;
const ARGUMENTS: usize = 40;
const WRITE_MAX: u32 = 128 << 10;
/// Extra room that the kernel asks for.
const SPARE: usize = 8 << 10;
/// How long the kernel may cache: nothing here changes except by its own writes.
const VALID_S: u64 = 1 << 20;
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
const BIG_WRITES: u32 = 1 << 5;
const REGULAR_FILE: u32 = 0o100_600;
const BLOCK: u32 = 4_096;
/// How long after the start the disk must be mounted.
const MOUNTED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(2);

mod opcode {
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
}

/// The offset of entries that are flushes.
pub(crate) const FLUSHED: u64 = u64::MAX;

struct Disk {
    image: File,
    journal: File,
}

/// Serves until nobody has the disk mounted. Standard input is the connection to the kernel.
pub(crate) fn serve(folder: &Path) -> io::Result<()> {
    let image = OpenOptions::new().read(true).write(true).open(folder.join(IMAGE))?;
    let journal = OpenOptions::new().append(true).open(folder.join(JOURNAL))?;
    let mut disk = Disk { image, journal };
    let stdin = io::stdin();
    let kernel = stdin.as_fd();
    let begun = Instant::now();
    let mut buffer = vec![0; WRITE_MAX as usize + SPARE];
    loop {
        let count = match rustix::io::read(kernel, &mut buffer) {
            Ok(count) => count,
            // The request was taken back.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            Err(Errno::NODEV) => return Ok(()),
            // It is not mounted yet.
            Err(Errno::PERM) if begun.elapsed() < MOUNTED_WITHIN => {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let request = &buffer[..count];
        let code = u32_at(request, 4);
        if matches!(code, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT) {
            continue;
        }
        let done = disk.answer(code, &request[HEADER..]);
        send(kernel, u64_at(request, 8), done)?;
    }
}

fn send(kernel: BorrowedFd<'_>, unique: u64, done: Result<Vec<u8>, Errno>) -> io::Result<()> {
    let (error, body) = match done {
        Ok(body) => (0, body),
        Err(error) => (-error.raw_os_error(), Vec::new()),
    };
    let mut answer = Packed::default();
    answer.u32(u32::try_from(16 + body.len()).map_err(io::Error::other)?);
    answer.0.extend(error.to_ne_bytes());
    answer.u64(unique);
    answer.0.extend(body);
    match rustix::io::write(kernel, &answer.0) {
        // Nobody waits for the answer any more.
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Disk {
    fn answer(&mut self, code: u32, arguments: &[u8]) -> Result<Vec<u8>, Errno> {
        match code {
            opcode::INIT => Ok(init()),
            opcode::GETATTR | opcode::SETATTR => self.attributes(),
            // No handle, and no flags.
            opcode::OPEN => Ok(vec![0; 16]),
            opcode::READ => self.read(arguments),
            opcode::WRITE => self.write(arguments),
            opcode::FSYNC => self.flush(),
            opcode::STATFS => Ok(vec![0; 80]),
            opcode::RELEASE | opcode::FLUSH | opcode::DESTROY => Ok(Vec::new()),
            _ => Err(Errno::NOSYS),
        }
    }

    fn attributes(&self) -> Result<Vec<u8>, Errno> {
        let size = self.image.metadata().map_err(failed)?.len();
        let mut packed = Packed::default();
        packed.u64(VALID_S);
        packed.u64(0);
        // Number, size, blocks, and no times.
        for number in [1, size, size / 512, 0, 0, 0] {
            packed.u64(number);
        }
        for number in [0, 0, 0, REGULAR_FILE, 1, 0, 0, 0, BLOCK, 0] {
            packed.u32(number);
        }
        Ok(packed.0)
    }

    fn read(&self, arguments: &[u8]) -> Result<Vec<u8>, Errno> {
        let mut data = vec![0; u32_at(arguments, 16) as usize];
        let count = self.image.read_at(&mut data, u64_at(arguments, 8)).map_err(failed)?;
        data.truncate(count);
        Ok(data)
    }

    fn write(&mut self, arguments: &[u8]) -> Result<Vec<u8>, Errno> {
        let (offset, size) = (u64_at(arguments, 8), u32_at(arguments, 16));
        let data = &arguments[ARGUMENTS..][..size as usize];
        self.record(offset, data)?;
        self.image.write_all_at(data, offset).map_err(failed)?;
        let mut packed = Packed::default();
        packed.u32(size);
        packed.u32(0);
        Ok(packed.0)
    }

    fn flush(&mut self) -> Result<Vec<u8>, Errno> {
        self.record(FLUSHED, &[])?;
        Ok(Vec::new())
    }

    /// Records an entry in one write, so that the journal always ends with a whole entry.
    fn record(&mut self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let mut entry = Packed::default();
        entry.u64(offset);
        entry.u64(data.len() as u64);
        entry.0.extend(data);
        self.journal.write_all(&entry.0).map_err(failed)
    }
}

fn init() -> Vec<u8> {
    let mut packed = Packed::default();
    for number in [MAJOR, MINOR, WRITE_MAX, BIG_WRITES] {
        packed.u32(number);
    }
    // How many requests may be waiting; zero lets the kernel choose.
    packed.u32(0);
    packed.u32(WRITE_MAX);
    packed.u32(1);
    packed.0.resize(64, 0);
    packed.0
}

fn failed(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Numbers in sequence, as the kernel reads them.
#[derive(Default)]
struct Packed(Vec<u8>);

impl Packed {
    fn u32(&mut self, number: u32) {
        self.0.extend(number.to_ne_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.0.extend(number.to_ne_bytes());
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..][..4].try_into().unwrap())
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..][..8].try_into().unwrap())
}
