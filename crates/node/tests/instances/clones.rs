//! Disks that stay, forked as clones: nothing is copied, no chain grows, nobody sees what others
//! write, and a killed node loses no disk.

mod pool;

use crate::machine::{BACKEND, Machine, await_console, await_that, owner, run, world};
use node::{
    CreateError, InstanceName, NewSnapshot, NewVolume, Node, SnapshotName, Spec, VolumeName,
    VolumeSource, Writable,
};
use std::path::{Path, PathBuf};

const DISK_MB: u32 = 320;

fn name(text: &str) -> SnapshotName {
    SnapshotName::new(text).unwrap()
}

fn volume(text: &str) -> VolumeName {
    VolumeName::new(text).unwrap()
}

/// Returns true for the backend `runc`, which keeps no disks.
fn runs_by_another_program() -> bool {
    std::env::var(BACKEND).is_ok_and(|backend| backend == "runc")
}

fn lasting(script: &str) -> String {
    format!("{script}; echo ready; sleep 1000")
}

fn begin(node: &Node, spec: Spec) -> InstanceName {
    node.create(&spec).unwrap();
    await_console(node, &spec.id, "ready");
    spec.id
}

fn take(node: &Node, snapshot: &str, instance: &InstanceName) -> node::Taken {
    let new = NewSnapshot {
        name: name(snapshot),
        owner: owner("somebody"),
        instance: instance.clone(),
        base: None,
    };
    node.snapshot(&new).unwrap()
}

impl Machine {
    fn in_memory(&self, snapshot: Option<&str>, script: &str) -> Spec {
        let spec = self.shell(&format!("run-{}", world().random_text(8)), script);
        Spec { snapshot: snapshot.map(name), ..spec }
    }

    /// Asks for a disk like a server does: `over` is made of the names of image and snapshot.
    fn on_disk(&self, disk: &str, snapshot: Option<&str>, script: &str) -> Spec {
        let over = format!("image{}", snapshot.map(|name| format!("+{name}")).unwrap_or_default());
        let writable = Writable::Kept { volume: volume(disk), mb: DISK_MB, over };
        Spec { writable, ..self.in_memory(snapshot, script) }
    }

    fn pool(&self) -> PathBuf {
        self.settings.folder.join("pool")
    }

    /// Counts the loop devices of this machine's pool. While there is one, something in the pool is
    /// in use.
    fn pools(&self) -> usize {
        let pool = self.pool().canonicalize().unwrap();
        let blocks = std::fs::read_dir("/sys/block").unwrap().map(|block| block.unwrap().path());
        let file = |block: PathBuf| std::fs::read_to_string(block.join("loop/backing_file"));
        let is_pool = |block: PathBuf| file(block).is_ok_and(|it| Path::new(it.trim_end()) == pool);
        blocks.filter(|block| is_pool(block.clone())).count()
    }

    fn about(&self, snapshot: &str) -> String {
        let folder = self.settings.folder.join("snapshots/somebody").join(snapshot);
        assert!(!folder.join("layer").exists(), "no file of it was copied");
        std::fs::read_to_string(folder.join("about")).unwrap()
    }
}

#[test]
fn a_fork_of_a_disk_begins_with_it_and_each_writes_apart() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    assert!(!machine.pool().exists(), "it is made when it is needed first");
    let script = lasting(
        "echo one > /a; mkdir /d; echo two > /d/b; chown 7:8 /d/b; rm /bin/cal; \
         dd if=/dev/urandom of=/big bs=1M count=8; md5sum /big > /sum; ln /a /same",
    );
    let parent = begin(&node, machine.on_disk("parent", None, &script));
    let taken = take(&node, "first", &parent);
    assert!(machine.about("first").contains("image"));
    assert!(taken.size_bytes > 8 << 20 && taken.size_bytes < u64::from(DISK_MB) << 20, "{taken:?}");
    // What the parent writes from now on is not seen by forks.
    let root = format!("/proc/{}/root", node.inspect(&parent).unwrap().pid.unwrap());
    std::fs::write(format!("{root}/a"), "later\n").unwrap();
    let look = "cat /a /same /d/b; stat -c '%u:%g' /d/b; [ -e /bin/cal ] || echo removed; \
                md5sum -c /sum; echo mine > /a; rm /big";
    let wanted = "one\none\ntwo\n7:8\nremoved\n/big: OK\n";
    for fork in ["one", "two"] {
        assert_eq!(run(&node, &machine.on_disk(fork, Some("first"), look)).1, wanted);
    }
    assert_eq!(run(&node, &machine.in_memory(Some("first"), look)).1, wanted);
    // A fork has its disk again, even if its snapshot is gone.
    node.snapshots().remove(&name("first")).unwrap();
    drop(node);
    let node = machine.open();
    let again = machine.on_disk("one", Some("first"), "cat /a; [ -e /big ] || echo gone");
    assert_eq!(run(&node, &again).1, "mine\ngone\n");
    let refused = node.create(&machine.on_disk("three", Some("first"), "true"));
    assert!(matches!(refused, Err(CreateError::Snapshot(_))), "{refused:?}");
    assert_eq!(std::fs::read_to_string(format!("{root}/a")).unwrap(), "later\n");
    node.destroy(&parent).unwrap();
}

