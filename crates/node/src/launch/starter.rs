//! The starter of this node, of which the first processes of instances are forks. [`types::start`]
//! says what both tell each other.

use super::{LaunchError, Started};
use crate::number::fit;
use crate::spec::{Program, sealed};
use crate::sys;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use types::start::{
    ANSWER_BYTES_MAX, Answer, Entry, LAST, MORE, PACKET_DESCRIPTORS_MAX, Readiness, Rules, VARIABLE,
};

/// How long one answer may take. Usually it takes milliseconds.
const ANSWER_TIMEOUT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

pub(crate) struct Starter {
    program: Program,
    rules: Rules,
    running: Mutex<Option<Running>>,
}

/// A starter that runs. It ends when its socket is closed, so also when this process is killed.
struct Running {
    socket: OwnedFd,
    process: Child,
}

/// A process that is told once what instance it is. It ends if it never is.
#[derive(Debug)]
pub(crate) struct Waiting {
    process: Option<Started>,
    socket: OwnedFd,
}

/// What a fork needs before it is known for which instance.
pub(crate) struct Parts<'p> {
    pub(crate) network: BorrowedFd<'p>,
    pub(crate) users: BorrowedFd<'p>,
    pub(crate) devices: BorrowedFd<'p>,
    pub(crate) output: BorrowedFd<'p>,
}

impl Starter {
    pub(crate) fn new(program: Program, rules: Rules) -> Self {
        Self { program, rules, running: Mutex::new(None) }
    }

    /// Returns true if this is the program that the starter itself runs.
    pub(crate) fn is_of(&self, program: &Program) -> bool {
        self.program.is(program)
    }

    /// Makes a process that waits in namespaces of its own.
    pub(crate) fn fork(&self, parts: &Parts<'_>) -> Result<Waiting, LaunchError> {
        let (socket, theirs) = pair()?;
        self.ask(&[theirs.as_fd(), parts.network, parts.users, parts.devices, parts.output])?;
        drop(theirs);
        let (mut helper, mut made) = (None, None);
        // The two answers come from two processes, in any order.
        while helper.is_none() || made.is_none() {
            match receive(&socket)? {
                Some(Answer::Helper { pid }) => helper = Pid::from_raw(pid),
                Some(Answer::Waiting { pid }) => made = Some(Ok(pid)),
                Some(Answer::Failed { what, errno }) => made = Some(Err(failed(what, errno))),
                Some(Answer::Entered) | None => break,
            }
        }
        if let Some(helper) = helper {
            sys::reap(helper);
        }
        let pid = made.unwrap_or(Err(LaunchError::Ended))?;
        let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
        // The number still belongs to the process: only this one could have reaped it.
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Waiting { process: Some(Started { pid, pidfd }), socket })
    }

    /// Asks the starter for a fork. Begins it if it does not run, or not any more.
    fn ask(&self, descriptors: &[BorrowedFd<'_>]) -> Result<(), LaunchError> {
        let mut running = self.running.lock();
        if let Some(starter) = &*running {
            match send(&starter.socket, &Readiness, descriptors) {
                Err(error) => tracing::warn!(%error, "the starter of instances is begun anew"),
                sent => return sent.map_err(into_launch),
            }
        }
        let starter = running.insert(self.begin().map_err(into_launch)?);
        send(&starter.socket, &Readiness, descriptors).map_err(into_launch)
    }

    fn begin(&self) -> io::Result<Running> {
        let (socket, theirs) = pair()?;
        let process = Command::new(format!("/proc/self/fd/{}", self.program.fd().as_raw_fd()))
            .arg0("holm-guest")
            .env_clear()
            .env(VARIABLE, "1")
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        send(&socket, &self.rules, &[])?;
        Ok(Running { socket, process })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be in the middle of something, but nobody needs that any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Waiting {
    /// It says nothing while it waits. Its end of the socket closes early in its end, and its
    /// namespaces are taken apart before it counts as ended.
    pub(crate) fn is_alive(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&now)) == Ok(0)
    }

    /// Tells the process what instance it is, and returns once it is that.
    pub(crate) fn enter(
        mut self,
        entry: &Entry,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Started, LaunchError> {
        let sent = send(&self.socket, entry, descriptors);
        match receive(&self.socket)? {
            Some(Answer::Failed { what, errno }) => return Err(failed(what, errno)),
            // Executing another program closes the socket.
            None if entry.execute.is_none() => return Err(LaunchError::Ended),
            Some(_) | None => {}
        }
        sent.map_err(into_launch)?;
        self.process.take().ok_or(LaunchError::Ended)
    }
}

impl Waiting {
    /// Has the process end. Dropping this waits until it has.
    pub(crate) fn end(&self) {
        if let Some(process) = &self.process {
            let _ = pidfd_send_signal(&process.pidfd, Signal::KILL);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.end();
        if let Some(process) = self.process.take() {
            sys::reap(process.pid);
        }
    }
}

fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

fn send(
    socket: &OwnedFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let body = sealed("message", &serde_json::to_vec(message)?)?;
    let all: Vec<_> = std::iter::once(body.as_fd()).chain(descriptors.iter().copied()).collect();
    let mut packets = all.chunks(PACKET_DESCRIPTORS_MAX).peekable();
    while let Some(packet) = packets.next() {
        let mut room =
            [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut room);
        control.push(SendAncillaryMessage::ScmRights(packet));
        let byte = [if packets.peek().is_some() { MORE } else { LAST }];
        sendmsg(socket, &[IoSlice::new(&byte)], &mut control, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Waits for an answer. `None` means that nobody is left who could give one.
fn receive(socket: &OwnedFd) -> Result<Option<Answer>, LaunchError> {
    if poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&ANSWER_TIMEOUT))? == 0 {
        return Err(Errno::TIMEDOUT.into());
    }
    let mut text = [0; ANSWER_BYTES_MAX];
    let (length, _) = match recv(socket, &mut text, RecvFlags::empty()) {
        // What it was sent has not been read.
        Err(Errno::CONNRESET) => return Ok(None),
        received => received?,
    };
    if length == 0 {
        return Ok(None);
    }
    let answer = text.get(..fit::<usize, usize>(length)).unwrap_or(&text);
    serde_json::from_slice(answer).map(Some).map_err(|error| into_launch(error.into()))
}

fn failed(what: String, errno: i32) -> LaunchError {
    LaunchError::Step { what, source: Errno::from_raw_os_error(errno) }
}

fn into_launch(error: io::Error) -> LaunchError {
    Errno::from_io_error(&error).unwrap_or(Errno::IO).into()
}
