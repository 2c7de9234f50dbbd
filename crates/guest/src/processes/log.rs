//! The output of one process: both streams in the order of arrival, with the stream that each byte
//! belongs to.
//!
//! A position is a number of bytes since the start of the process, counted over both streams. It
//! never changes, even when old output is dropped, so a reader can disconnect and continue at the
//! position where it was.
//!
//! Two generations are kept: the current one and the one before it. When the current one is full,
//! the older one is dropped. Small output, which is most of it, never touches a file.
//!
//! When a disk is full, what a process says about it matters most. So a generation for which no
//! file can be written stays in memory, where it has less room; the next one tries a file again.

use crate::carried::Carried;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use types::instance::Stream;

/// Size of one generation if output must not, or cannot, be kept in files.
const MEMORY_GENERATION_BYTES_MAX: usize = 128 << 10;
/// Output up to this size stays in memory.
const SPILL_BYTES: usize = 4 << 10;
/// How often the stream may change within one generation; each change takes four bytes of memory.
const RUNS_MAX: usize = 1 << 20;
const COPY_BYTES: usize = 64 << 10;
/// Marks a run of the error stream. Positions within a generation fit in the lower bits.
const STDERR_BIT: u32 = 1 << 31;

/// Where output is kept.
#[derive(Debug, Clone)]
pub(crate) enum Keep {
    /// In unnamed files in this directory, which disappear with the last descriptor.
    Files {
        directory: PathBuf,
        generation_bytes: usize,
    },
    Memory,
    /// Nowhere: it is only counted.
    Nothing,
}

/// Uninterrupted output of one stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) stream: Stream,
    pub(crate) bytes: Vec<u8>,
    /// Whether output of the other stream follows, so that this piece will not get longer.
    pub(crate) closed: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Piece(Piece),
    /// The position is the end of the output so far.
    End,
    /// The position is no longer kept or lies in the future. Output is kept from `begin` on.
    Outside {
        begin: u64,
        end: u64,
    },
}

/// The last output of one stream.
pub(crate) struct Tail {
    pub(crate) bytes: Vec<u8>,
    /// Number of bytes before it.
    pub(crate) left_out: u64,
}

pub(crate) struct Log {
    keep: Keep,
    older: Option<Generation>,
    current: Generation,
    totals: [u64; 2],
}

struct Generation {
    begin: u64,
    length: usize,
    /// Where each run of one stream begins in this generation, with the stream in the highest bit.
    runs: Vec<u32>,
    body: Body,
    /// Whether it stays in memory because no file could be written.
    without_file: bool,
}

enum Body {
    Memory(Vec<u8>),
    File(File),
}

/// A log on its way to the program that replaces this one.
#[derive(Serialize, Deserialize)]
pub(super) struct KeptLog {
    generations: Vec<KeptGeneration>,
    totals: [u64; 2],
}

#[derive(Serialize, Deserialize)]
struct KeptGeneration {
    begin: u64,
    length: usize,
    runs: Vec<u32>,
    body: KeptBody,
}

#[derive(Serialize, Deserialize)]
enum KeptBody {
    Memory(Vec<u8>),
    File(RawFd),
}

impl Log {
    pub(super) fn hand_over(&self, carried: &mut Carried) -> io::Result<KeptLog> {
        let generations = self
            .older
            .iter()
            .chain([&self.current])
            .map(|generation| generation.hand_over(carried));
        Ok(KeptLog { generations: generations.collect::<io::Result<_>>()?, totals: self.totals })
    }

    pub(super) fn take_over(kept: KeptLog, keep: Keep) -> io::Result<Self> {
        let mut generations = kept
            .generations
            .into_iter()
            .map(Generation::take_over)
            .collect::<io::Result<Vec<_>>>()?;
        let current = generations.pop().unwrap_or_else(|| Generation::new(0));
        Ok(Self { keep, older: generations.pop(), current, totals: kept.totals })
    }

    pub(crate) fn new(keep: Keep) -> Self {
        Self { keep, older: None, current: Generation::new(0), totals: [0; 2] }
    }

    pub(crate) fn begin(&self) -> u64 {
        self.older.as_ref().unwrap_or(&self.current).begin
    }

    pub(crate) fn end(&self) -> u64 {
        self.current.begin + self.current.length as u64
    }

