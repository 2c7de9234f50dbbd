//! The firewall when a node starts again, and when there are two.

use super::*;
use node::OpenError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Lists the sets and maps of this machine, without the counts of connections and questions, which
/// the kernel forgets whenever it likes.
fn elements() -> String {
    let output =
        std::process::Command::new("/usr/sbin/nft").args(["list", "sets"]).output().unwrap();
    let maps = std::process::Command::new("/usr/sbin/nft").args(["list", "maps"]).output().unwrap();
    let text = String::from_utf8([output.stdout, maps.stdout].concat()).unwrap();
    let passing = ["ct count", "limit rate"];
    text.lines().filter(|line| !passing.iter().any(|part| line.contains(part))).collect()
}

#[test]
fn the_next_node_does_the_same_and_what_is_gone_leaves_nothing() {
    let machine = Machine::new();
    let _internet = make_internet(&machine);
    let node = machine.open();
    let firewall =
        Firewall { level: Level::Closed, source: Some(MACHINE), group: Some("one".to_owned()) };
    let kept = sleeper(&machine, "kept", firewall.clone());
    let raised = sleeper(&machine, "raised", Firewall::default());
    let views = [&kept, &raised].map(|spec| node.create(spec).unwrap());
    node.set_firewall(&raised.id, firewall.clone()).unwrap();
    node.pause(&raised.id).unwrap();
    drop(node);

    let node = machine.open();
    let proxy = Proxy::listen(&node);
    for (spec, view) in [&kept, &raised].into_iter().zip(&views) {
        assert_eq!(node.firewall(&spec.id).unwrap(), firewall);
        connect(pid(view), (SERVER, 80)).unwrap();
        assert_eq!(proxy.diverted().0, view.address);
    }
    // Elements that were written with the table can be changed like any others.
    node.set_firewall(&raised.id, Firewall::default()).unwrap();
    node.destroy(&raised.id).unwrap();
    node.stop(&kept.id, Duration::ZERO).unwrap();
    node.set_firewall(&kept.id, at(Level::Names)).unwrap();
    node.destroy(&kept.id).unwrap();
    // An instance that cannot be started, because its layer is missing.
    let layers = vec!["/nowhere".into()];
    let broken = Spec { layers, ..sleeper(&machine, "broken", firewall) };
    node.create(&broken).unwrap_err();
    assert!(!elements().contains("elements"), "{}", elements());
    assert!(node.firewall(&kept.id).is_err());
    let open = sleeper(&machine, "open", Firewall::default());
    await_server(pid(&node.create(&open).unwrap()));
    node.destroy(&open.id).unwrap();
    node.leave().unwrap();
    assert!(!elements().contains("holm"), "{}", elements());
}

/// A node that starts writes the table anew, and a closed instance stays closed meanwhile.
#[test]
fn no_packet_slips_out_while_a_node_starts() {
    let machine = Machine::new();
    let internet = make_internet(&machine);
    let node = machine.open();
    let spec = sleeper(&machine, "closed", at(Level::Open));
    let view = node.create(&spec).unwrap();
    await_server(pid(&view));
    let server = within(internet.id(), || UdpSocket::bind((SERVER, 9_000)).unwrap());
    server.set_read_timeout(Some(IN_VAIN)).unwrap();
    node.set_firewall(&spec.id, at(Level::Closed)).unwrap();
    drop(node);
    let sent = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let socket = within(pid(&view), || UdpSocket::bind("0.0.0.0:0").unwrap());
            while !over.load(Ordering::SeqCst) {
                socket.send_to(b"out", (SERVER, 9_000)).unwrap();
                sent.fetch_add(1, Ordering::SeqCst);
            }
        });
        for _ in 0..5 {
            let before = sent.load(Ordering::SeqCst);
            drop(machine.open());
            await_that("packets", || sent.load(Ordering::SeqCst) > before);
        }
        over.store(true, Ordering::SeqCst);
    });
    assert!(server.recv_from(&mut [0; 4]).is_err());
    let node = machine.open();
    node.destroy(&spec.id).unwrap();
}

/// The rules of a closed instance go by its address, which follows from the subnet.
#[test]
fn a_node_with_another_subnet_leaves_a_closed_instance_closed() {
    let mut machine = Machine::new();
    let _internet = make_internet(&machine);
    let node = machine.open();
    let spec = sleeper(&machine, "closed", at(Level::Closed));
    let view = node.create(&spec).unwrap();
    drop(node);
    let before = elements();
    let own = machine.settings.subnet;
    // It has the address of the instance, but for another slot.
    machine.settings.subnet = "10.196.0.0/14".parse().unwrap();
    // If it opens, what it does with the instance is to be seen.
    let opened = Node::open(machine.settings.clone(), crate::machine::world());
    assert!(connect(pid(&view), (SERVER, 80)).is_err(), "nothing leaves the instance");
    assert!(matches!(opened, Err(OpenError::Fixed { running: 1, .. })));
    assert_eq!(elements(), before);
    machine.settings.subnet = own;
    let node = machine.open();
    let proxy = Proxy::listen(&node);
    drop(connect(pid(&view), (SERVER, 80)).unwrap());
    assert_eq!(proxy.diverted().0, view.address);
    node.destroy(&spec.id).unwrap();
}

