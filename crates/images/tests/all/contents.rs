//! Measures and unpacks the archives that volumes begin with.

use images::build::{Fault, SourceLimits};
use images::contents::{Needs, measure, unpack};
use proptest::prelude::*;
use std::fs;

use crate::archive::{Archive, gzip};

const LIMITS: SourceLimits = SourceLimits { bytes: 1 << 20, entries: 1_000, ratio: 50 };

fn measured(bytes: &[u8]) -> Result<Needs, Fault> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    measure(file.path(), LIMITS)
}

#[test]
fn folders_on_the_way_to_files_are_counted_once() {
    let archive = Archive::new().file("a/b/one", "x").file("a/b/two", "y").folder("a");
    let needs = measured(&archive.bytes()).unwrap();
    // The root counts as one of them.
    assert_eq!((needs.entries, needs.bytes, needs.block_bytes), (5, 2, 8_192));
    assert_eq!(measured(&gzip(&Archive::new().bytes())).unwrap().bytes, 0);
}

#[test]
fn links_and_ways_out_are_refused() {
    for archive in [
        Archive::new().symlink("x", "y"),
        Archive::new().symlink("x", "/etc/passwd"),
        Archive::new().file("x", "").hard_link("y", "x"),
        Archive::new().file("../x", ""),
        Archive::new().file("/x", ""),
        Archive::new().file("a/../../x", ""),
    ] {
        assert!(matches!(measured(&archive.bytes()), Err(Fault::Sources(_))));
    }
}

/// Returns an archive with some of its bytes changed.
fn changed() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let archive = Archive::new().folder("a").file("a/b", "text").file("c", "more".repeat(300));
    let archive = archive.bytes();
    changes.prop_map(move |changes| {
        let mut bytes = archive.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_is_sent_is_measured_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        let _ = measured(&bytes);
        let _ = measured(&[b"PK\x03\x04".as_slice(), &bytes].concat());
        let _ = measured(&[b"\x1f\x8b\x08\x00".as_slice(), &bytes].concat());
    }

    /// Whatever can be measured also unpacks, to at most the measured size, and into its folder
    /// only.
    #[test]
    fn what_is_measured_unpacks(bytes in changed()) {
        let place = tempfile::tempdir().unwrap();
        let (file, folder) = (place.path().join("archive"), place.path().join("folder"));
        fs::write(&file, &bytes).unwrap();
        fs::create_dir(&folder).unwrap();
        let Ok(needs) = measure(&file, LIMITS) else { return Ok(()) };
        if unpack(&file, &folder, LIMITS).is_err() {
            return Ok(());
        }
        let (mut bytes, mut entries) = (0, 1);
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let metadata = fs::symlink_metadata(entry.path()).unwrap();
                prop_assert!(metadata.is_dir() || metadata.is_file());
                entries += 1;
                match metadata.is_dir() {
                    true => folders.push(entry.path()),
                    false => bytes += metadata.len(),
                }
            }
        }
        // Two entries of the same name count twice.
        prop_assert!(bytes <= needs.bytes && entries <= needs.entries.max(1));
        prop_assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2);
    }
}
