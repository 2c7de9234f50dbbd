//! What work prints, as it is kept.

use crate::machine::{Printed, Stream};
use jobs::logs::{self, Piece};

impl From<Printed> for Piece {
    fn from(printed: Printed) -> Self {
        let stream = match printed.stream {
            Stream::Output => logs::Stream::Output,
            Stream::Error => logs::Stream::Error,
        };
        Self { next: printed.next, at: printed.at, stream, bytes: printed.text }
    }
}
