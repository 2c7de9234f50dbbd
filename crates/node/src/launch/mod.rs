//! Starts the first process of an instance.
//!
//! ```text
//! node ── clone(VM, VFORK) ──▶ first: joins the control groups, the network, the user namespace
//!  │ held until first ends       └─ clone(VM, VFORK, PARENT, new namespaces) ──▶ second, pid 1
//!  │                                 held until second execs         mounts, pivots, drops rights,
//!  │                                                                 execs the program
//!  └─ reaps first; second is the node's own child
//! ```
//!
//! The new namespaces are mount, pid, ipc, uts and cgroup.
//!
//! Both processes share the node's memory, so a start costs the same however large the node is.
//! What they do is a list of [`step::Step`]s, made by [`plan`] and performed by [`child`].

pub(crate) mod calls;
#[expect(unsafe_code, reason = "a process between clone and exec may only make raw system calls")]
mod child;
mod error;
pub(crate) mod filter;
pub(crate) mod plan;
mod report;
mod step;
pub(crate) mod tool;

pub use error::LaunchError;
pub use plan::{CONFIG_FD, LISTENER_FD};
pub(crate) use plan::{Fds, Launch, Sort, Words, copy, keep};

use crate::sys::{self, SignalsBlocked};
use report::Report;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use step::{Step, Task};

/// Steps of the second process are numbered from here in a report.
const SECOND: usize = 1_000;

/// A started first process.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

/// Starts what `launch` describes, and returns once the program runs.
pub(crate) fn start(launch: &Launch<'_>) -> Result<Started, LaunchError> {
    let mut report = Report::new();
    let second_steps = launch.inside()?;
    let mut stacks = (vec![0_u8; sys::STACK_BYTES], vec![0_u8; sys::STACK_BYTES]);
    let report_at = &raw mut report;
    let second = Task { steps: &raw const *second_steps, report: report_at, first_step: SECOND };
    let first_steps = launch.outside(&raw const second, sys::stack_top(&mut stacks.1));
    let first = Task { steps: &raw const *first_steps, report: report_at, first_step: 0 };

    let blocked = SignalsBlocked::new();
    let first_pid = child::spawn_held(&first, sys::stack_top(&mut stacks.0), child::Table::Shared);
    drop(blocked);
    sys::reap(first_pid.map_err(LaunchError::Clone)?);

    let pid = Pid::from_raw(report.second).filter(|_| report.second > 0);
    if report.errno != 0 {
        if let Some(pid) = pid {
            sys::reap(pid);
        }
        let what = describe(&first_steps, &second_steps, report.step) + &report.said();
        return Err(LaunchError::Step { what, source: Errno::from_raw_os_error(report.errno) });
    }
    let pid = pid.ok_or(LaunchError::Clone(Errno::CHILD))?;
    // The number still belongs to the process, because nobody else could have reaped it before
    // this.
    Ok(Started { pid, pidfd: pidfd_open(pid, PidfdFlags::empty())? })
}

fn describe(first: &[Step], second: &[Step], number: usize) -> String {
    let step =
        number.checked_sub(SECOND).map_or_else(|| first.get(number), |number| second.get(number));
    step.map_or_else(|| format!("do step {number}"), Step::describe)
}
