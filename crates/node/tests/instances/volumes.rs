//! Volumes: they outlive instances and nodes, are limited to their size, grow while they are used,
//! and are never in two places.

use crate::machine::{BACKEND, Machine, await_console, await_that, owner, run, world};
use node::{
    CreateError, Extras, Mount, Mounted, NewVolume, Node, Spec, User, VolumeError, VolumeName,
    VolumeSource, Writable,
};
use std::path::PathBuf;

fn name(text: &str) -> VolumeName {
    VolumeName::new(text).unwrap()
}

fn runs_by_another_program() -> bool {
    std::env::var(BACKEND).is_ok_and(|backend| backend == "runc")
}

pub(crate) fn make(node: &Node, volume: &str, size_mb: u32) {
    let new = NewVolume { name: name(volume), owner: owner("somebody"), size_mb, from: None };
    node.volumes().make(&new).unwrap();
}

impl Machine {
    pub(crate) fn with(&self, volume: &str, script: &str) -> Spec {
        self.mounting(volume, script, false)
    }

    fn mounting(&self, volume: &str, script: &str, read_only: bool) -> Spec {
        let what = Mounted::Volume { volume: name(volume), read_only };
        let mounts = vec![Mount { path: "/data".into(), what }];
        let extras = Extras { mounts, ..Extras::default() };
        Spec { extras, ..self.shell(&format!("run-{}", world().random_text(8)), script) }
    }

    fn volume_file(&self, volume: &str) -> PathBuf {
        self.settings.folder.join("volumes/somebody").join(volume)
    }

    /// Counts the volumes of this machine that are behind loop devices.
    pub(crate) fn volumes_in_use(&self) -> usize {
        let folder = self.settings.folder.join("volumes").canonicalize().unwrap();
        let folder = folder.display().to_string();
        let blocks = std::fs::read_dir("/sys/block").unwrap().map(|block| block.unwrap().path());
        let file = |block: PathBuf| std::fs::read_to_string(block.join("loop/backing_file"));
        blocks.filter(|block| file(block.clone()).is_ok_and(|it| it.starts_with(&folder))).count()
    }
}

#[test]
fn what_is_written_is_there_for_the_next_instance_and_for_the_next_node() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    make(&node, "disk", 320);
    // Each instance has other ids outside, and the same ones inside.
    let script = "echo kept > /data/x && chown 7:8 /data/x && sync && stat -c '%u:%g' /data /data/x; \
                  grep ' /data ' /proc/mounts | grep -c nosuid,nodev";
    assert_eq!(run(&node, &machine.with("disk", script)).1, "0:0\n7:8\n1\n");
    drop(node);
    let node = machine.open();
    let listed = node.volumes().list();
    assert_eq!((listed.len(), listed[0].size_mb), (1, 320));
    let script = "cat /data/x; stat -c '%u:%g' /data/x; echo more >> /data/x; ls -A /data";
    assert_eq!(run(&node, &machine.with("disk", script)).1, "kept\n7:8\nx\n");
    let read = machine.mounting("disk", "cat /data/x; echo no > /data/x || echo refused", true);
    let said = run(&node, &read).1;
    let said: Vec<_> = said.lines().filter(|line| !line.contains(':')).collect();
    assert_eq!(said, ["kept", "more", "refused"]);
    await_that("the loop devices to be free", || machine.volumes_in_use() == 0);
}

#[test]
fn the_file_system_holds_it_to_its_size() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    make(&node, "small", 24);
    let script = "dd if=/dev/zero of=/data/x bs=1M count=40 2>&1 | grep -o 'No space left'; \
                  df -m /data | tail -1 | awk '{print ($2 > 16 && $2 <= 24), ($4 <= 1)}'; \
                  echo still > /tmp/on && cat /tmp/on";
    assert_eq!(run(&node, &machine.with("small", script)).1, "No space left\n1 1\nstill\n");
    // The same with the other file system, if the machine has that.
    make(&node, "large", 320);
    let script = "df -m /data | tail -1 | awk '{print ($2 > 220 && $2 <= 320)}'";
    assert_eq!(run(&node, &machine.with("large", script)).1, "1\n");
}

