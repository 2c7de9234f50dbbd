//! Images made to mislead the node while it sets up the root: links in places where it makes
//! folders, mounts and files.

use crate::machine::{Machine, run};
use node::Exit;
use std::os::unix::fs::symlink;
use std::path::Path;

const TARGETS: [&str; 6] =
    ["/proc/self/fd", "/proc/sys", "/dev/pts", "/proc/1/root", "/../../../../../..", "/missing"];

/// Prints a line if it can reach the machine's file system or a kernel setting, wherever the link
/// led.
const SCRIPT: &str = "
    [ -c /dev/null ] && [ -d /proc/1 ] || echo 'no devices or processes'
    [ \"$(ls /proc | grep -c '^[0-9]')\" -lt 9 ] || echo 'processes of others'
    (echo 1 > /proc/sys/kernel/panic) 2>/dev/null && echo 'a setting of the kernel'
    [ -s /proc/kcore ] && head -c1 /proc/kcore
    echo x > /dev/null
    grep -e ext4 -e xfs -e btrfs -e /dev/vd -e /dev/sd -e /dev/nvme /proc/mounts
    exit 0";

/// Checks that the image is either refused or runs like any other, and that nothing is made
/// outside.
#[track_caller]
fn harmless(place: &str) {
    let machine = Machine::new();
    let node = machine.open();
    let outside = machine.folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let here = outside.to_str().unwrap().to_owned();
    for target in TARGETS.iter().map(|target| (*target).to_owned()).chain([here]) {
        let layer = machine.folder.path().join("hostile");
        let _ = std::fs::remove_dir_all(&layer);
        let link = layer.join(place.trim_start_matches('/'));
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&target, &link).unwrap();
        let mut spec = machine.shell("hostile", SCRIPT);
        spec.layers.push(layer);
        match node.create(&spec) {
            Err(node::CreateError::Launch(_)) => {}
            Err(error) => panic!("{place} -> {target}: {error:?}"),
            Ok(_) => {
                node.destroy(&spec.id).unwrap();
                assert_eq!(
                    run(&node, &spec),
                    (Exit::Code(0), String::new()),
                    "{place} -> {target}"
                );
            }
        }
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{place} -> {target}");
    }
    assert_eq!(node.list(), []);
    assert!(!Path::new("/missing").exists());
}

#[test]
fn links_for_folders_that_the_node_mounts() {
    for place in ["/dev", "/proc", "/sys", "/tmp"] {
        harmless(place);
    }
}

#[test]
fn links_for_what_is_mounted_in_them() {
    for place in [
        "/dev/null",
        "/dev/pts",
        "/dev/shm",
        "/dev/console",
        "/proc/kcore",
        "/proc/sys",
        "/dev/mqueue",
    ] {
        harmless(place);
    }
}

#[test]
fn links_for_files_that_the_node_writes() {
    for place in ["/etc", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"] {
        harmless(place);
    }
}

#[test]
fn files_where_there_should_be_folders() {
    let machine = Machine::new();
    let node = machine.open();
    for place in ["dev", "proc"] {
        let layer = machine.folder.path().join(place);
        std::fs::create_dir(&layer).unwrap();
        std::fs::write(layer.join(place), "").unwrap();
        let mut spec = machine.shell("hostile", "true");
        spec.layers.push(layer);
        assert!(matches!(node.create(&spec), Err(node::CreateError::Launch(_))));
    }
    assert_eq!(node.list(), []);
}