    /// Returns how many bytes are kept.
    pub(crate) fn stored(&self) -> u64 {
        self.end() - self.begin()
    }

    pub(crate) fn append(&mut self, stream: Stream, mut bytes: &[u8]) {
        self.totals[stream as usize] += bytes.len() as u64;
        if let Keep::Nothing = self.keep {
            self.current = Generation::new(self.end() + bytes.len() as u64);
            return;
        }
        while !bytes.is_empty() {
            let room = self.current.room(&self.keep);
            if room == 0 {
                self.begin_generation();
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(room));
            match self.current.append(stream, now, &self.keep) {
                Ok(()) => bytes = later,
                // The disk is full, for example.
                Err(_) => self.go_on_without_file(),
            }
        }
    }

    fn begin_generation(&mut self) {
        let next = Generation::new(self.end());
        self.older = Some(std::mem::replace(&mut self.current, next));
    }

    /// Keeps what comes next in memory, until that is full. What is in a file already stays
    /// readable. If it is little, it must not take the place of the older generation.
    fn go_on_without_file(&mut self) {
        if self.current.return_to_memory().is_err() {
            self.begin_generation();
        }
        self.current.without_file = true;
    }

    /// Drops all stored output, but keeps the positions.
    pub(crate) fn drop_stored(&mut self) {
        self.older = None;
        self.current = Generation::new(self.end());
    }

    /// Drops all stored output, and keeps none that comes. Positions advance all the same.
    pub(crate) fn end_keeping(&mut self) {
        self.keep = Keep::Nothing;
        self.drop_stored();
    }

    /// Drops the older half of the stored output.
    pub(crate) fn drop_older(&mut self) {
        self.older = None;
    }

    /// Drops all but the last bytes of the stored output, or all of it if these cannot be read.
    /// These have to be few enough for memory.
    pub(crate) fn keep_last(&mut self, bytes: u64) {
        if self.stored() <= bytes {
            return;
        }
        let begin = self.end() - bytes;
        let copied = self.copied_from(begin, &self.keep);
        match copied.or_else(|_| self.copied_from(begin, &Keep::Memory)) {
            Ok(kept) => {
                self.older = None;
                self.current = kept;
            }
            Err(_) => self.drop_stored(),
        }
    }

    fn copied_from(&self, mut position: u64, keep: &Keep) -> io::Result<Generation> {
        let mut copied = Generation::new(position);
        while let Read::Piece(piece) = self.read(position, COPY_BYTES)? {
            position += piece.bytes.len() as u64;
            copied.append(piece.stream, &piece.bytes, keep)?;
        }
        Ok(copied)
    }

    /// Reads output of one stream from a position on.
    pub(crate) fn read(&self, position: u64, limit: usize) -> io::Result<Read> {
        let (begin, end) = (self.begin(), self.end());
        if position < begin || position > end {
            return Ok(Read::Outside { begin, end });
        }
        let generations = self.older.iter().chain([&self.current]);
        for generation in generations.filter(|generation| {
            position - generation.begin.min(position) < generation.length as u64
        }) {
            if position >= generation.begin {
                return generation
                    .read((position - generation.begin) as usize, limit)
                    .map(Read::Piece);
            }
        }
        Ok(Read::End)
    }

    pub(crate) fn tail(&self, stream: Stream, limit: usize) -> io::Result<Tail> {
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let mut missing = limit;
        for generation in [Some(&self.current), self.older.as_ref()].into_iter().flatten() {
            generation.tail(stream, &mut missing, &mut pieces)?;
        }
        pieces.reverse();
        let bytes = pieces.concat();
        let left_out = self.totals[stream as usize] - bytes.len() as u64;
        Ok(Tail { bytes, left_out })
    }
}

impl Generation {
    fn new(begin: u64) -> Self {
        Self::with(begin, 0, Vec::new(), Body::Memory(Vec::new()))
    }

    fn with(begin: u64, length: usize, runs: Vec<u32>, body: Body) -> Self {
        Self { begin, length, runs, body, without_file: false }
    }

    /// Returns how many more bytes it takes.
    fn room(&self, keep: &Keep) -> usize {
        let limit = match keep {
            _ if self.runs.len() >= RUNS_MAX => 0,
            Keep::Files { generation_bytes, .. } if !self.without_file => *generation_bytes,
            Keep::Files { .. } | Keep::Memory => MEMORY_GENERATION_BYTES_MAX,
            Keep::Nothing => 0,
        };
        limit.saturating_sub(self.length)
    }

