//! Drives: many instances have one at the same time, get it and give it back while they run, and
//! cannot use it to reach anything else.

use crate::machine::{BACKEND, Machine, await_console, await_that, owner, run, world};
use node::{DriveError, DriveMount, Extras, InstanceName, Mount, Mounted, Node, Spec, VolumeName};
use std::os::fd::OwnedFd;
use std::process::Command;

/// A script that waits to be used from outside.
const WAITS: &str = "mkdir -p /mnt; echo ready; sleep 600";

fn name(text: &str) -> VolumeName {
    VolumeName::new(text).unwrap()
}

fn runs_by_another_program() -> bool {
    std::env::var(BACKEND).is_ok_and(|backend| backend == "runc")
}

fn at(place: &str) -> DriveMount {
    DriveMount {
        drive: name("drive-one"),
        place: place.into(),
        folder: String::new(),
        read_only: false,
    }
}

fn folder(place: &str, folder: &str, read_only: bool) -> DriveMount {
    DriveMount { folder: folder.into(), read_only, ..at(place) }
}

/// A machine with a drive, and instances that wait.
struct Scene {
    // First, so that it is dropped first.
    node: Node,
    machine: Machine,
}

impl Scene {
    fn new() -> Self {
        let mut machine = Machine::new();
        machine.settings.limits.drive_mb = Some(24);
        let node = machine.open();
        node.make_drive(&name("drive-one"), &owner("somebody")).unwrap();
        Self { machine, node }
    }

    fn starts(&self) -> InstanceName {
        let spec = self.machine.shell(&format!("box-{}", world().random_text(8)), WAITS);
        self.node.create(&spec).unwrap();
        await_console(&self.node, &spec.id, "ready");
        spec.id
    }

    /// Runs a script as root of an instance, which is nobody outside.
    fn does(&self, id: &InstanceName, script: &str) -> String {
        let pid = self.node.inspect(id).unwrap().pid.unwrap().to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid, "-U", "-m", "-S", "0", "-G", "0", "/bin/sh", "-c", script]);
        let done = command.env("PATH", "/bin").output().unwrap();
        String::from_utf8(done.stdout).unwrap() + &String::from_utf8(done.stderr).unwrap()
    }

    fn again(self) -> Self {
        let Self { machine, node } = self;
        drop(node);
        let node = machine.open();
        Self { machine, node }
    }
}

#[test]
fn what_one_writes_the_other_reads_at_once_while_both_run() {
    if runs_by_another_program() {
        return;
    }
    let scene = Scene::new();
    let (one, other) = (scene.starts(), scene.starts());
    scene.node.mount_drive(&one, &at("/mnt/d")).unwrap();
    scene.node.mount_drive(&other, &at("/new/folders/d")).unwrap();
    // Doing the same again changes nothing.
    scene.node.mount_drive(&one, &at("/mnt/d")).unwrap();
    scene.does(&one, "echo from one > /mnt/d/x; chown 7:8 /mnt/d/x");
    assert_eq!(
        scene.does(&other, "cat /new/folders/d/x; stat -c %u:%g /new/folders/d/x"),
        "from one\n7:8\n"
    );
    scene.does(&other, "echo from other >> /new/folders/d/x");
    assert_eq!(
        scene.does(&one, "cat /mnt/d/x; grep -c ' /mnt/d .*nosuid,nodev' /proc/1/mounts"),
        "from one\nfrom other\n1\n"
    );
    assert_eq!(scene.does(&other, "stat -c %u:%g /new /new/folders"), "0:0\n0:0\n");
    // No part of it is mounted on the machine itself.
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains("/new/folders") && !mounts.contains("/mnt/d"), "{mounts}");

    scene.node.unmount_drive(&one, &name("drive-one"), "/mnt/d", &[]).unwrap();
    scene.node.unmount_drive(&one, &name("drive-one"), "/mnt/d", &[]).unwrap();
    assert_eq!(scene.does(&one, "ls -A /mnt/d"), "");
    assert_eq!(scene.does(&other, "cat /new/folders/d/x"), "from one\nfrom other\n");
    for id in [one, other] {
        scene.node.destroy(&id).unwrap();
    }
    let gone = scene.node.mount_drive(&InstanceName::new("none").unwrap(), &at("/d"));
    assert!(matches!(gone, Err(DriveError::Gone)), "{gone:?}");
}

