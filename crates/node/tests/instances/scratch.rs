//! Folders of limited size: empty, limited to their size, and gone with their instance.

use crate::machine::{BACKEND, Machine, PATIENCE, await_that, run};
use node::{CreateError, Exit, Medium, Scratch, Spec, User, Writable};
use std::path::PathBuf;

fn scratch(path: &str, size_mb: u32) -> Scratch {
    Scratch { path: path.into(), size_mb, read_only: false, medium: Medium::Disk }
}

fn with(machine: &Machine, script: &str, scratch: Vec<Scratch>) -> Spec {
    Spec { scratch, ..machine.shell("scratched", script) }
}

impl Machine {
    /// Counts the files of this machine that are behind loop devices.
    pub(crate) fn loops(&self) -> usize {
        let folder = self.settings.folder.join("scratch").display().to_string();
        let file = |block: PathBuf| {
            std::fs::read_to_string(block.join("loop/backing_file")).unwrap_or_default()
        };
        let blocks = std::fs::read_dir("/sys/block").unwrap().map(|block| block.unwrap().path());
        blocks.filter(|block| file(block.clone()).starts_with(&folder)).count()
    }
}

fn runs_by_another_program() -> bool {
    std::env::var(BACKEND).is_ok_and(|backend| backend == "runc")
}

#[test]
fn they_are_empty_of_their_size_and_for_everybody_inside() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    // One is larger than the memory of the instance, one is smaller.
    let script = "ls -A /big; ls -A /deep/er; df -m /big | tail -1 | awk '{print ($2 > 150 && $2 <= 200)}'; \
                  dd if=/dev/zero of=/big/x bs=1M count=100 2>/dev/null && wc -c < /big/x; \
                  dd if=/dev/zero of=/deep/er/x bs=1M count=10 2>/dev/null || echo full; echo on > /tmp/still && cat /tmp/still; \
                  grep -E ' (/big|/deep/er) ' /proc/mounts | grep -c nosuid,nodev; stat -c '%u %a' /big";
    let folders = vec![scratch("/big", 200), scratch("/deep/er", 4)];
    let (exit, text) = run(&node, &with(&machine, script, folders));
    assert_eq!((exit, text.as_str()), (Exit::Code(0), "1\n104857600\nfull\non\n2\n0 777\n"));
    await_that("the loop devices to be free", || machine.loops() == 0);
}

#[test]
fn users_of_the_image_may_write_and_nobody_into_one_that_is_to_be_read() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    let script = "echo mine > /own/x && cat /own/x; echo no > /read/x || echo refused; mknod /own/d c 1 3 || echo none";
    let read = Scratch { read_only: true, ..scratch("/read", 1) };
    let spec = Spec {
        user: User { uid: 1000, gid: 1000 },
        ..with(&machine, script, vec![scratch("/own", 1), read])
    };
    let (_, text) = run(&node, &spec);
    let said: Vec<_> = text.lines().filter(|line| !line.contains(':')).collect();
    assert_eq!(said, ["mine", "refused", "none"], "{text}");
}

#[test]
fn they_live_with_the_instance_and_not_with_the_node() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    let script = "echo kept > /data/x; echo ready; trap 'cat /data/x; exit 5' TERM; while :; do sleep 0.01; done";
    let mut spec = with(&machine, script, vec![scratch("/data", 8)]);
    spec.writable = Writable::Disk { mb: 10 };
    node.create(&spec).unwrap();
    crate::machine::await_console(&node, &spec.id, "ready");
    assert_eq!(machine.loops(), 2, "its layer and its folder");
    assert_eq!(
        std::fs::read_dir(machine.settings.folder.join("scratch")).unwrap().count(),
        0,
        "no file has a name"
    );
    drop(node);
    let node = machine.open();
    assert_eq!(machine.loops(), 2, "its layer and its folder");
    assert_eq!(node.stop(&spec.id, PATIENCE).unwrap(), Exit::Code(5));
    assert_eq!(node.console(&spec.id).unwrap(), b"ready\nkept\n");
    node.destroy(&spec.id).unwrap();
    await_that("the loop device to be free", || machine.loops() == 0);
}

/// A path that is a link in the image does not lead to anything of the machine.
#[test]
fn a_link_in_the_image_leads_nowhere_else() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    for (name, target) in
        [("self", "/proc/self/fd/5"), ("out", "../../../../../../etc"), ("processes", "/proc")]
    {
        std::os::unix::fs::symlink(target, machine.root().join(name)).unwrap();
    }
    let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let node = machine.open();
    let script = "grep -o ' /etc/inner ' /proc/mounts";
    assert_eq!(
        run(&node, &with(&machine, script, vec![scratch("/out/inner", 1)])).1,
        " /etc/inner \n"
    );
    for link in ["/self", "/out", "/self/x", "/processes/x"] {
        assert!(node.create(&with(&machine, "true", vec![scratch(link, 1)])).is_err(), "{link}");
    }
    assert_eq!(std::fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
    await_that("the loop devices to be free", || machine.loops() == 0);
}

#[test]
fn another_program_cannot_make_them_and_says_so() {
    if !runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    let refused = node.create(&with(&machine, "true", vec![scratch("/data", 1)]));
    assert!(matches!(refused, Err(CreateError::NoScratch)));
}

#[test]
fn a_folder_in_memory_is_held_to_its_size_too() {
    let machine = Machine::new();
    let node = machine.open();
    let script = "grep ' /var/secrets ' /proc/mounts | grep -c 'tmpfs.*nosuid,nodev,noexec'; \
                  head -c 500000 /dev/zero > /var/secrets/x && echo kept; \
                  head -c 2000000 /dev/zero > /var/secrets/x || echo full; stat -c '%u %a' /var/secrets";
    let folder = Scratch { medium: Medium::Memory, ..scratch("/var/secrets", 1) };
    let (_, text) = run(&node, &with(&machine, script, vec![folder]));
    let said: Vec<_> = text.lines().filter(|line| !line.contains(':')).collect();
    assert_eq!(said, ["1", "kept", "full", "0 755"], "{text}");
}
