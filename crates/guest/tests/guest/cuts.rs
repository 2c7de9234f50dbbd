//! Output streams that are cut and resumed: nothing is lost or repeated, wherever the cut is.

use crate::common::{Answer, Guest};
use crate::processes::stream;
use serde_json::{Value, json};
use std::io::Read;
use std::thread;

/// Default number of streams; `HOLM_STREAM_CUTS` overrides it.
const STREAMS: usize = 300;
const CALLERS: usize = 8;
const LINES: usize = 60;
const CUTS_MAX: usize = 5;
/// Less than any of the streams, so that at least the first cut of each is before its end.
const CUT_BYTES_MAX: usize = 2500;

/// What a caller has assembled from the pieces of a stream.
#[derive(Default)]
struct Heard {
    stdout: String,
    stderr: String,
    offset: u64,
    result: Option<Value>,
}

impl Heard {
    /// Takes the complete lines; half a line at the cut counts as not received.
    fn take(&mut self, bytes: &[u8]) {
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in bytes[..whole].split_inclusive(|byte| *byte == b'\n') {
            let line: Value = serde_json::from_slice(line).unwrap();
            let data = line["data"].as_str().unwrap_or_default();
            match line["type"].as_str().unwrap() {
                "stdout" => self.stdout.push_str(data),
                "stderr" => self.stderr.push_str(data),
                "keepalive" => continue,
                "result" => {
                    self.result = Some(serde_json::from_str(data).unwrap());
                    continue;
                }
                other => panic!("{other}: {line}"),
            }
            self.offset = line["offset"].as_u64().unwrap();
        }
    }
}

/// Runs a command over a stream that is cut up to `CUTS_MAX` times; returns what was received and
/// the number of cuts.
fn run_cut(guest: &Guest, name: &str, command: &str, random: &mut fastrand::Rng) -> (Heard, usize) {
    let mut heard = Heard::default();
    let mut answer: Answer = stream(guest, &json!({"command": command, "name": name}));
    let wanted = random.usize(1..=CUTS_MAX);
    for cuts in 0.. {
        let bytes_max = if cuts < wanted { random.usize(1..CUT_BYTES_MAX) } else { usize::MAX };
        let mut bytes = Vec::new();
        answer.take(bytes_max as u64).read_to_end(&mut bytes).unwrap();
        heard.take(&bytes);
        if heard.result.is_some() {
            return (heard, cuts);
        }
        let path = format!("/process/{name}/logs/stream?offset={}", heard.offset);
        answer = guest.open("GET", &path, &[("Accept", "application/x-ndjson")], b"");
    }
    unreachable!()
}

fn check_one(guest: &Guest, number: usize) {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let code = random.u8(..);
    let command = format!(
        "i=0; while [ $i -lt {LINES} ]; do echo \"größe $i of {number}\"; echo \"e$i\" >&2; i=$((i+1)); done; exit {code}"
    );
    let (heard, cuts) = run_cut(guest, &format!("cut-{number}"), &command, &mut random);
    assert!(cuts >= 1, "stream {number} was not cut");
    assert_eq!(
        heard.stdout,
        (0..LINES).map(|i| format!("größe {i} of {number}\n")).collect::<String>(),
        "{number}"
    );
    assert_eq!(heard.stderr, (0..LINES).map(|i| format!("e{i}\n")).collect::<String>(), "{number}");
    assert_eq!(heard.result.unwrap()["exitCode"], code, "{number}");
}

#[test]
fn a_stream_cut_at_any_byte_goes_on_with_nothing_lost_or_repeated() {
    let streams =
        std::env::var("HOLM_STREAM_CUTS").map_or(STREAMS, |number| number.parse().unwrap());
    let guest = Guest::start();
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let guest = &guest;
            scope.spawn(move || {
                (caller..streams).step_by(CALLERS).for_each(|number| check_one(guest, number))
            });
        }
    });
}
