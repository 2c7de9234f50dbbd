//! Streams the changes in a directory or, with `/**`, in the tree below it.
//!
//! Every event arrives, or a line with `OVERFLOW` says that some were lost and that the reader
//! should read the directory again. Only one batch is buffered here: with a slow reader, the
//! kernel's queue fills up, and the kernel reports that.

mod changes;
mod line;

use super::blocking::blocking;
use super::path::{resolve, text};
use crate::http::{Answer, Error, Request, StreamSender};
use crate::instance::Instance;
use crate::route::PathArgument;
use bytes::Bytes;
use changes::{Changes, Ended};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::Handle;

const KEEPALIVE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
const KEEPALIVE_LINE: &[u8] = b"[keepalive]\n";
/// Each watch has a thread and a queue in the kernel.
const WATCHES_MAX: usize = 100;
const STACK_BYTES: usize = 256 << 10;

static WATCHES: AtomicUsize = AtomicUsize::new(0);

pub(crate) async fn get(
    instance: &Arc<Instance>,
    argument: &PathArgument,
    request: Request,
) -> Result<Answer, Error> {
    let (argument, recursive) = match argument.0.strip_suffix(b"**") {
        Some(above) if above.is_empty() || above.ends_with(b"/") => (above, true),
        _ => (argument.0.as_slice(), false),
    };
    let root = resolve(instance, &PathArgument(argument.to_vec()));
    let ignored = request.query("ignore").unwrap_or_default();
    let ignored: Vec<String> =
        ignored.split(',').map(str::trim).filter(|one| !one.is_empty()).map(Into::into).collect();
    let slot = Slot::take()?;
    let shown = text(&root);
    // The watch is set up before the answer begins, so that a caller who has the answer misses
    // nothing.
    let changes = blocking(move || {
        Changes::begin(root, recursive, ignored)
            .map_err(|error| Error::BadRequest(format!("{shown} cannot be watched: {error}")))
    })
    .await?;
    let (sender, answer) = Answer::stream("text/plain; charset=utf-8");
    let server = Handle::current();
    std::thread::Builder::new()
        .name("watch".into())
        .stack_size(STACK_BYTES)
        .spawn(move || run(changes, Output { sender, server }, slot))
        .map_err(|error| Error::Unavailable(format!("no thread is left for a watch: {error}")))?;
    Ok(answer)
}

/// One of the limited number of concurrent watches.
struct Slot;

impl Slot {
    fn take() -> Result<Self, Error> {
        let taken = WATCHES.fetch_add(1, Ordering::Relaxed);
        let slot = Self;
        if taken < WATCHES_MAX {
            Ok(slot)
        } else {
            Err(Error::Unavailable("there are too many watches".into()))
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        WATCHES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The stream to the reader, for a thread that may block.
struct Output {
    sender: StreamSender,
    server: Handle,
}

impl Output {
    fn send(&mut self, lines: Vec<u8>) -> Result<(), Ended> {
        if lines.is_empty() {
            return Ok(());
        }
        self.server.block_on(self.sender.send_data(Bytes::from(lines))).map_err(|_| Ended::Reader)
    }
}

fn run(mut changes: Changes, mut output: Output, slot: Slot) {
    let ended = follow(&mut changes, &mut output);
    drop(slot);
    if let Err(Ended::Kernel(error)) = ended {
        output.sender.abort(error.into());
    }
}

fn follow(changes: &mut Changes, output: &mut Output) -> Result<(), Ended> {
    output.send(changes.pending())?;
    loop {
        let ready = match poll(&mut [PollFd::new(changes, PollFlags::IN)], Some(&KEEPALIVE)) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if ready == 0 {
            output.send(KEEPALIVE_LINE.to_vec())?;
        } else {
            changes.read(&mut |lines| output.send(lines))?;
        }
    }
}
