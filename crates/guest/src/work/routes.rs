//! Routes of a work instance: the machine follows and interrupts the work, and the work fetches its
//! data.

use super::Work;
use super::output::Found;
use crate::http::{Answer, Error, Request, StreamSender};
use http::{Method, StatusCode};
use std::sync::Arc;
use subtle::ConstantTimeEq;
use types::instance::Stream;
use types::work::{self, FRAME_BYTES_MAX, INTERRUPT_PATH, PATH, SECRET_HEADER};

/// Size of the frames that are sent together.
const BATCH_BYTES: usize = FRAME_BYTES_MAX;

/// Answers a request; `None` if the path is unknown.
pub(crate) fn answer(
    work: &Arc<Work>,
    path: &str,
    request: &Request,
) -> Option<Result<Answer, Error>> {
    if same(path, &work.data_path) {
        let data = Answer::new(StatusCode::OK, "application/json", work.data.clone());
        return Some(allowed(request, &[Method::GET]).map(|()| data));
    }
    if !work.is_machine(request) {
        return None;
    }
    match path {
        PATH => Some(allowed(request, &[Method::GET]).and_then(|()| follow(work, request))),
        INTERRUPT_PATH => Some(allowed(request, &[Method::POST]).map(|()| interrupt(work))),
        _ => None,
    }
}

fn allowed(request: &Request, methods: &'static [Method]) -> Result<(), Error> {
    if methods.contains(&request.method) { Ok(()) } else { Err(Error::Method(methods)) }
}

/// Compares in constant time.
fn same(given: &str, secret: &str) -> bool {
    given.as_bytes().ct_eq(secret.as_bytes()).into()
}

impl Work {
    fn is_machine(&self, request: &Request) -> bool {
        let given = request.headers.get(SECRET_HEADER).and_then(|value| value.to_str().ok());
        given
            .is_some_and(|given| !self.orders.secret.is_empty() && same(given, &self.orders.secret))
    }
}

fn interrupt(work: &Work) -> Answer {
    // The notification is stored until it is waited for; finished work ignores it.
    work.interrupted.notify_one();
    Answer::empty(StatusCode::NO_CONTENT)
}

fn follow(work: &Arc<Work>, request: &Request) -> Result<Answer, Error> {
    let from = request.query_number("from")?.unwrap_or(0);
    let (sender, answer) = Answer::stream("application/octet-stream");
    tokio::spawn(tell(work.clone(), from, sender));
    Ok(answer)
}

/// What can be sent now.
enum Told {
    Some { frames: Vec<u8>, next: u64 },
    Last(Vec<u8>),
    Nothing,
}

/// Sends the output of the work and, at the end, how it ended.
async fn tell(work: Arc<Work>, mut position: u64, mut sender: StreamSender) {
    let mut changed = work.changed.subscribe();
    loop {
        changed.mark_unchanged();
        match work.look(position) {
            Told::Some { frames, next } => {
                position = next;
                if sender.send_data(frames.into()).await.is_err() {
                    return;
                }
                work.state.lock().output.fetch(position);
                work.fetched.notify_waiters();
            }
            Told::Last(frame) => {
                // It does not matter whether anybody still reads it.
                let _ = sender.send_data(frame.into()).await;
                return;
            }
            Told::Nothing => {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Work {
    fn look(&self, mut position: u64) -> Told {
        let state = self.state.lock();
        let mut frames = Vec::new();
        while frames.len() < BATCH_BYTES {
            match state.output.find(position) {
                Found::Piece { next, at, stream, bytes } => {
                    let mut begin = position;
                    for part in bytes.chunks(FRAME_BYTES_MAX) {
                        begin += part.len() as u64;
                        work::write_printed(&mut frames, begin, at, stream, part);
                    }
                    position = next;
                }
                Found::Lost { begin, at } => {
                    let note = format!("[{} bytes of output were not kept]\n", begin - position);
                    work::write_printed(&mut frames, begin, at, Stream::Stderr, note.as_bytes());
                    position = begin;
                }
                Found::Nothing => break,
            }
        }
        match &state.end {
            _ if !frames.is_empty() => Told::Some { frames, next: position },
            Some(end) => {
                work::write_end(&mut frames, end);
                Told::Last(frames)
            }
            None => Told::Nothing,
        }
    }
}
