use super::*;
use Stream::{Stderr, Stdout};
use proptest::prelude::*;
use std::os::fd::AsRawFd;

fn files() -> Keep {
    files_in(std::env::temp_dir())
}

fn files_in(directory: PathBuf) -> Keep {
    Keep::Files { directory, generation_bytes: 32 << 20 }
}

fn read_all(log: &Log, mut position: u64, limit: usize) -> Vec<(Stream, Vec<u8>)> {
    let mut pieces: Vec<(Stream, Vec<u8>)> = Vec::new();
    while let Read::Piece(piece) = log.read(position, limit).unwrap() {
        assert!(!piece.bytes.is_empty());
        position += piece.bytes.len() as u64;
        match pieces.last_mut() {
            Some((stream, bytes)) if *stream == piece.stream => bytes.extend(piece.bytes),
            _ => pieces.push((piece.stream, piece.bytes)),
        }
    }
    assert_eq!(position, log.end());
    pieces
}

#[test]
fn small_output_needs_no_file() {
    let mut log = Log::new(files_in("/nonexistent".into()));
    log.append(Stdout, b"hello");
    assert_eq!(log.tail(Stdout, 100).unwrap().bytes, b"hello");
    assert_eq!(log.read(9, 10).unwrap(), Read::Outside { begin: 0, end: 5 });
}

/// Appends numbered lines, which show whether any is missing.
fn append_lines(log: &mut Log, numbers: std::ops::Range<usize>) {
    numbers.for_each(|number| log.append(Stdout, line(number).as_bytes()));
}

fn line(number: usize) -> String {
    format!("{number:99}\n")
}

fn lines(numbers: std::ops::Range<usize>) -> Vec<u8> {
    numbers.map(line).collect::<String>().into_bytes()
}

#[test]
fn output_that_no_file_takes_is_kept_in_memory() {
    let mut log = Log::new(files_in("/nonexistent".into()));
    log.append(Stdout, &[b'x'; 10_000]);
    log.append(Stderr, b"FATAL: no space left");
    log.append(Stdout, b"after");
    let error = log.tail(Stderr, 100).unwrap();
    assert_eq!((error.bytes.as_slice(), error.left_out), (b"FATAL: no space left".as_slice(), 0));
    assert_eq!((log.begin(), log.end(), read_all(&log, 0, 4096).len()), (0, 10_025, 3));
}

#[test]
fn memory_takes_only_the_last_of_what_no_file_takes() {
    let mut log = Log::new(files_in("/nonexistent".into()));
    append_lines(&mut log, 0..10_000);
    let last = MEMORY_GENERATION_BYTES_MAX;
    assert!((last..=2 * last).contains(&(log.stored() as usize)), "{}", log.stored());
    // At once, too.
    log.append(Stdout, &lines(10_000..20_000));
    assert!((last..=2 * last).contains(&(log.stored() as usize)), "{}", log.stored());
    let tail = log.tail(Stdout, 64 << 10).unwrap();
    assert!(lines(0..20_000).ends_with(&tail.bytes));
    assert_eq!((tail.bytes.len(), tail.left_out), (64 << 10, 2_000_000 - (64 << 10)));
    // When the output of all processes is too much, the end of each is kept here as well.
    log.keep_last(64 << 10);
    assert_eq!((log.stored(), log.end()), (64 << 10, 2_000_000));
    assert!(lines(0..20_000).ends_with(&log.tail(Stdout, 64 << 10).unwrap().bytes));
    append_lines(&mut log, 20_000..20_010);
    assert!(lines(0..20_010).ends_with(&log.tail(Stdout, 64 << 10).unwrap().bytes));
}

#[test]
fn a_file_that_takes_no_more_stays_readable_and_memory_goes_on() {
    for (in_file, in_memory) in [(100, 100), (2_000, 1_000)] {
        let mut log = Log::new(files());
        append_lines(&mut log, 0..in_file);
        // Like on a full disk, every write fails, and there is no place for another file.
        let Body::File(file) = &mut log.current.body else { panic!("it is in a file") };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        *file = File::open(path).unwrap();
        log.keep = files_in("/nonexistent".into());
        append_lines(&mut log, in_file..in_file + in_memory);
        assert_eq!(log.begin(), 0);
        let all = lines(0..in_file + in_memory);
        assert_eq!(read_all(&log, 0, 4096), [(Stdout, all)]);
    }
}

