//! Reads `aws-chunked`: `size[;chunk-signature=…]\r\n` bytes `\r\n`, …, `0[;…]\r\n` fields `\r\n`.

use crate::error::{Code, Error};
use crate::signature::Chain;
use bytes::{Buf, Bytes, BytesMut};
use ring::digest;
use types::hex;

/// Longest line: the size of a chunk with its signature, or a field after the last chunk.
const LINE_MAX: usize = 1024;
const FIELDS_MAX: usize = 16;
/// Largest chunk. No client makes larger ones.
const CHUNK_MAX: u64 = 5 << 30;

pub(super) enum Event {
    Data(Bytes),
    /// More bytes are needed, or everything was read.
    Wants,
}

enum At {
    Size,
    Data {
        left: u64,
    },
    DataEnd,
    /// After the chunk without bytes.
    Fields,
    Done,
}

pub(super) struct Chunks {
    at: At,
    buffer: BytesMut,
    /// For signed chunks: the chain, the digest of the current chunk, and its signature.
    signed: Option<Signed>,
    trailer: bool,
    fields: Vec<(String, String)>,
}

struct Signed {
    chain: Chain,
    digest: digest::Context,
    signature: String,
}

impl Chunks {
    pub(super) fn new(chain: Option<Chain>, trailer: bool) -> Self {
        let signed =
            chain.map(|chain| Signed { chain, digest: sha256(), signature: String::new() });
        Self { at: At::Size, buffer: BytesMut::new(), signed, trailer, fields: Vec::new() }
    }

    /// Adds bytes. Called only when everything before them has been read.
    pub(super) fn push(&mut self, bytes: Bytes) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::from(bytes);
        } else {
            self.buffer.extend_from_slice(&bytes);
        }
    }

    pub(super) fn next(&mut self) -> Result<Event, Error> {
        loop {
            match self.at {
                At::Size => {
                    let Some(line) = self.line()? else { return Ok(Event::Wants) };
                    self.begin(&line)?;
                }
                At::Data { left } => {
                    if self.buffer.is_empty() {
                        return Ok(Event::Wants);
                    }
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
                    let bytes = self.buffer.split_to(here).freeze();
                    if let Some(signed) = &mut self.signed {
                        signed.digest.update(&bytes);
                    }
                    let left = left - here as u64;
                    self.at = if left == 0 { At::DataEnd } else { At::Data { left } };
                    return Ok(Event::Data(bytes));
                }
                At::DataEnd => {
                    let Some(end) = self.buffer.get(..2) else { return Ok(Event::Wants) };
                    if end != b"\r\n" {
                        return Err(malformed());
                    }
                    self.buffer.advance(2);
                    self.check_chunk()?;
                    self.at = At::Size;
                }
                At::Fields => {
                    let Some(line) = self.line()? else { return Ok(Event::Wants) };
                    self.field(&line)?;
                }
                At::Done if self.buffer.is_empty() => return Ok(Event::Wants),
                At::Done => return Err(malformed()),
            }
        }
    }

    /// Returns a line without its end, once it is complete.
    fn line(&mut self) -> Result<Option<String>, Error> {
        let within = self.buffer.get(..LINE_MAX).unwrap_or(&self.buffer);
        let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
            let too_long = self.buffer.len() >= LINE_MAX;
            return if too_long { Err(malformed()) } else { Ok(None) };
        };
        let line = String::from_utf8(self.buffer.split_to(end).to_vec());
        self.buffer.advance(2);
        line.map(Some).map_err(|_| malformed())
    }

    fn begin(&mut self, line: &str) -> Result<(), Error> {
        let (size, rest) = line.split_once(';').unwrap_or((line, ""));
        let plain = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16).ok().filter(|size| plain && *size <= CHUNK_MAX);
        let size = size.ok_or_else(malformed)?;
        if let Some(signed) = &mut self.signed {
            let signature = rest.trim().strip_prefix("chunk-signature=");
            signed.signature = signature.ok_or_else(malformed)?.to_owned();
        }
        if size > 0 {
            self.at = At::Data { left: size };
            return Ok(());
        }
        self.check_chunk()?;
        self.at = At::Fields;
        Ok(())
    }

    fn check_chunk(&mut self) -> Result<(), Error> {
        let Some(signed) = &mut self.signed else { return Ok(()) };
        let digest = std::mem::replace(&mut signed.digest, sha256()).finish();
        signed.chain.chunk(&hex::encode(digest.as_ref()), &signed.signature)
    }

    fn field(&mut self, line: &str) -> Result<(), Error> {
        if line.is_empty() {
            self.at = At::Done;
            return Ok(());
        }
        let (name, value) = line.split_once(':').ok_or_else(malformed)?;
        if self.fields.len() >= FIELDS_MAX || !self.trailer {
            return Err(malformed());
        }
        self.fields.push((name.trim().to_owned(), value.trim().to_owned()));
        // The signature is the last field. An empty line may follow it.
        let signature = "x-amz-trailer-signature";
        if name.trim().eq_ignore_ascii_case(signature) {
            let (_, value) = self.fields.pop().ok_or_else(malformed)?;
            self.check_fields(&value)?;
            self.signed = None;
        }
        Ok(())
    }

    fn check_fields(&mut self, signature: &str) -> Result<(), Error> {
        let Some(signed) = &mut self.signed else { return Ok(()) };
        let text: String = self
            .fields
            .iter()
            .map(|(name, value)| format!("{}:{value}\n", name.to_ascii_lowercase()))
            .collect();
        signed.chain.trailer(&text, signature)
    }

    /// Returns the fields after the body, once everything was read.
    pub(super) fn finish(&self) -> Result<&[(String, String)], Error> {
        // Some clients leave out the last end of line.
        let ended = matches!(self.at, At::Done | At::Fields) && self.buffer.is_empty();
        let unchecked = self.trailer && self.signed.is_some();
        if !ended {
            return Err(Error::incomplete());
        }
        if unchecked {
            let message = "The signature of the trailer did not come.";
            return Err(Error::new(Code::SignatureMismatch, message));
        }
        Ok(&self.fields)
    }
}

