//! Reads and writes streams without `?alt=sse`: one JSON list whose pieces are sent one by one.

use crate::events::{BadEvent, Events};
use bytes::{Buf, BytesMut};

/// Cuts a list into its pieces as they arrive.
#[derive(Debug)]
pub struct Pieces {
    kept: BytesMut,
    /// How many bytes of `kept` were already looked at.
    seen: usize,
    /// Where the piece that is being read begins.
    begins: Option<usize>,
    depth: u32,
    is_text: bool,
    is_escaped: bool,
    max: usize,
}

impl Pieces {
    /// Creates a parser that refuses incomplete pieces of more than `max` bytes.
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

    /// Passes the text of every object that these bytes complete to `take`. What is between objects
    /// is ignored.
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

    /// Takes one byte. Returns true if it ends an object.
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
}

/// Turns the events that a writer of Gemini's stream wrote into a list.
#[derive(Debug)]
pub struct ListWriter {
    events: Events,
    has_begun: bool,
}

impl ListWriter {
    /// Creates a writer that refuses events of more than `max` bytes.
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