/// Lists the addresses of this machine's loopback interface.
fn own_addresses() -> String {
    let arguments = ["-4", "-o", "address", "show", "dev", "lo"];
    let output = std::process::Command::new("/usr/sbin/ip").args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_earlier_subnet_leaves_no_address_and_no_rules() {
    let mut machine = Machine::new();
    drop(machine.open());
    let [earlier, now] = ["10.199.0.1/32", "10.198.0.1/32"];
    assert!(own_addresses().contains(earlier), "{}", own_addresses());
    machine.settings.subnet = "10.198.0.0/20".parse().unwrap();
    drop(machine.open());
    let addresses = own_addresses();
    assert!(addresses.contains(now) && !addresses.contains(earlier), "{addresses}");
    machine.settings.egress = Egress::Nothing;
    drop(machine.open());
    assert!(!own_addresses().contains(now), "{}", own_addresses());
    assert!(!elements().contains("holm"), "{}", elements());
}

/// Once a node has left the machine, its subnet is free for others.
#[test]
fn a_node_that_returns_with_another_subnet_takes_nothing_from_who_has_the_earlier_one() {
    let mut machine = Machine::new();
    machine.open().leave().unwrap();
    let mut other = crate::machine::settings(
        &machine.folder.path().join("other"),
        format!("{}-2", machine.settings.name),
    );
    std::fs::create_dir_all(&other.folder).unwrap();
    other.first_uid = 2_500_000_000;
    let neighbour = Node::open(other, crate::machine::world()).unwrap();
    machine.settings.subnet = "10.198.0.0/20".parse().unwrap();
    drop(machine.open());
    let address = neighbour.proxy_address().unwrap();
    assert!(own_addresses().contains(&format!("{address}/32")), "{}", own_addresses());
    neighbour.leave().unwrap();
}

#[test]
fn nodes_on_one_machine_leave_each_other_alone() {
    let machine = Machine::new();
    let _internet = make_internet(&machine);
    let node = machine.open();
    let mut other = crate::machine::settings(
        &machine.folder.path().join("other"),
        format!("{}-2", machine.settings.name),
    );
    other.subnet = "10.198.0.0/20".parse().unwrap();
    other.first_uid = 2_500_000_000;
    std::fs::create_dir_all(&other.folder).unwrap();
    let neighbour = Node::open(other, crate::machine::world()).unwrap();
    let theirs = Proxy::listen(&neighbour);
    let ours = Proxy::listen(&node);
    let spec = sleeper(&machine, "same", at(Level::Closed));
    let views = [node.create(&spec).unwrap(), neighbour.create(&spec).unwrap()];
    for (view, proxy) in views.iter().zip([&ours, &theirs]) {
        drop(connect(pid(view), (SERVER, 80)).unwrap());
        assert_eq!(proxy.diverted().0, view.address);
    }
    let address = neighbour.proxy_address().unwrap();
    // It is diverted to the proxy of its own node, like anything else.
    drop(connect(pid(&views[0]), (address, PROXY_PORT)).unwrap());
    assert_eq!(ours.diverted().1, SocketAddrV4::new(address, PROXY_PORT));
    neighbour.destroy(&spec.id).unwrap();
    neighbour.leave().unwrap();
    connect(pid(&views[0]), (SERVER, 80)).unwrap();
    assert_eq!(ours.diverted().0, views[0].address);
    node.destroy(&spec.id).unwrap();
}

#[test]
fn no_node_takes_the_addresses_of_another() {
    let machine = Machine::new();
    let mut other = crate::machine::settings(
        &machine.folder.path().join("other"),
        format!("{}-2", machine.settings.name),
    );
    std::fs::create_dir_all(&other.folder).unwrap();
    other.subnet = "10.199.8.0/21".parse().unwrap();
    let theirs = format!("holm-{}", other.name);
    let neighbour = Node::open(other, crate::machine::world()).unwrap();
    let refused = Node::open(machine.settings.clone(), crate::machine::world());
    assert!(matches!(refused, Err(OpenError::SubnetTaken { table, .. }) if table == theirs));
    for tree in ["/sys/fs/cgroup", "/sys/fs/cgroup/pids"] {
        assert!(!std::path::Path::new(tree).join(&machine.settings.name).exists(), "{tree}");
    }
    neighbour.leave().unwrap();
    drop(machine.open());
}
