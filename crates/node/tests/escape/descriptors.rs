//! Descriptors of the machine do not get into instances, neither by inheritance nor by name.

use crate::machine::{Machine, PATIENCE, run};
use crate::program;
use node::Exit;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

#[test]
fn only_what_was_passed_is_open() {
    let machine = Machine::new();
    let node = machine.open();
    // Another part of the server may have something like this open, without close-on-exec.
    let folder = File::open("/").unwrap();
    let leaking =
        rustix::io::fcntl_getfd(&folder).unwrap().difference(rustix::io::FdFlags::CLOEXEC);
    rustix::io::fcntl_setfd(&folder, leaking).unwrap();
    let script = "sleep 9 & for process in 1 $!; do ls /proc/$process/fd; readlink /proc/$process/fd/0; done";
    assert_eq!(machine.outcome(&node, script).1, "0\n1\n2\n/dev/null\n".repeat(2));
}

/// The node's own first program is not executed in the instance, so nothing is closed by that.
#[test]
fn a_fork_of_the_starter_has_nothing_of_the_machine_open() {
    let machine = Machine::new();
    let node = machine.open();
    let mut spec = machine.shell("guest", "");
    spec.first.program = machine.settings.first.clone();
    spec.first.listen = Some(8080);
    spec.first.config = Some(b"{}".to_vec());
    node.create(&spec).unwrap();
    // It has closed all that it should once it answers.
    let mut caller = node.dial(&spec.id, 8080, PATIENCE).unwrap();
    caller.write_all(b"HEAD / HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n").unwrap();
    assert!(caller.read_to_end(&mut Vec::new()).unwrap() > 0);
    // Those that still wait to become an instance are in no group of the node.
    let is_in_group = |child: &String| {
        std::fs::read_to_string(format!("/proc/{child}/cgroup"))
            .is_ok_and(|groups| groups.contains(&machine.settings.name))
    };
    let guests: Vec<_> = children().into_iter().filter(is_in_group).collect();
    assert_eq!(guests.len(), 1);
    let open: Vec<_> = guests.iter().map(|guest| open_files(guest)).collect();
    let passed = ["/dev/null", "/console", "socket:", "anon_inode:[event", "pipe:"];
    for file in open.iter().flatten() {
        assert!(passed.iter().any(|start| file.starts_with(start)), "{file} in {open:?}");
    }
}

fn children() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may have ended since it was listed.
    let texts: Vec<_> = tasks
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).ok())
        .collect();
    texts.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect()
}

/// Returns what a process has open, and nothing if it has ended.
fn open_files(process: &str) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    let target =
        |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.ok()?.path()).ok();
    entries.filter_map(target).map(|path| path.to_string_lossy().into_owned()).collect()
}

/// The working directory comes from images and tenants. In CVE-2024-21626 it named a folder that
/// the runtime had open.
#[test]
fn no_working_directory_is_a_folder_of_the_machine() {
    let machine = Machine::new();
    let node = machine.open();
    let folder = File::open("/").unwrap();
    let numbers = (0..64).chain([folder.as_raw_fd()]);
    for (number, up) in numbers.flat_map(|number| ["", "/..", "/../../.."].map(|up| (number, up))) {
        let mut spec = machine.shell("placed", "pwd -P; ls -d proc/1/root");
        spec.workdir = format!("/proc/self/fd/{number}{up}");
        match node.create(&spec) {
            Err(node::CreateError::Launch(_)) => {}
            Err(error) => panic!("{error:?}"),
            Ok(view) => panic!("it runs as {view:?} in {}", spec.workdir),
        }
    }
    assert_eq!(node.list(), []);
}

#[test]
fn a_link_to_a_descriptor_is_no_working_directory_either() {
    let machine = Machine::new();
    let node = machine.open();
    let folder = File::open("/").unwrap();
    std::os::unix::fs::symlink(
        format!("/proc/self/fd/{}", folder.as_raw_fd()),
        machine.root().join("door"),
    )
    .unwrap();
    let mut spec = machine.shell("linked", "pwd");
    for inner in ["/door", "/door/tmp", "/door/new"] {
        spec.workdir = inner.into();
        assert!(matches!(node.create(&spec), Err(node::CreateError::Launch(_))), "{inner}");
    }
}

/// As in CVE-2019-5736, where the runtime's program was overwritten through `/proc/self/exe`.
#[test]
fn the_first_program_cannot_be_changed() {
    let machine = Machine::new();
    let node = machine.open();
    program::tries_in_vain(&machine, &node, "first-program");
    // All instances use the same file in memory.
    assert_eq!(run(&node, &machine.shell("next", "exit 3")).0, Exit::Code(3));
}