#[test]
fn it_grows_while_it_is_used() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    make(&node, "disk", 320);
    let script = "echo ready; until [ -e /data/go ]; do sleep 0.01; done; sleep 60";
    let spec = machine.with("disk", script);
    node.create(&spec).unwrap();
    await_console(&node, &spec.id, "ready");
    node.volumes().grow(&name("disk"), 640).unwrap();
    assert_eq!(std::fs::metadata(machine.volume_file("disk")).unwrap().len(), 640 << 20);
    let mut magic = [0; 4];
    let mut file = std::fs::File::open(machine.volume_file("disk")).unwrap();
    std::io::Read::read_exact(&mut file, &mut magic).unwrap();
    let xfs = magic == *b"XFSB";
    if xfs {
        let process = node.inspect(&spec.id).unwrap().pid.unwrap();
        let place = PathBuf::from(format!("/proc/{process}/root/data"));
        let size = rustix::fs::statvfs(&place).unwrap();
        assert!(size.f_blocks * size.f_frsize > 500 << 20, "it has {} blocks", size.f_blocks);
    }
    node.destroy(&spec.id).unwrap();
    // If it could not grow at once, it has grown for the next instance.
    let df = "df -m /data | tail -1 | awk '{print ($2 > 500)}'";
    assert_eq!(run(&node, &machine.with("disk", df)).1, "1\n");
    node.volumes().grow(&name("disk"), 100).unwrap();
    assert_eq!(node.volumes().size_mb(&name("disk")), Some(640), "it never shrinks");
}

#[test]
fn it_is_never_in_two_places() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    make(&node, "disk", 32);
    let one = machine.with("disk", "echo ready; sleep 60");
    node.create(&one).unwrap();
    let refused = node.create(&machine.with("disk", "true"));
    assert!(matches!(refused, Err(CreateError::Volume(VolumeError::InUse(_)))), "{refused:?}");
    // The kernel holds the lock, not the process that took it.
    drop(node);
    let node = machine.open();
    let refused = node.create(&machine.with("disk", "true"));
    assert!(matches!(refused, Err(CreateError::Volume(VolumeError::InUse(_)))), "{refused:?}");
    node.destroy(&one.id).unwrap();
    assert_eq!(run(&node, &machine.with("disk", "echo free")).1, "free\n");
    let refused = node.create(&machine.with("none", "true"));
    assert!(matches!(refused, Err(CreateError::Volume(VolumeError::Missing(_)))), "{refused:?}");
}

#[test]
fn a_share_of_the_room_is_for_each_owner() {
    let mut machine = Machine::new();
    machine.settings.limits.volume_mb = Some(1_000);
    machine.settings.limits.share_percent = 50;
    let node = machine.open();
    make(&node, "disk", 300);
    let new = |volume: &str, who: &str, size_mb| NewVolume {
        name: name(volume),
        owner: owner(who),
        size_mb,
        from: None,
    };
    let volumes = node.volumes();
    let refused = volumes.make(&new("more", "somebody", 250));
    assert!(matches!(refused, Err(VolumeError::Refused(_))), "{refused:?}");
    assert!(matches!(volumes.grow(&name("disk"), 501), Err(VolumeError::Refused(_))));
    volumes.make(&new("theirs", "neighbour", 400)).unwrap();
    volumes.remove(&name("disk")).unwrap();
    volumes.make(&new("more", "somebody", 450)).unwrap();
    assert_eq!(volumes.list().len(), 2);
    volumes.remove(&name("more")).unwrap();
    volumes.remove(&name("more")).unwrap();
}

