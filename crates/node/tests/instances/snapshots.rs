//! Snapshots: what an instance wrote up to one moment, for others to start from.

use crate::machine::{BACKEND, Machine, await_console, await_that, owner, run, world};
use node::{
    CreateError, InstanceName, NewSnapshot, Node, SnapshotError, SnapshotName, Spec, State,
    VolumeName, Writable,
};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

fn name(text: &str) -> SnapshotName {
    SnapshotName::new(text).unwrap()
}

fn wanted(snapshot: &str, instance: &InstanceName) -> NewSnapshot {
    let (name, owner, instance) = (name(snapshot), owner("somebody"), instance.clone());
    NewSnapshot { name, owner, instance, base: None }
}

fn take(node: &Node, snapshot: &str, instance: &InstanceName) {
    node.snapshot(&wanted(snapshot, instance)).unwrap();
}

/// A script that keeps running for as long as the test wants.
fn lasting(script: &str) -> String {
    format!("{script}; echo ready; sleep 1000")
}

impl Machine {
    fn anew(&self, script: &str) -> Spec {
        self.shell(&format!("run-{}", world().random_text(8)), script)
    }

    fn fork(&self, snapshot: &str, script: &str) -> Spec {
        Spec { snapshot: Some(name(snapshot)), ..self.anew(script) }
    }

    /// Starts an instance, and waits until it has written its first files.
    fn begin(&self, node: &Node, spec: Spec) -> InstanceName {
        node.create(&spec).unwrap();
        await_console(node, &spec.id, "ready");
        spec.id
    }

    fn snapshot_folder(&self, snapshot: &str) -> PathBuf {
        self.settings.folder.join("snapshots/somebody").join(snapshot)
    }

