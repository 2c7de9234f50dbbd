//! The machine's resources are divided between owners: one who takes too much is limited or
//! refused, and never a neighbour.

use crate::machine::{Machine, await_console, await_that, owner, run};
use node::{CreateError, Exit, InstanceName, Spec, Writable};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::Duration;

impl Machine {
    fn of(&self, owner_name: &str, id: &str, script: &str) -> Spec {
        Spec { owner: owner(owner_name), ..self.shell(id, script) }
    }

    /// Returns the folders of an owner's group, in all trees.
    fn groups_of(&self, owner_name: &str) -> Vec<PathBuf> {
        let name = format!("{}/owner.{owner_name}", self.settings.name);
        let trees = std::fs::read_dir("/sys/fs/cgroup").unwrap().map(|tree| tree.unwrap().path());
        let all = trees.chain([PathBuf::from("/sys/fs/cgroup")]).map(|tree| tree.join(&name));
        all.filter(|folder| folder.is_dir()).collect()
    }
}

const IDLE: &str = "echo started; sleep 1000 & wait";

/// A machine with little, of which one owner may have half.
fn small() -> Machine {
    let mut machine = Machine::new();
    machine.settings.limits.share_percent = 50;
    machine
}

#[track_caller]
fn refused(made: Result<node::View, CreateError>, why: &str) {
    let said = match made {
        Err(CreateError::Refused(refused)) => refused.to_string(),
        other => format!("no refusal, but {other:?}"),
    };
    assert!(said.contains(why), "{said}, and not {why}");
}

#[test]
fn processes_of_one_owner_leave_some_for_another() {
    let mut machine = small();
    machine.settings.limits.processes = Some(60);
    let node = machine.open();
    // Each may have 64, and there are two of them.
    let some = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1000 & done; echo started; wait";
    let all = "(while sleep 1000 & do :; done); sleep 1000";
    let greedy =
        [("one", some, "started"), ("two", all, "can't fork")].map(|(id, script, sign)| {
            let spec = machine.of("greedy", id, script);
            node.create(&spec).unwrap();
            await_console(&node, &spec.id, sign);
            spec
        });
    let used: u64 = greedy.iter().map(|spec| node.usage(&spec.id).unwrap().processes).sum();
    assert!(used <= 30, "{used} processes");
    let forks = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.01 & done; wait; echo forked";
    assert_eq!(
        run(&node, &machine.of("neighbour", "next", forks)),
        (Exit::Code(0), "forked\n".into())
    );
    greedy.iter().for_each(|spec| node.destroy(&spec.id).unwrap());
}

#[test]
fn memory_of_one_owner_leaves_some_for_another() {
    let mut machine = small();
    machine.settings.limits.memory_mb = Some(200);
    let node = machine.open();
    let neighbour = machine.of(
        "neighbour",
        "neighbour",
        "head -c 30m /dev/zero | tail -c 30m | sleep 1000 & echo started; wait",
    );
    node.create(&neighbour).unwrap();
    await_console(&node, &neighbour.id, "started");
    // Each stays within its own 64 MB, but three together exceed the 100 MB of their owner.
    let hungry = "(head -c 50m /dev/zero | tail -c 50m | sleep 1000); sleep 1000 & wait";
    let greedy = ["one", "two", "three"].map(|id| machine.of("greedy", id, hungry));
    greedy.iter().for_each(|spec| drop(node.create(spec).unwrap()));
    let kills = |id: &InstanceName| node.usage(id).unwrap().oom_kills;
    await_that("the kernel to end one of them", || greedy.iter().any(|spec| kills(&spec.id) > 0));
    let used: u64 = greedy.iter().map(|spec| node.usage(&spec.id).unwrap().memory_bytes).sum();
    assert!(used <= 100 << 20, "{used} bytes");
    assert_eq!(kills(&neighbour.id), 0);
    assert_eq!(
        run(&node, &machine.of("another", "next", "head -c 40m /dev/zero | tail -c 40m | wc -c")).1,
        "41943040\n"
    );
    greedy.iter().chain([&neighbour]).for_each(|spec| node.destroy(&spec.id).unwrap());
}

