//! Nothing of an instance is left when it is gone.

use crate::machine::{Machine, await_that};
use node::{Backend, Exit, Scratch, Writable};
use std::fs::read_dir;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// `make test` uses the small number; for a thorough run set `HOLM_LEAK_ROUNDS=1000`.
fn rounds() -> usize {
    std::env::var("HOLM_LEAK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(100)
}

#[derive(Debug, PartialEq, Eq)]
struct Traces {
    descriptors: usize,
    mounts: usize,
    files: usize,
    children: usize,
    threads: usize,
    groups: usize,
    rules: String,
}

fn traces(machine: &Machine) -> Traces {
    let count = |path: &str| read_dir(path).map(Iterator::count).unwrap_or(0);
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let children = read_dir("/proc/self/task")
        .unwrap()
        .map(|task| {
            text(&format!("{}/children", task.unwrap().path().display())).split_whitespace().count()
        })
        .sum();
    let groups =
        ["", "memory/", "cpu/", "cpuacct/", "pids/", "freezer/"].iter().map(|controller| {
            let folder = format!("/sys/fs/cgroup/{controller}{}", machine.settings.name);
            read_dir(folder).map_or(0, |entries| {
                entries.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
            })
        });
    Traces {
        descriptors: count("/proc/self/fd"),
        mounts: text("/proc/self/mountinfo").lines().count(),
        files: ["instances", "scratch"]
            .map(|name| read_dir(machine.settings.folder.join(name)).unwrap().count())
            .iter()
            .sum(),
        children,
        threads: count("/proc/self/task"),
        groups: groups.sum(),
        rules: String::from_utf8(
            Command::new("/usr/sbin/nft").args(["list", "ruleset"]).output().unwrap().stdout,
        )
        .unwrap(),
    }
}

fn interfaces() -> usize {
    std::fs::read_to_string("/proc/thread-self/net/dev").unwrap().lines().count()
}

/// Returns true once the thread that makes networks has finished the last one, with all its
/// descriptors, and waits.
fn maker_waits() -> bool {
    read_dir("/proc/self/task").unwrap().any(|task| {
        let file = |name: &str| {
            std::fs::read_to_string(task.as_ref().unwrap().path().join(name)).unwrap_or_default()
        };
        file("comm").trim() == "network-pool" && file("wchan").starts_with("futex")
    })
}

/// Counts the networks that are ready, by the user namespaces made with them. Interfaces are no
/// measure, because the kernel keeps those of the last instances for a moment.
fn networks_ready() -> usize {
    let is_users = |link: std::io::Result<PathBuf>| {
        link.is_ok_and(|link| link.to_string_lossy().starts_with("user:["))
    };
    let descriptors = read_dir("/proc/self/fd").unwrap();
    descriptors.filter(|entry| is_users(std::fs::read_link(entry.as_ref().unwrap().path()))).count()
}

#[test]
fn many_instances_leave_no_trace() {
    let machine = Machine::new();
    let node = machine.open();
    for _ in 0..8 {
        machine.outcome(&node, "true");
    }
    let ready = usize::try_from(machine.settings.limits.networks_ready).unwrap();
    // Two lines of heading, loopback, and one interface for each network that is ready.
    let settled = || {
        await_that("the kernel to let go of networks", || {
            networks_ready() == ready && interfaces() == 3 + ready && maker_waits()
        })
    };
    settled();
    let before = traces(&machine);
    for round in 0..rounds() {
        let mut spec = machine.shell(
            &format!("round-{round}"),
            "sleep 100 & echo x > /tmp/file; while :; do sleep 0.01; done",
        );
        if round % 2 == 0 {
            spec.writable = Writable::Disk { mb: 10 };
        }
        if round % 10 == 0 && machine.settings.backend == Backend::Direct {
            spec.scratch = vec![Scratch {
                path: "/data".into(),
                size_mb: 4,
                read_only: false,
                medium: node::Medium::Disk,
            }];
        }
        node.create(&spec).unwrap();
        if round % 3 == 0 {
            node.pause(&spec.id).unwrap();
        }
        node.destroy(&spec.id).unwrap();
        if round % 50 == 0 {
            assert_eq!(machine.outcome(&node, "exit 4").0, Exit::Code(4));
        }
    }
    settled();
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline && !(maker_waits() && traces(&machine) == before) {
        std::thread::sleep(PAUSE);
    }
    assert_eq!(traces(&machine), before);
    await_that("the loop devices to be free", || machine.loops() == 0);
    assert_eq!(node.list(), []);
}
