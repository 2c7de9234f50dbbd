//! Streams without the event that reports usage, for callers who did not ask for it: we ask
//! providers for usage all the same.

use bytes::{Bytes, BytesMut};

/// Bytes of events that are not complete yet.
#[derive(Default)]
pub(crate) struct Held(BytesMut);

impl Held {
    /// Returns the events that are complete. If none is cut off, the bytes are passed on as they
    /// are.
    pub(crate) fn push(&mut self, piece: Bytes, max: usize) -> Vec<Bytes> {
        if self.0.is_empty() && end_of_events(&piece) == Some(piece.len()) {
            return without_usage(piece);
        }
        // The end may have begun in the bytes that are held.
        let from = self.0.len().saturating_sub(3);
        self.0.extend_from_slice(&piece);
        match end_of_events(&self.0[from..]) {
            Some(end) => without_usage(self.0.split_to(from + end).freeze()),
            // Too long to wait for its end, and so it cannot be the event that reports usage.
            None if self.0.len() > max => vec![self.rest()],
            None => Vec::new(),
        }
    }

    pub(crate) fn rest(&mut self) -> Bytes {
        self.0.split().freeze()
    }

    pub(crate) fn length(&self) -> usize {
        self.0.len()
    }
}

/// Returns the position after the last empty line.
fn end_of_events(bytes: &[u8]) -> Option<usize> {
    let one = memchr::memmem::rfind(bytes, b"\n\n").map(|at| at + 2);
    let two = memchr::memmem::rfind(bytes, b"\r\n\r\n").map(|at| at + 4);
    one.max(two)
}

/// Returns whole events, leaving out those that have usage and no choices.
fn without_usage(bytes: Bytes) -> Vec<Bytes> {
    if memchr::memmem::find(&bytes, b"\"usage\"").is_none() {
        return vec![bytes];
    }
    let (mut kept, mut from, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let one = memchr::memmem::find(rest, b"\n\n").map(|end| end + 2);
        let two = memchr::memmem::find(rest, b"\r\n\r\n").map(|end| end + 4);
        let length = match (one, two) {
            (Some(one), Some(two)) => one.min(two),
            (end, other) => end.or(other).unwrap_or(rest.len()),
        };
        if is_usage_alone(&rest[..length]) {
            kept.push(bytes.slice(from..at));
            from = at + length;
        }
        at += length;
    }
    kept.push(bytes.slice(from..));
    kept
}

fn is_usage_alone(event: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Chunk {
        choices: Vec<serde::de::IgnoredAny>,
        usage: Option<serde::de::IgnoredAny>,
    }
    if memchr::memmem::find(event, b"\"usage\"").is_none() {
        return false;
    }
    let line = event.trim_ascii();
    let Some(data) = line.strip_prefix(b"data:") else { return false };
    serde_json::from_slice::<Chunk>(data)
        .is_ok_and(|chunk| chunk.choices.is_empty() && chunk.usage.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const USAGE: &str = "data: {\"id\":\"1\",\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n";

    fn passed(pieces: &[&[u8]]) -> String {
        let mut held = Held::default();
        let mut out = Vec::new();
        for piece in pieces {
            held.push(Bytes::copy_from_slice(piece), 1 << 20)
                .iter()
                .for_each(|piece| out.extend_from_slice(piece));
        }
        out.extend_from_slice(&held.rest());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn usage_that_comes_with_an_answer_stays() {
        for kept in [
            "data: {\"choices\":[{}],\"usage\":{}}\n\n",
            "data: {\"choices\":[],\"usage\":null}\n\n",
            ": ping\n\n",
            "data: \"usage\"\n\n",
        ] {
            assert_eq!(passed(&[kept.as_bytes()]), kept);
        }
    }

    #[test]
    fn an_endless_event_is_not_gathered() {
        let mut held = Held::default();
        assert!(held.push(Bytes::from_static(b"data: 12345678901"), 20).is_empty());
        assert_eq!(held.push(Bytes::from_static(b"1234567890"), 20).len(), 1);
        assert!(held.0.is_empty());
    }

    proptest! {
        #[test]
        fn wherever_a_stream_is_cut_only_usage_is_missing(at in 0usize..400, crlf in any::<bool>()) {
            let text = |usage: &str| {
                let first = "data: {\"choices\":[{\"delta\":{\"content\":\"a \\\"usage\\\" b\"}}]}\n\n";
                let text = format!("{first}{first}{usage}data: [DONE]\n\n");
                if crlf { text.replace('\n', "\r\n") } else { text }
            };
            let whole = text(USAGE);
            let (one, two) = whole.as_bytes().split_at(at.min(whole.len()));
            prop_assert_eq!(passed(&[one, two]), text(""));
        }
    }
}
