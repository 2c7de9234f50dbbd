//! What goes on when the machine's disk is full, and what starts anew once there is room.

use crate::drives::stop;
use crate::machine::{BACKEND, Machine, PATIENCE, await_console, await_that, owner, world};
use crate::volumes::make;
use node::{Exit, Happened, Node, Owner, Spec, VolumeName, Writable};
use rustix::fd::OwnedFd;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A file system in memory for the node's folder, so that it can be full.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn of(machine: &Machine) -> Self {
        let folder = machine.settings.folder.clone();
        std::fs::create_dir(&folder).unwrap();
        let options = ["-t", "tmpfs", "-o", "size=64m", "none"];
        let mounted = Command::new("mount").args(options).arg(&folder).status();
        assert!(mounted.unwrap().success());
        Self(folder)
    }

    fn fill(&self) {
        let mut filler = std::fs::File::create(self.0.join("filler")).unwrap();
        while filler.write_all(&[0; 4_096]).is_ok() {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn runs_by_another_program() -> bool {
    std::env::var(BACKEND).is_ok_and(|backend| backend == "runc")
}

#[test]
fn an_instance_is_paused_resumed_and_destroyed_on_a_full_disk() {
    let mut machine = Machine::new();
    machine.settings.limits.instances = 1;
    let disk = SmallDisk::of(&machine);
    let node = machine.open();
    let spec = machine.shell("going-on", "while :; do :; done");
    node.create(&spec).unwrap();
    disk.fill();
    for _ in 0..50 {
        node.pause(&spec.id).unwrap();
        node.resume(&spec.id).unwrap();
    }
    let used = node.usage(&spec.id).unwrap().cpu_us;
    await_that("some work", || node.usage(&spec.id).unwrap().cpu_us > used);
    node.destroy(&spec.id).unwrap();
    disk.make_room();
    // Its place is free again.
    let again = machine.shell("again", "true");
    node.create(&again).unwrap();
    node.destroy(&again.id).unwrap();
    let facts = node.facts(1_000, Duration::ZERO);
    let happened = |wanted: &Happened| {
        facts.iter().filter(|fact| fact.instance == spec.id && fact.happened == *wanted).count()
    };
    assert_eq!(happened(&Happened::Paused), 50);
    assert_eq!(happened(&Happened::Resumed), 50);
    assert_eq!(happened(&Happened::Destroyed), 1);
}

#[test]
fn a_volume_can_be_written_to_while_the_disk_of_the_machine_is_full() {
    if runs_by_another_program() {
        return;
    }
    let mut machine = Machine::new();
    machine.settings.limits.volume_mb = Some(50);
    let disk = SmallDisk::of(&machine);
    let node = machine.open();
    make(&node, "small", 24);
    // Goes on once somebody has connected.
    let script = "nc -l -p 80 > /dev/null; set -e; \
                  for i in 1 2 3; do mkdir /data/$i; \
                  dd if=/dev/urandom of=/data/$i/x bs=1M count=4 conv=fsync 2>/dev/null; done; \
                  sync; wc -c /data/3/x; sleep 600";
    let spec = machine.with("small", script);
    node.create(&spec).unwrap();
    disk.fill();
    await_that("a listening port", || node.dial(&spec.id, 80, PATIENCE).is_ok());
    await_console(&node, &spec.id, "4194304 /data/3/x");
    node.destroy(&spec.id).unwrap();
    await_that("the loop devices to be free", || machine.volumes_in_use() == 0);
}

/// Opens the file system of the only disk of an owner, which an instance uses.
fn file_system_of(machine: &Machine, owner: &Owner) -> OwnedFd {
    let place = machine.folder.path().join("mounted");
    std::fs::create_dir(&place).unwrap();
    let is_of_owner = |file: String| file.contains(&format!("/{}/", owner.as_str()));
    let blocks = std::fs::read_dir("/sys/block").unwrap().map(|block| block.unwrap().path());
    let mut disks = blocks.filter(|block| {
        std::fs::read_to_string(block.join("loop/backing_file")).is_ok_and(is_of_owner)
    });
    let device = Path::new("/dev").join(disks.next().unwrap().file_name().unwrap());
    let mount = |program: &str, arguments: &[&Path]| {
        assert!(Command::new(program).args(arguments).status().unwrap().success());
    };
    mount("mount", &["-onouuid".as_ref(), &device, &place]);
    let opened = std::fs::File::open(&place).unwrap().into();
    mount("umount", &["-l".as_ref(), &place]);
    opened
}

fn ended(node: &Node) -> Vec<Exit> {
    let exits =
        node.facts(100, Duration::ZERO).into_iter().filter_map(|fact| match fact.happened {
            Happened::Exited(exit) => Some(exit),
            _ => None,
        });
    exits.collect()
}

#[test]
fn an_instance_whose_disk_has_stopped_is_ended_and_starts_anew() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    let its_owner = owner(&format!("owner-{}", world().random_text(8)));
    let keeps = |id: &str, owner: Owner| {
        let volume = VolumeName::new(id).unwrap();
        let writable = Writable::Kept { volume, mb: 320, over: "image".into() };
        let script = "cat /x; echo kept > /x && sync && echo ready; sleep 600";
        Spec { writable, owner, ..machine.shell(id, script) }
    };
    let (one, other) = (keeps("one", its_owner.clone()), keeps("other", owner("somebody")));
    for spec in [&one, &other] {
        node.create(spec).unwrap();
        await_console(&node, &spec.id, "ready");
    }
    node.pause(&one.id).unwrap();
    node.end_stopped().unwrap();
    assert_eq!(ended(&node), []);
    stop(file_system_of(&machine, &its_owner));
    node.end_stopped().unwrap();
    assert_eq!(ended(&node), [Exit::DiskStopped]);
    node.destroy(&one.id).unwrap();
    node.create(&one).unwrap();
    await_console(&node, &one.id, "kept\nready");
    node.end_stopped().unwrap();
    assert_eq!(ended(&node), [Exit::DiskStopped]);
    node.destroy(&one.id).unwrap();
    node.destroy(&other.id).unwrap();
    await_that("the loop devices to be free", || machine.volumes_in_use() == 0);
}