/// Ten busy instances of one owner get as much processor time as one instance of another.
#[test]
fn processors_are_shared_between_owners() {
    let machine = Machine::new();
    let node = machine.open();
    let busy = "echo started; while :; do :; done";
    let greedy: Vec<_> =
        (0..10).map(|number| machine.of("greedy", &format!("greedy-{number}"), busy)).collect();
    let honest = machine.of("honest", "honest", busy);
    for spec in greedy.iter().chain([&honest]) {
        node.create(spec).unwrap();
        await_console(&node, &spec.id, "started");
    }
    let cpu = |spec: &Spec| node.usage(&spec.id).unwrap().cpu_us;
    let all = || greedy.iter().map(cpu).sum::<u64>();
    let (greedy_before, honest_before) = (all(), cpu(&honest));
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    await_that("two seconds of work", || {
        all() + cpu(&honest) - greedy_before - honest_before > 2_000_000
    });
    let (theirs, own) = (all() - greedy_before, cpu(&honest) - honest_before);
    // One program cannot use more than one core.
    assert!(own * (cores * 2) > theirs, "{own} against {theirs} on {cores} cores");
    greedy.iter().chain([&honest]).for_each(|spec| node.destroy(&spec.id).unwrap());
}

#[test]
fn who_has_his_share_of_instances_is_refused_and_not_his_neighbour() {
    let mut machine = small();
    machine.settings.limits.instances = 4;
    let node = machine.open();
    let greedy = ["one", "two"].map(|id| machine.of("greedy", id, IDLE));
    greedy.iter().for_each(|spec| drop(node.create(spec).unwrap()));
    refused(node.create(&machine.of("greedy", "three", IDLE)), "for one owner");
    // Instances that live on from an earlier node count.
    drop(node);
    let node = machine.open();
    refused(node.create(&machine.of("greedy", "three", IDLE)), "for one owner");
    let neighbours = ["n-one", "n-two"].map(|id| machine.of("neighbour", id, IDLE));
    neighbours.iter().for_each(|spec| drop(node.create(spec).unwrap()));
    refused(node.create(&machine.of("third", "three", IDLE)), "for the whole server");
    node.destroy(&greedy[0].id).unwrap();
    let again = machine.of("greedy", "three", IDLE);
    node.create(&again).unwrap();
    greedy[1..]
        .iter()
        .chain(&neighbours)
        .chain([&again])
        .for_each(|spec| node.destroy(&spec.id).unwrap());
}

#[test]
fn memory_is_promised_to_what_is_awake_and_waking_is_never_refused() {
    let mut machine = small();
    machine.settings.limits.memory_mb = Some(256);
    machine.settings.limits.memory_promises = 1;
    let node = machine.open();
    let large = Spec { memory_mb: 257, ..machine.of("greedy", "large", IDLE) };
    assert!(matches!(
        node.create(&large),
        Err(CreateError::TooLarge { wanted_mb: 257, most_mb: 256 })
    ));
    let [one, two, three] = ["one", "two", "three"].map(|id| machine.of("greedy", id, IDLE));
    node.create(&one).unwrap();
    node.create(&two).unwrap();
    refused(node.create(&three), "for one owner");
    node.pause(&one.id).unwrap();
    node.create(&three).unwrap();
    // They are adopted as they are: one asleep, two awake.
    drop(node);
    let node = machine.open();
    node.resume(&one.id).unwrap();
    refused(node.create(&machine.of("greedy", "four", IDLE)), "for one owner");
    // Everything beyond the greedy owner's share is available to others.
    let [neighbour, second] = ["neighbour", "second"].map(|id| machine.of("neighbour", id, IDLE));
    node.create(&neighbour).unwrap();
    node.create(&second).unwrap();
    // An instance that was lost with its machine comes back, no matter who has its memory now.
    let lost = Spec { again: true, ..machine.of("greedy", "lost", IDLE) };
    node.create(&lost).unwrap();
    [&one, &two, &three, &neighbour, &second, &lost]
        .into_iter()
        .for_each(|spec| node.destroy(&spec.id).unwrap());
    node.create(&one).unwrap();
    node.stop(&one.id, Duration::ZERO).unwrap();
    node.create(&two).unwrap();
    node.create(&three).unwrap();
    [&one, &two, &three].into_iter().for_each(|spec| node.destroy(&spec.id).unwrap());
}

#[test]
fn disks_are_counted_by_number_and_size() {
    let mut machine = small();
    (machine.settings.limits.disks, machine.settings.limits.disk_mb) = (4, Some(200));
    let node = machine.open();
    let with = |owner_name: &str, id: &str, mb| {
        let writable = Writable::Disk { mb };
        Spec { writable, ..machine.of(owner_name, id, IDLE) }
    };
    node.create(&with("greedy", "one", 40)).unwrap();
    refused(node.create(&with("greedy", "two", 61)), "MB of disk");
    node.create(&with("greedy", "two", 60)).unwrap();
    refused(node.create(&with("greedy", "three", 8)), "disks of limited size");
    node.create(&machine.of("greedy", "three", IDLE)).unwrap();
    drop(node);
    let node = machine.open();
    refused(node.create(&with("greedy", "four", 8)), "disks of limited size");
    node.create(&with("neighbour", "n-one", 50)).unwrap();
    for id in ["one", "two", "three", "n-one"] {
        node.destroy(&InstanceName::new(id).unwrap()).unwrap();
    }
    await_that("the loop devices to be free", || machine.loops() == 0);
}

