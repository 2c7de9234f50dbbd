//! Following the work of an instance, over the connection that its first program serves.
//!
//! What runs in the instance could dial the same socket. So the machine shows a secret there, which
//! follows from its own key and the name of the instance: nothing has to be kept for each, and the
//! next run of this program knows it again.

use crate::instances::{how_it_ended, machine_id};
use crate::launching::chain;
use crate::{Host, Interrupted};
use bytes::Bytes;
use control::machine::{How, MachineFault, Printed, Stream, WorkEnd};
use hmac::{Hmac, KeyInit, Mac};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use node::{Error, Exit, Id, State};
use sha2::Sha256;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use types::work::{self, Frame, Frames, INTERRUPT_PATH, PATH, SECRET_HEADER};
use types::{Timestamp, World};

const KEY_FILE: &str = "work-key";
const KEY_BYTES: usize = 32;
/// How often a connection may break in a row, without a frame in between, while the instance lives.
const TRIES: u32 = 10;
const TRY_PAUSE: Duration = Duration::from_millis(50);
/// Between the break of a connection and the news that the instance has ended.
const END_PATIENCE: Duration = Duration::from_secs(1);
/// For an instance to take note of an interrupt.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(5);
const SIGKILL: i32 = 9;
/// What a shell ends with when its program was killed so.
const KILLED_CODE: i32 = 128 + SIGKILL;

/// From which the secrets of instances follow.
pub(crate) struct Key([u8; KEY_BYTES]);

impl Key {
    /// Made at the first start and kept, since instances outlive this program.
    pub(crate) fn open(folder: &Path, world: &World) -> io::Result<Self> {
        let path = folder.join(KEY_FILE);
        match fs::read(&path) {
            Ok(bytes) => bytes.try_into().map(Self).map_err(|_| io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = world.random_bytes();
                let fresh = path.with_extension("new");
                let mut file = File::options()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(0o600)
                    .open(&fresh)?;
                file.write_all(&key)?;
                file.sync_all()?;
                fs::rename(fresh, path)?;
                Ok(Self(key))
            }
            Err(error) => Err(error),
        }
    }

