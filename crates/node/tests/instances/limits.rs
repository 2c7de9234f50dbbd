//! Limits hold, and exceeding them is reported as such.

use crate::machine::{Machine, PATIENCE, await_that, run, world};
use node::{CreateError, Exit, Node, Writable};
use std::time::{Duration, Instant};

#[test]
fn a_first_process_without_memory_is_reported_as_such() {
    let machine = Machine::new();
    let node = machine.open();
    assert_eq!(machine.outcome(&node, "exec tail -c 200m /dev/zero").0, Exit::OutOfMemory);
}

#[test]
fn running_out_of_memory_lists_no_programs_in_the_kernels_log() {
    std::fs::write("/proc/sys/vm/oom_dump_tasks", "1").unwrap();
    let machine = Machine::new();
    let _node = machine.open();
    assert_eq!(std::fs::read_to_string("/proc/sys/vm/oom_dump_tasks").unwrap(), "0\n");
}

#[test]
fn a_child_without_memory_is_counted_and_the_instance_lives() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = machine.shell(
        "hungry",
        "tail -c 200m /dev/zero; echo ended with $?; while :; do sleep 0.01; done",
    );
    node.create(&spec).unwrap();
    crate::machine::await_console(&node, &spec.id, "ended with 137");
    assert_eq!(node.usage(&spec.id).unwrap().oom_kills, 1);
    node.destroy(&spec.id).unwrap();
}

/// On a machine with swap, one instance that allocates without end would fill what all share.
#[test]
fn swap_of_an_instance_and_of_its_owner_is_bounded() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = machine.shell("bounded", "sleep 1000");
    node.create(&spec).unwrap();
    let owner = format!("{}/owner.somebody", machine.settings.name);
    let bound = |group: &str| {
        let files = [
            format!("/sys/fs/cgroup/memory/{group}/memory.memsw.limit_in_bytes"),
            format!("/sys/fs/cgroup/{group}/memory.swap.max"),
        ];
        files.iter().find_map(|file| std::fs::read_to_string(file).ok())
    };
    let instance = bound(&format!("{owner}/bounded"));
    // Where swap is not counted, it cannot be limited.
    if let Some(instance) = instance {
        assert_eq!(instance.trim(), (64_u64 << 20).to_string());
        let owner: u64 = bound(&owner).unwrap().trim().parse().unwrap();
        assert!(owner < 1 << 60, "{owner}");
    }
    node.destroy(&spec.id).unwrap();
}

/// Version 1 of control groups counts it as memory of no group.
#[test]
fn what_sockets_keep_of_an_instance_is_bounded() {
    let machine = Machine::new();
    let node = machine.open();
    let mut spec = machine.shell("unread", "sleep 1000");
    spec.memory_mb = 128;
    node.create(&spec).unwrap();
    let memory = std::path::Path::new("/sys/fs/cgroup/memory").join(&machine.settings.name);
    let bound = |group: &str| {
        let file = memory.join(group).join("memory.kmem.tcp.limit_in_bytes");
        Some(std::fs::read_to_string(file).ok()?.trim().parse::<u64>().unwrap())
    };
    if let Some(instance) = bound("owner.somebody/unread") {
        assert_eq!(instance, 32 << 20);
        for group in ["", "owner.somebody"] {
            assert!(bound(group).unwrap() < 1 << 50, "`{group}`");
        }
    }
    node.destroy(&spec.id).unwrap();
}

#[test]
fn an_instance_killed_by_its_owner_did_not_run_out_of_memory() {
    let machine = Machine::new();
    let node = machine.open();
    let spec =
        machine.shell("killed", "tail -c 200m /dev/zero; echo on; while :; do sleep 0.01; done");
    node.create(&spec).unwrap();
    crate::machine::await_console(&node, &spec.id, "on");
    assert_eq!(node.stop(&spec.id, Duration::ZERO).unwrap(), Exit::Signal(9));
    node.destroy(&spec.id).unwrap();
}

#[test]
fn a_full_disk_is_an_error_and_not_an_end() {
    let machine = Machine::new();
    let node = machine.open();
    let script = "dd if=/dev/zero of=/big bs=1M count=40 2>/dev/null; echo $?; rm /big; echo free > /small && cat /small";
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
    node.destroy(&spec.id).unwrap();
    await_that("the loop device to be free", || machine.loops() == 0);
}