#[test]
fn a_copy_begins_as_its_source_and_may_be_larger() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    let filling = node.volumes().begin(&owner("somebody"), 320).unwrap();
    std::fs::write(filling.folder().join("hello"), "from the template\n").unwrap();
    node.volumes().finish(filling, &name("template")).unwrap();
    let copy = |volume: &str, size_mb| NewVolume {
        name: name(volume),
        owner: owner("somebody"),
        size_mb,
        from: Some(VolumeSource { name: name("template"), copy: None }),
    };
    let refused = node.volumes().make(&copy("copy", 100));
    assert!(matches!(refused, Err(VolumeError::TooSmall { needs_mb: 320, .. })), "{refused:?}");
    for (volume, size_mb) in [("one", 320), ("two", 640)] {
        node.volumes().make(&copy(volume, size_mb)).unwrap();
        let script = format!(
            "cat /data/hello; echo mine > /data/hello; \
             df -m /data | tail -1 | awk '{{print ($2 > {size_mb} * 0.7)}}'"
        );
        assert_eq!(
            run(&node, &machine.with(volume, &script)).1,
            "from the template\n1\n",
            "{volume}"
        );
    }
    assert_eq!(run(&node, &machine.with("template", "cat /data/hello")).1, "from the template\n");
}

fn kept(machine: &Machine, over: &str, script: &str) -> Spec {
    let writable = Writable::Kept { volume: name("root"), mb: 320, over: over.into() };
    Spec { writable, ..machine.shell(&format!("run-{}", world().random_text(8)), script) }
}

#[test]
fn a_kept_layer_comes_back_over_the_same_image_and_is_refused_over_another() {
    let machine = Machine::new();
    let node = machine.open();
    let script = "echo mine > /root.txt; rm /bin/cal; chown 5:6 /etc; sync; cat /etc/hostname";
    assert_eq!(run(&node, &kept(&machine, "image", script)).1, "box\n");
    drop(node);
    let node = machine.open();
    let script = "cat /root.txt; stat -c '%u:%g' /etc; [ -e /bin/cal ] || echo removed; \
                  cat /etc/hostname; echo more >> /root.txt";
    assert_eq!(run(&node, &kept(&machine, "image", script)).1, "mine\n5:6\nremoved\nbox\n");
    let refused = node.create(&kept(&machine, "other", "true"));
    let lies_over = |error: &CreateError| matches!(error, CreateError::Volume(VolumeError::LiesOver(disk)) if *disk == name("root"));
    assert!(refused.as_ref().is_err_and(lies_over), "{:?}", refused.err());
    let script = "cat /root.txt; [ -e /bin/cal ] && echo there";
    let (_, said) = run(&node, &kept(&machine, "image", script));
    assert_eq!(said.lines().take(2).collect::<Vec<_>>(), ["mine", "more"]);
    assert_eq!(node.volumes().over(&name("root")).unwrap().as_deref(), Some("image"));
    // Only somebody who says so removes the files.
    node.volumes().remove(&name("root")).unwrap();
    let (_, said) = run(&node, &kept(&machine, "other", "[ -e /root.txt ] || echo anew"));
    assert_eq!(said, "anew\n");
}

#[test]
fn programs_of_the_image_that_are_nobody_outside_write_into_what_is_theirs() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    make(&node, "disk", 32);
    run(&node, &machine.with("disk", "mkdir /data/own && chown 1000:1000 /data/own"));
    let script = "echo x > /data/own/x && echo own; echo x > /data/x || echo refused; \
                  mknod /data/own/d c 1 3 || echo none";
    let spec = Spec { user: User { uid: 1000, gid: 1000 }, ..machine.with("disk", script) };
    let (_, text) = run(&node, &spec);
    let said: Vec<_> = text.lines().filter(|line| !line.contains(':')).collect();
    assert_eq!(said, ["own", "refused", "none"], "{text}");
}

#[test]
fn a_removed_volume_gives_its_room_back_when_its_last_user_ends() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    make(&node, "disk", 32);
    let spec = machine.with("disk", "echo ready; sleep 60");
    node.create(&spec).unwrap();
    await_console(&node, &spec.id, "ready");
    node.volumes().remove(&name("disk")).unwrap();
    assert!(!machine.volume_file("disk").exists());
    node.destroy(&spec.id).unwrap();
    await_that("the loop devices to be free", || machine.volumes_in_use() == 0);
    make(&node, "disk", 32);
    assert_eq!(run(&node, &machine.with("disk", "ls -A /data")).1, "");
}
