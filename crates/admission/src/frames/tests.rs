use super::*;
use proptest::prelude::*;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, join, repeat, sink};

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const UPDATE: u8 = 8;

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[a, b, c, kind, flags, 0, 0, 0, 0], payload].concat()
}

fn client() -> Frames {
    let mut frames = Frames::new(At::Preface { matched: 0 });
    frames.take(PREFACE).unwrap();
    frames
}

/// Returns how many frames are taken before one is refused, up to a million.
fn taken(frames: &mut Frames, frame: &[u8]) -> usize {
    (0..1_000_000).take_while(|_| frames.take(frame).is_ok()).count()
}

#[tokio::test(start_paused = true)]
async fn frames_that_carry_no_request_end() {
    let settings = frame(SETTINGS, 0, &[0, 4, 0, 0, 0, 0]);
    assert_eq!(taken(&mut client(), &settings), (ALLOWANCE / SETTINGS_COST) as usize);
    for steering in [frame(PING, 0, &[0; 8]), frame(UPDATE, 0, &[0; 4]), frame(0x77, 0, b"")] {
        assert_eq!(taken(&mut client(), &steering), ALLOWANCE as usize);
    }
    let mut of_server = Frames::new(At::START);
    assert_eq!(taken(&mut of_server, &settings), (ALLOWANCE / SETTINGS_COST) as usize);
}

#[tokio::test(start_paused = true)]
async fn answers_to_pings_do_not_pay_for_pings() {
    let mut frames = client();
    let (ping, answer) = (frame(PING, 0, &[0; 8]), frame(PING, 1, &[0; 8]).len());
    let pinged = (0..1_000_000).take_while(|_| {
        frames.sent(answer);
        frames.take(&ping).is_ok()
    });
    assert!(pinged.count() < 3 * ALLOWANCE as usize);
}

#[tokio::test(start_paused = true)]
async fn who_asks_and_reads_can_go_on_for_ever() {
    let mut frames = client();
    for _ in 0..100_000 {
        frames.take(&frame(HEADERS, 5, &[0; 20])).unwrap();
        frames.sent(4 << 10);
        for _ in 0..8 {
            frames.take(&frame(UPDATE, 0, &[0; 4])).unwrap();
        }
    }
    // A quiet connection of a month, with a ping every ten seconds.
    let mut quiet = client();
    for _ in 0..260_000 {
        tokio::time::advance(Duration::from_secs(10)).await;
        quiet.take(&frame(PING, 0, &[0; 8])).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn other_protocols_pass() {
    let mut frames = Frames::new(At::Preface { matched: 0 });
    let request = b"PRIME / HTTP/1.1\r\nhost: a\r\n\r\n";
    assert_eq!(taken(&mut frames, request), 1_000_000);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_frames_leaves_turns_to_others() {
    let (mut peer, ours) = duplex(1 << 20);
    let mut ours = FrameLimited::from_server(ours);
    let flood = frame(UPDATE, 1, &[0; 4]).repeat(1_900);
    peer.write_all(&flood).await.unwrap();
    let others = turns_of_others(async {
        let mut piece = vec![0; 1 << 10];
        let mut read = 0;
        while read < flood.len() {
            read += ours.read(&mut piece).await.unwrap();
        }
    });
    assert!(others.await > 0);
}

/// Returns how often the work lets others run.
async fn turns_of_others(work: impl Future<Output = ()>) -> usize {
    tokio::pin!(work);
    let mut others = 0;
    while futures_util::poll!(&mut work).is_pending() {
        others += 1;
        tokio::task::yield_now().await;
    }
    others
}

#[tokio::test(start_paused = true)]
async fn bytes_without_end_leave_turns_to_others() {
    const PIECES: usize = 256;
    let mut stream = FrameLimited::from_client(join(repeat(b'a'), sink()));
    let mut piece = vec![0; 128 << 10];
    let writes = turns_of_others(async {
        for _ in 0..PIECES {
            stream.write_all(&piece).await.unwrap();
        }
    });
    assert!(writes.await >= PIECES / 3);
    let reads = turns_of_others(async {
        for _ in 0..PIECES {
            stream.read_exact(&mut piece).await.unwrap();
        }
    });
    assert!(reads.await >= PIECES / 3);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_only_steers_is_an_error_of_the_connection() {
    let (mut peer, ours) = duplex(1 << 20);
    peer.write_all(PREFACE).await.unwrap();
    peer.write_all(&frame(SETTINGS, 0, &[0; 6]).repeat(1_000)).await.unwrap();
    let mut ours = FrameLimited::from_client(ours);
    let error = ours.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert!(error.to_string().contains("without end"), "{error}");
}

proptest! {
    #[test]
    fn it_does_not_matter_how_frames_arrive(
        frames in proptest::collection::vec((0..10_u8, 0..40_usize), 0..50), cut in 1..60_usize,
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(|(kind, length)| frame(*kind, 1, &vec![9; *length])).collect();
        let bytes = [PREFACE, &bytes].concat();
        let mut whole = Frames::new(At::Preface { matched: 0 });
        let mut pieces = Frames::new(At::Preface { matched: 0 });
        let expect = whole.take(&bytes).unwrap();
        let found: u32 = bytes.chunks(cut).map(|piece| pieces.take(piece).unwrap()).sum();
        prop_assert_eq!((expect, found), (frames.len() as u32, frames.len() as u32));
        prop_assert_eq!(whole.left, pieces.left);
    }
}
