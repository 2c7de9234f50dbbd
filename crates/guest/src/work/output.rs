//! The stored output of the work: both streams in the order of arrival, with times.
//!
//! A position counts the bytes since the start over both streams and never changes. Output is
//! stored in memory, because a file would take room that was promised to the work. Output that has
//! been read is dropped first, and only when room is needed, because the reader may have been
//! stopped before it stored what it read.

use std::collections::VecDeque;
use types::Timestamp;
use types::instance::Stream;

/// Memory that a piece takes in addition to its bytes.
const PIECE_COST: usize = 64;
/// Largest size to which a piece grows.
const PIECE_BYTES_MAX: usize = 16 << 10;

pub(super) struct Output {
    pieces: VecDeque<Piece>,
    bytes_max: usize,
    stored: usize,
    end: u64,
    /// Up to which position output has been read.
    fetched: u64,
    /// Whether unread output was dropped, and nothing has been read since. Then it makes no sense
    /// to wait for a reader.
    abandoned: bool,
}

struct Piece {
    begin: u64,
    at: Timestamp,
    stream: Stream,
    bytes: Vec<u8>,
}

/// What is found at a position.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Piece {
        next: u64,
        at: Timestamp,
        stream: Stream,
        bytes: &'a [u8],
    },
    /// The output was dropped; stored output begins at `begin`.
    Lost {
        begin: u64,
        at: Timestamp,
    },
    Nothing,
}

impl Output {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { pieces: VecDeque::new(), bytes_max, stored: 0, end: 0, fetched: 0, abandoned: false }
    }

    /// Stores output, whether there is room or not: callers that can wait ask for room first.
    pub(super) fn append(&mut self, stream: Stream, at: Timestamp, bytes: &[u8]) {
        match self.pieces.back_mut() {
            Some(last)
                if last.stream == stream
                    && last.at == at
                    && last.bytes.len() + bytes.len() <= PIECE_BYTES_MAX =>
            {
                last.bytes.extend_from_slice(bytes);
            }
            _ => {
                self.stored += PIECE_COST;
                self.pieces.push_back(Piece { begin: self.end, at, stream, bytes: bytes.to_vec() });
            }
        }
        self.stored += bytes.len();
        self.end += bytes.len() as u64;
    }

    /// Returns whether more can be stored, after dropping output that was read if that is needed.
    pub(super) fn has_room(&mut self) -> bool {
        while self.stored >= self.bytes_max {
            match self.pieces.front() {
                Some(first) if first.begin + first.bytes.len() as u64 <= self.fetched => {
                    self.drop_first()
                }
                _ => break,
            }
        }
        if self.abandoned {
            self.make_room();
        }
        self.abandoned || self.stored < self.bytes_max
    }

    /// Stops waiting for a reader: from now on the oldest output is dropped, read or not.
    pub(super) fn abandon(&mut self) {
        self.abandoned = true;
        self.make_room();
    }

    /// Records that everything up to `position` was sent to a reader that is still there. Half of
    /// the capacity counts as still in transit, because a connection may break and the reader may
    /// ask again for what was lost.
    pub(super) fn fetch(&mut self, position: u64) {
        let on_its_way = self.bytes_max as u64 / 2;
        self.fetched = self.fetched.max(position.saturating_sub(on_its_way));
        self.abandoned = false;
    }

    pub(super) fn find(&self, position: u64) -> Found<'_> {
        let after = self.pieces.partition_point(|piece| piece.begin <= position);
        let (Some(first), true) = (self.pieces.front(), position < self.end) else {
            return Found::Nothing;
        };
        let Some(piece) = after.checked_sub(1).and_then(|index| self.pieces.get(index)) else {
            return Found::Lost { begin: first.begin, at: first.at };
        };
        let bytes =
            usize::try_from(position - piece.begin).ok().and_then(|skip| piece.bytes.get(skip..));
        let bytes = bytes.unwrap_or_default();
        Found::Piece {
            next: position + bytes.len() as u64,
            at: piece.at,
            stream: piece.stream,
            bytes,
        }
    }

    fn make_room(&mut self) {
        // The last piece stays, so that a position in front of it always finds what comes next.
        while self.stored >= self.bytes_max && self.pieces.len() > 1 {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            self.stored -= piece.bytes.len() + PIECE_COST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stream::{Stderr as Error, Stdout as Out};
    use proptest::prelude::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn read_all(output: &Output, mut position: u64) -> Vec<(Stream, u8)> {
        let mut read = Vec::new();
        loop {
            match output.find(position) {
                Found::Piece { next, stream, bytes, .. } => {
                    assert_eq!(next, position + bytes.len() as u64);
                    assert!(!bytes.is_empty());
                    read.extend(bytes.iter().map(|byte| (stream, *byte)));
                    position = next;
                }
                Found::Lost { begin, .. } => {
                    assert!(begin > position);
                    position = begin;
                }
                Found::Nothing => return read,
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_is_the_end_of_what_was_printed(
            writes in proptest::collection::vec((any::<bool>(), 0..4_i64, proptest::collection::vec(any::<u8>(), 1..300)), 0..40),
            bytes_max in 1..4000_usize, from in any::<proptest::sample::Index>(),
        ) {
            let mut output = Output::new(bytes_max);
            let mut expect = Vec::new();
            for (error, ms, bytes) in &writes {
                if !output.has_room() {
                    output.abandon();
                }
                let stream = if *error { Error } else { Out };
                output.append(stream, at(*ms), bytes);
                expect.extend(bytes.iter().map(|byte| (stream, *byte)));
            }
            prop_assert!(output.stored < bytes_max + 2 * (300 + PIECE_COST) + PIECE_BYTES_MAX);
            let from = from.index(expect.len() + 1);
            let read = read_all(&output, from as u64);
            prop_assert!(expect[from..].ends_with(&read));
            let lost = matches!(output.find(from as u64), Found::Lost { .. });
            prop_assert_eq!(lost, read.len() < expect.len() - from);
        }
    }

    #[test]
    fn what_was_read_makes_room_and_what_was_not_stays() {
        let mut output = Output::new(1000);
        output.append(Out, at(1), &[b'a'; 600]);
        output.append(Out, at(2), &[b'b'; 600]);
        assert!(!output.has_room());
        output.fetch(600);
        assert!(!output.has_room(), "what was sent last may be on its way");
        output.fetch(1200);
        assert!(output.has_room());
        assert_eq!(output.find(0), Found::Lost { begin: 600, at: at(2) });
        assert_eq!(read_all(&output, 600).len(), 600);
    }

    #[test]
    fn without_a_reader_nobody_waits_twice() {
        let mut output = Output::new(1000);
        for _ in 0..3 {
            output.append(Out, at(1), &[b'a'; 600]);
            output.append(Error, at(1), &[b'b'; 600]);
        }
        assert!(!output.has_room());
        output.abandon();
        assert!(output.has_room());
        output.append(Out, at(1), &[b'c'; 900]);
        assert!(output.has_room(), "the oldest goes");
        output.fetch(0);
        output.append(Out, at(3), &[b'd'; 900]);
        output.append(Out, at(4), &[b'd'; 900]);
        assert!(!output.has_room(), "somebody reads again, and is waited for");
    }
}
