//! The output of one process: both streams in the order of arrival, with the stream that each byte
//! belongs to.
//!
//! A position is a number of bytes since the start of the process, counted over both streams. It
//! never changes, even when old output is dropped, so a reader can disconnect and continue at the
//! position where it was.
//!
//! Two generations are kept: the current one and the one before it. When the current one is full,
//! the older one is dropped. Small output, which is most of it, never touches a file.

use crate::carried::Carried;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use types::instance::Stream;

/// Size of one generation if output must not be kept in files.
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
        let limit = match self.keep {
            Keep::Files { generation_bytes, .. } => generation_bytes,
            Keep::Memory => MEMORY_GENERATION_BYTES_MAX,
            Keep::Nothing => {
                self.current = Generation::new(self.end() + bytes.len() as u64);
                return;
            }
        };
        while !bytes.is_empty() {
            if self.current.length >= limit || self.current.runs.len() >= RUNS_MAX {
                let next = Generation::new(self.end());
                self.older = Some(std::mem::replace(&mut self.current, next));
            }
            let (now, later) = bytes.split_at(bytes.len().min(limit - self.current.length));
            if self.current.append(stream, now, &self.keep).is_err() {
                // The disk is full: what cannot be kept is dropped, but positions advance. Readers
                // are told.
                self.current = Generation::new(self.end() + now.len() as u64);
                self.older = None;
            }
            bytes = later;
        }
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

    /// Drops all but the last bytes of the stored output, or all of it if these cannot be moved.
    pub(crate) fn keep_last(&mut self, bytes: u64) {
        if self.stored() <= bytes {
            return;
        }
        match self.copied_from(self.end() - bytes) {
            Ok(kept) => {
                self.older = None;
                self.current = kept;
            }
            Err(_) => self.drop_stored(),
        }
    }

    fn copied_from(&self, mut position: u64) -> io::Result<Generation> {
        let mut copied = Generation::new(position);
        while let Read::Piece(piece) = self.read(position, COPY_BYTES)? {
            position += piece.bytes.len() as u64;
            copied.append(piece.stream, &piece.bytes, &self.keep)?;
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
        Self { begin, length: 0, runs: Vec::new(), body: Body::Memory(Vec::new()) }
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
        Ok(Self { begin: kept.begin, length: kept.length, runs: kept.runs, body })
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
        if let (Body::Memory(kept), Keep::Files { directory, .. }) = (&self.body, keep)
            && kept.len() + bytes.len() > SPILL_BYTES
        {
            let file = tempfile::tempfile_in(directory)?;
            file.write_all_at(kept, 0)?;
            self.body = Body::File(file);
        }
        match &mut self.body {
            Body::Memory(kept) => kept.extend_from_slice(bytes),
            Body::File(file) => file.write_all_at(bytes, self.length as u64)?,
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
mod tests {
    use super::*;
    use Stream::{Stderr, Stdout};
    use proptest::prelude::*;

    fn files() -> Keep {
        files_in(std::env::temp_dir())
    }

    fn files_in(directory: PathBuf) -> Keep {
        Keep::Files { directory, generation_bytes: 32 << 20 }
    }

    fn read_all(log: &Log, mut position: u64, limit: usize) -> Vec<(Stream, Vec<u8>)> {
        let mut pieces: Vec<(Stream, Vec<u8>)> = Vec::new();
        while let Read::Piece(piece) = log.read(position, limit).unwrap() {
            assert!(!piece.bytes.is_empty());
            position += piece.bytes.len() as u64;
            match pieces.last_mut() {
                Some((stream, bytes)) if *stream == piece.stream => bytes.extend(piece.bytes),
                _ => pieces.push((piece.stream, piece.bytes)),
            }
        }
        assert_eq!(position, log.end());
        pieces
    }

    #[test]
    fn small_output_needs_no_file() {
        let mut log = Log::new(files_in("/nonexistent".into()));
        log.append(Stdout, b"hello");
        assert_eq!(log.tail(Stdout, 100).unwrap().bytes, b"hello");
        assert_eq!(log.read(9, 10).unwrap(), Read::Outside { begin: 0, end: 5 });
    }

    #[test]
    fn output_that_cannot_be_kept_is_dropped_and_counted() {
        let mut log = Log::new(files_in("/nonexistent".into()));
        log.append(Stdout, &[b'x'; 10_000]);
        log.append(Stdout, b"after");
        assert_eq!((log.begin(), log.end()), (10_000, 10_005));
        let tail = log.tail(Stdout, 100).unwrap();
        assert_eq!((tail.bytes.as_slice(), tail.left_out), (b"after".as_slice(), 10_000));
    }

    #[test]
    fn an_endless_output_keeps_its_end_and_its_positions() {
        let mut log = Log::new(Keep::Memory);
        let line = [b'a'; 1000];
        (0..1000).for_each(|_| log.append(Stdout, &line));
        assert_eq!(log.end(), 1_000_000);
        assert!(log.stored() <= 2 * MEMORY_GENERATION_BYTES_MAX as u64);
        assert_eq!(log.read(0, 1).unwrap(), Read::Outside { begin: log.begin(), end: log.end() });
        assert_eq!(read_all(&log, log.begin(), 4096).len(), 1);
    }

    #[test]
    fn a_log_that_keeps_nothing_any_more_only_counts() {
        let mut log = Log::new(files());
        log.append(Stdout, &[b'x'; 10_000]);
        log.end_keeping();
        log.append(Stderr, &[b'y'; 10_000]);
        assert_eq!((log.begin(), log.end(), log.stored()), (20_000, 20_000, 0));
        assert_eq!(log.tail(Stderr, 100).unwrap().left_out, 10_000);
        assert_eq!(log.read(5, 10).unwrap(), Read::Outside { begin: 20_000, end: 20_000 });
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out_from_every_position(
            writes in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..3000)), 0..20),
            limit in 1..5000_usize,
            from in any::<proptest::sample::Index>(),
            tail in 0..9000_usize,
        ) {
            let mut log = Log::new(files());
            let mut expect: Vec<(Stream, u8)> = Vec::new();
            for (stderr, bytes) in &writes {
                let stream = if *stderr { Stderr } else { Stdout };
                log.append(stream, bytes);
                expect.extend(bytes.iter().map(|byte| (stream, *byte)));
            }
            let mut shorter = Log::new(files());
            writes.iter().for_each(|(stderr, bytes)| {
                shorter.append(if *stderr { Stderr } else { Stdout }, bytes);
            });
            shorter.keep_last(tail as u64);
            prop_assert_eq!(shorter.stored() as usize, tail.min(expect.len()));
            let kept = read_all(&shorter, shorter.begin(), limit);
            let kept: Vec<_> = kept.iter().flat_map(|(stream, bytes)| bytes.iter().map(|byte| (*stream, *byte))).collect();
            prop_assert_eq!(&kept[..], &expect[shorter.begin() as usize..]);
            let from = from.index(expect.len() + 1);
            let read = read_all(&log, from as u64, limit);
            let flat: Vec<_> = read.iter().flat_map(|(stream, bytes)| bytes.iter().map(|byte| (*stream, *byte))).collect();
            prop_assert_eq!(&flat[..], &expect[from..]);
            for stream in [Stdout, Stderr] {
                let all: Vec<u8> = expect.iter().filter(|(of, _)| *of == stream).map(|(_, byte)| *byte).collect();
                let found = log.tail(stream, tail).unwrap();
                prop_assert_eq!(&found.bytes[..], &all[all.len().saturating_sub(tail)..]);
                prop_assert_eq!(found.left_out as usize, all.len() - found.bytes.len());
            }
        }
    }
}