/// Whatever a killed node has left of an owner, and whatever limits it had.
#[test]
fn groups_of_owners_are_found_again_and_go_when_nobody_needs_them() {
    let mut machine = Machine::new();
    let node = machine.open();
    let spec = machine.of("steady", "steady", IDLE);
    node.create(&spec).unwrap();
    run(&node, &machine.of("gone", "gone", "true"));
    let groups = machine.groups_of("steady");
    assert!(
        !groups.is_empty() && machine.groups_of("gone").len() == groups.len(),
        "kept for the next of the owner"
    );
    drop(node);
    // As if the node had been killed between making the folder and writing its limits.
    let half = groups[0].with_file_name("owner.half");
    std::fs::create_dir(&half).unwrap();
    machine.settings.limits.processes = Some(1_234);
    machine.settings.limits.share_percent = 50;
    let node = machine.open();
    assert!(!half.exists() && machine.groups_of("gone").is_empty());
    let limits =
        groups.iter().filter_map(|group| std::fs::read_to_string(group.join("pids.max")).ok());
    assert_eq!(limits.collect::<Vec<_>>(), ["617\n"]);
    assert_eq!(node.wait(&spec.id, Duration::ZERO).unwrap(), None);
    node.destroy(&spec.id).unwrap();
    node.leave().unwrap();
    assert!(machine.groups_of("steady").is_empty());
}

#[test]
fn an_owner_with_many_instances_one_after_the_other_leaves_one_group() {
    let machine = Machine::new();
    let node = machine.open();
    for number in 0..40 {
        run(&node, &machine.of(&format!("wsp_{number}"), "one", "true"));
    }
    let left: usize =
        (0..40).filter(|number| !machine.groups_of(&format!("wsp_{number}")).is_empty()).count();
    assert_eq!(left, 32, "groups that are kept for their owners");
    node.leave().unwrap();
}

/// All connections to one port of one host need a port of the machine, which has some 64,000.
#[test]
fn connections_of_one_owner_leave_some_for_another() {
    let mut machine = Machine::new();
    machine.settings.limits.owner_connections = 50;
    let _internet = crate::network::make_internet(&machine);
    let node = machine.open();
    let greedy = ["one", "two", "three"].map(|id| machine.of("greedy", id, IDLE));
    for spec in &greedy {
        let pid = node.create(spec).unwrap().pid.unwrap().unsigned_abs();
        send_from_ports(pid, 40);
    }
    let count = tracked();
    assert!((40..=60).contains(&count), "{count} connections");
    let page = "timeout 30 wget -q -O- http://203.0.113.1/";
    let spec = machine.of("neighbour", "next", page);
    assert_eq!(run(&node, &spec).1, "reached\n");
    greedy.iter().for_each(|spec| node.destroy(&spec.id).unwrap());
}

/// Sends datagrams that nobody answers, each from a port of its own.
fn send_from_ports(pid: u32, count: usize) {
    crate::network::within(pid, || {
        for _ in 0..count {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            // If a packet is dropped, sending may fail.
            let _ = socket.send_to(b"x", "203.0.113.1:9");
        }
    });
}

fn tracked() -> usize {
    let count = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").unwrap();
    count.trim().parse().unwrap()
}

/// All share the machine's table of connections, so nobody may fill it.
#[test]
fn connections_of_one_instance_leave_some_for_another() {
    let mut machine = Machine::new();
    machine.settings.limits.connections = 50;
    let _internet = crate::network::make_internet(&machine);
    let node = machine.open();
    let spec = machine.of("greedy", "greedy", IDLE);
    let pid = node.create(&spec).unwrap().pid.unwrap().unsigned_abs();
    send_from_ports(pid, 400);
    let count = tracked();
    assert!((40..=60).contains(&count), "{count} connections");
    let page = "timeout 30 wget -q -O- http://203.0.113.1/";
    assert_eq!(run(&node, &machine.of("neighbour", "next", page)).1, "reached\n");
    node.destroy(&spec.id).unwrap();
}
