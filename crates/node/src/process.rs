//! Processes with a lasting identity: a pid alone is used again, but a pid with a start time is
//! not.

use crate::sys;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, waitid};
use serde::{Deserialize, Serialize};
use std::io;
use std::thread;
use std::time::{Duration, Instant};
use types::instance::Exit;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// In the kernel's ticks since the machine started.
    started: u64,
}

impl Identity {
    pub(crate) fn of(pid: Pid) -> io::Result<Self> {
        let pid = pid.as_raw_nonzero().get();
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Ok(Self { pid, started: start_time(&text).ok_or(io::ErrorKind::InvalidData)? })
    }

    /// Opens the process if it is still the same one.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(self.pid)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The descriptor comes first: it pins the process whose start time is read next.
        (Self::of(pid).ok()? == *self).then_some(pidfd)
    }
}

/// Returns the fields of `/proc/PID/stat` from the third one on. The second one is a name in
/// parentheses, which may contain anything.
fn after_name(stat: &str) -> Option<impl Iterator<Item = &str>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

const START_FIELD: usize = 22 - 3;
const EXIT_FIELD: usize = 52 - 3;

fn start_time(stat: &str) -> Option<u64> {
    after_name(stat)?.nth(START_FIELD)?.parse().ok()
}

pub(crate) fn has_ended(pidfd: BorrowedFd<'_>) -> io::Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)], Some(&now))? > 0)
}

/// Returns the outside id of root in a process's user namespace.
pub(crate) fn root_of(pid: i32) -> io::Result<u32> {
    let map = std::fs::read_to_string(format!("/proc/{pid}/uid_map"))?;
    let root = map.split_whitespace().nth(1).and_then(|root| root.parse().ok());
    root.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the id of the machine's current boot.
pub(crate) fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// How long the machine's init process may take to reap. It is another program, so nobody knows.
const REAPING_TIMEOUT: Duration = Duration::from_secs(1);
const REAPING_PAUSE: Duration = Duration::from_millis(1);

/// Returns how a process ended that is known to have ended.
pub(crate) fn exit_of(pidfd: BorrowedFd<'_>, pid: i32) -> Exit {
    loop {
        match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
            Ok(Some(status)) => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (None, Some(signal)) => Exit::Signal(signal),
                    (None, None) => Exit::Unknown,
                };
            }
            Err(Errno::INTR) => {}
            // An earlier node started it, so the machine's init process reaps it, in its own time.
            Ok(None) | Err(_) => return exit_of_another(pidfd, pid),
        }
    }
}

/// Returns how a process ended that is not a child of this one. Before it is reaped, `/proc` has
/// its status; afterwards only its descriptor does, and only on newer kernels.
fn exit_of_another(pidfd: BorrowedFd<'_>, pid: i32) -> Exit {
    let deadline = Instant::now() + REAPING_TIMEOUT;
    loop {
        if let Some(status) =
            sys::status_after_reaping(pidfd).or_else(|| status_before_reaping(pidfd, pid))
        {
            return from_wait_status(status);
        }
        if is_reaped(pidfd) || Instant::now() > deadline {
            return sys::status_after_reaping(pidfd).map_or(Exit::Unknown, from_wait_status);
        }
        thread::sleep(REAPING_PAUSE);
    }
}

fn status_before_reaping(pidfd: BorrowedFd<'_>, pid: i32) -> Option<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The check comes after the read: until the process is reaped, its pid belongs to nobody else,
    // so the text was about it.
    let ended = after_name(&text)?.next()? == "Z" && !is_reaped(pidfd);
    if ended { after_name(&text)?.nth(EXIT_FIELD)?.parse().ok() } else { None }
}

fn is_reaped(pidfd: BorrowedFd<'_>) -> bool {
    rustix::process::pidfd_send_signal(pidfd, Signal::CONT) == Err(Errno::SRCH)
}

fn from_wait_status(status: i32) -> Exit {
    match status & 0x7f {
        0 => Exit::Code(status >> 8 & 0xff),
        signal => Exit::Signal(signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_name_hides_the_start_time(name in "\\PC{0,20}", started: u64) {
            let middle = "0 ".repeat(18);
            let stat = format!("7 ({name}) S {middle}{started} 5 6");
            prop_assert_eq!(start_time(&stat), Some(started));
        }

        #[test]
        fn no_text_is_trouble(text in ".{0,80}") {
            let _ = start_time(&text);
        }
    }

    #[test]
    fn this_process_is_itself_and_another_start_is_not() {
        let mut me = Identity::of(rustix::process::getpid()).unwrap();
        assert!(me.open().is_some());
        me.started += 1;
        assert!(me.open().is_none());
    }
}
