//! The life of an instance, from its start to its last trace.

use crate::machine::{Machine, PATIENCE, await_console, await_that, run, world};
use node::{
    Backend, CreateError, Error, Exit, Happened, InstanceName, Spec, SpecError, State, User,
    VolumeName, Writable,
};
use std::io::{Read, Write};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn an_instance_runs_what_it_was_given() {
    let machine = Machine::new();
    let node = machine.open();
    let (exit, text) =
        machine.outcome(&node, "echo $GREETING from $(hostname) as $(id -u); exit 7");
    assert_eq!((exit, text.as_str()), (Exit::Code(7), "hello from box as 0\n"));
}

#[test]
fn the_first_process_gets_its_folder_its_user_its_socket_and_its_configuration() {
    let machine = Machine::new();
    let node = machine.open();
    let mut spec = machine
        .shell("given", "pwd; id -u; id -g; readlink /proc/self/fd/3 | cut -d: -f1; cat <&4");
    spec.workdir = "/srv/work".into();
    spec.user = User { uid: 1000, gid: 1001 };
    spec.first.listen = Some(8080);
    spec.first.config = Some(b"{\"secret\":1}".to_vec());
    let (exit, text) = run(&node, &spec);
    assert_eq!(
        (exit, text.as_str()),
        (Exit::Code(0), "/srv/work\n1000\n1001\nsocket\n{\"secret\":1}")
    );
}

#[test]
fn a_start_that_runc_loses_by_chance_is_tried_once_more() {
    let mut machine = Machine::new();
    if machine.settings.backend == Backend::Direct {
        return;
    }
    machine.settings.backend =
        Backend::Runc { program: env!("CARGO_BIN_EXE_reluctant-runc").into() };
    let node = machine.open();
    assert_eq!(machine.outcome(&node, "exit 5").0, Exit::Code(5));
    assert!(machine.settings.folder.join("runc-has-failed").exists());
}

/// Returns the processes that wait to become instances. They are root in user namespaces of their
/// own, so not on the machine.
fn waiting() -> Vec<rustix::process::Pid> {
    use std::os::unix::fs::MetadataExt;
    let own = format!("PPid:\t{}\n", std::process::id());
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
    processes
        .filter(|entry| entry.metadata().is_ok_and(|file| file.uid() >= 2_000_000_000))
        .filter(|entry| {
            // It may have ended since it was listed.
            let status = std::fs::read_to_string(entry.path().join("status"));
            status.is_ok_and(|status| status.contains(&own))
        })
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(rustix::process::Pid::from_raw)
        .collect()
}

/// Returns true also for a process that nobody has waited for yet.
fn has_ended(process: rustix::process::Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    status.map_or(true, |status| status.contains("State:\tZ"))
}

#[test]
fn instances_start_although_the_processes_that_waited_for_them_were_killed() {
    let machine = Machine::new();
    if machine.settings.backend != Backend::Direct {
        return;
    }
    let node = machine.open();
    crate::machine::await_that("waiting processes", || waiting().len() >= 4);
    let killed = waiting();
    for process in &killed {
        // A helper may have ended since it was listed.
        let _ = rustix::process::kill_process(*process, rustix::process::Signal::KILL);
    }
    // The kernel only marks them at first, and until then they seem alive.
    crate::machine::await_that("their end", || killed.iter().all(|process| has_ended(*process)));
    for _ in 0..6 {
        assert_eq!(machine.outcome(&node, "exit 5").0, Exit::Code(5));
    }
}

#[test]
fn a_paused_instance_stands_still_takes_connections_and_goes_on() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = machine.shell("still", "nc -ll -p 80 -e cat & while :; do :; done");
    node.create(&spec).unwrap();
    let dial = || node.dial(&spec.id, 80, PATIENCE);
    crate::machine::await_that("a listening port", || dial().is_ok());

    node.pause(&spec.id).unwrap();
    assert!(matches!(node.inspect(&spec.id).unwrap().state, State::Paused { .. }));
    let used = node.usage(&spec.id).unwrap().cpu_us;
    let mut waiting = dial().unwrap();
    waiting.write_all(b"ping").unwrap();
    assert_eq!(node.usage(&spec.id).unwrap().cpu_us, used, "a paused instance uses no processor");

    node.resume(&spec.id).unwrap();
    let mut answer = [0; 4];
    waiting.set_read_timeout(Some(PATIENCE)).unwrap();
    waiting.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ping");
    node.destroy(&spec.id).unwrap();
}