    /// What the first program of this instance takes for the word of the machine.
    pub(crate) fn secret(&self, id: &Id) -> String {
        // A key of any length will do, so there is nothing that could fail.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(id.as_str().as_bytes());
        mac.finalize().into_bytes().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// Why a stream ended before the work did.
enum Broken {
    /// Something of it came.
    Late(String),
    /// Nothing came.
    Early(String),
}

impl Host {
    /// Waits for the end of the work, and hands over what it prints meanwhile.
    pub(crate) async fn attend(
        &self,
        instance: &str,
        mut from: u64,
        printed: mpsc::Sender<Printed>,
    ) -> Result<WorkEnd, MachineFault> {
        let id = machine_id(instance).map_err(|error| MachineFault(error.to_string()))?;
        let mut tries = 0;
        loop {
            let reason = match self.follow(&id, &mut from, &printed).await {
                Ok(end) => return Ok(self.judge(id, end).await),
                Err(Broken::Late(reason)) => {
                    tries = 0;
                    reason
                }
                Err(Broken::Early(reason)) => reason,
            };
            if let Some(end) = self.end_of(&id).await? {
                return Ok(end);
            }
            tries += 1;
            if tries >= TRIES {
                return Err(MachineFault(format!(
                    "the work of `{id}` cannot be followed: {reason}"
                )));
            }
            sleep(TRY_PAUSE).await;
        }
    }

    pub(crate) async fn interrupt(&self, instance: &str) -> Result<(), MachineFault> {
        let id = machine_id(instance).map_err(|error| MachineFault(error.to_string()))?;
        let asked = timeout(INTERRUPT_PATIENCE, self.ask(&id, Method::POST, INTERRUPT_PATH)).await;
        match asked {
            Ok(Ok(response)) if response.status() == StatusCode::NO_CONTENT => Ok(()),
            Ok(Ok(response)) => Err(MachineFault(format!("`{id}` answers {}", response.status()))),
            Ok(Err(reason)) => Err(MachineFault(format!("`{id}` cannot be asked: {reason}"))),
            Err(_) => Err(MachineFault(format!("`{id}` does not answer"))),
        }
    }

    /// Reads one stream of output, as far as it goes.
    async fn follow(
        &self,
        id: &Id,
        from: &mut u64,
        printed: &mpsc::Sender<Printed>,
    ) -> Result<work::End, Broken> {
        let early = |reason: &dyn std::error::Error| Broken::Early(chain(reason));
        let response = self
            .ask(id, Method::GET, &format!("{PATH}?from={from}"))
            .await
            .map_err(Broken::Early)?;
        if response.status() != StatusCode::OK {
            return Err(Broken::Early(format!("it answers {}", response.status())));
        }
        let (mut body, mut frames, mut some) = (response.into_body(), Frames::default(), false);
        while let Some(frame) = body.frame().await {
            let frame = frame
                .map_err(|error| if some { Broken::Late(chain(&error)) } else { early(&error) })?;
            let Ok(data) = frame.into_data() else { continue };
            frames.push(&data);
            while let Some(frame) = frames.take().map_err(|error| early(&error))? {
                match frame {
                    Frame::Ended(end) => return Ok(end),
                    Frame::Printed { next, at, stream, bytes } => {
                        (*from, some) = (next, true);
                        let piece =
                            Printed { next, at, stream: stream_of(stream), text: bytes.into() };
                        // Whoever does not want to hear of it may still wait for the end.
                        let _ = printed.send(piece).await;
                    }
                }
            }
        }
        Err(Broken::Early("its answer ends too early".to_owned()))
    }

    async fn ask(&self, id: &Id, method: Method, path: &str) -> Result<Response<Incoming>, String> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(SECRET_HEADER, self.0.key.secret(id));
        self.ask_guest(id, request, Empty::<Bytes>::new()).await.map_err(|error| chain(&error))
    }

    /// What the instance says of its work, in the light of what the machine knows. That the kernel
    /// killed for want of memory shows as a signal, or as the code that shells make of it.
    async fn judge(&self, id: Id, end: work::End) -> WorkEnd {
        let killed = matches!(end.how, work::How::Killed(SIGKILL) | work::How::Exited(KILLED_CODE));
        let how = match end.how {
            _ if killed && self.lacked_memory(id).await => How::OutOfMemory,
            work::How::Exited(code) => How::Exited(code),
            work::How::Killed(signal) => How::Killed(signal),
            work::How::TimedOut => How::TimedOut,
            work::How::Interrupted => How::Interrupted,
            work::How::NotStarted(reason) => How::NotStarted(reason),
        };
        WorkEnd { how, started_at: end.started_at, ended_at: end.ended_at }
    }

    async fn lacked_memory(&self, id: Id) -> bool {
        let look =
            self.on_node(move |inner| Ok::<_, Interrupted>(inner.node.ran_out_of_memory(&id)));
        matches!(look.await, Ok(Ok(true)))
    }

    /// How the instance ended, if it has, with the work in it.
    async fn end_of(&self, id: &Id) -> Result<Option<WorkEnd>, MachineFault> {
        let id = id.clone();
        self.on_node(move |inner| {
            let view = inner.node.wait(&id, END_PATIENCE).and_then(|_| inner.node.inspect(&id));
            match view.map(|view| view.state) {
                Ok(State::Exited { at, exit }) => Ok(Some(lost(at, exit))),
                Ok(_) => Ok(None),
                Err(error @ Error::Missing(_)) => Err(MachineFault(error.to_string())),
                Err(error) => Err(MachineFault(chain(&error))),
            }
        })
        .await
    }
}

fn lost(at: Timestamp, exit: Exit) -> WorkEnd {
    let how = match exit {
        Exit::OutOfMemory => How::OutOfMemory,
        other => How::Lost(how_it_ended(other)),
    };
    WorkEnd { how, started_at: at, ended_at: at }
}

fn stream_of(stream: work::Stream) -> Stream {
    match stream {
        work::Stream::Output => Stream::Output,
        work::Stream::Error => Stream::Error,
    }
}