    fn hand_over(&self, carried: &mut Carried) -> io::Result<KeptGeneration> {
        let body = match &self.body {
            Body::Memory(bytes) => KeptBody::Memory(bytes.clone()),
            Body::File(file) => KeptBody::File(carried.carry(file)?),
        };
        Ok(KeptGeneration { begin: self.begin, length: self.length, runs: self.runs.clone(), body })
    }

    fn take_over(kept: KeptGeneration) -> io::Result<Self> {
        let body = match kept.body {
            KeptBody::Memory(bytes) => Body::Memory(bytes),
            KeptBody::File(number) => Body::File(crate::raw::adopt(number)?.into()),
        };
        Ok(Self::with(kept.begin, kept.length, kept.runs, body))
    }

    fn append(&mut self, stream: Stream, bytes: &[u8], keep: &Keep) -> io::Result<()> {
        self.write(bytes, keep)?;
        if self.runs.last().is_none_or(|run| stream_of(*run) != stream) {
            let bit = if stream == Stream::Stderr { STDERR_BIT } else { 0 };
            self.runs.push(self.length as u32 | bit);
        }
        self.length += bytes.len();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], keep: &Keep) -> io::Result<()> {
        match (&mut self.body, keep) {
            (Body::File(file), _) => file.write_all_at(bytes, self.length as u64)?,
            (Body::Memory(kept), Keep::Files { directory, .. })
                if kept.len() + bytes.len() > SPILL_BYTES && !self.without_file =>
            {
                let file = tempfile::tempfile_in(directory)?;
                file.write_all_at(kept, 0)?;
                file.write_all_at(bytes, kept.len() as u64)?;
                self.body = Body::File(file);
            }
            (Body::Memory(kept), _) => kept.extend_from_slice(bytes),
        }
        Ok(())
    }

    /// Takes back what is in a file, if there is room for it in memory.
    fn return_to_memory(&mut self) -> io::Result<()> {
        if let Body::File(_) = self.body {
            if self.length > MEMORY_GENERATION_BYTES_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            self.body = Body::Memory(self.bytes(0, self.length)?);
        }
        Ok(())
    }

    fn bytes(&self, from: usize, to: usize) -> io::Result<Vec<u8>> {
        match &self.body {
            Body::Memory(kept) => Ok(kept[from..to].to_vec()),
            Body::File(file) => {
                let mut bytes = vec![0; to - from];
                file.read_exact_at(&mut bytes, from as u64)?;
                Ok(bytes)
            }
        }
    }

    /// Returns the stream of a run, and where the run begins and ends.
    fn run(&self, index: usize) -> (Stream, usize, usize) {
        let run = self.runs[index];
        let end = self.runs.get(index + 1).map_or(self.length, |next| begin_of(*next));
        (stream_of(run), begin_of(run), end)
    }

    fn read(&self, at: usize, limit: usize) -> io::Result<Piece> {
        let index = self.runs.partition_point(|run| begin_of(*run) <= at).saturating_sub(1);
        let (stream, _, end) = self.run(index);
        let to = end.min(at + limit);
        Ok(Piece {
            stream,
            bytes: self.bytes(at, to)?,
            closed: to == end && index + 1 < self.runs.len(),
        })
    }

    /// Adds output of a stream to `pieces`, the last piece first, until nothing is missing.
    fn tail(
        &self,
        stream: Stream,
        missing: &mut usize,
        pieces: &mut Vec<Vec<u8>>,
    ) -> io::Result<()> {
        for index in (0..self.runs.len()).rev() {
            if *missing == 0 {
                break;
            }
            let (of, begin, end) = self.run(index);
            if of == stream {
                let from = begin.max(end.saturating_sub(*missing));
                pieces.push(self.bytes(from, end)?);
                *missing -= end - from;
            }
        }
        Ok(())
    }
}

fn stream_of(run: u32) -> Stream {
    if run & STDERR_BIT == 0 { Stream::Stdout } else { Stream::Stderr }
}

fn begin_of(run: u32) -> usize {
    (run & !STDERR_BIT) as usize
}

#[cfg(test)]
mod tests;
