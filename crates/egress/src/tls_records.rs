//! Writes TLS that is tunnelled within the TLS of the proxy in pieces that all programs can read.

use crate::peek::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection on which each TLS record is written by itself, so that it becomes, or begins, a
/// record of the outer TLS.
///
/// libcurl with GnuTLS, which `git` on Debian uses, stops reading after a record without data for
/// the program, such as a session ticket. Anything that came in the same outer record is already
/// decrypted by then, so the socket never becomes readable for it and the program waits for ever.
pub(crate) struct TlsRecords<S> {
    stream: S,
    at: At,
}

/// Where the next byte to write is within the inner TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// After this many bytes of a record's header.
    Header([u8; HEADER_BYTES], usize),
    /// With this many bytes of the record left.
    Record(usize),
    /// It is not TLS.
    Other,
}

const HEADER_BYTES: usize = 5;
const BEGIN: At = At::Header([0; HEADER_BYTES], 0);

impl<S> TlsRecords<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self { stream, at: BEGIN }
    }
}

impl At {
    /// Returns how many of these bytes belong to the same record.
    fn together(self, bytes: &[u8]) -> usize {
        let left = match self {
            Self::Header(header, had) => match filled(header, had, bytes) {
                (header, HEADER_BYTES) => {
                    record_bytes(header).map_or(usize::MAX, |length| HEADER_BYTES - had + length)
                }
                (_, has) => has - had,
            },
            Self::Record(left) => left,
            Self::Other => usize::MAX,
        };
        left.min(bytes.len())
    }

    /// Returns the state after these bytes, which belong to one record.
    fn after(self, bytes: &[u8]) -> Self {
        match self {
            Self::Header(header, had) => match filled(header, had, bytes) {
                (header, HEADER_BYTES) => match record_bytes(header) {
                    Some(length) => Self::Record(length).after(&bytes[HEADER_BYTES - had..]),
                    None => Self::Other,
                },
                (header, has) => Self::Header(header, has),
            },
            Self::Record(left) if left == bytes.len() => BEGIN,
            Self::Record(left) => Self::Record(left - bytes.len()),
            Self::Other => Self::Other,
        }
    }
}

/// Fills a header that already has `had` bytes. Returns it and how many bytes it has now.
fn filled(mut header: [u8; HEADER_BYTES], had: usize, bytes: &[u8]) -> ([u8; HEADER_BYTES], usize) {
    let more = (HEADER_BYTES - had).min(bytes.len());
    header[had..had + more].copy_from_slice(&bytes[..more]);
    (header, had + more)
}

/// Returns the length of the record after this header, or `None` if it is not a header.
fn record_bytes([kind, major, _, high, low]: [u8; HEADER_BYTES]) -> Option<usize> {
    let is_record = (20..=24).contains(&kind) && major == 3;
    is_record.then(|| usize::from(u16::from_be_bytes([high, low])))
}

impl<S: Stream> Stream for TlsRecords<S> {
    fn reset(&self) {
        self.stream.reset();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TlsRecords<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TlsRecords<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let together = &bytes[..self.at.together(bytes)];
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, together))?;
        self.at = self.at.after(&together[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    /// A writer that takes at most this many bytes at once, and records each piece.
    struct Pieces(usize, Vec<Vec<u8>>);

    impl AsyncWrite for Pieces {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.0);
            self.1.push(bytes[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    async fn written(pieces: &[&[u8]], at_once: usize) -> Vec<Vec<u8>> {
        let mut records = TlsRecords::new(Pieces(at_once, Vec::new()));
        for piece in pieces {
            records.write_all(piece).await.unwrap();
        }
        records.stream.1
    }

    fn record(kind: u8, length: usize) -> Vec<u8> {
        let [high, low] = u16::try_from(length).unwrap().to_be_bytes();
        [vec![kind, 3, 3, high, low], vec![kind; length]].concat()
    }

    #[tokio::test]
    async fn records_are_written_one_by_one() {
        let records = [record(22, 90), record(20, 1), record(23, 0), record(23, 16_401)];
        assert_eq!(written(&[&records.concat()], usize::MAX).await, records);
    }

    #[tokio::test]
    async fn what_is_no_tls_is_written_as_it_comes() {
        for other in [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &[23, 2, 0, 0, 1, 0, 0][..]] {
            assert_eq!(written(&[other, other], usize::MAX).await, [other, other]);
        }
    }

    proptest! {
        #[test]
        fn wherever_it_is_cut_no_piece_has_two_records_and_no_byte_is_lost(
            lengths in proptest::collection::vec(0usize..200, 1..8),
            cuts in proptest::collection::vec(1usize..150, 1..20),
            at_once in 1usize..400,
        ) {
            let records: Vec<_> = lengths.iter().map(|length| record(23, *length)).collect();
            let whole = records.concat();
            let (mut rest, mut pieces) = (&whole[..], Vec::new());
            for cut in cuts {
                let (piece, more) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            pieces.push(rest);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let written = runtime.block_on(written(&pieces, at_once));
            prop_assert_eq!(written.concat(), whole);
            let mut ends = records.iter().scan(0, |end, record| {
                *end += record.len();
                Some(*end)
            });
            let (mut end, mut at) = (ends.next().unwrap(), 0);
            for piece in written {
                prop_assert!(at + piece.len() <= end, "a piece has the bytes of two records");
                at += piece.len();
                if at == end {
                    end = ends.next().unwrap_or(usize::MAX);
                }
            }
        }
    }
}
