//! Archives like those that users upload, written by hand so that hostile ones can be made too.

use flate2::Crc;
use std::io::Write;

const BLOCK: usize = 512;

/// Kind of an entry in a tar archive.
pub(crate) enum Entry<'e> {
    File(&'e [u8]),
    /// Symbolic link to this path.
    Link(&'e str),
    /// Hard link to this path.
    HardLink(&'e str),
}

pub(crate) fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let entries: Vec<_> =
        files.iter().map(|(name, text)| (*name, Entry::File(text.as_bytes()))).collect();
    tar_of(&entries)
}

pub(crate) fn tar_of(entries: &[(&str, Entry<'_>)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, entry) in entries {
        let (kind, content, link) = match entry {
            Entry::File(content) => (b'0', *content, ""),
            Entry::Link(to) => (b'2', [].as_slice(), *to),
            Entry::HardLink(to) => (b'1', [].as_slice(), *to),
        };
        archive.extend(header(name, kind, content.len(), link));
        archive.extend_from_slice(content);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    archive.resize(archive.len() + 2 * BLOCK, 0);
    archive
}

fn header(name: &str, kind: u8, size: usize, link: &str) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000755\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

pub(crate) fn zip(files: &[(&str, &str)]) -> Vec<u8> {
    let files: Vec<_> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    zip_of(&files)
}

/// Compresses each file, so that many zeros become few bytes.
pub(crate) fn zip_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in files {
        let mut packing =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        packing.write_all(content).unwrap();
        let packed = packing.finish().unwrap();
        let mut crc = Crc::new();
        crc.update(content);
        let mut facts = Vec::new();
        for short in [20_u16, 0, 8, 0, 0] {
            facts.extend(short.to_le_bytes());
        }
        for long in [crc.sum(), packed.len() as u32, content.len() as u32] {
            facts.extend(long.to_le_bytes());
        }
        facts.extend((name.len() as u16).to_le_bytes());
        facts.extend(0_u16.to_le_bytes());
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend_from_slice(&facts);
        // No comment, first disk, no attributes.
        directory.extend([0; 10]);
        directory.extend((archive.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        archive.extend(b"PK\x03\x04");
        archive.extend(facts);
        archive.extend(name.as_bytes());
        archive.extend(packed);
    }
    let (at, size, count) = (archive.len() as u32, directory.len() as u32, files.len() as u16);
    archive.extend(directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    archive.extend([size.to_le_bytes(), at.to_le_bytes()].concat());
    archive.extend([0, 0]);
    archive
}
