//! The only place that waits for child processes: those started here, and orphans that are
//! reparented to this program.
//!
//! A second waiter would steal exit codes from the first, so nothing else in this program may wait
//! for a process.

use crate::raw::{NotStarted, Program};
use parking_lot::Mutex;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// How a process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    Exited(i32),
    Signalled(i32),
}

#[derive(Default)]
pub(crate) struct Reaper {
    waiting: Mutex<HashMap<i32, oneshot::Sender<End>>>,
    paused: AtomicBool,
}

pub(crate) struct Started {
    pub(crate) pid: Pid,
    pub(crate) end: oneshot::Receiver<End>,
}

impl Reaper {
    /// Makes this program the parent of orphans, as the first process of a machine always is, and
    /// starts reaping.
    pub(crate) fn start() -> io::Result<Arc<Self>> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let mut children = signal(SignalKind::child())?;
        let reaper = Arc::new(Self::default());
        let reaping = reaper.clone();
        tokio::spawn(async move {
            while children.recv().await.is_some() {
                reaping.reap();
            }
        });
        Ok(reaper)
    }

    /// Starts a child with the given standard input, output and error. The lock is held meanwhile,
    /// so that its end cannot be reaped before anybody waits for it.
    pub(crate) fn spawn(
        &self,
        program: &Program,
        standard: [BorrowedFd<'_>; 3],
    ) -> io::Result<Started> {
        let mut waiting = self.waiting.lock();
        let pid = match crate::raw::start(program, standard) {
            Ok(pid) => pid,
            Err(NotStarted::NoProcess(error)) => return Err(error),
            Err(NotStarted::Ended { pid, error }) => {
                rustix::process::waitpid(Some(pid), WaitOptions::empty())?;
                return Err(error);
            }
        };
        let (tell, end) = oneshot::channel();
        waiting.insert(Pid::as_raw(Some(pid)), tell);
        Ok(Started { pid, end })
    }

    /// Waits for a child of the program that this one replaced. It may already have ended.
    pub(crate) fn adopt(&self, pid: Pid) -> oneshot::Receiver<End> {
        let (tell, end) = oneshot::channel();
        self.waiting.lock().insert(Pid::as_raw(Some(pid)), tell);
        end
    }

    /// Leaves the ends of children to the program that will replace this one.
    pub(crate) fn pause(&self) {
        self.paused.store(true, Ordering::SeqCst);
    }

    pub(crate) fn go_on(&self) {
        self.paused.store(false, Ordering::SeqCst);
        self.reap();
    }

    /// Returns whether the end of a child has not been reported yet.
    pub(crate) fn waits_for(&self, pid: Pid) -> bool {
        self.waiting.lock().contains_key(&Pid::as_raw(Some(pid)))
    }

    pub(crate) fn reap(&self) {
        if self.paused.load(Ordering::SeqCst) {
            return;
        }
        let mut waiting = self.waiting.lock();
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let (Some(tell), Some(end)) = (waiting.remove(&Pid::as_raw(Some(pid))), end_of(status))
            else {
                continue;
            };
            // Nobody listens for the end of a process that was forgotten.
            let _ = tell.send(end);
        }
    }
}

fn end_of(status: WaitStatus) -> Option<End> {
    status
        .exit_status()
        .map(End::Exited)
        .or_else(|| status.terminating_signal().map(End::Signalled))
}
