//! Observes every instance that comes and goes, even while no server runs: the kernel reports each
//! control group.
//!
//! Remains of an attempt may still exist when the next one begins: its instance with only the first
//! process, which waits to be removed. Nothing of the task itself may still run in it.

use super::process::Process;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Group without an instance, which keeps its parent group while the server comes and goes.
const KEEPER: &str = "witness.keeps";
/// Prefix of the names of task groups.
const PREFIX: &str = "task-";
const BUFFER_BYTES: usize = 64 << 10;

/// Observes until it is asked to finish.
pub(crate) struct Witness {
    owners: Vec<PathBuf>,
    finish: Arc<AtomicBool>,
    thread: JoinHandle<Instances>,
}

/// The instances that were observed, by task.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    tasks: BTreeMap<String, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Attempts that exist now.
    present: BTreeSet<u32>,
    last: u32,
}

impl Witness {
    /// Starts to observe the instances of these workspaces, which must have none yet.
    pub(crate) fn start(groups: &Path, workspaces: &[String]) -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let owners: Vec<_> =
            workspaces.iter().map(|id| groups.join(format!("owner.{id}"))).collect();
        for owner in &owners {
            fs::create_dir_all(owner.join(KEEPER)).unwrap();
            inotify::add_watch(&inotify, owner, WatchFlags::CREATE | WatchFlags::DELETE).unwrap();
        }
        let finish = Arc::new(AtomicBool::new(false));
        let (asked, groups) = (Arc::clone(&finish), owners.clone());
        let thread = thread::spawn(move || {
            let (mut instances, mut buffer) =
                (Instances::default(), vec![MaybeUninit::uninit(); BUFFER_BYTES]);
            let mut reader = Reader::new(inotify, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => instances.note(&groups, &event),
                    Err(Errno::AGAIN) if asked.load(Ordering::Relaxed) => return instances,
                    Err(Errno::AGAIN) => thread::sleep(LOOK_EVERY),
                    Err(error) => panic!("the kernel does not tell of control groups: {error}"),
                }
            }
        });
        Self { owners, finish, thread }
    }

    pub(crate) fn finish(self) -> Instances {
        self.finish.store(true, Ordering::Relaxed);
        let seen = self.thread.join().expect("no task ran in two instances at a time");
        for owner in &self.owners {
            fs::remove_dir(owner.join(KEEPER)).unwrap();
        }
        seen
    }
}

impl Instances {
    fn note(&mut self, owners: &[PathBuf], event: &inotify::Event<'_>) {
        assert!(
            !event.events().contains(ReadFlags::QUEUE_OVERFLOW),
            "more came and went than the kernel remembers"
        );
        let name =
            event.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let task = name.starts_with(PREFIX).then(|| name.rsplit_once('-')).flatten();
        let Some((task, number)) =
            task.map(|(task, number)| (task.to_owned(), number.parse().unwrap()))
        else {
            return;
        };
        let seen = self.tasks.entry(task.clone()).or_default();
        if event.events().contains(ReadFlags::CREATE) {
            for earlier in &seen.present {
                let mut groups = owners.iter().map(|owner| owner.join(format!("{task}-{earlier}")));
                assert!(
                    !groups.any(|group| works(&group)),
                    "{name} began while {earlier} was at work"
                );
            }
            assert!(seen.last <= number, "an earlier attempt came back: {name}");
            assert!(seen.present.insert(number), "{name} came twice");
            seen.last = number;
        } else if event.events().contains(ReadFlags::DELETE) {
            assert!(seen.present.remove(&number), "{name} went and was not there");
        }
    }

    /// Returns the number of tasks in each execution, sorted. The caller does not know the ids by
    /// which instances are named.
    pub(crate) fn tasks(&self) -> Vec<usize> {
        let mut executions: BTreeMap<&str, usize> = BTreeMap::new();
        for task in self.tasks.keys() {
            *executions
                .entry(task.rsplit_once('-').map_or("", |(execution, _)| execution))
                .or_default() += 1;
        }
        let mut counts: Vec<usize> = executions.into_values().collect();
        counts.sort_unstable();
        counts
    }
}

/// Returns whether anything but the first process is alive in an instance.
fn works(group: &Path) -> bool {
    let Ok(processes) = fs::read_to_string(group.join("cgroup.procs")) else { return false };
    processes
        .lines()
        .filter_map(Process::read)
        .any(|process| !process.is_first && !process.is_dying)
}
