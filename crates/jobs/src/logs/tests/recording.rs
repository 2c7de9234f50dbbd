//! Tests that pieces of output become lines, however it is cut into pieces.

use super::{NOW, piece};
use crate::logs::line::read_all;
use crate::logs::recorder::{CHUNK_BYTES_MAX, LINE_BYTES_MAX, Recorder};
use crate::logs::{Line, Severity};
use proptest::prelude::*;
use store::logs::Chunk;
use types::instance::{Printed, Stream};
use types::time::DAY_MS;

const PLENTY: u64 = u64::MAX / 2;

fn lines(chunks: &[Chunk]) -> Vec<Line> {
    chunks.iter().flat_map(|chunk| read_all(&chunk.text).collect::<Vec<_>>()).collect()
}

fn messages(chunks: &[Chunk], stream: Option<Stream>) -> Vec<String> {
    lines(chunks)
        .into_iter()
        .filter(|line| line.stream == stream)
        .map(|line| line.message)
        .collect()
}

/// Returns all chunks of some pieces, drained after each of those at `drains`.
fn record(recorder: &mut Recorder, pieces: &[Printed], drains: &[usize]) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        recorder.take(piece);
        if drains.contains(&at) {
            chunks.extend(recorder.drain());
        }
    }
    recorder.end(NOW);
    chunks.extend(recorder.drain());
    chunks
}

#[test]
fn lines_of_both_streams_are_put_together() {
    let pieces = [
        piece(1, 0, Stream::Stdout, b"one\r\ntw"),
        piece(2, 1, Stream::Stderr, b"oh "),
        piece(3, 2, Stream::Stdout, b"o\n\nlast"),
        piece(4, 3, Stream::Stderr, b"no\n"),
    ];
    let chunks = record(&mut Recorder::new(PLENTY), &pieces, &[]);
    assert_eq!(messages(&chunks, Some(Stream::Stdout)), ["one", "two", "", "last"]);
    assert_eq!(messages(&chunks, Some(Stream::Stderr)), ["oh no"]);
    let severities = Severity::Info.bit() | Severity::Error.bit();
    assert_eq!((chunks.len(), chunks[0].lines, chunks[0].severities), (1, 5, severities));
}

#[test]
fn a_replica_has_room_for_each_day() {
    let mut recorder = Recorder::new(2000).daily();
    let flood = |day: i64| piece(1, day * DAY_MS, Stream::Stdout, &b"much\n".repeat(200));
    let first = record(&mut recorder, &[flood(0)], &[]);
    let kept = messages(&first, Some(Stream::Stdout)).len();
    assert!((1..200).contains(&kept) && messages(&first, None)[0].contains("each day"));
    let chunk = first.last().unwrap();
    let mut again = Recorder::resume(2000, chunk.number, chunk.last_ns, chunk.mark.clone()).daily();
    assert_eq!(record(&mut again, &[flood(0)], &[]), [], "the room of the day is taken");
    let next = record(&mut again, &[flood(1)], &[]);
    assert_eq!(messages(&next, Some(Stream::Stdout)).len(), kept, "the next day has its own");
}

#[test]
fn a_long_line_is_cut_between_characters() {
    let long = "€".repeat(LINE_BYTES_MAX);
    let chunks =
        record(&mut Recorder::new(PLENTY), &[piece(1, 0, Stream::Stdout, long.as_bytes())], &[]);
    let parts = messages(&chunks, Some(Stream::Stdout));
    assert_eq!(parts.concat(), long);
    assert!(parts.len() >= 3 && parts.iter().all(|part| part.len() <= LINE_BYTES_MAX));
}

#[test]
fn what_is_too_much_is_dropped_and_a_line_says_so() {
    let flood = piece(1, 0, Stream::Stdout, "0123456789\n".repeat(1000).as_bytes());
    let mut recorder = Recorder::new(2000);
    let mut chunks = record(&mut recorder, std::slice::from_ref(&flood), &[]);
    let mark = chunks.last().unwrap().mark.clone();
    assert_eq!(mark.total_bytes, 2000);
    // Neither the same recorder nor a resumed one writes the note twice.
    chunks.extend(record(&mut recorder, std::slice::from_ref(&flood), &[]));
    chunks.extend(record(&mut Recorder::resume(2000, 9, 0, mark), &[flood], &[]));
    let notes = messages(&chunks, None);
    assert_eq!(notes, ["more was printed, but only 2000 bytes of it are kept"]);
    assert!(messages(&chunks, Some(Stream::Stdout)).len() > 10);
}