#[test]
fn no_chain_of_disks_gets_longer() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    let mut last = begin(&node, machine.on_disk("d0", None, &lasting("echo 0 > /0")));
    for link in 1..=20 {
        let snapshot = format!("s{link}");
        take(&node, &snapshot, &last);
        assert!(
            machine.about(&snapshot).contains("\"parent\":null"),
            "{}",
            machine.about(&snapshot)
        );
        node.destroy(&last).unwrap();
        node.volumes().remove(&volume(&format!("d{}", link - 1))).unwrap();
        let script = lasting(&format!("echo {link} > /{link}; echo {link} > /all"));
        last = begin(&node, machine.on_disk(&format!("d{link}"), Some(&snapshot), &script));
        node.snapshots().remove(&name(&snapshot)).unwrap();
    }
    let root = format!("/proc/{}/root", node.inspect(&last).unwrap().pid.unwrap());
    for link in 0..=20 {
        let text = std::fs::read_to_string(format!("{root}/{link}")).unwrap();
        assert_eq!(text, format!("{link}\n"));
    }
    let overlay = std::fs::read_to_string(format!("{root}/proc/1/mounts")).unwrap();
    let overlay = overlay.lines().find(|line| line.contains(" / overlay ")).unwrap().to_owned();
    assert!(overlay.matches("lowerdir").count() <= 1, "{overlay}");
    node.destroy(&last).unwrap();
}

#[test]
fn disks_and_memory_take_turns_in_a_chain() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    let disk = begin(&node, machine.on_disk("base", None, &lasting("echo base > /a; echo x > /b")));
    take(&node, "disk", &disk);
    let memory = machine.in_memory(Some("disk"), &lasting("echo memory > /b; echo m > /m"));
    let memory = begin(&node, memory);
    take(&node, "memory", &memory);
    let over = machine.on_disk("over", Some("memory"), &lasting("rm /a; echo over > /o"));
    let over = begin(&node, over);
    take(&node, "over", &over);
    assert!(machine.about("over").contains("\"parent\":\"memory\""));
    let look = "[ -e /a ] || echo removed; cat /b /m /o";
    let wanted = "removed\nmemory\nm\nover\n";
    assert_eq!(run(&node, &machine.on_disk("last", Some("over"), look)).1, wanted);
    assert_eq!(run(&node, &machine.in_memory(Some("over"), look)).1, wanted);
    // For an instance that an earlier node started over a disk, a snapshot consists of the
    // differences.
    let adopted = begin(&node, machine.in_memory(Some("over"), &lasting("echo adopted > /m")));
    for name in ["disk", "memory"] {
        node.snapshots().remove(&self::name(name)).unwrap();
    }
    node.destroy(&disk).unwrap();
    node.destroy(&memory).unwrap();
    drop(node);
    let node = machine.open();
    take(&node, "adopted", &adopted);
    let wanted = "removed\nmemory\nadopted\nover\n";
    assert_eq!(run(&node, &machine.in_memory(Some("adopted"), look)).1, wanted);
    assert_eq!(
        run(&node, &machine.on_disk("last", Some("over"), look)).1,
        "removed\nmemory\nm\nover\n"
    );
    // The disk of a fork keeps what it lies over, and nothing else does.
    for id in [over, adopted] {
        node.destroy(&id).unwrap();
    }
    for name in ["over", "adopted"] {
        node.snapshots().remove(&self::name(name)).unwrap();
    }
    for disk in ["base", "over", "last"] {
        let there = |name: &str| machine.settings.folder.join("snapshots/somebody").join(name);
        assert!(there("memory").exists() && there("disk").exists());
        node.volumes().remove(&volume(disk)).unwrap();
    }
    node.snapshots().remove(&name("none")).unwrap();
    drop(node);
    let node = machine.open();
    let folder = machine.settings.folder.join("snapshots/somebody");
    await_that("the snapshots to go", || std::fs::read_dir(&folder).unwrap().count() == 0);
    drop(node);
    await_that("the pool to be free", || machine.pools() == 0);
}

