//! Starts a process by its plan.

use super::ask::Plan;
use crate::instance::Instance;
use crate::program;
use crate::raw::Program;
use crate::reaper::{End, Started};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::oneshot;

/// Runs scripts without `#!`, as the C library does.
const USUAL_SHELL: &str = "/bin/sh";

/// One run of a process. A restart makes another one.
pub(crate) struct Run {
    pub(crate) pid: Pid,
    pub(crate) end: oneshot::Receiver<End>,
    /// `None` if the process takes no input.
    pub(crate) stdin: Option<Sender>,
    pub(crate) stdout: Arc<Receiver>,
    pub(crate) stderr: Arc<Receiver>,
}

pub(crate) fn spawn(instance: &Instance, plan: &Plan) -> io::Result<Run> {
    let (input, stdin) = input(plan)?;
    let (stdout, output) = pipe_with(PipeFlags::CLOEXEC)?;
    let (stderr, error) = pipe_with(PipeFlags::CLOEXEC)?;
    let standard = [input.as_fd(), output.as_fd(), error.as_fd()];
    let Started { pid, end } = match start(instance, plan, &plan.program, &plan.arguments, standard)
    {
        Err(_) if plan.is_plain => {
            let (shell, arguments) = plan.by_shell(instance);
            start(instance, plan, &shell, &arguments, standard)?
        }
        started => started?,
    };
    Ok(Run { pid, end, stdin, stdout: receiver(stdout)?, stderr: receiver(stderr)? })
}

/// Returns what the process reads as its standard input, and where to write to it.
fn input(plan: &Plan) -> io::Result<(OwnedFd, Option<Sender>)> {
    if plan.takes_input {
        let (input, stdin) = pipe_with(PipeFlags::CLOEXEC)?;
        return Ok((input, Some(Sender::from_owned_fd(stdin)?)));
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok((rustix::fs::open("/dev/null", flags, Mode::empty())?, None))
}

fn start(
    instance: &Instance,
    plan: &Plan,
    name: &OsStr,
    arguments: &[OsString],
    standard: [BorrowedFd<'_>; 3],
) -> io::Result<Started> {
    let path = program::find(name, plan.path(), &plan.working_dir)?;
    let lay_out = |path: &Path, words: &[&OsStr]| {
        let words = words.iter().copied().chain(arguments.iter().map(OsString::as_os_str));
        let program = Program::new(path, words, plan.variables(), &plan.working_dir)?;
        Ok::<_, io::Error>(program.run_as(plan.user.as_ref()))
    };
    match instance.reaper.spawn(&lay_out(&path, &[name])?, standard) {
        Err(error) if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
            let words = [USUAL_SHELL.as_ref(), path.as_os_str()];
            instance.reaper.spawn(&lay_out(Path::new(USUAL_SHELL), &words)?, standard)
        }
        started => started,
    }
}

fn receiver(fd: OwnedFd) -> io::Result<Arc<Receiver>> {
    Receiver::from_owned_fd(fd).map(Arc::new)
}
