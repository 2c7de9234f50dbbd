use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::settings::{Limits, Overlay};

const EXTENSION_BYTES_MAX: u64 = 64 << 10;

/// Archives of one folder with all kinds of entries, written by GNU tar in all its formats.
static SAMPLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let long = format!("{}/{}", "d".repeat(90), "f".repeat(90));
    fs::create_dir(at(&"d".repeat(90))).unwrap();
    fs::write(at(&long), "long").unwrap();
    fs::write(at("plain"), "content").unwrap();
    std::os::unix::fs::symlink("plain", at("symlink")).unwrap();
    fs::hard_link(at("plain"), at("hard")).unwrap();
    let sparse = fs::File::create(at("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    for block in 0..12 {
        sparse.write_all_at(b"data", block * (64 << 10)).unwrap();
    }
    ["gnu", "pax", "ustar"].map(|format| pack(folder.path(), format)).to_vec()
});

fn pack(folder: &std::path::Path, format: &str) -> Vec<u8> {
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--format",
        format,
        if format == "ustar" { "--exclude=sparse" } else { "--sparse" },
    ]);
    tar.arg("-C").arg(folder).args(["-cf", "-", "."]);
    let output = tar.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Reads a whole archive; returns names, and contents of files with their holes filled.
fn read(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let mut reader = Reader::new(archive, EXTENSION_BYTES_MAX);
    let mut found = Vec::new();
    while let Some(entry) = reader.next()? {
        let mut bytes = Vec::new();
        if let Kind::File(content) = &entry.kind {
            for (offset, length) in &content.extents {
                if *offset > 4 << 20 {
                    return Err(Malformed("larger than any sample").into());
                }
                bytes.resize(*offset as usize, 0);
                (&mut reader).take(*length).read_to_end(&mut bytes)?;
            }
        }
        found.push((String::from_utf8_lossy(&entry.path).into_owned(), bytes));
    }
    Ok(found)
}

#[test]
fn all_formats_of_gnu_tar_are_read_alike() {
    let long = format!("./{}/{}", "d".repeat(90), "f".repeat(90));
    for (archive, format) in SAMPLES.iter().zip(["gnu", "pax", "ustar"]) {
        let found = read(archive).unwrap();
        let content = |name: &str| {
            &found.iter().find(|(found, _)| found == name).unwrap_or_else(|| panic!("{name}")).1
        };
        assert_eq!(content(&long), b"long", "{format}");
        assert_eq!(content("./hard"), b"content", "{format}");
        if format != "ustar" {
            let sparse = content("./sparse");
            assert_eq!(&sparse[11 * (64 << 10)..][..4], b"data", "{format}");
            assert!(sparse[4..64 << 10].iter().all(|byte| *byte == 0), "{format}");
        }
    }
}

#[test]
fn an_archive_that_is_cut_is_refused() {
    for archive in SAMPLES.iter() {
        // In the middle of the second header, and in the middle of a file's block.
        assert!(read(&archive[..700]).is_err());
        let end = archive.windows(7).rposition(|bytes| bytes == b"content").unwrap();
        assert!(read(&archive[..end + 3]).is_err());
    }
}

#[test]
fn long_names_are_not_read_without_end() {
    let mut header = [0; BLOCK];
    header[..4].copy_from_slice(b"name");
    header[124..136].copy_from_slice(b"77777777777\0");
    header[156] = b'L';
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    assert!(matches!(read(&header), Err(Error::Limit { .. })));
}

/// Packs a folder within these limits. Returns the size of the archive.
fn packed(folder: &std::path::Path, limits: &Limits) -> Result<u64, Error> {
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(folder).unwrap());
    let difference = Difference {
        upper: folder,
        overlay: Overlay::User,
        root: owner,
        with_capabilities: false,
        limits,
    };
    let mut archive = Vec::new();
    write_difference(&difference, &mut archive).map(|_| archive.len() as u64)
}

#[test]
fn what_no_layer_may_have_is_not_packed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    let limits = || Limits { entries_max: 3, depth_max: 2, ..Limits::default() };
    // Its hole alone would take an hour to read.
    fs::File::create(at("a/holes")).unwrap().set_len(4 << 40).unwrap();
    let refused = packed(folder.path(), &limits()).unwrap_err();
    assert!(matches!(refused, Error::Limit { what: "bytes in the files of one layer", .. }));
    fs::File::create(at("a/holes")).unwrap().set_len(1 << 20).unwrap();
    assert!(packed(folder.path(), &limits()).unwrap() > 1 << 20);
    let fewer = Limits { entries_max: 2, ..limits() };
    let refused = packed(folder.path(), &fewer).unwrap_err();
    assert!(matches!(refused, Error::Limit { what: "entries in one layer", max: 2 }));
    let flatter = Limits { depth_max: 1, ..limits() };
    let refused = packed(folder.path(), &flatter).unwrap_err();
    assert!(matches!(refused, Error::Limit { what: "folders in one path", max: 1 }));
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = read(&bytes);
    }

    #[test]
    fn no_change_of_an_archive_panics(
        sample in 0..3usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut archive = SAMPLES[sample].clone();
        for (at, byte) in changes {
            let at = at.index(archive.len());
            archive[at] = byte;
            // A correct checksum lets the change reach the fields after it.
            let block = at / BLOCK * BLOCK;
            archive[block + 148..block + 156].fill(b' ');
            let sum: u32 = archive[block..block + BLOCK].iter().map(|byte| u32::from(*byte)).sum();
            archive[block + 148..block + 155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        }
        let _ = read(&archive);
    }

    #[test]
    fn no_records_panic(records in "([0-9]{1,3} [a-z.A-Z]{0,20}=[ -~]{0,9}\n?){0,4}") {
        let _ = Extensions::default().read(records.as_bytes());
    }
}
