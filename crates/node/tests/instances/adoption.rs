//! Instances outlive the node, however it ends.

use crate::machine::{Machine, PATIENCE, await_console, await_that, world};
use node::{Backend, Egress, Exit, Happened, Node, OpenError, Settings, State};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use types::World;

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
    assert!(matches!(
        node.inspect(&ended.id).unwrap().state,
        State::Exited { exit: Exit::Code(9), .. }
    ));
    assert_eq!(node.console(&runs.id).unwrap(), b"started\n");
    node.resume(&sleeps.id).unwrap();
    for spec in [&runs, &sleeps] {
        await_that("an answer", || node.dial(&spec.id, 80, PATIENCE).is_ok());
    }
    // The slots of living instances are not given out again.
    let next = machine.shell("next", "true");
    let address = node.create(&next).unwrap().address;
    assert!(!views[..2].iter().any(|view| view.address == address));
    for id in [&runs.id, &sleeps.id, &ended.id, &next.id] {
        node.destroy(id).unwrap();
    }
}

#[test]
fn a_program_that_ends_under_the_next_node_tells_how() {
    let machine = Machine::new();
    let node = machine.open();
    let spec =
        machine.shell("later", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done");
    node.create(&spec).unwrap();
    await_console(&node, &spec.id, "ready");
    drop(node);
    let node = machine.open();
    assert_eq!(node.stop(&spec.id, PATIENCE).unwrap(), Exit::Code(5));
    node.destroy(&spec.id).unwrap();
}

#[test]
fn an_instance_goes_on_under_a_node_that_starts_others_in_another_way() {
    let mut machine = Machine::new();
    let node = machine.open();
    let spec = machine.shell("older", SERVE);
    node.create(&spec).unwrap();
    await_console(&node, &spec.id, "started");
    drop(node);

    machine.settings.backend = Backend::Direct;
    let node = machine.open();
    node.pause(&spec.id).unwrap();
    node.resume(&spec.id).unwrap();
    await_that("an answer", || node.dial(&spec.id, 80, PATIENCE).is_ok());
    assert_eq!(machine.outcome(&node, "exit 4").0, Exit::Code(4));
    node.destroy(&spec.id).unwrap();
    assert_eq!(std::fs::read_dir(machine.settings.folder.join("bundles")).unwrap().count(), 0);
}

/// What the addresses, user ids and networks of instances follow from, by its name in a server's
/// configuration, with another value.
fn other_settings(settings: &Settings) -> [(&'static str, Settings); 4] {
    let subnet = |text: &str| Settings { subnet: text.parse().unwrap(), ..settings.clone() };
    let first_uid = settings.first_uid - 65_536;
    [
        ("`node.subnet` was 10.199.0.0/20 and is now 10.198.0.0/20", subnet("10.198.0.0/20")),
        ("`node.subnet` was 10.199.0.0/20 and is now 10.199.0.0/16", subnet("10.199.0.0/16")),
        ("`node.first_uid` was 2000000000", Settings { first_uid, ..settings.clone() }),
        (
            "`node.egress` was internet and is now nothing",
            Settings { egress: Egress::Nothing, ..settings.clone() },
        ),
    ]
}

#[test]
fn what_instances_were_made_with_changes_only_when_none_is_alive() {
    let mut machine = Machine::new();
    let node = machine.open();
    let runs = machine.shell("runs", SERVE);
    let sleeps = machine.shell("sleeps", SERVE);
    let ended = machine.shell("ended", "exit 9");
    let views = [&runs, &sleeps, &ended].map(|spec| node.create(spec).unwrap());
    node.wait(&ended.id, PATIENCE).unwrap();
    node.pause(&sleeps.id).unwrap();
    drop(node);
    for (change, other) in other_settings(&machine.settings) {
        let refused = Node::open(other, world()).err().expect(change);
        let text = refused.to_string();
        assert!(matches!(refused, OpenError::Fixed { running: 2, .. }), "{text}");
        assert!(text.starts_with(change), "{text}");
        assert!(text.contains(&format!("(there are 2: {}, {})", runs.id, sleeps.id)), "{text}");
    }

    // Nothing was changed by that.
    let node = machine.open();
    for (spec, view) in [&runs, &sleeps].into_iter().zip(&views) {
        let found = node.inspect(&spec.id).unwrap();
        assert_eq!((found.pid, found.address), (view.pid, view.address));
        node.destroy(&spec.id).unwrap();
    }
    drop(node);
    // One that has ended has nothing of it any more.
    for (_, other) in other_settings(&machine.settings) {
        machine.settings = other;
        let node = machine.open();
        assert!(matches!(node.inspect(&ended.id).unwrap().state, State::Exited { .. }));
        assert_eq!(machine.outcome(&node, "exit 3").0, Exit::Code(3));
    }
}

#[test]
fn instances_without_a_network_do_not_get_one() {
    let mut machine = Machine::new();
    machine.settings.egress = Egress::Nothing;
    let node = machine.open();
    let spec = machine.shell("alone", "sleep 1000");
    node.create(&spec).unwrap();
    drop(node);
    let egress = Egress::internet_only(Vec::new());
    let refused = Node::open(Settings { egress, ..machine.settings.clone() }, world());
    let text = refused.err().expect("it is refused").to_string();
    assert!(text.starts_with("`node.egress` was nothing and is now internet"), "{text}");
    machine.open().destroy(&spec.id).unwrap();
}

/// Earlier releases did not write down what their instances were made with.
#[test]
fn instances_of_an_earlier_release_keep_the_settings_of_the_first_node_that_finds_them() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = machine.shell("older", "sleep 1000");
    node.create(&spec).unwrap();
    drop(node);
    std::fs::remove_file(machine.settings.folder.join("fixed-settings.json")).unwrap();
    drop(machine.open());
    for (change, other) in other_settings(&machine.settings) {
        assert!(matches!(Node::open(other, world()), Err(OpenError::Fixed { .. })), "{change}");
    }
    machine.open().destroy(&spec.id).unwrap();
}

#[test]
fn what_ends_unseen_is_reported_as_of_the_last_sign_of_life() {
    let machine = Machine::new();
    let later_ms = Arc::new(AtomicI64::new(0));
    let clock = {
        let (real, later_ms) = (world(), Arc::clone(&later_ms));
        World::new(
            move || real.now().plus_ms(later_ms.load(Ordering::SeqCst)),
            |bytes| bytes.fill(7),
        )
    };
    let node = Node::open(machine.settings.clone(), clock.clone()).unwrap();
    let spec = machine.shell("unseen", "sleep 100");
    let pid = node.create(&spec).unwrap().pid.unwrap();
    node.give_sign();
    let signed = clock.now();
    drop(node);

    let process = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
    pidfd_send_signal(&process, Signal::KILL).unwrap();
    // If it is a child of this process, nobody else would reap it.
    let _ = waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
    await_that("the process to be gone", || {
        pidfd_send_signal(&process, Signal::KILL) == Err(Errno::SRCH)
    });
    for hours in [1, 2] {
        // The second start finds what the first has recorded, and does not record it again.
        later_ms.store(hours * 3_600_000, Ordering::SeqCst);
        let node = Node::open(machine.settings.clone(), clock.clone()).unwrap();
        node.give_sign();
        let State::Exited { at, exit: Exit::Missed } = node.inspect(&spec.id).unwrap().state else {
            panic!()
        };
        assert!(at <= signed && at.plus_ms(10_000) > signed, "{at} is not about {signed}");
        let facts = node.facts(100, Duration::ZERO);
        let ends: Vec<_> =
            facts.iter().filter(|fact| matches!(fact.happened, Happened::Exited(_))).collect();
        assert_eq!(ends.iter().map(|fact| fact.at).collect::<Vec<_>>(), [at]);
    }
    let node = Node::open(machine.settings.clone(), clock).unwrap();
    node.destroy(&spec.id).unwrap();
}
