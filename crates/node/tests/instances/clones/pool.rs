//! The pool that disks are in where the machine's own file system cannot clone.

use super::*;
use std::os::fd::AsRawFd;

#[test]
fn the_next_node_goes_on_with_the_pool_that_instances_hold() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    let script = "echo first > /a; echo ready; i=0; while :; do i=$((i+1)); echo $i > /count; done";
    let living = begin(&node, machine.on_disk("living", None, script));
    drop(node);
    for round in 0..3 {
        drop(node_of_round(&machine, round, &living));
        assert_eq!(machine.pools(), 1, "there is never a second device before it");
    }
    let node = machine.open();
    node.destroy(&living).unwrap();
    drop(node);
    await_that("the pool to be free", || machine.pools() == 0);
    // The same with a pool that nobody holds.
    let node = machine.open();
    let kept = machine.on_disk("living", None, "cat /a");
    assert_eq!(run(&node, &kept).1, "first\n");
}

fn node_of_round(machine: &Machine, round: usize, living: &InstanceName) -> Node {
    let node = machine.open();
    let snapshot = format!("round-{round}");
    take(&node, &snapshot, living);
    let look = "cat /a; [ -e /count ] && echo counts";
    let fork = machine.on_disk(&format!("fork-{round}"), Some(&snapshot), look);
    assert_eq!(run(&node, &fork).1, "first\ncounts\n");
    node
}

/// Disks of earlier releases are in the folder, and stay there.
#[test]
fn a_disk_that_is_not_in_the_pool_is_found_and_copied() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    crate::volumes::make(&node, "old", DISK_MB);
    let script = "cd /data; mkdir -p upper/etc work; printf image > over; echo old > upper/a";
    run(&node, &machine.with("old", script));
    let parent = begin(&node, machine.on_disk("old", None, &lasting("echo more > /b")));
    take(&node, "copied", &parent);
    let layer = machine.settings.folder.join("snapshots/somebody/copied/layer");
    assert_eq!(std::fs::read_to_string(layer.join("a")).unwrap(), "old\n");
    let fork = machine.on_disk("new", Some("copied"), "cat /a /b");
    assert_eq!(run(&node, &fork).1, "old\nmore\n");
}

/// Finds the mounted pool that has this disk in it, as a path of this process.
fn mounted(disk: &str) -> PathBuf {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let has_disk = |path: &PathBuf| path.join("volumes/somebody").join(disk).exists();
    open.into_iter().find(has_disk).expect("the pool is mounted")
}

fn pool_mb(disk: &str) -> u64 {
    let size = rustix::fs::statvfs(mounted(disk)).unwrap();
    (size.f_blocks * size.f_frsize) >> 20
}

#[test]
fn the_pool_grows_with_the_room_that_is_set_while_it_is_used() {
    if runs_by_another_program() {
        return;
    }
    let mut machine = Machine::new();
    machine.settings.limits.volume_mb = Some(1_000);
    let node = machine.open();
    let living = begin(&node, machine.on_disk("growing", None, &lasting("echo x > /a")));
    let before = pool_mb("growing");
    assert!((1_500..3_000).contains(&before), "{before}");
    drop(node);
    machine.settings.limits.volume_mb = Some(50_000);
    let node = machine.open();
    let after = pool_mb("growing");
    assert!(after > 50_000, "{after}");
    drop(node);
    // It never shrinks, and does not grow for a small difference.
    machine.settings.limits.volume_mb = Some(1_000);
    let node = machine.open();
    assert_eq!(pool_mb("growing"), after);
    take(&node, "first", &living);
    let fork = machine.on_disk("fork", Some("first"), "cat /a");
    assert_eq!(run(&node, &fork).1, "x\n");
}

/// The node's folder is in the pool of another node here.
#[test]
fn a_disk_of_the_machine_that_clones_needs_no_pool() {
    if runs_by_another_program() {
        return;
    }
    let mut machine = Machine::new();
    let layers = vec![machine.root()];
    let node = machine.open();
    run(&node, &machine.on_disk("native", None, "true"));
    let clones = std::fs::File::open(mounted("native")).unwrap();
    drop(node);
    let usual = machine.settings.folder.clone();
    let folder = PathBuf::from(format!("/proc/self/fd/{}/node", clones.as_raw_fd()));
    machine.settings.folder.clone_from(&folder);
    let on_disk = |disk: &str, snapshot: Option<&str>, script: &str| {
        let layers = layers.clone();
        Spec { layers, ..machine.on_disk(disk, snapshot, script) }
    };
    let node = machine.open();
    let parent = begin(&node, on_disk("parent", None, &lasting("echo one > /a")));
    take(&node, "first", &parent);
    drop(node);
    let node = machine.open();
    assert_eq!(run(&node, &on_disk("fork", Some("first"), "cat /a")).1, "one\n");
    take(&node, "second", &parent);
    assert!(folder.join("images/somebody/second").exists() && !folder.join("pool").exists());
    assert!(folder.join("volumes/somebody/fork").exists());
    for snapshot in ["first", "second"] {
        node.snapshots().remove(&name(snapshot)).unwrap();
        await_that("its image to go", || !folder.join("images/somebody").join(snapshot).exists());
    }
    node.destroy(&parent).unwrap();
    drop(node);
    machine.settings.folder = usual;
}
