//! An instance may use up what it was given, but nothing of the machine's or its neighbours'.

use crate::machine::{Machine, PATIENCE, await_console, await_that, run};
use crate::program;
use node::{Exit, Happened, Node, Writable};
use std::io::{Read, Write};
use std::time::Duration;

/// What the kernel keeps for an instance also counts as its memory.
const OUT_OF_MEMORY: &str = "ended with 137";

/// Two instances take all they can get, while a neighbour, a newcomer and the machine keep working.
#[track_caller]
fn contained(what: &str, signs: &[&str]) {
    let machine = Machine::new();
    let node = machine.open();
    let mut neighbour = program::spec(&machine, "neighbour", "");
    neighbour.first.arguments =
        ["httpd", "-f", "-p", "80", "-h", "/etc"].map(str::to_owned).to_vec();
    node.create(&neighbour).unwrap();
    let hostile = ["hostile-a", "hostile-b"].map(|id| program::spec(&machine, id, what));
    for spec in &hostile {
        node.create(spec).unwrap();
        let printed = || String::from_utf8(node.console(&spec.id).unwrap()).unwrap();
        // If memory runs out, the kernel may kill the first process.
        let out_of_memory =
            || node.wait(&spec.id, Duration::ZERO).unwrap() == Some(Exit::OutOfMemory);
        await_that("the end of it", || {
            signs.iter().any(|sign| printed().contains(sign)) || out_of_memory()
        });
    }
    let text = String::from_utf8(node.console(&hostile[1].id).unwrap()).unwrap();
    assert!(!text.contains("everything"), "{text}");
    others_go_on(&machine, &node);
    for id in hostile.iter().map(|spec| &spec.id).chain([&neighbour.id]) {
        node.destroy(id).unwrap();
    }
    let lost = node.facts(100, Duration::ZERO).into_iter().find(|fact| {
        fact.instance == neighbour.id
            && matches!(fact.happened, Happened::Exited(exit) if exit != Exit::Signal(9))
    });
    assert_eq!(lost, None);
}

fn others_go_on(machine: &Machine, node: &Node) {
    let neighbour = node::InstanceName::new("neighbour").unwrap();
    await_that("the neighbour", || {
        let mut page = String::new();
        node.dial(&neighbour, 80, PATIENCE).is_ok_and(|mut stream| {
            let asked = stream.write_all(b"GET /hostname HTTP/1.0\r\n\r\n");
            asked.and_then(|()| stream.read_to_string(&mut page)).is_ok() && page.ends_with("box\n")
        })
    });
    let newcomer =
        "sleep 0.01 & wait; echo x > /tmp/file && cat /tmp/file; exec 9</dev/null; exit 6";
    assert_eq!(machine.outcome(node, newcomer), (Exit::Code(6), "x\n".into()));
    // A newcomer and the machine's root still get watches.
    let mut watching = program::spec(machine, "watching", "watches");
    watching.first.arguments.push("x".into());
    node.create(&watching).unwrap();
    await_console(node, &watching.id, "took");
    assert!(!node.console(&watching.id).unwrap().starts_with(b"took 0"));
    node.destroy(&watching.id).unwrap();
    assert!(rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).is_ok());
    assert!(std::process::Command::new("true").status().unwrap().success());
    std::fs::write(machine.folder.path().join("file"), "x").unwrap();
}

#[test]
fn processes() {
    contained("processes", &["took"]);
}

#[test]
fn memory() {
    contained("memory", &[OUT_OF_MEMORY]);
}

#[test]
fn the_disk() {
    contained("disk", &["took 1"]);
}

#[test]
fn inodes() {
    contained("inodes", &["took"]);
}

#[test]
fn open_files() {
    contained("open-files", &["took", OUT_OF_MEMORY]);
}

#[test]
fn watches_of_files() {
    contained("watches", &["took"]);
}

/// Each instance has a limit of its own, and all instances together do not use up the machine's
/// terminals.
#[test]
fn terminals() {
    let mut machine = Machine::new();
    machine.settings.limits.terminals = 5;
    let node = machine.open();
    let greedy = ["a", "b"].map(|id| program::spec(&machine, id, "terminals"));
    for spec in &greedy {
        node.create(spec).unwrap();
        await_console(&node, &spec.id, "took 5\n");
    }
    let another = "exec 7<>/dev/ptmx && echo has one; ls /dev/pts | grep -c 0";
    assert_eq!(machine.outcome(&node, another).1, "has one\n1\n");
    greedy.iter().for_each(|spec| node.destroy(&spec.id).unwrap());
    let all =
        std::fs::read_to_string("/proc/sys/kernel/pty/max").unwrap().trim().parse::<u32>().unwrap();
    assert!(all >= machine.settings.limits.instances * 5, "{all} terminals for all instances");
}

/// The whole machine has only some ten thousands of these, no matter who takes them.
#[test]
fn contexts_of_asynchronous_io() {
    let machine = Machine::new();
    let node = machine.open();
    let in_use = || std::fs::read_to_string("/proc/sys/fs/aio-nr").unwrap();
    let before = in_use();
    let spec = program::spec(&machine, "hostile", "aio");
    node.create(&spec).unwrap();
    await_console(&node, &spec.id, "took 0\n");
    assert_eq!(in_use(), before);
    node.destroy(&spec.id).unwrap();
}

#[test]
fn sockets() {
    contained("open-sockets", &["took", OUT_OF_MEMORY]);
}

#[test]
fn output() {
    contained("output", &["xxx"]);
}

/// A full disk must not end the instance, even one of the largest permitted size.
#[test]
fn a_full_disk_does_not_end_the_instance() {
    let machine = Machine::new();
    let node = machine.open();
    let mut spec = program::spec(&machine, "full", "");
    spec.first.arguments[2] =
        "dd if=/dev/zero of=/big bs=1M; echo left: $(df -m / | wc -l); exit 5".into();
    spec.writable = Writable::Memory { mb: spec.memory_mb / 4 * 3 };
    assert_eq!(run(&node, &spec).0, Exit::Code(5));
}
