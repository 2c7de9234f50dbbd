//! Decodes answers of providers that compress although they were asked not to.

use bytes::Bytes;
use flate2::write::{GzDecoder, ZlibDecoder};
use http::HeaderMap;
use http::header::CONTENT_ENCODING;
use std::io::Write;

/// How much is decoded between two checks of the result's size, in bytes.
const PIECE: usize = 4 << 10;

pub(crate) enum Decoder {
    Gzip(Box<GzDecoder<Vec<u8>>>),
    Deflate(Box<ZlibDecoder<Vec<u8>>>),
}

/// How the bytes of an answer are to be read.
pub(crate) enum Coding {
    Plain,
    Known(Decoder),
    /// Passed on as it is, to a caller that may know it.
    Unknown,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BadCoding {
    #[error("it is compressed wrongly: {0}")]
    Wrong(std::io::Error),
    #[error("it is more than {0} bytes when it is not compressed any more")]
    TooLong(usize),
}

impl Coding {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut all = headers.get_all(CONTENT_ENCODING).iter();
        let (first, more) = (all.next(), all.next());
        let Some(first) = first else { return Self::Plain };
        match (first.as_bytes().trim_ascii().to_ascii_lowercase().as_slice(), more) {
            (b"identity" | b"", None) => Self::Plain,
            (b"gzip" | b"x-gzip", None) => {
                Self::Known(Decoder::Gzip(Box::new(GzDecoder::new(Vec::new()))))
            }
            (b"deflate", None) => {
                Self::Known(Decoder::Deflate(Box::new(ZlibDecoder::new(Vec::new()))))
            }
            _ => Self::Unknown,
        }
    }
}

impl Decoder {
    /// Decodes these bytes, if the result has at most `max` bytes.
    pub(crate) fn push(&mut self, bytes: &[u8], max: usize) -> Result<Bytes, BadCoding> {
        let mut decoded = Vec::new();
        for piece in bytes.chunks(PIECE) {
            let more = match self {
                Self::Gzip(decoder) => write(decoder.as_mut(), piece, GzDecoder::get_mut),
                Self::Deflate(decoder) => write(decoder.as_mut(), piece, ZlibDecoder::get_mut),
            };
            decoded.append(&mut more.map_err(BadCoding::Wrong)?);
            if decoded.len() > max {
                return Err(BadCoding::TooLong(max));
            }
        }
        Ok(decoded.into())
    }
}

/// Flushes each time: a token of a stream must not wait for the next.
fn write<D: Write>(
    decoder: &mut D,
    piece: &[u8],
    out: impl Fn(&mut D) -> &mut Vec<u8>,
) -> std::io::Result<Vec<u8>> {
    decoder.write_all(piece)?;
    decoder.flush()?;
    Ok(std::mem::take(out(decoder)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use http::HeaderValue;

    fn decoder() -> Decoder {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        match Coding::of(&headers) {
            Coding::Known(decoder) => decoder,
            _ => unreachable!(),
        }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn events_come_as_soon_as_they_can_be_read() {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let mut decoder = decoder();
        for event in ["data: 1\n\n", "data: 2\n\n"] {
            encoder.write_all(event.as_bytes()).unwrap();
            encoder.flush().unwrap();
            let sent = std::mem::take(encoder.get_mut());
            assert_eq!(decoder.push(&sent, 100).unwrap(), event);
        }
    }

    #[test]
    fn bombs_and_nonsense_are_refused() {
        let bomb = gzip(&vec![0; 50 << 20]);
        assert!(matches!(decoder().push(&bomb, 1 << 20), Err(BadCoding::TooLong(_))));
        assert!(matches!(decoder().push(b"no gzip at all!", 100), Err(BadCoding::Wrong(_))));
    }
}