#[test]
fn a_fork_of_a_disk_is_no_twin_whatever_its_etc_is() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let secret = machine.folder.path().join("secret");
    std::fs::write(&secret, "of the machine\n").unwrap();
    let node = machine.open();
    let fork = |snapshot: &str, script: &str| {
        let disk = format!("fork-{}", world().random_text(8));
        let mut spec = machine.on_disk(&disk, Some(snapshot), script);
        spec.hostname = "another".into();
        run(&node, &spec).1
    };
    let script = lasting(
        "mkdir -p /var/lib/dbus /var/lib/systemd; chmod 711 /var/lib; \
         echo 0123456789abcdef0123456789abcdef > /etc/machine-id; chmod 444 /etc/machine-id; \
         cp /etc/machine-id /var/lib/dbus/machine-id; echo seed > /var/lib/systemd/random-seed",
    );
    let parent = begin(&node, machine.on_disk("plain", None, &script));
    take(&node, "plain", &parent);
    let look = "cat /etc/machine-id; cmp /etc/machine-id /var/lib/dbus/machine-id && echo same; \
                stat -c %a /var/lib /etc/machine-id; ls /var/lib/systemd | wc -l; hostname; \
                cat /etc/hostname; grep -c another /etc/hosts; grep -c nameserver /etc/resolv.conf";
    let (one, other) = (fork("plain", look), fork("plain", look));
    let (id, rest) = one.split_once('\n').unwrap();
    assert_eq!(rest, "same\n711\n444\n0\nanother\nanother\n1\n1\n");
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_ne!(id, "0123456789abcdef0123456789abcdef");
    assert_ne!(one, other);
    // Links to the machine, folders in place of files, and links in place of folders.
    let target = secret.display();
    let hostile = [
        format!(
            "rm -f /etc/host*; ln -s {target} /etc/hostname; mkdir -p /etc/hosts/a/b; ln -s {target} /etc/machine-id"
        ),
        format!(
            "mkdir -p /etc; ln -sf {target} /etc/resolv.conf; rm -rf /var; ln -s {} /var",
            machine.folder.path().display()
        ),
    ];
    for (number, script) in hostile.iter().enumerate() {
        let snapshot = format!("hostile-{number}");
        let parent = begin(&node, machine.on_disk(&snapshot, None, &lasting(script)));
        take(&node, &snapshot, &parent);
        let look =
            "cat /etc/hostname; grep -c another /etc/hosts; grep -c nameserver /etc/resolv.conf";
        assert_eq!(fork(&snapshot, look), "another\n1\n1\n", "{script}");
        node.destroy(&parent).unwrap();
    }
    // Without an /etc, and with one that is a link.
    let parent = begin(&node, machine.on_disk("none", None, &lasting("rm -rf /etc")));
    take(&node, "none", &parent);
    assert_eq!(fork("none", "cat /etc/hostname; ls /etc | wc -l"), "another\n3\n");
    let linked = format!("rm -rf /etc; ln -s {} /etc", machine.folder.path().display());
    let parent = begin(&node, machine.on_disk("linked", None, &lasting(&linked)));
    take(&node, "linked", &parent);
    assert_eq!(fork("linked", "readlink /etc | wc -l"), "1\n");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "of the machine\n");
    for file in ["hostname", "hosts", "resolv.conf", "machine-id", "lib"] {
        assert!(!machine.folder.path().join(file).exists(), "{file}");
    }
}

#[test]
fn a_disk_of_a_fork_is_never_smaller_than_what_it_begins_with() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    let parent = begin(&node, machine.on_disk("parent", None, &lasting("echo x > /a")));
    take(&node, "first", &parent);
    let fork = |mb: u32, disk: &str| {
        let over = "image+first".to_owned();
        let writable = Writable::Kept { volume: volume(disk), mb, over };
        Spec { writable, ..machine.on_disk(disk, Some("first"), "cat /a") }
    };
    assert_eq!(run(&node, &fork(100, "small")).1, "x\n");
    assert_eq!(node.volumes().size_mb(&volume("small")), Some(DISK_MB));
    let df = "df -m / | tail -1 | awk '{print ($2 > 500)}'";
    let large = Spec {
        writable: fork(640, "large").writable,
        ..machine.on_disk("large", Some("first"), df)
    };
    assert_eq!(run(&node, &large).1, "1\n");
}