    /// Lists the folders of snapshots, complete or not.
    fn snapshot_names(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.settings.folder.join("snapshots/somebody")) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

#[test]
fn a_fork_begins_with_what_was_written_and_sees_nothing_later() {
    let machine = Machine::new();
    let node = machine.open();
    let script = lasting(
        "echo one > /a; mkdir /b; echo two > /b/c; chown 7:8 /b/c; chmod 640 /b/c; rm /bin/cal",
    );
    let parent = machine.begin(&node, machine.anew(&script));
    take(&node, "first", &parent);
    // The process goes on, and what it writes from now on is not in the snapshot.
    let root = format!("/proc/{}/root", node.inspect(&parent).unwrap().pid.unwrap());
    std::fs::write(format!("{root}/a"), "later\n").unwrap();
    let look = "cat /a /b/c; stat -c '%u:%g %a' /b/c; [ -e /bin/cal ] || echo removed; \
                hostname; cat /etc/hostname; echo mine > /a";
    for _ in 0..2 {
        let (_, said) = run(&node, &machine.fork("first", look));
        assert_eq!(said, "one\ntwo\n7:8 640\nremoved\nbox\nbox\n");
    }
    assert!(matches!(node.inspect(&parent).unwrap().state, State::Running { .. }));
    let listed = node.snapshots().list();
    assert_eq!(listed.len(), 1);
    assert!(listed[0].size_bytes > 0 && listed[0].owner == owner("somebody"));
    // Taking it again changes nothing.
    take(&node, "first", &parent);
    assert_eq!(node.snapshots().list(), listed);
}

#[test]
fn all_sorts_of_files_are_what_they_were() {
    let machine = Machine::new();
    let node = machine.open();
    let script = lasting(
        "mkdir /d && cd /d && echo x > one && ln one two && ln -s one link \
         && ln -s /etc/passwd out && mkfifo pipe && truncate -s 8M sparse && echo y >> sparse && chmod 4755 one \
         && chown -h 5:6 link && touch -d '2001-02-03 04:05:06' old && mkdir -m 700 closed \
         && rm -rf /tmp && mkdir /tmp",
    );
    let parent = machine.begin(&node, machine.anew(&script));
    take(&node, "all", &parent);
    let layer = machine.snapshot_folder("all").join("layer");
    let stat = |path: &str| std::fs::symlink_metadata(layer.join(path)).unwrap();
    assert_eq!(stat("d/one").ino(), stat("d/two").ino());
    assert_eq!(stat("d/one").mode() & 0o7777, 0o4755);
    assert_eq!((stat("d/link").uid(), stat("d/link").gid()), (5, 6));
    assert!(stat("d/pipe").file_type().is_fifo());
    assert_eq!(stat("d/old").mtime(), 981_173_106);
    assert!(stat("d/sparse").len() > 8 << 20 && stat("d/sparse").blocks() < 100);
    assert_eq!(std::fs::read_link(layer.join("d/out")).unwrap().to_str(), Some("/etc/passwd"));
    let look = "cd /d; cat two; cat link; stat -c %a closed; [ -p pipe ] && echo pipe; \
                tail -c 2 sparse; ls -A /tmp | wc -l";
    assert_eq!(run(&node, &machine.fork("all", look)).1, "x\nx\n700\npipe\ny\n0\n");
}

#[test]
fn it_is_one_moment_while_processes_write() {
    let machine = Machine::new();
    let node = machine.open();
    // The files are written in this order, so none exists without the one before it.
    let script = "mkdir /log; : > /log/0; echo 0 > /last; echo ready; i=0; \
                  while :; do i=$((i+1)); echo $i > /log/$i; echo $i > /next; mv /next /last; mv /log/$i /log/x$i; rm -f /log/x$((i-50)); done";
    let parent = machine.begin(&node, machine.anew(script));
    for round in 0..5 {
        let snapshot = format!("round-{round}");
        take(&node, &snapshot, &parent);
        let look = "last=$(cat /last); n=$((last)); i=$((n-49)); [ $i -lt 1 ] && i=1; \
                    while [ $i -lt $n ]; do [ \"$(cat /log/x$i)\" = $i ] || echo lost $i; \
                    i=$((i+1)); done; \
                    [ -e /log/$n ] || [ -e /log/x$n ] || echo lost last; echo done";
        assert_eq!(run(&node, &machine.fork(&snapshot, look)).1, "done\n");
    }
}

#[test]
fn snapshots_of_forks_are_a_chain() {
    let machine = Machine::new();
    let node = machine.open();
    let mut last = machine.begin(&node, machine.anew(&lasting("mkdir /d; echo 0 > /d/0")));
    take(&node, "s0", &last);
    for link in 1..5 {
        let script = lasting(&format!("echo {link} > /d/{link}; echo {link} > /d/all"));
        let spec = machine.fork(&format!("s{}", link - 1), &script);
        node.destroy(&last).unwrap();
        last = machine.begin(&node, spec);
        take(&node, &format!("s{link}"), &last);
    }
    node.destroy(&last).unwrap();
    let look = "cd /d; cat 0 1 2 3 4 all";
    assert_eq!(run(&node, &machine.fork("s4", look)).1, "0\n1\n2\n3\n4\n4\n");
    assert_eq!(run(&node, &machine.fork("s2", "cat /d/all; ls /d | wc -l")).1, "2\n4\n");
    assert!(!machine.snapshot_folder("s4").join("layer/d/0").exists(), "each has its own alone");
}

#[test]
fn what_would_make_a_full_chain_longer_lies_over_the_image() {
    let machine = Machine::new();
    let node = machine.open();
    let first = machine.begin(&node, machine.anew(&lasting("echo first > /a; rm /bin/cal")));
    take(&node, "s0", &first);
    node.destroy(&first).unwrap();
    drop(node);
    // The rest of the chain is of snapshots in which nothing was written.
    for link in 1..100 {
        let folder = machine.snapshot_folder(&format!("s{link}"));
        std::fs::create_dir_all(folder.join("layer")).unwrap();
        let about = format!("{{\"sort\":\"layer\",\"parent\":\"s{}\",\"size_bytes\":1}}", link - 1);
        std::fs::write(folder.join("about"), about).unwrap();
    }
    let node = machine.open();
    let last = machine.begin(&node, machine.fork("s99", &lasting("echo last > /b")));
    take(&node, "anew", &last);
    node.destroy(&last).unwrap();
    let about = std::fs::read_to_string(machine.snapshot_folder("anew").join("about")).unwrap();
    assert!(about.contains("\"parent\":null"), "{about}");
    let layer = machine.snapshot_folder("anew").join("layer");
    assert!(layer.join("a").exists() && !layer.join("bin/sh").exists(), "what differs is there");
    // Nothing of the chain is needed for it.
    for link in 0..100 {
        node.snapshots().remove(&name(&format!("s{link}"))).unwrap();
    }
    await_that("the chain to go", || machine.snapshot_names() == ["anew"]);
    let look = "cat /a /b; [ -e /bin/cal ] || echo removed";
    assert_eq!(run(&node, &machine.fork("anew", look)).1, "first\nlast\nremoved\n");
}

#[test]
fn what_stands_on_a_removed_one_keeps_it() {
    let machine = Machine::new();
    let node = machine.open();
    let parent = machine.begin(&node, machine.anew(&lasting("echo kept > /a")));
    take(&node, "under", &parent);
    node.destroy(&parent).unwrap();
    let fork = machine.begin(&node, machine.fork("under", &lasting("true")));
    take(&node, "over", &fork);
    node.snapshots().remove(&name("under")).unwrap();
    assert_eq!(node.snapshots().list().len(), 1);
    let refused = node.create(&machine.fork("under", "true"));
    assert!(
        matches!(refused, Err(CreateError::Snapshot(SnapshotError::Missing(_)))),
        "{refused:?}"
    );
    // The same holds after a restart of the node.
    drop(node);
    let node = machine.open();
    assert_eq!(machine.snapshot_names(), ["over", "under"]);
    let root = format!("/proc/{}/root", node.inspect(&fork).unwrap().pid.unwrap());
    assert_eq!(std::fs::read_to_string(format!("{root}/a")).unwrap(), "kept\n");
    assert_eq!(run(&node, &machine.fork("over", "cat /a")).1, "kept\n");
    node.snapshots().remove(&name("over")).unwrap();
    await_that("the upper one to go", || machine.snapshot_names() == ["under"]);
    node.destroy(&fork).unwrap();
    await_that("the lower one to go", || machine.snapshot_names().is_empty());
}

#[test]
fn what_is_half_made_is_removed() {
    let machine = Machine::new();
    drop(machine.open());
    let above = machine.settings.folder.join("snapshots/somebody");
    for half in [".making-one", ".gone-two", "nothing-about-it"] {
        std::fs::create_dir_all(above.join(half).join("layer/d")).unwrap();
    }
    let fetched = machine.snapshot_folder("whole").join(".fetched");
    std::fs::create_dir_all(fetched.join("layer/d")).unwrap();
    let about = "{\"sort\":\"layer\",\"parent\":null,\"size_bytes\":1}";
    std::fs::write(machine.snapshot_folder("whole").join("about"), about).unwrap();
    let node = machine.open();
    assert!(!fetched.exists());
    await_that("what is half made to go", || machine.snapshot_names() == ["whole"]);
    assert_eq!(node.snapshots().list().len(), 1);
}

#[test]
fn one_that_is_held_when_the_node_is_killed_goes_on() {
    let machine = Machine::new();
    let node = machine.open();
    let id = machine.begin(&node, machine.anew(&lasting("true")));
    let sleeping = machine.begin(&node, machine.anew(&lasting("true")));
    node.pause(&id).unwrap();
    node.pause(&sleeping).unwrap();
    drop(node);
    // What a node leaves if it is killed while it holds an instance.
    let record = machine.settings.folder.join("instances").join(id.as_str());
    let text = std::fs::read_to_string(&record).unwrap();
    let last = text.lines().last().unwrap();
    let held = last.replace("\"is_held\":false", "\"is_held\":true");
    assert_ne!(held, last);
    std::fs::write(&record, held).unwrap();
    let node = machine.open();
    assert!(matches!(node.inspect(&id).unwrap().state, State::Running { .. }));
    assert!(matches!(node.inspect(&sleeping).unwrap().state, State::Paused { .. }));
}

#[test]
fn what_sleeps_sleeps_on() {
    let machine = Machine::new();
    let node = machine.open();
    let id = machine.begin(&node, machine.anew(&lasting("echo asleep > /a")));
    node.pause(&id).unwrap();
    take(&node, "asleep", &id);
    assert!(matches!(node.inspect(&id).unwrap().state, State::Paused { .. }));
    assert_eq!(run(&node, &machine.fork("asleep", "cat /a")).1, "asleep\n");
    node.destroy(&id).unwrap();
    let gone = node.snapshot(&wanted("late", &id));
    assert!(matches!(gone, Err(SnapshotError::Gone(_))), "{gone:?}");
    assert_eq!(machine.snapshot_names(), ["asleep"]);
}

#[test]
fn one_that_has_ended_can_be_taken() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = machine.anew("echo ended > /a");
    node.create(&spec).unwrap();
    node.wait(&spec.id, crate::machine::PATIENCE).unwrap().unwrap();
    take(&node, "ended", &spec.id);
    assert_eq!(run(&node, &machine.fork("ended", "cat /a")).1, "ended\n");
    node.destroy(&spec.id).unwrap();
}

