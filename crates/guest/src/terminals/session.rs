//! A terminal session: one task owns the terminal, and any number of clients watch it.

use super::ask::{Ask, Size};
use super::pty::Pty;
use crate::instance::Instance;
use crate::reaper::End;
use crate::utf8::{cut_off, unfinished};
use bytes::Bytes;
use futures_util::FutureExt;
use parking_lot::Mutex;
use rustix::process::Signal;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use tokio::time::{Instant, interval};

/// Output that is replayed to clients that connect later or reconnect.
const REPLAY_BYTES_MAX: usize = 100 << 10;
const REPLAY_BEGIN: &[u8] = b"\x1b[0m";
/// How many pieces of output may wait for a slow client before it gets the replay instead.
const OUTPUT_PIECES_MAX: usize = 64;
/// How many inputs may wait for a shell that does not read, and how much of them. A paste of the
/// largest size fits if nothing else waits.
const INPUTS_MAX: usize = 256;
const INPUT_BYTES_MAX: usize = 1 << 20;
const READ_BYTES: usize = 4 << 10;
const LAST_READS_MAX: usize = 64;
const IDLE_MAX: Duration = Duration::from_secs(600);
const IDLE_POLL: Duration = Duration::from_secs(15);

pub(super) enum Input {
    Text(String),
    Resize(Size),
}

impl Input {
    fn bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Resize(_) => 0,
        }
    }
}

pub(super) struct Session {
    inputs: mpsc::Sender<Input>,
    /// The bytes of the inputs that wait.
    waiting: AtomicUsize,
    shown: Mutex<Shown>,
    ended: AtomicBool,
    /// When it was last known to have clients.
    seen: Mutex<Instant>,
    asked_to_end: Notify,
}

struct Shown {
    replay: VecDeque<u8>,
    /// `None` once the session has ended, which disconnects the clients.
    live: Option<broadcast::Sender<Bytes>>,
}

/// What a client sees: earlier output, then live output.
pub(super) struct Sight {
    pub(super) replay: Vec<u8>,
    pub(super) live: Option<broadcast::Receiver<Bytes>>,
}

impl Session {
    pub(super) fn open(instance: &Instance, ask: &Ask) -> io::Result<Arc<Self>> {
        let (pty, end) = Pty::open(instance, ask)?;
        let (inputs, asked) = mpsc::channel(INPUTS_MAX);
        let shown = Shown {
            replay: VecDeque::new(),
            live: Some(broadcast::Sender::new(OUTPUT_PIECES_MAX)),
        };
        let session = Arc::new(Self {
            inputs,
            waiting: AtomicUsize::new(0),
            shown: Mutex::new(shown),
            ended: AtomicBool::new(false),
            seen: Mutex::new(Instant::now()),
            asked_to_end: Notify::new(),
        });
        tokio::spawn(run(session.clone(), pty, end, asked));
        Ok(session)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Returns replay and live output, both taken at the same moment, so that nothing is missed or
    /// shown twice.
    pub(super) fn look(&self) -> Sight {
        let shown = self.shown.lock();
        let replay = REPLAY_BEGIN.iter().chain(&shown.replay).copied().collect();
        Sight { replay, live: shown.live.as_ref().map(broadcast::Sender::subscribe) }
    }

    /// Queues an input. Returns false if the queue is full.
    pub(super) fn put(&self, input: Input) -> bool {
        let bytes = input.bytes();
        let waiting = self.waiting.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_queued = waiting <= INPUT_BYTES_MAX && self.inputs.try_send(input).is_ok();
        if !is_queued {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_queued
    }

    fn taken(&self, input: &Input) {
        self.waiting.fetch_sub(input.bytes(), Ordering::Relaxed);
    }

    fn show(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut shown = self.shown.lock();
        shown.add_to_replay(bytes);
        if let Some(live) = &shown.live {
            // Without clients nothing is lost, because the replay has it.
            let _ = live.send(Bytes::copy_from_slice(bytes));
        }
    }

    fn has_clients(&self) -> bool {
        self.shown.lock().live.as_ref().is_some_and(|live| live.receiver_count() > 0)
    }

    /// Returns since when it has had no clients, if it has none.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        (!self.has_clients()).then(|| *self.seen.lock())
    }

    pub(super) fn end(&self) {
        self.asked_to_end.notify_one();
    }

    fn close(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.shown.lock().live = None;
    }
}

impl Shown {
    fn add_to_replay(&mut self, bytes: &[u8]) {
        self.replay.extend(bytes);
        let surplus = self.replay.len().saturating_sub(REPLAY_BYTES_MAX);
        if surplus > 0 {
            self.replay.drain(..surplus);
            self.replay.drain(..cut_off(&self.replay));
        }
    }
}

/// Output as it is read. The beginning of a character is held back until the rest has arrived,
/// because each piece is shown as a text of its own.
struct Output {
    buffer: [u8; READ_BYTES],
    held: usize,
}

impl Output {
    fn free(&mut self) -> &mut [u8] {
        &mut self.buffer[self.held..]
    }

    /// Shows what was read into the free part.
    fn show(&mut self, session: &Session, length: usize) {
        let end = self.held + length;
        let whole = end - unfinished(&self.buffer[..end]);
        session.show(&self.buffer[..whole]);
        self.buffer.copy_within(whole..end, 0);
        self.held = end - whole;
    }

    fn end(self, session: &Session) {
        session.show(&self.buffer[..self.held]);
    }
}

async fn run(
    session: Arc<Session>,
    pty: Pty,
    mut end: oneshot::Receiver<End>,
    mut asked: mpsc::Receiver<Input>,
) {
    let mut output = Output { buffer: [0; READ_BYTES], held: 0 };
    let mut unwritten: VecDeque<u8> = VecDeque::new();
    let mut idle_poll = interval(IDLE_POLL);
    loop {
        let next = unwritten.as_slices().0;
        tokio::select! {
            read = pty.read(output.free()) => match read {
                Ok(length @ 1..) => output.show(&session, length),
                Ok(0) | Err(_) => break,
            },
            written = pty.write(next), if !next.is_empty() => match written {
                Ok(length) => drop(unwritten.drain(..length)),
                Err(_) => break,
            },
            input = asked.recv(), if unwritten.is_empty() => {
                let Some(input) = input else { break };
                session.taken(&input);
                match input {
                    Input::Text(text) => unwritten = text.into_bytes().into(),
                    // A size that the kernel refuses changes nothing.
                    Input::Resize(size) => drop(pty.resize(size)),
                }
            }
            _ = idle_poll.tick() => {
                match session.idle_since() {
                    None => *session.seen.lock() = Instant::now(),
                    Some(since) if since.elapsed() > IDLE_MAX => break,
                    Some(_) => {}
                }
            }
            () = session.asked_to_end.notified() => break,
            _ = &mut end => break,
        }
    }
    // Reads the last output, in case the end was noticed first; limited, because a process that was
    // left behind may print forever.
    for _ in 0..LAST_READS_MAX {
        let Some(Ok(length @ 1..)) = pty.read(output.free()).now_or_never() else { break };
        output.show(&session, length);
    }
    output.end(&session);
    session.close();
    // Tells everything on the terminal that it has gone; most of it has ended already.
    let _ = rustix::process::kill_process_group(pty.pid, Signal::HUP);
}
