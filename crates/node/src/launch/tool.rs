//! Runs an external program (such as `runc`) that starts an instance, with the instance's root
//! mounted where only that program sees it.

use super::error::LaunchError;
use super::plan::{PROGRAM, overlay, pointers};
use super::report::Report;
use super::step::{Pointers, Step, Task};
use super::{CONFIG_FD, LISTENER_FD, child};
use crate::number::fit;
use crate::sys::{self, SignalsBlocked};
use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io;
use rustix::process::Pid;
use std::ffi::{CString, NulError};

/// Where the instance's root is mounted, in the program's own mount namespace. Every Linux machine
/// has this folder, everybody may pass through it, and no such program needs it.
pub(crate) const ROOT_FOLDER: &str = "/sys/bus";

pub(crate) struct Tool<'a> {
    pub(crate) fds: ToolFds,
    /// The first one is the program's name.
    pub(crate) arguments: &'a [String],
}

/// The descriptors that the program inherits. All come from [`super::keep`] or [`super::copy`].
pub(crate) struct ToolFds {
    /// Topmost first.
    pub(crate) layers: Vec<OwnedFd>,
    pub(crate) disk: OwnedFd,
    pub(crate) program: OwnedFd,
    pub(crate) null: OwnedFd,
    pub(crate) output: OwnedFd,
    pub(crate) listener: Option<OwnedFd>,
    pub(crate) config: Option<OwnedFd>,
}

impl ToolFds {
    /// Returns how many descriptors are passed beyond the three standard ones. If only the second
    /// one is wanted, the first is `/dev/null`, because such programs pass on only a range without
    /// gaps.
    pub(crate) fn passed(&self) -> RawFd {
        match (&self.listener, &self.config) {
            (_, Some(_)) => 2,
            (Some(_), None) => 1,
            (None, None) => 0,
        }
    }
}

/// Starts the program as a child of this process, which ends with it.
pub(crate) fn start(tool: &Tool<'_>) -> Result<Pid, LaunchError> {
    let mut report = Report::new();
    let steps = tool.steps()?;
    let mut stack = vec![0_u8; sys::STACK_BYTES];
    let task = Task { steps: &raw const *steps, report: &raw mut report };
    let blocked = SignalsBlocked::new();
    let pid = child::spawn_held(&task, sys::stack_top(&mut stack));
    drop(blocked);
    let pid = pid.map_err(LaunchError::Clone)?;
    if report.errno != 0 {
        sys::reap(pid);
        let what = describe(&steps, report.step);
        return Err(LaunchError::Step { what, source: io::Errno::from_raw_os_error(report.errno) });
    }
    Ok(pid)
}

impl Tool<'_> {
    fn steps(&self) -> Result<Vec<Step>, NulError> {
        let fds = &self.fds;
        let mut steps = vec![Step::EndWithNode, Step::OwnMounts];
        steps.extend(overlay(&fds.layers, &fds.disk, ROOT_FOLDER)?);
        let pass = |fd: &OwnedFd, as_number| Step::Pass { fd: fd.as_raw_fd(), as_number, flags: 0 };
        steps.extend([pass(&fds.null, 0), pass(&fds.output, 1), pass(&fds.output, 2)]);
        let passed = [(&fds.listener, LISTENER_FD), (&fds.config, CONFIG_FD)];
        let count: usize = fit(fds.passed());
        for (fd, number) in passed.into_iter().take(count) {
            steps.push(pass(fd.as_ref().unwrap_or(&fds.null), number));
        }
        steps.push(Step::Pass {
            fd: fds.program.as_raw_fd(),
            as_number: PROGRAM,
            flags: libc::O_CLOEXEC,
        });
        let close = |first: RawFd, last: u32| Step::Close { first: first.unsigned_abs(), last };
        if let Some(unused) = (LISTENER_FD + fds.passed()..PROGRAM).next() {
            steps.push(close(unused, CONFIG_FD.unsigned_abs()));
        }
        steps.push(close(PROGRAM + 1, u32::MAX));
        steps.push(Step::RestoreSignals);
        let environment = Pointers::new(vec![CString::new("PATH=/usr/sbin:/usr/bin:/sbin:/bin")?]);
        steps.push(Step::Execute {
            program: PROGRAM,
            arguments: pointers(self.arguments)?,
            environment,
        });
        Ok(steps)
    }
}

fn describe(steps: &[Step], number: usize) -> String {
    steps.get(number).map_or_else(|| format!("do step {number}"), Step::describe)
}