#[test]
fn a_share_that_is_exceeded_leaves_nothing() {
    let mut machine = Machine::new();
    machine.settings.limits.volume_mb = Some(10);
    machine.settings.limits.share_percent = 50;
    let node = machine.open();
    let fill = lasting("dd if=/dev/zero of=/big bs=1M count=8");
    let large = machine.begin(&node, machine.anew(&fill));
    let refused = node.snapshot(&wanted("large", &large));
    assert!(matches!(refused, Err(SnapshotError::Refused(_))), "{refused:?}");
    assert_eq!(machine.snapshot_names(), Vec::<String>::new());
    assert!(matches!(node.inspect(&large).unwrap().state, State::Running { .. }));
    let small = machine.begin(&node, machine.anew(&lasting("echo x > /x")));
    take(&node, "small", &small);
    node.snapshots().remove(&name("small")).unwrap();
    await_that("its room to be free", || machine.snapshot_names().is_empty());
}

#[test]
fn no_link_leads_out_of_the_tree() {
    let machine = Machine::new();
    let secret = machine.folder.path().join("secret");
    std::fs::write(&secret, "of the machine\n").unwrap();
    let node = machine.open();
    // Folders and links to the machine take turns under the same names, and some names are odd.
    let above = machine.folder.path().display().to_string();
    let script = format!(
        "mkdir /t; cd /t; mkdir -- '-rf' '...' 'a\nb'; \
         ( while :; do mkdir x; echo mine > x/secret; mv x y; ln -s {above} x; mv y z; \
         rm -rf x z; done ) 2>/dev/null & echo ready; sleep 1000"
    );
    let parent = machine.begin(&node, machine.anew(&script));
    for round in 0..20 {
        let snapshot = format!("round-{round}");
        take(&node, &snapshot, &parent);
        let layer = machine.snapshot_folder(&snapshot).join("layer");
        for place in ["t/x", "t/y", "t/z"] {
            let Ok(found) = std::fs::symlink_metadata(layer.join(place)) else { continue };
            let inside = std::fs::read_to_string(layer.join(place).join("secret"));
            // It may have been copied before it was written.
            let inside = inside.unwrap_or_default();
            assert!(!found.is_dir() || ["", "mine\n"].contains(&inside.as_str()), "{inside}");
        }
        assert!(layer.join("t/a\nb").is_dir() && layer.join("t/-rf").is_dir());
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "of the machine\n");
}

