//! Follows the work of an instance, over the connection that its guest serves.
//!
//! Programs in the instance could connect to the same socket. So the machine shows a secret there,
//! which is derived from its own key and the name of the instance.

use crate::{Interrupted, LocalMachine};
use bytes::Bytes;
use control::machine::MachineFault;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use node::{Error, State};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use types::Timestamp;
use types::chain;
use types::instance::{Exit, InstanceName, Outcome, Printed, WorkEnd};
use types::work::{Frame, Frames, INTERRUPT_PATH, PATH, SECRET_HEADER};

/// How often a connection may break in a row, without a frame in between, while the instance is
/// alive.
const TRIES: u32 = 10;
const TRY_PAUSE: Duration = Duration::from_millis(50);
/// How long to wait, after a connection broke, for the news that the instance has ended.
const EXIT_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long an instance may take to acknowledge an interrupt.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(5);
const SIGKILL: i32 = 9;
/// The exit code of a shell whose program was killed like this.
const KILLED_CODE: i32 = 128 + SIGKILL;

/// Why a stream ended before the work did.
enum Broken {
    /// After some output had come.
    Late(String),
    /// Before anything had come.
    Early(String),
}

impl LocalMachine {
    /// Waits for the end of the work, and passes on its output meanwhile.
    pub(crate) async fn attend(
        &self,
        id: &InstanceName,
        mut from: u64,
        printed: mpsc::Sender<Printed>,
    ) -> Result<WorkEnd, MachineFault> {
        let mut tries = 0;
        loop {
            let reason = match self.follow(id, &mut from, &printed).await {
                Ok(end) => return Ok(self.judge(id.clone(), end).await),
                Err(Broken::Late(reason)) => {
                    tries = 0;
                    reason
                }
                Err(Broken::Early(reason)) => reason,
            };
            if let Some(end) = self.end_of(id).await? {
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

    /// Wakes an instance that was put to sleep after the end of its work, so that it can tell the
    /// end once more. A replica stays asleep until somebody visits it.
    pub(crate) async fn wake_work(&self, id: &InstanceName) -> Result<(), MachineFault> {
        let sleeps =
            || self.0.node.inspect(id).is_ok_and(|view| matches!(view.state, State::Paused { .. }));
        if self.0.leases.purpose(id).is_visited() || !sleeps() {
            return Ok(());
        }
        let id = id.clone();
        self.on_node(move |inner| {
            inner.node.resume(&id).map_err(|error| MachineFault(chain(&error)))
        })
        .await
    }

    pub(crate) async fn interrupt(&self, id: &InstanceName) -> Result<(), MachineFault> {
        let asked = timeout(INTERRUPT_TIMEOUT, self.ask(id, Method::POST, INTERRUPT_PATH)).await;
        match asked {
            Ok(Ok(response)) if response.status() == StatusCode::NO_CONTENT => Ok(()),
            Ok(Ok(response)) => Err(MachineFault(format!("`{id}` answers {}", response.status()))),
            Ok(Err(reason)) => Err(MachineFault(format!("`{id}` cannot be asked: {reason}"))),
            Err(_) => Err(MachineFault(format!("`{id}` does not answer"))),
        }
    }

    /// Reads one stream of output to its end.
    async fn follow(
        &self,
        id: &InstanceName,
        from: &mut u64,
        printed: &mpsc::Sender<Printed>,
    ) -> Result<WorkEnd, Broken> {
        let response = self
            .ask(id, Method::GET, &format!("{PATH}?from={from}"))
            .await
            .map_err(Broken::Early)?;
        if response.status() != StatusCode::OK {
            return Err(Broken::Early(format!("it answers {}", response.status())));
        }
        read(response.into_body(), from, printed).await
    }

    async fn ask(
        &self,
        id: &InstanceName,
        method: Method,
        path: &str,
    ) -> Result<Response<Incoming>, String> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(SECRET_HEADER, self.0.key.secret(id));
        self.ask_guest(id, request, Empty::<Bytes>::new()).await.map_err(|error| chain(&error))
    }

    /// Corrects what the instance says about the end of its work by what the machine knows. If the
    /// kernel killed it because memory ran out, the instance sees only a signal, or the exit code
    /// that shells make of it.
    async fn judge(&self, id: InstanceName, end: WorkEnd) -> WorkEnd {
        let killed = matches!(end.outcome, Outcome::Killed(SIGKILL) | Outcome::Exited(KILLED_CODE));
        if killed && self.lacked_memory(id).await {
            return WorkEnd { outcome: Outcome::OutOfMemory, ..end };
        }
        end
    }

    async fn lacked_memory(&self, id: InstanceName) -> bool {
        let look =
            self.on_node(move |inner| Ok::<_, Interrupted>(inner.node.ran_out_of_memory(&id)));
        matches!(look.await, Ok(Ok(true)))
    }

    /// Returns how the instance ended, if it has, which ended the work with it.
    async fn end_of(&self, id: &InstanceName) -> Result<Option<WorkEnd>, MachineFault> {
        let id = id.clone();
        self.on_node(move |inner| {
            let view = inner.node.wait(&id, EXIT_WAIT_MAX).and_then(|_| inner.node.inspect(&id));
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

/// Reads a stream of output to its end, which should be the end of the work.
async fn read<B>(
    mut body: B,
    from: &mut u64,
    printed: &mpsc::Sender<Printed>,
) -> Result<WorkEnd, Broken>
where
    B: Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
{
    let broken = |reason, some| if some { Broken::Late(reason) } else { Broken::Early(reason) };
    let (mut frames, mut some) = (Frames::default(), false);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(chain(&error), some))?;
        let Ok(data) = frame.into_data() else { continue };
        frames.push(&data);
        while let Some(frame) = frames.take().map_err(|error| Broken::Early(chain(&error)))? {
            match frame {
                Frame::Ended(end) => return Ok(end),
                Frame::Printed(piece) => {
                    (*from, some) = (piece.next, true);
                    // Even if nobody reads the output any more, somebody may still wait for the
                    // end.
                    let _ = printed.send(piece).await;
                }
            }
        }
    }
    Err(broken("its answer ends too early".to_owned(), some))
}

/// Returns the end of work whose instance has ended.
fn lost(at: Timestamp, exit: Exit) -> WorkEnd {
    let outcome = match exit {
        Exit::OutOfMemory => Outcome::OutOfMemory,
        other => Outcome::Lost(format!("the instance {other}")),
    };
    WorkEnd { outcome, started_at: Some(at), ended_at: at }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use types::instance::Stream;
    use types::work::write_printed;

    #[tokio::test]
    async fn a_stream_that_ends_after_some_output_is_no_try_in_vain() {
        let (printed, _reader) = mpsc::channel(2);
        let mut from = 3;
        let none = read(Empty::<Bytes>::new(), &mut from, &printed).await;
        assert!(matches!(none, Err(Broken::Early(_))));
        let mut piece = Vec::new();
        write_printed(&mut piece, 8, Timestamp::from_ms(1), Stream::Stdout, b"hello");
        let some = read(Full::new(Bytes::from(piece)), &mut from, &printed).await;
        assert!(matches!(some, Err(Broken::Late(_))));
        assert_eq!(from, 8, "the next try goes on from there");
    }
}
