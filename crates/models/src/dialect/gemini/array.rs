//! Streams without `?alt=sse`: one JSON list, of which each piece is sent when it is there.

use crate::events::{BadEvent, Events};
use bytes::{Buf, BytesMut};

/// Cuts a list into its pieces, as they come.
#[derive(Debug)]
pub struct Pieces {
    kept: BytesMut,
    /// Bytes of `kept` that were looked at.
    seen: usize,
    /// Where the piece begins that is being read.
    begins: Option<usize>,
    depth: u32,
    is_text: bool,
    is_escaped: bool,
    max: usize,
}

impl Pieces {
    /// Pieces of more than `max` bytes are refused.
    pub fn new(max: usize) -> Self {
        Self {
            kept: BytesMut::new(),
            seen: 0,
            begins: None,
            depth: 0,
            is_text: false,
            is_escaped: false,
            max,
        }
    }

    /// Hands over the text of each object that is complete with these bytes. What stands between
    /// objects is not looked at.
    pub fn push(&mut self, bytes: &[u8], mut take: impl FnMut(&str)) -> Result<(), BadEvent> {
        self.kept.extend_from_slice(bytes);
        while self.seen < self.kept.len() {
            let byte = self.kept[self.seen];
            self.seen += 1;
            if self.step(byte) {
                let begins = self.begins.take().unwrap_or(0);
                let piece = &self.kept[begins..self.seen];
                take(std::str::from_utf8(piece).map_err(|_| BadEvent::NotText)?);
                self.kept.advance(self.seen);
                self.seen = 0;
            }
        }
        if self.begins.is_none() {
            self.kept.clear();
            self.seen = 0;
        }
        if self.kept.len() > self.max { Err(BadEvent::TooLong(self.max)) } else { Ok(()) }
    }

    /// Whether an object ends with this byte.
    fn step(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.is_text => self.is_escaped = true,
            b'"' if self.depth > 0 => self.is_text = !self.is_text,
            _ if self.is_text => {}
            b'{' => {
                if self.depth == 0 {
                    self.begins = Some(self.seen - 1);
                }
                self.depth = self.depth.saturating_add(1);
            }
            b'}' if self.depth > 0 => {
                self.depth -= 1;
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }

    /// Whether the stream ended in the middle of a piece.
    pub fn is_cut(&self) -> bool {
        self.begins.is_some()
    }
}

/// Makes a list of the events that a writer of Gemini's stream wrote.
#[derive(Debug)]
pub struct ListWriter {
    events: Events,
    has_begun: bool,
}

impl ListWriter {
    /// Events of more than `max` bytes are refused.
    pub fn new(max: usize) -> Self {
        Self { events: Events::new(max), has_begun: false }
    }

    pub fn push(&mut self, events: &[u8], out: &mut BytesMut) -> Result<(), BadEvent> {
        let has_begun = &mut self.has_begun;
        self.events.push(events, |event| {
            out.extend_from_slice(if *has_begun { b",\r\n" } else { b"[" });
            *has_begun = true;
            out.extend_from_slice(event.data.as_bytes());
        })
    }

    pub fn end(self, out: &mut BytesMut) {
        out.extend_from_slice(if self.has_begun { b"]" } else { b"[]" });
    }
}