#[test]
fn a_fork_is_another_machine() {
    let machine = Machine::new();
    let node = machine.open();
    let script = lasting(
        "mkdir -p /var/lib/dbus /var/lib/systemd; chmod 711 /var/lib; chown 3:4 /etc; \
         echo 0123456789abcdef0123456789abcdef > /etc/machine-id; \
         cp /etc/machine-id /var/lib/dbus/machine-id; echo seed > /var/lib/systemd/random-seed",
    );
    let parent = machine.begin(&node, machine.anew(&script));
    take(&node, "twin", &parent);
    let look = "cat /etc/machine-id; cmp /etc/machine-id /var/lib/dbus/machine-id && echo same; \
                stat -c '%a' /var/lib; stat -c '%u:%g' /etc; ls /var/lib/systemd | wc -l";
    let one = run(&node, &machine.fork("twin", look)).1;
    let other = run(&node, &machine.fork("twin", look)).1;
    let (id, rest) = one.split_once('\n').unwrap();
    assert_eq!(rest, "same\n711\n3:4\n0\n");
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_ne!(id, "0123456789abcdef0123456789abcdef");
    assert_ne!(one, other);
    // An instance that has not had its first start yet is left as it is.
    let script = lasting("mkdir -p /etc; : > /etc/machine-id");
    let parent = machine.begin(&node, machine.anew(&script));
    take(&node, "empty", &parent);
    assert_eq!(run(&node, &machine.fork("empty", "cat /etc/machine-id")).1, "");
}

