//! The body of a request to a provider: pieces of what the caller sent, and what was put in
//! between.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Cheap to clone: no bytes are copied.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pieces(VecDeque<Bytes>);

impl Pieces {
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter()
    }

    /// Joins the pieces, where they have to be read as one.
    pub(crate) fn whole(&self) -> Bytes {
        match self.0.len() {
            1 => self.0[0].clone(),
            _ => self.0.iter().flatten().copied().collect::<Vec<u8>>().into(),
        }
    }
}

impl FromIterator<Bytes> for Pieces {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        Self(pieces.into_iter().filter(|piece| !piece.is_empty()).collect())
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        Self::from_iter([bytes])
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}
