//! Starting a process by its plan.

use super::Plan;
use crate::reaper::{End, Reaper, Started};
use rustix::process::Pid;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;

/// One run of a process. A restart makes another.
pub(crate) struct Run {
    pub(crate) pid: Pid,
    pub(crate) end: oneshot::Receiver<End>,
    pub(crate) stdout: Arc<Receiver>,
    pub(crate) stderr: Arc<Receiver>,
}

pub(crate) fn spawn(reaper: &Reaper, plan: &Plan) -> io::Result<Run> {
    let mut command = Command::new(&plan.program);
    command
        .args(&plan.arguments)
        .env_clear()
        .envs(&*plan.environment)
        .envs(&plan.own_environment)
        .current_dir(&plan.working_dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Its own group, so that a signal reaches all that it starts.
        .process_group(0);
    if let Some(user) = &plan.user {
        command.uid(user.uid).gid(user.gid);
    }
    let Started { mut child, end } = reaper.spawn(&mut command)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let missing = || io::Error::other("the process has no output");
    Ok(Run {
        pid: pid.ok_or_else(|| io::Error::other("the process has no number"))?,
        end,
        stdout: receiver(child.stdout.take().ok_or_else(missing)?.into())?,
        stderr: receiver(child.stderr.take().ok_or_else(missing)?.into())?,
    })
}

fn receiver(fd: OwnedFd) -> io::Result<Arc<Receiver>> {
    Receiver::from_owned_fd(fd).map(Arc::new)
}
