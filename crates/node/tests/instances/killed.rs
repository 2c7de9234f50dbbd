//! The process that holds the node is killed at any moment, under load.

use crate::machine::{Machine, PATIENCE, await_console, await_that, run, settings, world};
use crate::volumes::make;
use node::{Backend, Exit, Happened, InstanceName, Node, Spec, State};
use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

impl Machine {
    /// Returns the machine that a test has described in this folder, for another process in the
    /// same network.
    fn of_another(folder: &Path) -> Self {
        let name = std::fs::read_to_string(folder.join("name")).unwrap();
        let settings = settings(folder, name);
        Self { folder: tempfile::tempdir().unwrap(), settings }
    }

    fn describe(&self) {
        std::fs::write(self.folder.path().join("name"), &self.settings.name).unwrap();
    }
}

/// `make test` uses the small number; for a thorough run set `HOLM_KILL_ROUNDS=100`.
fn rounds() -> usize {
    std::env::var("HOLM_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(20)
}

const SURVIVORS: [&str; 3] = ["steady", "paused", "ending"];

fn survivor(machine: &Machine, name: &str) -> Spec {
    match name {
        "ending" => {
            machine.shell(name, "trap 'exit 5' TERM; echo started; while :; do sleep 0.01; done")
        }
        _ => machine.shell(name, "echo started; nc -ll -p 80 -e echo here"),
    }
}

/// Not a test of its own: this is the process that the test below kills.
#[test]
#[ignore = "run by another test"]
fn holder() {
    let Ok(folder) = std::env::var("HOLDER_FOLDER") else { return };
    let machine = std::mem::ManuallyDrop::new(Machine::of_another(folder.as_ref()));
    let node = machine.open();
    for name in SURVIVORS {
        if node.inspect(&InstanceName::new(name).unwrap()).is_err() {
            node.create(&survivor(&machine, name)).unwrap();
        }
    }
    std::fs::write(machine.settings.folder.join("ready"), "").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| pause_without_end(&node));
        for _ in 0..2 {
            scope.spawn(|| make_without_end(&machine, &node));
        }
        if machine.settings.backend == Backend::Direct {
            scope.spawn(|| use_volumes_without_end(&machine, &node));
        }
    });
}

fn pause_without_end(node: &Node) {
    let id = InstanceName::new("paused").unwrap();
    loop {
        node.pause(&id).unwrap();
        node.resume(&id).unwrap();
    }
}

fn make_without_end(machine: &Machine, node: &Node) {
    for round in 0_u64.. {
        let mut spec =
            machine.shell(&format!("load-{}", world().random_text(8)), "sleep 100 & wait");
        if round % 2 == 0 {
            spec.writable = node::Writable::Disk { mb: 10 };
        }
        if round % 5 == 0 && machine.settings.backend == Backend::Direct {
            spec.scratch = vec![node::Scratch {
                path: "/data".into(),
                size_mb: 4,
                read_only: false,
                medium: node::Medium::Disk,
            }];
        }
        node.create(&spec).unwrap();
        if round % 3 == 0 {
            node.pause(&spec.id).unwrap();
        }
        node.destroy(&spec.id).unwrap();
    }
}

/// Makes, mounts, grows, unmounts and removes volumes.
fn use_volumes_without_end(machine: &Machine, node: &Node) {
    loop {
        let name = world().random_text(8);
        make(node, &name, 16);
        let id = InstanceName::new(format!("load-{name}")).unwrap();
        let spec = Spec { id, ..machine.with(&name, "echo x > /data/x; sleep 100") };
        node.create(&spec).unwrap();
        let volume = node::VolumeName::new(name).unwrap();
        node.volumes().grow(&volume, 24).unwrap();
        node.destroy(&spec.id).unwrap();
        node.volumes().remove(&volume).unwrap();
    }
}

/// Checks that each volume left by a killed node is intact, unused, and can be removed.
fn volumes_are_whole(machine: &Machine, node: &Node) {
    for volume in node.volumes().list() {
        let (exit, said) = run(node, &machine.with(volume.name.as_str(), "ls /data | wc -l"));
        assert_eq!(exit, Exit::Code(0), "{volume:?}: {said}");
        assert!([16, 24].contains(&volume.size_mb), "{volume:?}");
        node.volumes().remove(&volume.name).unwrap();
    }
    await_that("the volumes to be free", || machine.volumes_in_use() == 0);
}

