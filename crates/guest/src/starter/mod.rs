//! Starts instances by forking. [`types::start`] says what the node asks for and gets.
//!
//! ```text
//! starter ── fork ──▶ helper: enters the network and the user namespace
//!    (waits for the        └─ fork, new namespaces ──▶ process 1: makes a root of its own, waits,
//!     next request)                                     enters the instance, and goes on as guest
//! ```
//!
//! All are children of the node, which reaps them. The starter itself has nothing of any instance:
//! it passes on descriptors without reading them.

mod enter;
mod message;
mod prepare;

use crate::raw::{self, Forked};
use message::{Descriptors, answer, receive};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tokio::runtime::Runtime;
use types::start::{Answer, Readiness, Rules, VARIABLE};

/// What has failed, and why.
#[derive(Debug)]
struct Failure {
    /// Completes the sentence "the new process failed to".
    what: String,
    errno: Errno,
}

/// Turns a failed call into a [`Failure`].
trait Doing<T> {
    fn doing(self, what: impl Into<String>) -> Result<T, Failure>;
}

impl<T> Doing<T> for Result<T, Errno> {
    fn doing(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|errno| Failure { what: what.into(), errno })
    }
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)).doing(what)
    }
}

/// An instance that this process has become the first one of.
pub(crate) struct Entered {
    pub(crate) listener: Option<OwnedFd>,
    pub(crate) config: Option<OwnedFd>,
    /// Made while nobody waited for this process.
    pub(crate) runtime: Runtime,
}

pub(crate) fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Forks as often as the node asks for it. Returns in each fork that has become an instance, and
/// `None` when there is nothing more to do.
pub(crate) fn run() -> io::Result<Option<Entered>> {
    raw::close_inherited()?;
    // The server keeps its own files private. Folders made in instances get the usual modes.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    // Lists of processes show it. It would be the number of the descriptor that was executed.
    rustix::thread::set_name(c"holm-guest")?;
    // Signals that are meant for the server, such as those of its terminal, do not end this.
    let _ = rustix::process::setsid();
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let broken = |failure: Failure| {
        io::Error::other(format!("failed to {}: {}", failure.what, failure.errno))
    };
    let Some((rules, _)) = receive::<Rules>(&socket).map_err(broken)? else { return Ok(None) };
    loop {
        let Some((Readiness, descriptors)) = receive(&socket).map_err(broken)? else {
            return Ok(None);
        };
        if let Some(wanted) = Wanted::fork(descriptors).map_err(broken)? {
            drop(socket);
            return Ok(wanted.begin(&rules));
        }
    }
}

/// What one fork is given.
struct Wanted {
    answers: OwnedFd,
    network: OwnedFd,
    users: OwnedFd,
    parts: prepare::Parts,
}

impl Wanted {
    /// Forks the helper. Returns `None` in the starter.
    fn fork(mut descriptors: Descriptors) -> Result<Option<Self>, Failure> {
        let mut next = || descriptors.next("find the parts of an instance");
        let wanted = Self {
            answers: next()?,
            network: next()?,
            users: next()?,
            parts: prepare::Parts { devices: next()?, output: next()? },
        };
        let said = match raw::fork(libc::CLONE_PARENT) {
            Ok(Forked::Child) => return Ok(Some(wanted)),
            Ok(Forked::Parent { pid }) => Answer::Helper { pid },
            Err(errno) => failed(Failure { what: "start a process".into(), errno }),
        };
        // If nobody listens any more, the fork finds that out itself.
        let _ = answer(&wanted.answers, &said);
        Ok(None)
    }

    /// Becomes an instance, as told. Returns `None` in what ends now.
    fn begin(self, rules: &Rules) -> Option<Entered> {
        let answers = raw::out_of_the_way(&self.answers).ok()?;
        match self.enter(rules) {
            Ok(entered) => entered,
            Err(failure) => {
                let _ = answer(&answers, &failed(failure));
                None
            }
        }
    }

    fn enter(self, rules: &Rules) -> Result<Option<Entered>, Failure> {
        let enter = |namespace: BorrowedFd<'_>, kind| {
            move_into_link_name_space(namespace, Some(kind)).doing("enter a namespace")
        };
        // Inherited by all that follows, which may not write its own files of `/proc` any more.
        std::fs::write("/proc/self/oom_score_adj", rules.out_of_memory_score.to_string())
            .doing("say what it counts when memory ends")?;
        enter(self.network.as_fd(), LinkNameSpaceType::Network)?;
        enter(self.users.as_fd(), LinkNameSpaceType::User)?;
        become_root().doing("take the ids of its root")?;
        let namespaces =
            libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        match raw::fork(libc::CLONE_PARENT | namespaces).doing("start in namespaces of its own")? {
            Forked::Parent { pid } => {
                answer(&self.answers, &Answer::Waiting { pid }).doing("say who it started")?;
                Ok(None)
            }
            Forked::Child => {
                drop((self.network, self.users));
                prepare::prepare(rules, &self.parts)?;
                drop(self.parts);
                enter::wait(rules, self.answers)
            }
        }
    }
}

fn become_root() -> Result<(), Errno> {
    use rustix::process::{Gid, Uid};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let (user, group) = (Uid::ROOT, Gid::ROOT);
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)
}

fn failed(failure: Failure) -> Answer {
    Answer::Failed { what: failure.what, errno: failure.errno.raw_os_error() }
}
