//! Bounds how much of a thread one connection takes: its bytes, and its frames if it speaks HTTP/2.
//!
//! HTTP/2 lets a peer send any number of frames that only steer the connection, such as settings,
//! pings and updates of windows. h2 handles all that have arrived without a pause, and new settings
//! cost time for every open request. With a few kilobytes a second one peer could so keep a thread
//! from all others. Here such frames are paid for from an allowance, and a peer that has used it up
//! is disconnected. Frames of any sort, and bytes, count towards the time after which others get
//! their turn.

use crate::pace::Pace;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::poll_proceed;
use tokio::time::Instant;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
/// How much may be used at once after a pause, and how much comes back in a second. Programs that
/// mean well send a few settings, a ping now and then, and an update of a window for each piece of
/// an answer.
const ALLOWANCE: u32 = 2_000;
const PER_SECOND: u32 = 200;
/// What one frame uses. Settings cost more because they are applied to every open request.
const SETTINGS_COST: u32 = 50;
const STEERING_COST: u32 = 1;
/// What a request gives back, for a reset and updates of its windows.
const PER_REQUEST: u32 = 4;
/// For how many bytes sent to the peer one is given back. More than our answer to a ping has, so that
/// pings do not pay for themselves.
const BYTES_SENT_FOR_ONE: usize = 32;
/// How many frames are a unit of what the runtime lets a task do before another one's turn.
const FRAMES_PER_UNIT: u32 = 8;

/// A connection that may speak HTTP/2.
#[derive(Debug)]
pub struct FrameLimited<S> {
    stream: S,
    frames: Frames,
    /// Handled, but not yet a whole unit.
    frames_handled: u32,
    read: Pace,
    written: Pace,
}

impl<S> FrameLimited<S> {
    /// Wraps a connection whose peer is a client. Other protocols than HTTP/2 pass untouched.
    pub fn from_client(stream: S) -> Self {
        Self::new(stream, At::Preface { matched: 0 })
    }

    /// Wraps a connection to a server that speaks HTTP/2.
    pub fn from_server(stream: S) -> Self {
        Self::new(stream, At::START)
    }

    fn new(stream: S, at: At) -> Self {
        let (read, written) = (Pace::default(), Pace::default());
        Self { stream, frames: Frames::new(at), frames_handled: 0, read, written }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameLimited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.frames_handled >= FRAMES_PER_UNIT {
            ready!(poll_proceed(cx)).made_progress();
            self.frames_handled -= FRAMES_PER_UNIT;
        }
        ready!(self.read.poll_turn(cx));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.read.moved(buffer.filled().len() - before);
        match self.frames.take(&buffer.filled()[before..]) {
            Ok(frames) => self.frames_handled = self.frames_handled.saturating_add(frames),
            Err(error) => {
                // Where there is an error, nothing may have been read.
                buffer.set_filled(before);
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameLimited<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.written.poll_turn(cx));
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.written.moved(written);
        self.frames.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.written.poll_turn(cx));
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, parts))?;
        self.written.moved(written);
        self.frames.sent(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What has come of the frames, and what is left of the allowance.
#[derive(Debug)]
struct Frames {
    at: At,
    left: u32,
    refilled: Instant,
    /// Bytes that nothing was given back for yet.
    sent: usize,
}

/// What the next byte is part of.
#[derive(Debug, Clone, Copy)]
enum At {
    /// The bytes by which a client says that it speaks HTTP/2.
    Preface {
        matched: usize,
    },
    /// Another protocol, in which nothing is looked for.
    Other,
    Head {
        bytes: [u8; HEAD_BYTES],
        length: usize,
    },
    Payload {
        left: usize,
    },
}

impl At {
    const START: Self = Self::Head { bytes: [0; HEAD_BYTES], length: 0 };
}

impl Frames {
    fn new(at: At) -> Self {
        Self { at, left: ALLOWANCE, refilled: Instant::now(), sent: 0 }
    }

    /// Follows what has arrived. Returns how many frames began in it.
    fn take(&mut self, mut arrived: &[u8]) -> io::Result<u32> {
        let mut frames = 0;
        while let Some((first, rest)) = arrived.split_first() {
            match &mut self.at {
                At::Other => return Ok(0),
                At::Preface { matched } => {
                    *matched += 1;
                    let length = *matched;
                    if PREFACE.get(length - 1) != Some(first) {
                        self.at = At::Other;
                    } else if length == PREFACE.len() {
                        self.at = At::START;
                    }
                    arrived = rest;
                }
                At::Payload { left } => {
                    let passed = arrived.len().min(*left);
                    *left -= passed;
                    arrived = &arrived[passed..];
                    if *left == 0 {
                        self.at = At::START;
                    }
                }
                At::Head { bytes, length } => {
                    bytes[*length] = *first;
                    *length += 1;
                    arrived = rest;
                    if *length == HEAD_BYTES {
                        let head = *bytes;
                        let [a, b, c, ..] = head;
                        let left = u32::from_be_bytes([0, a, b, c]) as usize;
                        self.at = if left == 0 { At::START } else { At::Payload { left } };
                        self.pay(head)?;
                        frames += 1;
                    }
                }
            }
        }
        Ok(frames)
    }

    fn pay(&mut self, head: [u8; HEAD_BYTES]) -> io::Result<()> {
        const ACKNOWLEDGES: u8 = 1;
        let [_, _, _, kind, flags, ..] = head;
        let cost = match kind {
            // DATA and CONTINUATION, which h2 itself bounds.
            0 | 9 => 0,
            // HEADERS
            1 => {
                self.earn(PER_REQUEST);
                0
            }
            // SETTINGS
            4 if flags & ACKNOWLEDGES == 0 => SETTINGS_COST,
            _ => STEERING_COST,
        };
        if cost > self.left {
            self.refill();
        }
        match self.left.checked_sub(cost) {
            Some(left) => self.left = left,
            None => {
                let labels = [("resource", "frames that steer connections"), ("scope", "owner")];
                metrics::counter!("holm_admission_refused_total", &labels).increment(1);
                return Err(io::Error::other("the peer steers the connection without end"));
            }
        }
        Ok(())
    }

    fn sent(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes);
        self.earn(u32::try_from(self.sent / BYTES_SENT_FOR_ONE).unwrap_or(u32::MAX));
        self.sent %= BYTES_SENT_FOR_ONE;
    }

    fn earn(&mut self, more: u32) {
        self.left = self.left.saturating_add(more).min(ALLOWANCE);
    }

    /// Gives back what is due for the time since the last call.
    fn refill(&mut self) {
        let now = Instant::now();
        let millis = now.duration_since(self.refilled).as_millis();
        let millis = u32::try_from(millis).unwrap_or(u32::MAX);
        let more = millis.saturating_mul(PER_SECOND) / 1_000;
        // Otherwise the time counts on, so that asking often loses none of it.
        if more > 0 {
            self.refilled = now;
        }
        self.earn(more);
    }
}

#[cfg(test)]
mod tests;
