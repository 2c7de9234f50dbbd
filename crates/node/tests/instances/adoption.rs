//! Instances outlive the node, however it ends.

use crate::machine::{Machine, PATIENCE, await_console, await_that, settings, world};
use node::{Exit, Happened, Id, Node, OpenError, State};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

impl Machine {
    /// The machine that a test has described in this folder, seen from another process of the same network.
    fn of_another(folder: &Path) -> Self {
        let name = std::fs::read_to_string(folder.join("name")).unwrap();
        let settings = settings(folder, name);
        Self { folder: tempfile::tempdir().unwrap(), settings }
    }

    fn describe(&self) {
        std::fs::write(self.folder.path().join("name"), &self.settings.name).unwrap();
    }
}

const SERVE: &str = "echo started; echo $$ > /tmp/me; nc -ll -p 80 -e echo here";

#[test]
fn the_next_node_finds_what_runs_what_sleeps_and_what_ended() {
    let machine = Machine::new();
    let node = machine.open();
    let runs = machine.shell("runs", SERVE);
    let sleeps = machine.shell("sleeps", SERVE);
    let ended = machine.shell("ended", "exit 9");
    let views = [&runs, &sleeps, &ended].map(|spec| node.create(spec).unwrap());
    node.wait(&ended.id, PATIENCE).unwrap();
    await_console(&node, &runs.id, "started");
    node.pause(&sleeps.id).unwrap();
    assert!(matches!(Node::open(machine.settings.clone(), world()), Err(OpenError::InUse)));
    drop(node);

    let node = machine.open();
    assert_eq!(node.inspect(&runs.id).unwrap().pid, views[0].pid);
    assert!(matches!(node.inspect(&runs.id).unwrap().state, State::Running { .. }));
    assert!(matches!(node.inspect(&sleeps.id).unwrap().state, State::Paused { .. }));
    assert!(matches!(node.inspect(&ended.id).unwrap().state, State::Exited { exit: Exit::Code(9), .. }));
    assert_eq!(node.console(&runs.id).unwrap(), b"started\n");
    node.resume(&sleeps.id).unwrap();
    for spec in [&runs, &sleeps] {
        await_that("an answer", || node.dial(&spec.id, 80, PATIENCE).is_ok());
    }
    // The numbers of the living are not given out again.
    let next = machine.shell("next", "true");
    let address = node.create(&next).unwrap().address;
    assert!(!views[..2].iter().any(|view| view.address == address));
    for id in [&runs.id, &sleeps.id, &ended.id, &next.id] {
        node.destroy(id).unwrap();
    }
}

/// Not a test of its own: the process that is killed by the one below.
#[test]
#[ignore = "run by another test"]
fn holder() {
    let Ok(folder) = std::env::var("HOLDER_FOLDER") else { return };
    let machine = std::mem::ManuallyDrop::new(Machine::of_another(folder.as_ref()));
    let node = machine.open();
    for name in ["first", "second"] {
        node.create(&machine.shell(name, SERVE)).unwrap();
    }
    node.create(&machine.shell("third", "trap 'exit 5' TERM; while :; do sleep 0.01; done")).unwrap();
    std::fs::write(machine.settings.folder.join("ready"), "").unwrap();
    // Keeps making and removing instances until it is killed in the middle of it.
    loop {
        machine.outcome(&node, "true");
    }
}

#[test]
fn a_killed_node_loses_nothing_and_leaves_nothing_half_made() {
    let machine = Machine::new();
    machine.describe();
    for round in 0..3 {
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "adoption::holder", "--ignored", "--nocapture"])
            .env("HOLDER_FOLDER", machine.folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let ready = machine.settings.folder.join("ready");
        await_that("the holder", || ready.exists());
        std::fs::remove_file(&ready).unwrap();
        let records = machine.settings.folder.join("instances");
        await_that("an instance half made", || std::fs::read_dir(&records).unwrap().count() > 3);
        holder.kill().unwrap();
        holder.wait().unwrap();
        survivors_are_found(&machine, round);
    }
}

fn survivors_are_found(machine: &Machine, round: usize) {
    let node = machine.open();
    let names = ["first", "second", "third"].map(|name| Id::new(name).unwrap());
    for name in &names {
        assert!(matches!(node.inspect(name).unwrap().state, State::Running { .. }), "round {round}: {name}");
    }
    for name in &names[..2] {
        await_that("an answer", || node.dial(name, 80, PATIENCE).is_ok());
        assert_eq!(node.console(name).unwrap(), b"started\n");
    }
    let exit = node.stop(&names[2], PATIENCE).unwrap();
    assert_eq!(exit, if kernel_keeps_exits() { Exit::Code(5) } else { Exit::Unknown });
    let facts = node.facts(100_000, Duration::ZERO);
    for view in node.list() {
        node.destroy(&view.id).unwrap();
    }
    for name in &names {
        let mut of_it = facts.iter().filter(|fact| fact.instance == *name).map(|fact| fact.happened);
        assert!(matches!(of_it.next(), Some(Happened::Started { .. })));
        assert_eq!(of_it.next(), Some(Happened::Resumed));
    }
    let last = node.facts(100_000, Duration::ZERO).last().unwrap().number;
    node.forget(last).unwrap();
}

/// Since 6.15, a process descriptor tells how a process ended that somebody else has reaped.
fn kernel_keeps_exits() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(15))
}