#[test]
fn a_flood_of_empty_lines_is_bounded_too() {
    let chunks =
        record(&mut Recorder::new(10_000), &[piece(1, 0, Stream::Stdout, &[b'\n'; 100_000])], &[]);
    assert!(chunks.iter().map(|chunk| chunk.text.len()).sum::<usize>() < 11_000);
}

fn any_pieces() -> impl Strategy<Value = Vec<Printed>> {
    let text = prop_oneof![
        "[a-z\n\r€]{0,40}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..60),
        (0..30_000_usize, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
        Just(br#"{"message":"m","severity":"DEBUG"}"#.to_vec()),
    ];
    let one = (any::<bool>(), -5..5_i64, text);
    proptest::collection::vec(one, 0..12).prop_map(|all| {
        let stream = |error| if error { Stream::Stderr } else { Stream::Stdout };
        let with_place = |(at, (error, ms, text)): (usize, (bool, i64, Vec<u8>))| {
            piece(at as u64 + 1, ms, stream(error), &text)
        };
        all.into_iter().enumerate().map(with_place).collect()
    })
}

/// Returns the lines of a stream in a simple way, without the rule for long ones.
fn naive(pieces: &[Printed], stream: Stream) -> Vec<String> {
    let all: Vec<u8> = pieces
        .iter()
        .filter(|piece| piece.stream == stream)
        .flat_map(|piece| piece.bytes.to_vec())
        .collect();
    let mut lines: Vec<_> = all.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let last = lines.pop().filter(|last| !last.is_empty());
    for line in &mut lines {
        if line.ends_with(b"\r") {
            line.pop();
        }
    }
    lines.extend(last);
    lines.iter().map(|line| Line::read(0, stream, line).message).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_line_is_lost_or_changed(pieces in any_pieces(), drains in proptest::collection::vec(0..12_usize, 0..6)) {
        let chunks = record(&mut Recorder::new(PLENTY), &pieces, &drains);
        let short = |line: &[u8]| line.len() <= LINE_BYTES_MAX;
        for stream in [Stream::Stdout, Stream::Stderr] {
            let all: Vec<u8> =
                pieces.iter().filter(|piece| piece.stream == stream).flat_map(|piece| piece.bytes.to_vec()).collect();
            if all.split(|byte| *byte == b'\n').all(short) {
                prop_assert_eq!(messages(&chunks, Some(stream)), naive(&pieces, stream));
            }
        }
    }

    #[test]
    fn chunks_are_in_order_and_say_what_they_hold(
        pieces in any_pieces(), drains in proptest::collection::vec(0..12_usize, 0..6), bytes_max in 100..50_000_u64,
    ) {
        let chunks = record(&mut Recorder::new(bytes_max), &pieces, &drains);
        let lines = lines(&chunks);
        prop_assert!(lines.windows(2).all(|pair| pair[0].at_ns < pair[1].at_ns));
        prop_assert!(chunks.iter().zip(1..).all(|(chunk, number)| chunk.number == number));
        for chunk in &chunks {
            let own: Vec<_> = read_all(&chunk.text).collect();
            prop_assert!(chunk.text.len() <= CHUNK_BYTES_MAX);
            prop_assert_eq!(own.len(), chunk.lines as usize);
            prop_assert_eq!((own[0].at_ns, own[own.len() - 1].at_ns), (chunk.first_ns, chunk.last_ns));
            prop_assert_eq!(own.iter().fold(0, |bits, line| bits | line.severity.bit()), chunk.severities);
        }
        let notes = messages(&chunks, None).len();
        let kept: usize = chunks.iter().map(|chunk| chunk.text.len()).sum();
        prop_assert!(notes <= 1 && kept as u64 <= bytes_max + 200);
    }

    /// A server that is killed at any moment continues from what it had made durable; nothing is
    /// missing or stored twice.
    #[test]
    fn a_resumed_recording_is_as_one_that_was_never_cut(
        pieces in any_pieces(), drains in proptest::collection::vec(0..12_usize, 0..6), killed in 0..12_usize,
    ) {
        let whole = record(&mut Recorder::new(20_000), &pieces, &[]);
        let mut first = Recorder::new(20_000);
        let mut durable = Vec::new();
        for (at, piece) in pieces.iter().enumerate().take(killed) {
            first.take(piece);
            if drains.contains(&at) {
                durable.extend(first.drain());
            }
        }
        let mut second = match durable.last() {
            Some(last) => Recorder::resume(20_000, last.number, last.last_ns, last.mark.clone()),
            None => Recorder::new(20_000),
        };
        let from = durable.last().map_or(0, |last| last.mark.read_to);
        let missing: Vec<_> = pieces.iter().filter(|piece| piece.next > from).cloned().collect();
        durable.extend(record(&mut second, &missing, &drains));
        prop_assert_eq!(lines(&durable), lines(&whole));
    }
}
