//! What a machine and the first program of an instance tell each other about a piece of work: the
//! orders, and then a stream of what the work prints, concluded by how it ended.
//!
//! The stream is a sequence of frames: a kind, the position after the frame, a time, a length (all
//! little-endian), and that many bytes. It uses a connection that anything running in the instance
//! could open too. That is why each request carries a secret, and why the reader refuses frames
//! above the maximum size.

use crate::Timestamp;
use crate::instance::{Printed, Stream, WorkEnd};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Path of the stream, with `?from=` and a position.
pub const PATH: &str = "/work";
/// Path at which the work is asked to end.
pub const INTERRUPT_PATH: &str = "/work/interrupt";
/// The header that carries [`Orders::secret`].
pub const SECRET_HEADER: &str = "x-holm-work";
/// Variable in which the work finds the address of its data.
pub const DATA_VARIABLE: &str = "BL_EXECUTION_DATA_URL";

/// Longest content of one frame, in bytes.
pub const FRAME_BYTES_MAX: usize = 64 << 10;
/// Most data that work may fetch, in bytes.
pub const DATA_BYTES_MAX: usize = 64 << 20;
const HEAD_BYTES: usize = 1 + 8 + 8 + 4;

/// Orders to the first program. The data that the work may fetch follows them on the same
/// descriptor, after a line break.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Orders {
    /// A program and its arguments.
    pub command: Vec<String>,
    /// Secret that lets its holder follow the work and end it.
    pub secret: String,
    pub timeout_ms: Option<u64>,
    pub grace_ms: u64,
    /// Most output kept for followers, in bytes.
    pub output_bytes_max: usize,
}

/// Omits the command, which is the owner's business, and the secret.
impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders").field("timeout_ms", &self.timeout_ms).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Printed(Printed),
    /// The end of the work; no frame follows.
    Ended(WorkEnd),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what follows is no frame")]
pub struct BadFrame;

const STDOUT: u8 = 0;
const STDERR: u8 = 1;
const ENDED: u8 = 2;

/// Writes a piece of output of at most [`FRAME_BYTES_MAX`].
pub fn write_printed(to: &mut Vec<u8>, next: u64, at: Timestamp, stream: Stream, bytes: &[u8]) {
    let kind = match stream {
        Stream::Stdout => STDOUT,
        Stream::Stderr => STDERR,
    };
    write(to, kind, next, at, bytes);
}

pub fn write_end(to: &mut Vec<u8>, end: &WorkEnd) {
    #[expect(clippy::expect_used, reason = "what an instance says of its end is text and numbers")]
    let text = serde_json::to_vec(end).expect("an end that an instance tells can be written");
    write(to, ENDED, 0, end.ended_at, &text);
}

fn write(to: &mut Vec<u8>, kind: u8, next: u64, at: Timestamp, bytes: &[u8]) {
    #[expect(clippy::expect_used, reason = "callers cut what they write into frames")]
    let length = u32::try_from(bytes.len()).expect("a frame is at most FRAME_BYTES_MAX long");
    debug_assert!(bytes.len() <= FRAME_BYTES_MAX);
    to.push(kind);
    to.extend_from_slice(&next.to_le_bytes());
    to.extend_from_slice(&at.ms().to_le_bytes());
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(bytes);
}

/// Splits a stream into frames as it arrives.
#[derive(Default)]
pub struct Frames {
    buffer: Vec<u8>,
    /// Bytes at the start of the buffer that were already returned as frames.
    taken: usize,
}

impl Frames {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next frame that has arrived completely.
    pub fn take(&mut self) -> Result<Option<Frame>, BadFrame> {
        let Some((head, rest)) =
            self.buffer.get(self.taken..).and_then(|left| left.split_at_checked(HEAD_BYTES))
        else {
            return Ok(None);
        };
        let (kind, head) = head.split_first().ok_or(BadFrame)?;
        let (next, head) = head.split_first_chunk().ok_or(BadFrame)?;
        let (at, head) = head.split_first_chunk().ok_or(BadFrame)?;
        let length = u32::from_le_bytes(head.try_into().map_err(|_| BadFrame)?) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(BadFrame);
        }
        let Some(bytes) = rest.get(..length) else { return Ok(None) };
        let (next, at) = (u64::from_le_bytes(*next), Timestamp::from_ms(i64::from_le_bytes(*at)));
        let printed = |stream| {
            Frame::Printed(Printed { next, at, stream, bytes: Bytes::copy_from_slice(bytes) })
        };
        let frame = match *kind {
            STDOUT => printed(Stream::Stdout),
            STDERR => printed(Stream::Stderr),
            ENDED => Frame::Ended(serde_json::from_slice(bytes).map_err(|_| BadFrame)?),
            _ => return Err(BadFrame),
        };
        self.taken += HEAD_BYTES + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Outcome;
    use proptest::prelude::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        // Times are written with milliseconds, between the years 1 and 9999.
        let at = || (-62_135_596_800_000..253_402_300_799_999_i64).prop_map(Timestamp::from_ms);
        let stream =
            any::<bool>().prop_map(|error| if error { Stream::Stderr } else { Stream::Stdout });
        let printed = (any::<u64>(), at(), stream, proptest::collection::vec(any::<u8>(), 0..200));
        let outcome = prop_oneof![
            any::<i32>().prop_map(Outcome::Exited),
            any::<i32>().prop_map(Outcome::Killed),
            Just(Outcome::TimedOut),
            Just(Outcome::Interrupted),
            ".{0,20}".prop_map(Outcome::NotStarted),
        ];
        let ended = (outcome, at(), at()).prop_map(|(outcome, started_at, ended_at)| WorkEnd {
            outcome,
            started_at: Some(started_at),
            ended_at,
        });
        prop_oneof![
            printed.prop_map(|(next, at, stream, bytes)| Frame::Printed(Printed {
                next,
                at,
                stream,
                bytes: bytes.into(),
            })),
            ended.prop_map(Frame::Ended),
        ]
    }

    fn written(frames: &[Frame]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for frame in frames {
            match frame {
                Frame::Printed(Printed { next, at, stream, bytes: text }) => {
                    write_printed(&mut bytes, *next, *at, *stream, text)
                }
                Frame::Ended(end) => write_end(&mut bytes, end),
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_however_it_is_cut(
            frames in proptest::collection::vec(any_frame(), 0..8), cut in 1..300_usize,
        ) {
            let (mut reader, mut read) = (Frames::default(), Vec::new());
            for piece in written(&frames).chunks(cut) {
                reader.push(piece);
                while let Some(frame) = reader.take().unwrap() {
                    read.push(frame);
                }
            }
            prop_assert_eq!(read, frames);
        }

        #[test]
        fn no_bytes_are_trouble(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Frames::default();
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.take() {}
        }
    }

    #[test]
    fn a_frame_that_claims_too_much_is_refused() {
        let mut bytes = written(&[Frame::Printed(Printed {
            next: 1,
            at: Timestamp::from_ms(0),
            stream: Stream::Stdout,
            bytes: Bytes::from_static(b"x"),
        })]);
        bytes[17..21].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut reader = Frames::default();
        reader.push(&bytes);
        assert_eq!(reader.take(), Err(BadFrame));
    }
}
