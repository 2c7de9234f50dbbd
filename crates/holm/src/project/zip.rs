//! Writing of zip archives.
//!
//! Timestamps are left out, so that equal content makes equal archives. Sizes are stored before the
//! content, so the output must support seeking back.

use flate2::Compression;
use flate2::write::DeflateEncoder;
use std::io::{self, Read, Seek, SeekFrom, Write};

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
/// Flags of an entry: its name is UTF-8.
const FLAGS: u16 = 0x0800;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
const VERSION: u16 = 20;
/// "Made by" field: permissions are Unix permissions.
const MADE_BY: u16 = 3 << 8 | VERSION;
/// 1980-01-01, the first day of the format.
const DAY: u16 = 1 << 5 | 1;
const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const PIECE_BYTES: usize = 64 << 10;

/// Limits of the format without its 64-bit extension.
pub(crate) const FILES_MAX: usize = 65_000;
const BYTES_MAX: u64 = u32::MAX as u64 - 1;

pub(crate) struct Zip<W: Write + Seek> {
    out: W,
    records: Vec<Record>,
}

struct Record {
    name: String,
    mode: u32,
    method: u16,
    crc: u32,
    packed: u32,
    size: u32,
    at: u32,
}

impl<W: Write + Seek> Zip<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, records: Vec::new() }
    }

    pub(crate) fn add_folder(&mut self, name: &str, mode: u32) -> io::Result<()> {
        let record = self.begin(format!("{name}/"), FOLDER | mode, STORED)?;
        self.records.push(record);
        Ok(())
    }

    pub(crate) fn add_file(&mut self, name: &str, mode: u32, content: impl Read) -> io::Result<()> {
        let mut record = self.begin(name.to_owned(), REGULAR | mode, DEFLATED)?;
        let begin = self.out.stream_position()?;
        let (crc, size) = self.pack(content)?;
        let end = self.out.stream_position()?;
        record.crc = crc;
        record.size = number(size)?;
        record.packed = number(end - begin)?;
        self.out.seek(SeekFrom::Start(record.at.into()))?;
        self.out.write_all(&record.local()?)?;
        self.out.seek(SeekFrom::Start(end))?;
        self.records.push(record);
        Ok(())
    }

    fn pack(&mut self, mut content: impl Read) -> io::Result<(u32, u64)> {
        let mut encoder = DeflateEncoder::new(&mut self.out, Compression::default());
        let (mut crc, mut size) = (flate2::Crc::new(), 0);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let length = content.read(&mut piece)?;
            if length == 0 {
                break;
            }
            crc.update(&piece[..length]);
            size += length as u64;
            encoder.write_all(&piece[..length])?;
        }
        encoder.finish()?;
        Ok((crc.sum(), size))
    }

    fn begin(&mut self, name: String, mode: u32, method: u16) -> io::Result<Record> {
        if self.records.len() >= FILES_MAX {
            return Err(io::Error::other(format!("an archive holds at most {FILES_MAX} files")));
        }
        let at = number(self.out.stream_position()?)?;
        let record = Record { name, mode, method, crc: 0, packed: 0, size: 0, at };
        self.out.write_all(&record.local()?)?;
        Ok(record)
    }

    pub(crate) fn finish(mut self) -> io::Result<W> {
        let at = number(self.out.stream_position()?)?;
        for record in &self.records {
            self.out.write_all(&record.central()?)?;
        }
        let length = number(self.out.stream_position()?)? - at;
        let count = u16::try_from(self.records.len()).map_err(io::Error::other)?;
        let mut end = Fields::default();
        end.u32(END).u16(0).u16(0).u16(count).u16(count).u32(length).u32(at).u16(0);
        self.out.write_all(&end.0)?;
        self.out.flush()?;
        Ok(self.out)
    }
}

fn number(bytes: u64) -> io::Result<u32> {
    u32::try_from(bytes)
        .ok()
        .filter(|_| bytes <= BYTES_MAX)
        .ok_or_else(|| io::Error::other("an archive holds at most 4 GiB"))
}

impl Record {
    fn name_length(&self) -> io::Result<u16> {
        u16::try_from(self.name.len())
            .map_err(|_| io::Error::other("the name of a file is too long"))
    }

    fn local(&self) -> io::Result<Vec<u8>> {
        let mut fields = Fields::default();
        fields.u32(LOCAL).u16(VERSION).u16(FLAGS).u16(self.method).u16(0).u16(DAY);
        fields.u32(self.crc).u32(self.packed).u32(self.size).u16(self.name_length()?).u16(0);
        fields.0.extend_from_slice(self.name.as_bytes());
        Ok(fields.0)
    }

    fn central(&self) -> io::Result<Vec<u8>> {
        let mut fields = Fields::default();
        fields.u32(CENTRAL).u16(MADE_BY).u16(VERSION).u16(FLAGS).u16(self.method).u16(0).u16(DAY);
        fields.u32(self.crc).u32(self.packed).u32(self.size).u16(self.name_length()?);
        // No extra field, no comment, first disk, no internal attributes.
        fields.u16(0).u16(0).u16(0).u16(0).u32(self.mode << 16).u32(self.at);
        fields.0.extend_from_slice(self.name.as_bytes());
        Ok(fields.0)
    }
}

/// Writer for little-endian numbers.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    fn u16(&mut self, number: u16) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn u32(&mut self, number: u32) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }
}