#[test]
fn an_instance_that_stayed_frozen_is_thawed_by_asking_again() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = machine.shell("frozen", "while :; do :; done");
    node.create(&spec).unwrap();
    let group = format!("{}/owner.somebody/frozen", machine.settings.name);
    let older = format!("/sys/fs/cgroup/freezer/{group}/freezer.state");
    let frozen = std::fs::write(older, "FROZEN");
    frozen
        .or_else(|_| std::fs::write(format!("/sys/fs/cgroup/{group}/cgroup.freeze"), "1"))
        .unwrap();
    node.resume(&spec.id).unwrap();
    let used = node.usage(&spec.id).unwrap().cpu_us;
    await_that("some work", || node.usage(&spec.id).unwrap().cpu_us > used);
    node.destroy(&spec.id).unwrap();
}

#[test]
fn pausing_wins_against_a_program_that_starts_processes_without_end() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = machine.shell("busy", "nc -ll -p 80 -e cat & while :; do true | true; done");
    node.create(&spec).unwrap();
    for _ in 0..100 {
        node.pause(&spec.id).unwrap();
        // What ends at this moment is still on its way out, and version 2 of control groups counts
        // that.
        let used = || node.usage(&spec.id).unwrap().cpu_us;
        await_that("nothing to be used any more", || used() == used());
        node.resume(&spec.id).unwrap();
    }
    node.destroy(&spec.id).unwrap();
}

#[test]
fn stopping_waits_for_a_program_that_cleans_up() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = machine
        .shell("clean", "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.01; done");
    node.create(&spec).unwrap();
    await_console(&node, &spec.id, "ready");
    assert_eq!(node.stop(&spec.id, PATIENCE).unwrap(), Exit::Code(3));
    assert_eq!(node.console(&spec.id).unwrap(), b"ready\nbye\n");
    node.destroy(&spec.id).unwrap();
}

#[test]
fn stopping_ends_a_program_that_does_not_listen_even_when_paused() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = machine.shell("deaf", "trap '' TERM; echo ready; while :; do sleep 0.01; done");
    node.create(&spec).unwrap();
    await_console(&node, &spec.id, "ready");
    node.pause(&spec.id).unwrap();
    assert_eq!(node.stop(&spec.id, Duration::from_millis(20)).unwrap(), Exit::Signal(9));
    assert_eq!(node.stop(&spec.id, PATIENCE).unwrap(), Exit::Signal(9), "asking again is harmless");
    assert!(node.pause(&spec.id).is_err());
    node.destroy(&spec.id).unwrap();
    assert!(matches!(node.inspect(&spec.id), Err(Error::Missing(_))));
}

#[test]
fn facts_tell_the_life_of_an_instance_in_order() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = machine.shell("told", "while :; do sleep 0.01; done");
    node.create(&spec).unwrap();
    node.pause(&spec.id).unwrap();
    node.pause(&spec.id).unwrap();
    node.resume(&spec.id).unwrap();
    node.destroy(&spec.id).unwrap();
    let facts = node.facts(100, Duration::ZERO);
    let happened: Vec<_> = facts.iter().map(|fact| fact.happened).collect();
    let expected = [
        Happened::Started { memory_mb: 64 },
        Happened::Paused,
        Happened::Resumed,
        Happened::Exited(Exit::Signal(9)),
        Happened::Destroyed,
    ];
    assert_eq!(happened, expected);
    node.forget(facts[4].number).unwrap();
    assert_eq!(node.facts(100, Duration::ZERO), []);
}

#[test]
fn a_name_belongs_to_one_instance_and_a_limit_holds() {
    let mut machine = Machine::new();
    machine.settings.limits.instances = 1;
    let node = machine.open();
    let spec = machine.shell("only", "while :; do sleep 0.01; done");
    node.create(&spec).unwrap();
    assert!(matches!(node.create(&spec), Err(CreateError::Exists(_))));
    assert!(matches!(node.create(&machine.shell("other", "true")), Err(CreateError::Refused(_))));
    node.destroy(&spec.id).unwrap();
}

