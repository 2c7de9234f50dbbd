//! Limits hold, and what exceeds them is told apart.

use crate::machine::{Machine, PATIENCE, await_that, run};
use node::{Exit, Writable};
use std::time::{Duration, Instant};

#[test]
fn a_first_process_without_memory_is_reported_as_such() {
    let machine = Machine::new();
    let node = machine.open();
    assert_eq!(machine.outcome(&node, "exec tail -c 200m /dev/zero").0, Exit::OutOfMemory);
}

#[test]
fn a_child_without_memory_is_counted_and_the_instance_lives() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = machine.shell("hungry", "tail -c 200m /dev/zero; echo ended with $?; while :; do sleep 0.01; done");
    node.create(&spec).unwrap();
    crate::machine::await_console(&node, &spec.id, "ended with 137");
    assert_eq!(node.usage(&spec.id).unwrap().oom_kills, 1);
    node.destroy(&spec.id).unwrap();
}

#[test]
fn an_instance_killed_by_its_owner_did_not_run_out_of_memory() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = machine.shell("killed", "tail -c 200m /dev/zero; echo on; while :; do sleep 0.01; done");
    node.create(&spec).unwrap();
    crate::machine::await_console(&node, &spec.id, "on");
    assert_eq!(node.stop(&spec.id, Duration::ZERO).unwrap(), Exit::Signal(9));
    node.destroy(&spec.id).unwrap();
}

#[test]
fn a_full_disk_is_an_error_and_not_an_end() {
    let machine = Machine::new();
    let node = machine.open();
    let script =
        "dd if=/dev/zero of=/big bs=1M count=40 2>/dev/null; echo $?; rm /big; echo free > /small && cat /small";
    assert_eq!(machine.outcome(&node, script), (Exit::Code(0), "1\nfree\n".into()));
}

#[test]
fn a_layer_on_disk_is_no_memory_and_goes_with_its_instance() {
    let machine = Machine::new();
    let node = machine.open();
    // More than the memory of the instance.
    let script = "dd if=/dev/zero of=/big bs=1M count=100 2>/dev/null && rm /bin/vi && mv /etc /old && wc -c < /big";
    let mut spec = machine.shell("stored", script);
    spec.writable = Writable::Disk { mb: 200 };
    node.create(&spec).unwrap();
    assert_eq!(node.wait(&spec.id, PATIENCE).unwrap(), Some(Exit::Code(0)));
    assert_eq!(node.console(&spec.id).unwrap(), b"104857600\n");
    let disks = machine.settings.folder.join("disks");
    assert_eq!(std::fs::read_dir(&disks).unwrap().count(), 1);
    node.destroy(&spec.id).unwrap();
    assert_eq!(std::fs::read_dir(&disks).unwrap().count(), 0);
}

#[test]
fn the_number_of_files_is_limited() {
    let machine = Machine::new();
    let node = machine.open();
    let script =
        "i=0; while [ $i -lt 6000 ] && true > /tmp/$i; do i=$((i+1)); done 2>/dev/null; [ $i -lt 6000 ] && echo full";
    let (_, text) = machine.outcome(&node, script);
    assert_eq!(text, "full\n");
}

#[test]
fn the_number_of_processes_is_limited() {
    let machine = Machine::new();
    let node = machine.open();
    let mut spec = machine.shell("many", "for i in $(seq 40); do sleep 60 & done; echo all");
    spec.pids_max = 20;
    let (exit, text) = run(&node, &spec);
    assert_eq!(exit, Exit::Code(2));
    assert!(text.contains("can't fork"), "{text}");
}

#[test]
fn the_processor_is_shared_out() {
    let machine = Machine::new();
    let node = machine.open();
    let mut spec = machine.shell("busy", "while :; do :; done");
    spec.cpu_millicores = 200;
    let begin = Instant::now();
    node.create(&spec).unwrap();
    await_that("300 ms of work", || node.usage(&spec.id).unwrap().cpu_us > 300_000);
    assert!(begin.elapsed() > Duration::from_millis(1_000), "{:?}", begin.elapsed());
    node.destroy(&spec.id).unwrap();
}