/// Returns true for the backend `runc`, which keeps no disks.
fn runs_by_another_program() -> bool {
    std::env::var(BACKEND).is_ok_and(|backend| backend == "runc")
}

fn kept(spec: Spec, volume: &str, over: &str) -> Spec {
    let volume = VolumeName::new(volume).unwrap();
    Spec { writable: Writable::Kept { volume, mb: 320, over: over.into() }, ..spec }
}

#[test]
fn a_disk_that_stays_is_taken_as_one_in_memory_is() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    let script = lasting(
        "echo one > /a; rm /bin/cal; mkdir -p /etc; echo twin > /etc/machine-id; \
         echo x > /growing; while :; do echo x >> /growing; sleep 0.001; done & true",
    );
    let parent = machine.begin(&node, kept(machine.anew(&script), "parent", "image"));
    take(&node, "disk", &parent);
    // Also by a node that did not start the instance.
    drop(node);
    let node = machine.open();
    take(&node, "again", &parent);
    let look = "cat /a; [ -e /bin/cal ] || echo removed; [ -s /growing ] && echo grew; \
                grep -c twin /etc/machine-id; echo mine > /a";
    for (snapshot, volume) in [("disk", "one"), ("again", "two")] {
        let memory = machine.fork(snapshot, look);
        assert_eq!(run(&node, &memory).1, "one\nremoved\ngrew\n0\n");
        let disk = |script: &str| kept(machine.fork(snapshot, script), volume, "image+snapshot");
        assert_eq!(run(&node, &disk(look)).1, "one\nremoved\ngrew\n0\n");
        // What the fork wrote is there at its next start under the same name.
        assert_eq!(run(&node, &disk("cat /a; grep -c twin /etc/machine-id")).1, "mine\n0\n");
    }
    // The same for a snapshot of the fork.
    let fork = kept(machine.fork("disk", &lasting("echo fork > /b")), "one", "image+snapshot");
    let fork = machine.begin(&node, fork);
    take(&node, "fork", &fork);
    assert_eq!(run(&node, &machine.fork("fork", "cat /a /b")).1, "mine\nfork\n");
    node.destroy(&parent).unwrap();
    node.destroy(&fork).unwrap();
    await_that("the loop devices to be free", || machine.volumes_in_use() == 0);
}