#[test]
fn what_has_no_room_leaves_nothing() {
    if runs_by_another_program() {
        return;
    }
    let mut machine = Machine::new();
    machine.settings.limits.volume_mb = Some(1_000);
    machine.settings.limits.share_percent = 65;
    let node = machine.open();
    let script = lasting("dd if=/dev/urandom of=/big bs=1M count=40");
    let parent = begin(&node, machine.on_disk("parent", None, &script));
    take(&node, "first", &parent);
    let refused = node.create(&machine.on_disk("fork", Some("first"), "true"));
    assert!(matches!(refused, Err(CreateError::Volume(_))), "{refused:?}");
    assert_eq!(node.volumes().list().len(), 1);
    node.snapshots().remove(&name("first")).unwrap();
    await_that("its room to be free", || {
        let fork = machine.on_disk("fork", None, "true");
        node.create(&fork).is_ok_and(|_| {
            node.destroy(&fork.id).unwrap();
            true
        })
    });
    let again =
        NewSnapshot { name: name("again"), owner: owner("somebody"), instance: parent, base: None };
    let refused = node.snapshot(&again);
    assert!(matches!(refused, Err(node::SnapshotError::Refused(_))), "{refused:?}");
    assert_eq!(node.snapshots().list(), []);
}

#[test]
fn a_volume_of_a_template_is_a_clone_of_it() {
    if runs_by_another_program() {
        return;
    }
    let mut machine = Machine::new();
    // Clones count with their full size, whatever is free on the disk.
    machine.settings.limits.volume_mb = Some(10_000);
    let node = machine.open();
    let filling = node.volumes().begin(&owner("somebody"), 640).unwrap();
    std::fs::write(filling.folder().join("big"), vec![7; 64 << 20]).unwrap();
    node.volumes().finish(filling, &volume("template")).unwrap();
    let before = std::os::unix::fs::MetadataExt::blocks(&machine.pool().metadata().unwrap());
    for number in 0..8 {
        let new = NewVolume {
            name: volume(&format!("copy-{number}")),
            owner: owner("somebody"),
            size_mb: 640,
            from: Some(VolumeSource { name: volume("template"), copy: None }),
        };
        node.volumes().make(&new).unwrap();
    }
    let after = std::os::unix::fs::MetadataExt::blocks(&machine.pool().metadata().unwrap());
    assert!((after - before) * 512 < 64 << 20, "eight copies took {} blocks", after - before);
    let script = "stat -c %s /data/big; echo x > /data/big; cat /data/big";
    assert_eq!(run(&node, &machine.with("copy-3", script)).1, "67108864\nx\n");
    assert_eq!(run(&node, &machine.with("copy-4", "stat -c %s /data/big")).1, "67108864\n");
}

#[test]
fn small_disks_are_forked_too() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    let disk = |disk: &str, mb: u32, snapshot: Option<&str>, script: &str| {
        let spec = machine.on_disk(disk, snapshot, script);
        let over = format!("{disk}+{snapshot:?}");
        Spec { writable: Writable::Kept { volume: volume(disk), mb, over }, ..spec }
    };
    let script = "echo one > /a; echo x > /growing; while :; do echo x >> /growing; done & true";
    let parent = begin(&node, disk("parent", 64, None, &lasting(script)));
    take(&node, "small", &parent);
    assert!(machine.about("small").contains("image"));
    let look = "cat /a; [ -s /growing ] && echo grew; df -m / | tail -1 | awk '{print ($2 > 90)}'";
    assert_eq!(run(&node, &disk("same", 64, Some("small"), look)).1, "one\ngrew\n0\n");
    assert_eq!(run(&node, &disk("large", 128, Some("small"), look)).1, "one\ngrew\n1\n");
    // When the instance has ended, nobody has its disk mounted.
    node.stop(&parent, std::time::Duration::ZERO).unwrap();
    take(&node, "ended", &parent);
    assert_eq!(run(&node, &disk("late", 64, Some("ended"), "cat /a")).1, "one\n");
}
