//! Turns output into chunks of lines. Pure: no clock, no database, no I/O.

use super::line::{self, Line};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use store::logs::{Chunk, Mark};
use types::Timestamp;
use types::instance::{Printed, Stream};

/// A longer line is split. Even if every byte of a line has to be escaped, it is shorter than a
/// chunk.
pub const LINE_BYTES_MAX: usize = 10 * 1024;
/// Largest text of a chunk.
pub(super) const CHUNK_BYTES_MAX: usize = 64 * 1024;

const DAY_NS: i64 = 86_400 * 1_000_000_000;

/// The output of one source that is not in a chunk yet.
#[derive(Debug)]
pub(super) struct Recorder {
    bytes_max: u64,
    /// Whether `bytes_max` counts for each day.
    daily: bool,
    begun: [Vec<u8>; 2],
    /// Finished lines that wait to be drained, with their stored text.
    lines: Vec<(Line, String)>,
    waiting_bytes: usize,
    last_ns: i64,
    number: u32,
    mark: Mark,
}

impl Recorder {
    /// Makes a recorder for an attempt that has printed nothing yet, which keeps `bytes_max` in
    /// all.
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            daily: false,
            begun: [Vec::new(), Vec::new()],
            lines: Vec::new(),
            waiting_bytes: 0,
            last_ns: i64::MIN,
            number: 0,
            mark: Mark::default(),
        }
    }

    /// Continues after a chunk. Output must be supplied from `mark.read_to` on.
    pub(super) fn resume(bytes_max: u64, number: u32, last_ns: i64, mark: Mark) -> Self {
        let begun = mark.begun.as_deref().map(read_begun).unwrap_or_default();
        Self { begun, number, last_ns, mark, ..Self::new(bytes_max) }
    }

    /// Makes `bytes_max` the limit for each day (UTC), for sources that have no end.
    pub(super) fn daily(self) -> Self {
        Self { daily: true, ..self }
    }

    pub(super) fn take(&mut self, piece: &Printed) {
        let mut rest: &[u8] = &piece.bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (part, after) = rest.split_at(end);
            self.grow(piece, part);
            let begun = std::mem::take(self.begun_of(piece.stream));
            self.keep_printed(piece.at, piece.stream, begun.strip_suffix(b"\r").unwrap_or(&begun));
            rest = after.get(1..).unwrap_or_default();
        }
        self.grow(piece, rest);
        self.mark.read_to = piece.next;
    }

    /// Ends the output: unfinished lines are kept as they are.
    pub(super) fn end(&mut self, at: Timestamp) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let begun = std::mem::take(self.begun_of(stream));
            if !begun.is_empty() {
                self.keep_printed(at, stream, &begun);
            }
        }
    }

    /// Returns the bytes of text that wait to be drained.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Returns all waiting lines as chunks. They must be written in one transaction, because each
    /// has the mark up to which all of them read.
    pub(super) fn drain(&mut self) -> Vec<Chunk> {
        self.waiting_bytes = 0;
        let mut chunks: Vec<Chunk> = Vec::new();
        for (line, text) in std::mem::take(&mut self.lines) {
            let fits = |chunk: &&mut Chunk| chunk.text.len() + text.len() <= CHUNK_BYTES_MAX;
            if let Some(chunk) = chunks.last_mut().filter(fits) {
                chunk.last_ns = line.at_ns;
                chunk.lines += 1;
                chunk.severities |= line.severity.bit();
                chunk.text.push_str(&text);
                continue;
            }
            self.number += 1;
            chunks.push(Chunk {
                number: self.number,
                first_ns: line.at_ns,
                last_ns: line.at_ns,
                lines: 1,
                severities: line.severity.bit(),
                text,
                mark: Mark::default(),
            });
        }
        self.mark.begun = write_begun(&self.begun);
        chunks.iter_mut().for_each(|chunk| chunk.mark.clone_from(&self.mark));
        chunks
    }

    fn begun_of(&mut self, stream: Stream) -> &mut Vec<u8> {
        let [output, error] = &mut self.begun;
        match stream {
            Stream::Stderr => error,
            Stream::Stdout => output,
        }
    }

    /// Adds to the unfinished line, and splits off what is too long for one.
    fn grow(&mut self, piece: &Printed, mut part: &[u8]) {
        loop {
            let begun = self.begun_of(piece.stream);
            let room = LINE_BYTES_MAX - begun.len();
            if part.len() <= room {
                begun.extend_from_slice(part);
                return;
            }
            let (fits, after) = part.split_at(room);
            begun.extend_from_slice(fits);
            let cut = character_end(begun);
            let next = begun.split_off(cut);
            let full = std::mem::replace(begun, next);
            self.keep_printed(piece.at, piece.stream, &full);
            part = after;
        }
    }

    fn keep_printed(&mut self, at: Timestamp, stream: Stream, bytes: &[u8]) {
        let at_ns = self.next_ns(at);
        if self.daily && at_ns / DAY_NS != self.last_ns / DAY_NS {
            self.mark.total_bytes = 0;
        }
        // Once the note below was written, the mark is at the limit, so a resumed recorder gets
        // here as well.
        if self.mark.total_bytes >= self.bytes_max {
            return;
        }
        let line = Line::read(at_ns, stream, bytes);
        let text = line::write(&line);
        if self.mark.total_bytes + text.len() as u64 > self.bytes_max {
            let dropped = format!(
                "more was printed, but only {} bytes of it are kept{}",
                self.bytes_max,
                if self.daily { " each day" } else { "" }
            );
            let note = Line::note(line.at_ns, dropped);
            let text = line::write(&note);
            self.push(note, text);
            self.mark.total_bytes = self.bytes_max;
            return;
        }
        self.mark.total_bytes += text.len() as u64;
        self.push(line, text);
    }

    fn push(&mut self, line: Line, text: String) {
        self.last_ns = line.at_ns;
        self.waiting_bytes += text.len();
        self.lines.push((line, text));
    }

    /// Returns a time for the next line, so that lines are ordered by time even if many come in one
    /// millisecond or the clock was set back.
    fn next_ns(&self, at: Timestamp) -> i64 {
        at.ms().saturating_mul(1_000_000).max(self.last_ns.saturating_add(1))
    }
}

/// Returns the end of the last complete character, so that a cut does not break one.
fn character_end(bytes: &[u8]) -> usize {
    const CHARACTER_BYTES_MAX: usize = 4;
    let tail = bytes.len().saturating_sub(CHARACTER_BYTES_MAX);
    let starts = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0b1100_0000 != 0b1000_0000);
    match (tail..bytes.len()).rev().find(starts) {
        Some(start) if std::str::from_utf8(&bytes[start..]).is_err() && start > 0 => start,
        _ => bytes.len(),
    }
}

/// Writes unfinished lines, which are bytes, as text that a database can store.
fn write_begun(begun: &[Vec<u8>; 2]) -> Option<String> {
    let [output, error] = begun;
    let empty = output.is_empty() && error.is_empty();
    (!empty).then(|| format!("{} {}", STANDARD.encode(output), STANDARD.encode(error)))
}

fn read_begun(text: &str) -> [Vec<u8>; 2] {
    let (output, error) = text.split_once(' ').unwrap_or_default();
    [output, error].map(|part| {
        let bytes = STANDARD.decode(part).unwrap_or_default();
        // No longer ones were written, and a longer one would leave no room to grow.
        bytes.into_iter().take(LINE_BYTES_MAX).collect()
    })
}