#[test]
fn another_node_finds_the_same_device_and_ends_what_the_first_has_mounted() {
    if runs_by_another_program() {
        return;
    }
    let scene = Scene::new();
    let one = scene.starts();
    scene.node.mount_drive(&one, &at("/mnt/d")).unwrap();
    scene.does(&one, "echo before > /mnt/d/x");
    let scene = scene.again();
    let other = scene.starts();
    scene.node.mount_drive(&other, &at("/mnt/d")).unwrap();
    assert_eq!(scene.does(&other, "cat /mnt/d/x; echo after > /mnt/d/y"), "before\n");
    assert_eq!(scene.does(&one, "cat /mnt/d/y"), "after\n");
    assert_eq!(scene.machine.volumes_in_use(), 1, "one device before one file");
    scene.node.unmount_drive(&one, &name("drive-one"), "/mnt/d", &[]).unwrap();
    assert_eq!(scene.does(&one, "ls -A /mnt/d"), "");
    for id in [one, other] {
        scene.node.destroy(&id).unwrap();
    }
    let Scene { machine, node } = scene;
    node.remove_drive(&name("drive-one")).unwrap();
    await_that("the loop device to be free", || machine.volumes_in_use() == 0);
}

#[test]
fn a_folder_is_all_that_is_seen_of_a_drive_and_no_link_leads_out() {
    if runs_by_another_program() {
        return;
    }
    let scene = Scene::new();
    let (one, other) = (scene.starts(), scene.starts());
    scene.node.mount_drive(&one, &at("/mnt/d")).unwrap();
    scene.does(&one, "mkdir -p /mnt/d/a/b; echo secret > /mnt/d/secret; ln -s .. /mnt/d/a/up; ln -s /mnt /mnt/d/a/out");
    scene.node.mount_drive(&other, &folder("/mnt/a", "/a", false)).unwrap();
    assert_eq!(
        scene.does(
            &other,
            "ls -A /mnt/a; cat /mnt/a/../secret /mnt/a/up/secret 2>&1 | grep -c 'secret.: No such'"
        ),
        "b\nout\nup\n2\n"
    );
    // A folder can be made if the mount is writable.
    scene.node.mount_drive(&other, &folder("/mnt/new", "/a/new", false)).unwrap();
    assert_eq!(scene.does(&one, "ls /mnt/d/a"), "b\nnew\nout\nup\n");
    for bad in ["/a/up", "/a/up/a", "/a/out", "/secret", "/none"] {
        let refused = scene.node.mount_drive(&other, &folder("/mnt/bad", bad, true));
        assert!(matches!(refused, Err(DriveError::Place(_))), "{bad}: {refused:?}");
    }
    scene.node.mount_drive(&other, &folder("/mnt/read", "/a", true)).unwrap();
    let said = scene
        .does(&other, "echo x > /mnt/read/x; rmdir /mnt/read/b; mount -o remount,rw /mnt/read");
    assert_eq!(said.matches("Read-only file system").count(), 2, "{said}");
    assert_eq!(scene.does(&one, "ls /mnt/d/a"), "b\nnew\nout\nup\n");
    let root = scene.node.drive_root(&name("drive-one")).unwrap();
    assert!(rustix::fs::statat(&root, "a/new", rustix::fs::AtFlags::empty()).is_ok());
    drop(root);
    for id in [one, other] {
        scene.node.destroy(&id).unwrap();
    }
}

#[test]
fn links_and_renames_in_an_instance_lead_no_mount_elsewhere() {
    if runs_by_another_program() {
        return;
    }
    let scene = Scene::new();
    let one = scene.starts();
    scene.does(&one, "ln -s /etc /mnt/link; ln -s /proc /p; touch /mnt/file");
    for bad in ["/mnt/link/d", "/mnt/link", "/p/d", "/mnt/file", "/mnt/file/d"] {
        let refused = scene.node.mount_drive(&one, &at(bad));
        assert!(matches!(refused, Err(DriveError::Place(_))), "{bad}: {refused:?}");
    }
    assert!(scene.does(&one, "ls -d /etc/d").contains("No such"), "nothing was made behind it");
    scene.node.mount_drive(&one, &at("/mnt/a/d")).unwrap();
    // The instance's root moves the parent folder out of the way.
    scene.does(&one, "mv /mnt/a /mnt/b; mkdir -p /mnt/a/d");
    let refused = scene.node.unmount_drive(&one, &name("drive-one"), "/mnt/a/d", &[]);
    assert!(
        matches!(&refused, Err(DriveError::Place(why)) if why.contains("/mnt/b/d")),
        "{refused:?}"
    );
    scene.does(&one, "rmdir /mnt/a/d /mnt/a; mv /mnt/b /mnt/a");
    scene.node.unmount_drive(&one, &name("drive-one"), "/mnt/a/d", &[]).unwrap();
    scene.node.destroy(&one).unwrap();
}