#[test]
fn a_disk_with_room_again_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("later");
    let mut log = Log::new(files_in(directory.clone()));
    append_lines(&mut log, 0..2_000);
    assert!(matches!(log.current.body, Body::Memory(_)));
    std::fs::create_dir(directory).unwrap();
    append_lines(&mut log, 2_000..10_000);
    assert!(matches!(log.current.body, Body::File(_)));
    let begin = log.begin() as usize;
    assert!(begin <= 200_000, "what came while there was no file is kept, too");
    assert_eq!(read_all(&log, log.begin(), 4096), [(Stdout, lines(0..10_000)[begin..].to_vec())]);
}

#[test]
fn an_endless_output_keeps_its_end_and_its_positions() {
    let mut log = Log::new(Keep::Memory);
    let line = [b'a'; 1000];
    (0..1000).for_each(|_| log.append(Stdout, &line));
    assert_eq!(log.end(), 1_000_000);
    assert!(log.stored() <= 2 * MEMORY_GENERATION_BYTES_MAX as u64);
    assert_eq!(log.read(0, 1).unwrap(), Read::Outside { begin: log.begin(), end: log.end() });
    assert_eq!(read_all(&log, log.begin(), 4096).len(), 1);
}

#[test]
fn a_log_that_keeps_nothing_any_more_only_counts() {
    let mut log = Log::new(files());
    log.append(Stdout, &[b'x'; 10_000]);
    log.end_keeping();
    log.append(Stderr, &[b'y'; 10_000]);
    assert_eq!((log.begin(), log.end(), log.stored()), (20_000, 20_000, 0));
    assert_eq!(log.tail(Stderr, 100).unwrap().left_out, 10_000);
    assert_eq!(log.read(5, 10).unwrap(), Read::Outside { begin: 20_000, end: 20_000 });
}

proptest! {
    #[test]
    fn what_goes_in_comes_out_from_every_position(
        writes in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..3000)), 0..20),
        limit in 1..5000_usize,
        from in any::<proptest::sample::Index>(),
        tail in 0..9000_usize,
    ) {
        let mut log = Log::new(files());
        let mut expect: Vec<(Stream, u8)> = Vec::new();
        for (stderr, bytes) in &writes {
            let stream = if *stderr { Stderr } else { Stdout };
            log.append(stream, bytes);
            expect.extend(bytes.iter().map(|byte| (stream, *byte)));
        }
        let mut shorter = Log::new(files());
        writes.iter().for_each(|(stderr, bytes)| {
            shorter.append(if *stderr { Stderr } else { Stdout }, bytes);
        });
        shorter.keep_last(tail as u64);
        prop_assert_eq!(shorter.stored() as usize, tail.min(expect.len()));
        let kept = read_all(&shorter, shorter.begin(), limit);
        let kept: Vec<_> = kept.iter().flat_map(|(stream, bytes)| bytes.iter().map(|byte| (*stream, *byte))).collect();
        prop_assert_eq!(&kept[..], &expect[shorter.begin() as usize..]);
        let from = from.index(expect.len() + 1);
        let read = read_all(&log, from as u64, limit);
        let flat: Vec<_> = read.iter().flat_map(|(stream, bytes)| bytes.iter().map(|byte| (*stream, *byte))).collect();
        prop_assert_eq!(&flat[..], &expect[from..]);
        for stream in [Stdout, Stderr] {
            let all: Vec<u8> = expect.iter().filter(|(of, _)| *of == stream).map(|(_, byte)| *byte).collect();
            let found = log.tail(stream, tail).unwrap();
            prop_assert_eq!(&found.bytes[..], &all[all.len().saturating_sub(tail)..]);
            prop_assert_eq!(found.left_out as usize, all.len() - found.bytes.len());
        }
    }
}