#[test]
fn a_disk_of_the_machine_that_ends_with_its_instance_is_taken_too() {
    let machine = Machine::new();
    let node = machine.open();
    let script =
        lasting("echo on disk > /a; dd if=/dev/urandom of=/big bs=1M count=4; md5sum /big > /sum");
    let spec = Spec { writable: Writable::Disk { mb: 20 }, ..machine.anew(&script) };
    let parent = machine.begin(&node, spec);
    take(&node, "disk", &parent);
    assert_eq!(
        run(&node, &machine.fork("disk", "cat /a; md5sum -c /sum")).1,
        "on disk\n/big: OK\n"
    );
    node.destroy(&parent).unwrap();
    await_that("the loop devices to be free", || machine.loops() == 0);
}

#[test]
fn a_disk_that_stays_keeps_what_it_lies_over() {
    if runs_by_another_program() {
        return;
    }
    let machine = Machine::new();
    let node = machine.open();
    let parent = machine.begin(&node, machine.anew(&lasting("echo below > /a")));
    take(&node, "under", &parent);
    node.destroy(&parent).unwrap();
    let fork =
        |volume: &str, script: &str| kept(machine.fork("under", script), volume, "image+under");
    assert_eq!(run(&node, &fork("root", "cat /a; echo above > /b")).1, "below\n");
    // Nothing is running, but what the fork wrote is useless without what it lies over.
    node.snapshots().remove(&name("under")).unwrap();
    drop(node);
    let node = machine.open();
    assert_eq!(run(&node, &fork("root", "cat /a /b")).1, "below\nabove\n");
    let refused = node.create(&fork("another", "true"));
    assert!(
        matches!(refused, Err(CreateError::Snapshot(SnapshotError::Missing(_)))),
        "{refused:?}"
    );
    node.volumes().remove(&VolumeName::new("root").unwrap()).unwrap();
    drop(node);
    let _node = machine.open();
    await_that("its files to go", || machine.snapshot_names().is_empty());
}

#[test]
fn one_that_an_earlier_node_started_is_taken_by_what_differs() {
    let machine = Machine::new();
    for name in ["same", "replaced", "emptied"] {
        let folder = machine.root().join("opt").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("below"), "below\n").unwrap();
    }
    let node = machine.open();
    let below = machine.begin(&node, machine.anew(&lasting("echo first > /first; echo 1 > /both")));
    take(&node, "first", &below);
    let script = lasting(
        "echo 2 > /both; rm /bin/cal /first; rm -rf /opt/replaced /opt/emptied/below; \
         mkdir /opt/replaced; echo new > /opt/replaced/new; chmod 700 /opt/same; \
         mkdir /own; echo one > /own/a; ln /own/a /own/b; chown 7:8 /own/a; ln -s /own/a /link; \
         mkfifo /own/pipe; touch /bin/busybox; \
         echo x > /growing; while :; do echo x >> /growing; sleep 0.001; done & true",
    );
    let parent = machine.begin(&node, machine.fork("first", &script));
    drop(node);
    let node = machine.open();
    node.pause(&parent).unwrap();
    take(&node, "asleep", &parent);
    node.resume(&parent).unwrap();
    take(&node, "later", &parent);
    assert!(matches!(node.inspect(&parent).unwrap().state, State::Running { .. }));
    let look = "cat /both; [ -e /bin/cal ] || [ -e /first ] || echo removed; ls -A /opt/emptied; \
                ls /opt/replaced /opt/same; stat -c %a /opt/same; cat /link; \
                stat -c '%h %u:%g' /own/b; [ -p /own/pipe ] && [ -s /growing ] && echo all; ls /proc /dev";
    for snapshot in ["asleep", "later"] {
        let (_, said) = run(&node, &machine.fork(snapshot, look));
        let wanted = "2\nremoved\n/opt/replaced:\nnew\n\n/opt/same:\nbelow\n700\none\n2 7:8\nall\n";
        assert_eq!(said.get(..wanted.len()), Some(wanted), "{said}");
        let layer = machine.snapshot_folder(snapshot).join("layer");
        // The snapshot need not contain what the image has.
        assert!(!layer.join("bin/sh").exists() && !layer.join("opt/same/below").exists());
        assert!(!layer.join("proc").exists() && !layer.join("dev").exists());
    }
    assert_eq!(node.snapshots().list().len(), 3);
}