#[test]
fn a_drive_is_not_taken_from_who_has_files_of_it_open_and_so_never_half() {
    if runs_by_another_program() {
        return;
    }
    let scene = Scene::new();
    let script = "mkdir -p /mnt; echo ready; until [ -e /mnt/d/go ]; do sleep 0.01; done; \
                  exec 9> /mnt/d/held; echo holds; until [ -e /tmp/end ]; do sleep 0.01; done; \
                  exec 9>&-; echo let go; sleep 600";
    let spec = scene.machine.shell("holder", script);
    scene.node.create(&spec).unwrap();
    await_console(&scene.node, &spec.id, "ready");
    scene.node.mount_drive(&spec.id, &at("/mnt/d")).unwrap();
    scene.does(&spec.id, "touch /mnt/d/go");
    await_console(&scene.node, &spec.id, "holds");
    let refused = scene.node.unmount_drive(&spec.id, &name("drive-one"), "/mnt/d", &[]);
    assert!(matches!(refused, Err(DriveError::InUse)), "{refused:?}");
    assert_eq!(scene.does(&spec.id, "ls /mnt/d"), "go\nheld\n", "it is whole still");
    scene.does(&spec.id, "touch /tmp/end");
    await_console(&scene.node, &spec.id, "let go");
    scene.node.unmount_drive(&spec.id, &name("drive-one"), "/mnt/d", &[]).unwrap();
    scene.node.destroy(&spec.id).unwrap();
}

/// A file system stops for good if it cannot write its journal, because the machine's disk is full.
pub(crate) fn stop(file_system: OwnedFd) {
    const SHUTDOWN: &str = "my $flags = pack('I', 2); ioctl(STDIN, 0x8004587d, $flags) or die $!";
    let mut command = Command::new("perl");
    let done = command.args(["-e", SHUTDOWN]).stdin(file_system).status();
    assert!(done.unwrap().success());
}

#[test]
fn a_drive_that_has_stopped_goes_on_once_it_was_unmounted() {
    if runs_by_another_program() {
        return;
    }
    let scene = Scene::new();
    let one = scene.starts();
    scene.node.mount_drive(&one, &at("/mnt/d")).unwrap();
    assert_eq!(scene.does(&one, "echo kept > /mnt/d/x && sync"), "");
    stop(scene.node.drive_root(&name("drive-one")).unwrap());
    let told = scene.does(&one, "echo more > /mnt/d/y");
    assert!(told.contains("/mnt/d/y"), "{told}");
    scene.node.unmount_drive(&one, &name("drive-one"), "/mnt/d", &[]).unwrap();
    scene.node.mount_drive(&one, &at("/mnt/d")).unwrap();
    let told = scene.does(&one, "echo more > /mnt/d/y; cat /mnt/d/x /mnt/d/y");
    assert_eq!(told, "kept\nmore\n");
    scene.node.destroy(&one).unwrap();
}

#[test]
fn an_instance_begins_with_its_drives_also_without_one_that_is_gone() {
    if runs_by_another_program() {
        return;
    }
    let scene = Scene::new();
    // What an earlier instance with the same disk may have left in the way.
    std::os::unix::fs::symlink("/etc", scene.machine.root().join("link")).unwrap();
    std::fs::write(scene.machine.root().join("file"), "").unwrap();
    let mount =
        |mount: DriveMount| Mount { path: mount.place.clone(), what: Mounted::Drive(mount) };
    let mounts = vec![
        mount(folder("/mnt/d", "/mine", false)),
        mount(folder("/mnt/read", "/none", true)),
        mount(at("/link/d")),
        mount(at("/file/d")),
        mount(DriveMount { drive: name("drive-gone"), ..at("/mnt/gone") }),
    ];
    let extras = Extras { mounts, ..Extras::default() };
    let script = "echo kept > /mnt/d/x; cat /mnt/d/x; ls /mnt; grep -c '/etc/d ' /proc/mounts; \
                  dd if=/dev/zero of=/mnt/d/full bs=1M count=40 2>&1 | grep -o 'No space left'";
    let spec = Spec { extras, ..scene.machine.shell("starts", script) };
    assert_eq!(run(&scene.node, &spec).1, "kept\nd\n0\nNo space left\n");
    let one = scene.starts();
    scene.node.mount_drive(&one, &at("/mnt/d")).unwrap();
    assert_eq!(scene.does(&one, "cat /mnt/d/mine/x"), "kept\n");
    scene.node.destroy(&one).unwrap();
}