/// It has the size that was asked for, and belongs to the instance.
#[test]
fn a_layer_on_disk_is_held_to_its_size() {
    let machine = Machine::new();
    let node = machine.open();
    let script = "df -m / | tail -1 | awk '{print ($2 > 20 && $2 <= 32)}'; stat -c '%u %g %a' / /etc; \
                  dd if=/dev/zero of=/big bs=1M count=64 2>&1 | grep -o 'No space left'; rm /big; \
                  echo room > /small && cat /small && chown 1000:1000 /small && stat -c %u /small; cat /etc/hostname";
    let mut spec = machine.shell("sized", script);
    spec.writable = Writable::Disk { mb: 32 };
    let (exit, text) = run(&node, &spec);
    assert_eq!(
        (exit, text.as_str()),
        (Exit::Code(0), "1\n0 0 755\n0 0 755\nNo space left\nroom\n1000\nbox\n")
    );
    await_that("the loop device to be free", || machine.loops() == 0);
}

/// As under a server, whose umask makes files for itself only.
#[test]
fn a_layer_on_disk_does_not_depend_on_the_mask_of_the_node() {
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let machine = Machine::new();
    let node = machine.open();
    let mut spec = machine.shell("masked", "echo on > /disk && cat /disk; stat -c %a / /etc");
    spec.writable = Writable::Disk { mb: 8 };
    let (exit, text) = run(&node, &spec);
    rustix::process::umask(before);
    assert_eq!((exit, text.as_str()), (Exit::Code(0), "on\n755\n755\n"));
}

#[test]
fn programs_of_instances_go_before_those_of_the_machine_when_memory_ends() {
    let machine = Machine::new();
    let node = machine.open();
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let (_, text) =
        machine.outcome(&node, "cat /proc/1/oom_score_adj; sh -c 'cat /proc/self/oom_score_adj'");
    assert_eq!(text, "500\n500\n");
    assert_eq!(
        std::fs::read_to_string("/proc/self/oom_score_adj").unwrap(),
        own,
        "the node keeps its own"
    );
}

#[test]
fn the_number_of_files_is_limited() {
    let machine = Machine::new();
    let node = machine.open();
    let script = "i=0; while [ $i -lt 6000 ] && true > /tmp/$i; do i=$((i+1)); done 2>/dev/null; [ $i -lt 6000 ] && echo full";
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
fn processor_time_is_taken_back_while_an_instance_runs() {
    let machine = Machine::new();
    let node = machine.open();
    let mut spec = machine.shell("eager", "while :; do :; done");
    spec.cpu_millicores = 1_000;
    node.create(&spec).unwrap();
    node.limit_cpu(&spec.id, 100).unwrap();
    // What it uses in the period in which the limit was set does not count.
    let used = || node.usage(&spec.id).unwrap().cpu_us;
    let before = used();
    await_that("some work", || used() > before + 100_000);
    let (before, begin) = (used(), Instant::now());
    await_that("100 ms of work", || used() > before + 100_000);
    assert!(begin.elapsed() > Duration::from_millis(700), "{:?}", begin.elapsed());
    node.destroy(&spec.id).unwrap();
}

/// Each of them needs processor time to end, and together they have a hundredth of a processor.
#[test]
fn thousands_of_processes_with_hardly_any_processor_time_end_at_once() {
    let machine = Machine::new();
    let node = machine.open();
    let script = "for i in $(seq 3000); do sleep 1000 & done; echo all; wait";
    let mut spec = machine.shell("bomb", script);
    (spec.memory_mb, spec.pids_max) = (1024, 4000);
    node.create(&spec).unwrap();
    crate::machine::await_console(&node, &spec.id, "all");
    node.limit_cpu(&spec.id, 10).unwrap();
    let begin = Instant::now();
    node.destroy(&spec.id).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn a_subnet_that_is_used_up_is_reported_as_such() {
    let mut machine = Machine::new();
    machine.settings.subnet = "10.199.0.0/30".parse().unwrap();
    // A network that is being made ahead would be taken too.
    machine.settings.limits.networks_ready = 0;
    let node = machine.open();
    let spec = machine.shell("one", "sleep 1000");
    node.create(&spec).unwrap();
    let refused = node.create(&machine.shell("other", "true"));
    assert!(matches!(refused, Err(CreateError::NoNetwork)), "{refused:?}");
    node.destroy(&spec.id).unwrap();
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

#[test]
fn groups_of_a_node_that_cannot_open_are_not_left_behind() {
    let mut machine = Machine::new();
    // More than the kernel accepts.
    let processes = machine.settings.limits.processes.replace(1 << 23);
    let refused = Node::open(machine.settings.clone(), world()).err().unwrap();
    assert!(refused.to_string().contains("control groups"), "{refused}");
    let trees = std::fs::read_dir("/sys/fs/cgroup").unwrap().map(|tree| tree.unwrap().path());
    for tree in trees.chain(["/sys/fs/cgroup".into()]) {
        let left = tree.join(&machine.settings.name);
        assert!(!left.exists(), "{}", left.display());
    }
    machine.settings.limits.processes = processes;
}
