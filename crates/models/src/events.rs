//! A parser of server-sent events from bytes that arrive in pieces.

use bytes::{Buf, BytesMut};

/// One event, without its comments, id and retry time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'e> {
    pub name: Option<&'e str>,
    pub data: &'e str,
}

/// Why bytes are not valid events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadEvent {
    #[error("an event is longer than {0} bytes")]
    TooLong(usize),
    #[error("an event is not UTF-8")]
    NotText,
}

/// Cuts a stream into events. Keeps at most one incomplete event in memory.
#[derive(Debug)]
pub struct Events {
    kept: BytesMut,
    /// How many bytes of `kept` were already searched and hold no end of an event.
    seen: usize,
    max: usize,
}

impl Events {
    /// Creates a parser that refuses incomplete events of more than `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { kept: BytesMut::new(), seen: 0, max }
    }

    /// Passes every event that these bytes complete to `take`.
    pub fn push(&mut self, bytes: &[u8], mut take: impl FnMut(Event<'_>)) -> Result<(), BadEvent> {
        self.kept.extend_from_slice(bytes);
        while let Some((length, end)) = end_of_event(&self.kept, self.seen) {
            let block = std::str::from_utf8(&self.kept[..length]).map_err(|_| BadEvent::NotText)?;
            read(block, &mut take);
            self.kept.advance(end);
            self.seen = 0;
        }
        self.seen = self.kept.len().saturating_sub(3);
        if self.kept.len() > self.max { Err(BadEvent::TooLong(self.max)) } else { Ok(()) }
    }

    /// Returns how many bytes of an incomplete event are kept.
    pub fn held(&self) -> usize {
        self.kept.len()
    }
}

/// Finds the end of the first event: its length without and with the empty line after it.
fn end_of_event(bytes: &[u8], from: usize) -> Option<(usize, usize)> {
    memchr::memchr_iter(b'\n', &bytes[from..]).map(|at| from + at).find_map(|at| {
        let rest = &bytes[at + 1..];
        match rest {
            [b'\n', ..] => Some((at, at + 2)),
            [b'\r', b'\n', ..] => Some((at, at + 3)),
            _ => None,
        }
    })
}

fn read(block: &str, take: &mut impl FnMut(Event<'_>)) {
    let (mut name, mut first, mut joined) = (None, None, None::<String>);
    for line in block.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match (field, first) {
            ("event", _) => name = Some(value),
            ("data", None) => first = Some(value),
            ("data", Some(first)) => {
                let joined = joined.get_or_insert_with(|| first.to_owned());
                joined.push('\n');
                joined.push_str(value);
            }
            _ => {}
        }
    }
    if let Some(data) = joined.as_deref().or(first) {
        take(Event { name, data });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(pieces: &[&[u8]]) -> Vec<(Option<String>, String)> {
        let (mut events, mut found) = (Events::new(1 << 20), Vec::new());
        for piece in pieces {
            let take = |event: Event<'_>| {
                found.push((event.name.map(str::to_owned), event.data.to_owned()));
            };
            events.push(piece, take).unwrap();
        }
        found
    }

    #[test]
    fn events_have_names_and_lines() {
        let text = b": hello\n\nevent: a\ndata: 1\ndata: 2\n\ndata:{}\r\n\r\ndata: [DONE]\n\n";
        let found = all(&[text]);
        let found: Vec<_> =
            found.iter().map(|(name, data)| (name.as_deref(), data.as_str())).collect();
        assert_eq!(found, [(Some("a"), "1\n2"), (None, "{}"), (None, "[DONE]")]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut events = Events::new(10);
        assert_eq!(events.push(b"data: 0123456789", |_| {}), Err(BadEvent::TooLong(10)));
        let mut events = Events::new(10);
        assert_eq!(events.push(b"data: \xff\n\n", |_| {}), Err(BadEvent::NotText));
    }

    proptest! {
        /// The events are the same however the stream is cut into pieces.
        #[test]
        fn pieces_do_not_matter(data in proptest::collection::vec("[a-z{}: ]{0,12}", 0..8), at in 0usize..200) {
            let text: String = data.iter().map(|data| format!("data: {data}\r\n\r\n")).collect();
            let at = at.min(text.len());
            let (one, two) = text.as_bytes().split_at(at);
            let found = all(&[one, two]);
            prop_assert_eq!(found.into_iter().map(|(_, data)| data).collect::<Vec<_>>(), data);
        }
    }
}
