//! Kills the first process of instances, which ends the whole instance at once.

use super::process::Process;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use testing::machine;

const PAUSE_MS_MAX: u64 = 300;

pub(crate) struct Killer {
    data: PathBuf,
    chances: fastrand::Rng,
    pub(crate) kills: usize,
}

impl Killer {
    pub(crate) fn new(data: &Path, chances: fastrand::Rng) -> Self {
        Self { data: data.to_owned(), chances, kills: 0 }
    }

    pub(crate) fn kill_until(&mut self, over: &AtomicBool) {
        while !over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(self.chances.u64(..PAUSE_MS_MAX)));
            let groups = machine::groups(&self.data).unwrap();
            if let Some(group) = self.chances.choice(groups) {
                self.kills += usize::from(kill_first(&group).is_some());
            }
        }
    }
}

/// Kills the first process of a group; `None` if it is gone.
fn kill_first(group: &Path) -> Option<()> {
    let processes = || fs::read_to_string(group.join("cgroup.procs")).ok();
    let first =
        processes()?.lines().find(|id| Process::read(id).is_some_and(|it| it.is_first))?.to_owned();
    let pid = Pid::from_raw(first.parse().ok()?)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // If it is still in the group now that we hold it, it is not a different process with the same
    // id.
    processes()?.lines().find(|id| **id == first)?;
    pidfd_send_signal(handle, Signal::KILL).ok()
}