fn run_and_kill(machine: &Machine) {
    let ready = machine.settings.folder.join("ready");
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::holder", "--ignored", "--nocapture"])
        .env("HOLDER_FOLDER", machine.folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    await_that("the holder", || ready.exists());
    let mut chance = [0; 1];
    getrandom::fill(&mut chance).unwrap();
    // The test is about killing it at a random moment, so this does not wait for a condition.
    std::thread::sleep(Duration::from_micros(u64::from(chance[0]) * 200));
    holder.kill().unwrap();
    holder.wait().unwrap();
    std::fs::remove_file(&ready).unwrap();
}

/// Returns the processes in groups of this machine, by group, and those left of a holder itself.
fn processes(machine: &Machine) -> HashMap<String, Vec<String>> {
    let mut found: HashMap<String, Vec<String>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        let read = |file: &str| {
            std::fs::read(path.join(file)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        };
        let pid = path.file_name().unwrap().to_string_lossy().into_owned();
        let (Ok(groups), Ok(command)) = (read("cgroup"), read("cmdline")) else { continue };
        let inside = format!("/{}/", machine.settings.name);
        let within = groups.lines().find_map(|line| Some(line.split_once(&inside)?.1));
        let group = within.and_then(|path| path.rsplit('/').next()).map(str::to_owned);
        let holder = command.contains("killed::holder").then(|| "holder".to_owned());
        if let Some(group) = group.or(holder) {
            found.entry(group).or_default().push(pid);
        }
    }
    found
}

#[test]
fn a_killed_node_loses_nothing_kills_nothing_and_leaves_nothing() {
    let machine = Machine::new();
    machine.describe();
    let mut first_seen = HashMap::new();
    for round in 0..rounds() {
        run_and_kill(&machine);
        let node = machine.open();
        for name in SURVIVORS {
            let view = node.inspect(&InstanceName::new(name).unwrap()).unwrap();
            let pid = first_seen.entry(name).or_insert(view.pid);
            assert_eq!(view.pid, *pid, "round {round}: {name} is the one that was started first");
            assert!(
                matches!(view.state, State::Running { .. } | State::Paused { .. }),
                "round {round}: {view:?}"
            );
        }
        answers(&node, round);
        // The node may be killed before a survivor has printed, and one that is paused never does.
        for id in SURVIVORS.map(|name| InstanceName::new(name).unwrap()) {
            await_console(&node, &id, "started\n");
            assert_eq!(node.console(&id).unwrap(), b"started\n");
        }
        for view in node.list().iter().filter(|view| view.id.as_str().starts_with("load-")) {
            node.destroy(&view.id).unwrap();
        }
        volumes_are_whole(&machine, &node);
        await_that("the processes of others to go", || {
            processes(&machine).keys().all(|group| SURVIVORS.contains(&group.as_str()))
        });
        assert_eq!(std::fs::read_dir(machine.settings.folder.join("scratch")).unwrap().count(), 0);
    }
    await_that("the loop devices to be free", || machine.loops() == 0);
    they_end_as_told(&machine);
}

fn answers(node: &Node, round: usize) {
    let paused = InstanceName::new("paused").unwrap();
    node.resume(&paused).unwrap();
    for id in [InstanceName::new("steady").unwrap(), paused] {
        await_that(&format!("an answer of {id} in round {round}"), || {
            let mut text = String::new();
            node.dial(&id, 80, PATIENCE).is_ok_and(|mut stream| {
                std::io::Read::read_to_string(&mut stream, &mut text).is_ok() && text == "here\n"
            })
        });
    }
}

/// Returns true from Linux 6.15 on. Older kernels forget how a process ended once the machine's
/// init has reaped it, which may come before this node looks.
fn kernel_keeps_exits() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 15)
}

fn they_end_as_told(machine: &Machine) {
    let node = machine.open();
    let exit = node.stop(&InstanceName::new("ending").unwrap(), PATIENCE).unwrap();
    assert!(exit == Exit::Code(5) || (exit == Exit::Unknown && !kernel_keeps_exits()), "{exit:?}");
    for name in SURVIVORS {
        let id = InstanceName::new(name).unwrap();
        node.destroy(&id).unwrap();
        let facts = node.facts(1_000_000, Duration::ZERO);
        let count = |wanted: fn(&Happened) -> bool| {
            facts.iter().filter(|fact| fact.instance == id && wanted(&fact.happened)).count()
        };
        assert_eq!(count(|happened| matches!(happened, Happened::Started { .. })), 1);
        assert_eq!(count(|happened| matches!(happened, Happened::Exited(_))), 1);
        assert_eq!(count(|happened| matches!(happened, Happened::Destroyed)), 1);
    }
    assert_eq!(node.list(), []);
}
