//! Compression of layers in transit: plain, gzip or zstd, recognized by the first bytes.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use crate::error::Exceeded;
use crate::settings::Limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    pub(crate) fn of(start: &[u8]) -> Self {
        match start {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }

    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Plain => "application/vnd.oci.image.layer.v1.tar",
            Self::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Self::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
        }
    }
}

/// Decompresses a stream, and fails as soon as the result exceeds the limits.
pub(crate) fn unpacked<'a>(
    packed: impl Read + 'a,
    limits: &Limits,
) -> io::Result<Box<dyn Read + 'a>> {
    let bytes_in = Rc::new(Cell::new(0));
    let mut packed =
        BufReader::with_capacity(BUFFER_BYTES, Counted { inner: packed, count: bytes_in.clone() });
    let inner: Box<dyn Read + 'a> = match Packing::of(packed.fill_buf()?) {
        Packing::Plain => Box::new(packed),
        Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
        Packing::Zstd => Box::new(zstd::Decoder::with_buffer(packed)?),
    };
    // A tar archive is larger than its files, by a header for each.
    let bytes_max = limits
        .layer_bytes_max
        .saturating_add(limits.entries_max.saturating_mul(HEADER_BYTES_TYPICAL));
    Ok(Box::new(Bounded { inner, bytes_in, bytes_out: 0, bytes_max, limits: limits.clone() }))
}

const BUFFER_BYTES: usize = 64 << 10;
const HEADER_BYTES_TYPICAL: u64 = 2048;

struct Counted<R> {
    inner: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count.set(self.count.get() + read as u64);
        Ok(read)
    }
}

struct Bounded<R> {
    inner: R,
    bytes_in: Rc<Cell<u64>>,
    bytes_out: u64,
    bytes_max: u64,
    limits: Limits,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes_out += read as u64;
        if self.bytes_out > self.bytes_max {
            return Err(io::Error::other(Exceeded {
                what: "bytes in one layer",
                max: self.bytes_max,
            }));
        }
        let Limits { ratio_max, ratio_free_bytes, .. } = self.limits;
        if self.bytes_out > ratio_free_bytes
            && self.bytes_out > self.bytes_in.get().saturating_mul(ratio_max)
        {
            return Err(io::Error::other(Exceeded {
                what: "times its packed size",
                max: ratio_max,
            }));
        }
        Ok(read)
    }
}