fn sha256() -> digest::Context {
    digest::Context::new(&digest::SHA256)
}

fn malformed() -> Error {
    Error::new(Code::IncompleteBody, "The chunks of the body are not well formed.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::tests::published_chain;
    use proptest::prelude::*;

    type Read = Result<(Vec<u8>, Vec<(String, String)>), Code>;

    fn read(body: &[u8], cuts: &[usize], trailer: bool) -> Read {
        read_with(Chunks::new(None, trailer), body, cuts)
    }

    fn read_with(mut chunks: Chunks, body: &[u8], cuts: &[usize]) -> Read {
        let (mut all, mut rest) = (Vec::new(), body);
        let mut cuts = cuts.iter();
        loop {
            match chunks.next().map_err(|error| error.code)? {
                Event::Data(bytes) => all.extend_from_slice(&bytes),
                Event::Wants if rest.is_empty() => break,
                Event::Wants => {
                    let here = cuts.next().map_or(rest.len(), |cut| (*cut).clamp(1, rest.len()));
                    chunks.push(Bytes::copy_from_slice(&rest[..here]));
                    rest = &rest[here..];
                }
            }
        }
        chunks.finish().map(|fields| (all, fields.to_vec())).map_err(|error| error.code)
    }

    #[test]
    fn chunks_that_are_not_well_formed_are_refused() {
        for bad in [
            "",
            "0",
            "0\r",
            "5\r\nhello",
            "5\r\nhello\r\n",
            "5\r\nhelloo\r\n0\r\n\r\n",
            "x\r\n",
            "-1\r\n",
            "+0\r\n\r\n",
            "ffffffffffffffff\r\n",
            "0\r\n\r\nmore",
            "0\r\nfield\r\n\r\n",
            "5\nhello\n0\n\n",
        ] {
            assert!(read(bad.as_bytes(), &[], true).is_err(), "{bad:?}");
        }
        assert!(read(&[b'0'; LINE_MAX + 1], &[], true).is_err());
        assert!(read(b"0\r\na:b\r\n\r\n", &[], false).is_err());
        assert!(read(b"0\r\n\r\n", &[], false).is_ok());
    }

    /// Returns the body of the published example.
    fn published() -> Vec<u8> {
        let (_, [first, second, end]) = published_chain();
        let (long, short) = ("a".repeat(65536), "a".repeat(1024));
        let body = format!(
            "10000;chunk-signature={first}\r\n{long}\r\n400;chunk-signature={second}\r\n{short}\r\n0;chunk-signature={end}\r\n\r\n"
        );
        body.into_bytes()
    }

    #[test]
    fn the_published_body_is_read_and_no_other() {
        let read = |body: &[u8]| {
            let chunks = Chunks::new(Some(published_chain().0), false);
            read_with(chunks, body, &[1, 100, 3, 65000, 7])
        };
        let body = published();
        assert_eq!(body.len(), 66824);
        assert_eq!(read(&body).unwrap().0, [b'a'; 66560]);
        // A changed byte, chunks in another order, an early end, a chunk without its signature.
        let mut other = body.clone();
        other[40000] = b'b';
        assert_eq!(read(&other), Err(Code::SignatureMismatch));
        let second = body.iter().rposition(|byte| *byte == b'4').unwrap();
        assert!(read(&body[second..]).is_err());
        assert!(read(b"0\r\n\r\n").is_err());
        let (_, [.., end]) = published_chain();
        let short = format!("0;chunk-signature={end}\r\n\r\n");
        assert_eq!(read(short.as_bytes()), Err(Code::SignatureMismatch));
        // A trailer that should be signed but is not.
        let chunks = Chunks::new(Some(published_chain().0), true);
        assert_eq!(read_with(chunks, &body, &[]), Err(Code::SignatureMismatch));
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            cuts in prop::collection::vec(1..30_usize, 0..60),
        ) {
            let mut body = Vec::new();
            for part in &parts {
                body.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                body.extend_from_slice(part);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\nx-amz-checksum-crc32: AAAA\r\n\r\n");
            let fields = vec![("x-amz-checksum-crc32".to_owned(), "AAAA".to_owned())];
            prop_assert_eq!(read(&body, &cuts, true), Ok((parts.concat(), fields)));
            for end in 0..body.len() - 4 {
                prop_assert!(read(&body[..end], &cuts, true).is_err() || end + 31 > body.len());
            }
        }

        #[test]
        fn nothing_makes_it_panic(body: Vec<u8>, cuts in prop::collection::vec(1..9_usize, 0..9)) {
            let _ = read(&body, &cuts, true);
        }
    }
}