#[test]
fn what_cannot_be_started_leaves_nothing() {
    let machine = Machine::new();
    let node = machine.open();
    let mut spec = machine.shell("bad", "true");
    spec.layers = vec![machine.folder.path().join("missing")];
    assert!(matches!(node.create(&spec), Err(CreateError::Machine { .. })));

    let not_a_program = node::Program::new(b"#!no\n").unwrap();
    spec = machine.shell("bad", "true");
    spec.first.program = not_a_program;
    match machine.settings.backend {
        Backend::Direct => assert!(matches!(node.create(&spec), Err(CreateError::Launch(_)))),
        // With `runc` a program that cannot be executed shows only when the instance goes on, which
        // then ends.
        Backend::Runc { .. } => assert_ne!(run(&node, &spec).0, Exit::Code(0)),
    }
    spec = machine.shell("bad", "true");
    spec.writable = Writable::Memory { mb: spec.memory_mb };
    assert!(matches!(node.create(&spec), Err(CreateError::Spec(SpecError::Writable(_)))));
    assert_eq!(node.list(), []);
    assert_eq!(machine.outcome(&node, "exit 0").0, Exit::Code(0));
}

#[test]
fn layers_lie_on_each_other_and_stay_as_they_are() {
    let machine = Machine::new();
    let node = machine.open();
    let upper = machine.folder.path().join("upper");
    std::fs::create_dir(&upper).unwrap();
    std::fs::write(upper.join("note"), "from above\n").unwrap();
    std::fs::write(machine.root().join("note"), "from below\n").unwrap();
    let script =
        "cat /note; stat -c %u /note; echo changed > /note; rm /bin/vi; cat /note /etc/resolv.conf";
    let mut spec = machine.shell("layered", script);
    spec.layers.push(upper.clone());
    let (exit, text) = run(&node, &spec);
    assert_eq!(
        (exit, text.as_str()),
        (Exit::Code(0), "from above\n0\nchanged\nnameserver 192.0.2.53\n")
    );
    assert_eq!(std::fs::read_to_string(upper.join("note")).unwrap(), "from above\n");
    assert!(machine.root().join("bin/vi").is_symlink());
}

#[test]
fn four_threads_create_at_once() {
    let machine = Machine::new();
    let node = machine.open();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (node, machine) = (&node, &machine);
                scope.spawn(move || {
                    for round in 0..8 {
                        let word = format!("{thread}-{round}-{}", world().random_text(4));
                        let (exit, text) =
                            machine.outcome(node, &format!("echo {word}; exit {round}"));
                        assert_eq!((exit, text), (Exit::Code(round), format!("{word}\n")));
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(node.list(), []);
}

#[test]
fn an_unknown_instance_is_missing() {
    let machine = Machine::new();
    let node = machine.open();
    let id = InstanceName::new("nobody").unwrap();
    assert!(matches!(node.pause(&id), Err(Error::Missing(_))));
    assert!(matches!(node.destroy(&id), Err(Error::Missing(_))));
    assert!(matches!(node.dial(&id, 80, PATIENCE), Err(Error::Missing(_))));
}

/// Each started program begins with a copy of everything that this process has open.
#[test]
fn a_disk_that_stays_is_made_while_other_programs_are_started() {
    let machine = Machine::new();
    if machine.settings.backend != Backend::Direct {
        return;
    }
    let node = machine.open();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    Command::new("/bin/true").status().unwrap();
                }
            });
        }
        let made = (0..10).try_for_each(|number| {
            let volume = VolumeName::new(format!("disk-{number}")).unwrap();
            let writable = Writable::Kept { volume: volume.clone(), mb: 16, over: "image".into() };
            let spec = Spec { writable, ..machine.shell(&format!("run-{number}"), "true") };
            node.create(&spec)?;
            node.destroy(&spec.id).unwrap();
            node.volumes().remove(&volume).unwrap();
            Ok::<_, CreateError>(())
        });
        over.store(true, Ordering::Relaxed);
        made.unwrap();
    });
}

#[test]
fn a_repeated_start_finds_the_instance_whatever_else_is_wrong() {
    let mut machine = Machine::new();
    machine.settings.limits.facts_kept = 1;
    let node = machine.open();
    let spec = machine.shell("first", "sleep 1000");
    node.create(&spec).unwrap();
    // Nobody has read the fact of its start, so there is no room for another.
    let full = node.create(&machine.shell("second", "true"));
    assert!(matches!(full, Err(CreateError::Unheard(1))), "{full:?}");
    let again = node.create(&spec);
    assert!(matches!(again, Err(CreateError::Exists(_))), "{again:?}");
    let again = node.create(&Spec { memory_mb: 0, ..spec.clone() });
    assert!(matches!(again, Err(CreateError::Exists(_))), "{again:?}");
    node.destroy(&spec.id).unwrap();
}
