//! What a machine and the first program of an instance say to each other about a piece of work: the
//! orders, and then a stream of what the work prints, ended by how it ended.
//!
//! The stream is a row of frames: a kind, the position after it, a time, a length (little-endian),
//! and so many bytes. It goes over a connection that whatever runs in the instance could open too,
//! so each request carries a secret, and the reader takes no frame for larger than a frame may be.

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where the stream is, with `?from=` and a position.
pub const PATH: &str = "/work";
/// Where the work is asked to end.
pub const INTERRUPT_PATH: &str = "/work/interrupt";
/// The header that carries [`Orders::secret`].
pub const SECRET_HEADER: &str = "x-holm-work";
/// The variable in which the work finds the address of its data.
pub const DATA_VARIABLE: &str = "BL_EXECUTION_DATA_URL";

/// Of the bytes of one frame.
pub const FRAME_BYTES_MAX: usize = 64 << 10;
/// Of the data that work may fetch.
pub const DATA_BYTES_MAX: usize = 64 << 20;
const HEAD_BYTES: usize = 1 + 8 + 8 + 4;

/// What the first program is to do. What the work may fetch follows the orders on the same
/// descriptor, after a line break.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Orders {
    /// A program and its arguments.
    pub command: Vec<String>,
    /// Who knows it may follow the work and end it.
    pub secret: String,
    pub timeout_ms: Option<u64>,
    pub grace_ms: u64,
    /// Output that is kept for whoever follows.
    pub output_bytes_max: usize,
}

/// The command is its owner's, and the secret nobody's.
impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders").field("timeout_ms", &self.timeout_ms).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Output,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Printed {
        /// Where the next piece begins.
        next: u64,
        at: Timestamp,
        stream: Stream,
        bytes: Vec<u8>,
    },
    /// Nothing follows.
    Ended(End),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    pub how: How,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
}

/// How the work ended, as the first program sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum How {
    Exited(i32),
    Killed(i32),
    TimedOut,
    Interrupted,
    NotStarted(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what follows is no frame")]
pub struct BadFrame;

const OUTPUT: u8 = 0;
const ERROR: u8 = 1;
const ENDED: u8 = 2;

/// Writes a piece of output, of at most [`FRAME_BYTES_MAX`].
pub fn write_printed(to: &mut Vec<u8>, next: u64, at: Timestamp, stream: Stream, bytes: &[u8]) {
    let kind = match stream {
        Stream::Output => OUTPUT,
        Stream::Error => ERROR,
    };
    write(to, kind, next, at, bytes);
}

pub fn write_end(to: &mut Vec<u8>, end: &End) {
    // Numbers, times and text have no form that could not be written.
    let text = serde_json::to_vec(end).unwrap_or_default();
    write(to, ENDED, 0, end.ended_at, &text);
}

fn write(to: &mut Vec<u8>, kind: u8, next: u64, at: Timestamp, bytes: &[u8]) {
    debug_assert!(bytes.len() <= FRAME_BYTES_MAX);
    to.push(kind);
    to.extend_from_slice(&next.to_le_bytes());
    to.extend_from_slice(&at.ms().to_le_bytes());
    to.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    to.extend_from_slice(bytes);
}

/// Takes a stream apart as it comes in.
#[derive(Default)]
pub struct Frames {
    buffer: Vec<u8>,
    /// How much of the buffer was answered.
    taken: usize,
}

impl Frames {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next frame that is there as a whole.
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
        let printed = |stream| Frame::Printed { next, at, stream, bytes: bytes.to_vec() };
        let frame = match *kind {
            OUTPUT => printed(Stream::Output),
            ERROR => printed(Stream::Error),
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
    use proptest::prelude::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        // Times are written to the millisecond between the years 1 and 9999.
        let at = || (-62_135_596_800_000..253_402_300_799_999_i64).prop_map(Timestamp::from_ms);
        let stream =
            any::<bool>().prop_map(|error| if error { Stream::Error } else { Stream::Output });
        let printed = (any::<u64>(), at(), stream, proptest::collection::vec(any::<u8>(), 0..200));
        let how = prop_oneof![
            any::<i32>().prop_map(How::Exited),
            any::<i32>().prop_map(How::Killed),
            Just(How::TimedOut),
            Just(How::Interrupted),
            ".{0,20}".prop_map(How::NotStarted),
        ];
        let ended = (how, at(), at()).prop_map(|(how, started_at, ended_at)| End {
            how,
            started_at,
            ended_at,
        });
        prop_oneof![
            printed.prop_map(|(next, at, stream, bytes)| Frame::Printed {
                next,
                at,
                stream,
                bytes
            }),
            ended.prop_map(Frame::Ended),
        ]
    }

    fn written(frames: &[Frame]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for frame in frames {
            match frame {
                Frame::Printed { next, at, stream, bytes: text } => {
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
        let mut bytes = written(&[Frame::Printed {
            next: 1,
            at: Timestamp::from_ms(0),
            stream: Stream::Output,
            bytes: vec![b'x'],
        }]);
        bytes[17..21].copy_from_slice(&u32::MAX.to_le_bytes());
        let mut reader = Frames::default();
        reader.push(&bytes);
        assert_eq!(reader.take(), Err(BadFrame));
    }
}
