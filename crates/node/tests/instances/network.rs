//! What an instance reaches, and what it does not.

use crate::machine::{BUSYBOX, Machine, await_console, await_that, run};
use node::{Egress, Node, OpenError, WayOut, try_way_out};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

/// A process that is killed at the end of the test.
pub(crate) struct Ended(Child);

impl Ended {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn sh(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Serves one page on this port, in a network of its own or in this one.
fn serve(folder: &std::path::Path, port: u16, apart: bool) -> Ended {
    std::fs::write(folder.join("index.html"), "reached\n").unwrap();
    let mut command = if apart { Command::new("unshare") } else { Command::new(BUSYBOX) };
    if apart {
        command.args(["-n", BUSYBOX]);
    }
    command.args(["httpd", "-f", "-p", &port.to_string(), "-h"]).arg(folder);
    Ended(command.stdin(Stdio::null()).spawn().unwrap())
}

/// Makes an "internet": a server behind a link, with a public address, one of a private network,
/// and the one of the clouds' metadata services.
pub(crate) fn make_internet(machine: &Machine) -> Ended {
    let server = serve(machine.folder.path(), 80, true);
    let pid = server.0.id();
    await_that("a network apart", || {
        std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()
            != std::fs::read_link("/proc/thread-self/ns/net").ok()
    });
    sh(&format!(
        "PATH=$PATH:/usr/sbin
        ip link set lo up
        ip link add wire type veth peer name far netns {pid}
        ip addr add 203.0.113.2/24 dev wire
        ip link set wire up
        ip route add 169.254.169.254/32 via 203.0.113.1
        ip route add 10.1.1.1/32 via 203.0.113.1
        ip route add 192.0.2.53/32 via 203.0.113.1
        nsenter -t {pid} -n sh -ec '
            ip link set lo up
            ip addr add 203.0.113.1/24 dev far
            ip addr add 169.254.169.254/32 dev lo
            ip addr add 10.1.1.1/32 dev lo
            ip addr add 192.0.2.53/32 dev lo
            ip link set far up'"
    ));
    server
}

fn fetch(machine: &Machine, node: &Node, url: &str) -> String {
    machine.outcome(node, &format!("timeout 2 wget -q -O- {url} 2>/dev/null || echo no")).1
}

#[test]
fn the_internet_is_open_and_the_rest_is_closed() {
    let machine = Machine::new();
    let _internet = make_internet(&machine);
    let _host = serve(machine.folder.path(), 8088, false);
    let node = machine.open();
    let reach = |url: &str| fetch(&machine, &node, url);
    for open in [
        "http://203.0.113.1/",
        "http://10.1.1.1/",
        "http://169.254.169.254/",
        "http://203.0.113.2:8088/",
    ] {
        await_that(open, || {
            Command::new(BUSYBOX).args(["wget", "-q", "-O-", open]).output().unwrap().stdout
                == b"reached\n"
        });
    }

    // What is reachable may take some time on a busy machine; for the rest there is nothing to wait
    // for.
    let internet = machine.outcome(&node, "timeout 30 wget -q -O- http://203.0.113.1/").1;
    assert_eq!(internet, "reached\n", "the internet");
    assert_eq!(reach("http://169.254.169.254/"), "no\n", "metadata");
    assert_eq!(reach("http://10.1.1.1/"), "no\n", "a private network");
    assert_eq!(reach("http://192.0.2.53/"), "no\n", "another port of the resolver");
    for host in ["203.0.113.2", "169.254.1.1", "127.0.0.1", "10.199.0.1"] {
        assert_eq!(reach(&format!("http://{host}:8088/")), "no\n", "the machine as {host}");
    }
}

/// A server lets its own workloads call it, but only at its own address and port.
#[test]
fn of_the_machine_only_doors_are_open() {
    let mut machine = Machine::new();
    let _internet = make_internet(&machine);
    let _server = serve(machine.folder.path(), 8088, false);
    let _other = serve(machine.folder.path(), 8089, false);
    machine.settings.egress = Egress::internet_only(vec!["203.0.113.2:8088".parse().unwrap()]);
    let node = machine.open();
    let door = machine.outcome(&node, "timeout 30 wget -q -O- http://203.0.113.2:8088/").1;
    assert_eq!(door, "reached\n", "the door");
    for closed in ["203.0.113.2:8089", "10.1.1.1:8088", "169.254.1.1:8088", "10.199.0.1:8088"] {
        assert_eq!(fetch(&machine, &node, &format!("http://{closed}/")), "no\n", "{closed}");
    }
}

/// The address that a name resolves to counts, not the name.
#[test]
fn no_name_opens_what_is_closed() {
    let machine = Machine::new();
    let _internet = make_internet(&machine);
    let node = machine.open();
    let names = "203.0.113.1 open\n169.254.169.254 metadata\n203.0.113.2 host\n10.1.1.1 private";
    let script = format!(
        "printf '{names}\\n' >> /etc/hosts
        timeout 30 wget -q -O- http://open/ || echo no
        for name in metadata host private; do timeout 1 wget -q -O- http://$name/ 2>/dev/null || echo no; done"
    );
    assert_eq!(machine.outcome(&node, &script).1, "reached\nno\nno\nno\n");
}

/// Runs `act` in the network of a process, on a thread of its own.
pub(crate) fn within<T: Send>(pid: u32, act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let entered = scope.spawn(|| {
            let network = std::fs::File::open(format!("/proc/{pid}/ns/net")).unwrap();
            let kind = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(network.as_fd(), kind).unwrap();
            act()
        });
        entered.join().unwrap()
    })
}

/// Even a tenant who had gained control over the network could not use somebody else's address:
/// this test gives itself that power.
#[test]
fn nobody_leaves_under_the_address_of_another() {
    let machine = Machine::new();
    let internet = make_internet(&machine);
    let node = machine.open();
    let [one, other] =
        ["one", "other"].map(|id| node.create(&machine.shell(id, "sleep 100 & wait")).unwrap());
    let pid = one.pid.unwrap().unsigned_abs();
    let server = within(internet.0.id(), || UdpSocket::bind("203.0.113.1:9000").unwrap());
    server.set_read_timeout(Some(crate::machine::PATIENCE)).unwrap();

    let unused: Ipv4Addr = "10.199.0.250".parse().unwrap();
    let strangers =
        [other.address, unused, "203.0.113.77".parse().unwrap(), "198.51.100.1".parse().unwrap()];
    for address in strangers {
        sh(&format!("nsenter -t {pid} -n /usr/sbin/ip addr add {address}/32 dev eth0"));
    }
    within(pid, || {
        for (address, word) in
            strangers.map(|address| (address, "false")).into_iter().chain([(one.address, "true")])
        {
            UdpSocket::bind((address, 0))
                .unwrap()
                .send_to(word.as_bytes(), "203.0.113.1:9000")
                .unwrap();
        }
    });
    // A link keeps the order, so the first to arrive is the first that was let through.
    let mut word = [0; 16];
    let (length, from) = server.recv_from(&mut word).unwrap();
    assert_eq!(&word[..length], b"true");
    assert_eq!(from.ip().to_string(), "203.0.113.2", "it leaves as the machine");
    for id in [&one.id, &other.id] {
        node.destroy(id).unwrap();
    }
}

#[test]
fn neighbours_do_not_reach_each_other_and_the_node_reaches_both() {
    let machine = Machine::new();
    let node = machine.open();
    let one =
        machine.shell("one", "mkdir /www; echo hi > /www/index.html; exec httpd -f -p 80 -h /www");
    let view = node.create(&one).unwrap();
    await_that("the server", || node.dial(&one.id, 80, crate::machine::PATIENCE).is_ok());
    assert_eq!(fetch(&machine, &node, &format!("http://{}/", view.address)), "no\n");
    assert_eq!(fetch(&machine, &node, "http://127.0.0.1/"), "no\n");
    node.destroy(&one.id).unwrap();
}

#[test]
fn without_egress_there_is_only_loopback() {
    let mut machine = Machine::new();
    machine.settings.egress = Egress::Nothing;
    let node = machine.open();
    let script = "ip -o link | wc -l; echo alive; exec httpd -f -p 80 -h /";
    let spec = machine.shell("alone", script);
    node.create(&spec).unwrap();
    await_console(&node, &spec.id, "alive");
    await_that("its port", || node.dial(&spec.id, 80, crate::machine::PATIENCE).is_ok());
    assert!(node.console(&spec.id).unwrap().starts_with(b"1\n"));
    node.destroy(&spec.id).unwrap();
    let script = "cat /etc/resolv.conf; grep ' localhost' /etc/hosts";
    let (_, text) = run(&node, &machine.shell("resolver", script));
    assert_eq!(text, "nameserver 192.0.2.53\n127.0.0.1 localhost\n");
}

/// Makes a network behind an interface at whose other end nobody is.
fn make_network(interface: &str, address: &str) {
    sh(&format!(
        "PATH=$PATH:/usr/sbin
        ip link add {interface} type veth peer name {interface}-end
        ip addr add {address} dev {interface}
        ip link set {interface} up
        ip link set {interface}-end up"
    ));
}

#[test]
fn what_other_firewalls_drop_is_seen() {
    let machine = Machine::new();
    let settings = &machine.settings;
    let way = || {
        let WayOut { routed, internet, proxy, .. } =
            try_way_out(&settings.name, settings.subnet).unwrap();
        (routed, internet, proxy)
    };
    assert_eq!(way(), (false, false, true));
    make_network("uplink", "203.0.113.2/24");
    sh("/usr/sbin/ip route add default via 203.0.113.1");
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
    // The same before there is a node, and while there is one.
    let check = || {
        assert_eq!(way(), (true, true, true));
        for (hook, expect) in [("forward", (true, false, true)), ("input", (true, true, false))] {
            sh(&format!(
                "/usr/sbin/nft 'table ip theirs {{ chain c {{ type filter hook {hook} priority 0; \
                 policy drop; }}; }}'"
            ));
            assert_eq!(way(), expect, "{hook}");
            sh("/usr/sbin/nft delete table ip theirs");
        }
    };
    let links = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap().lines().count();
    let before = links();
    check();
    assert_eq!(links(), before);
    sh("test -z \"$(/usr/sbin/nft list tables)\"");
    let node = machine.open();
    check();
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
    assert!(!try_way_out(&settings.name, settings.subnet).unwrap().forwards);
    node.leave().unwrap();
    sh("test -z \"$(/usr/sbin/nft list tables)\"");
}

#[test]
fn a_node_takes_no_addresses_that_the_machine_reaches() {
    let machine = Machine::new();
    make_network("wide", "10.250.0.1/8");
    drop(machine.open());
    make_network("lan", "10.199.3.1/24");
    let opened = Node::open(machine.settings.clone(), crate::machine::world());
    assert!(
        matches!(&opened, Err(OpenError::SubnetInUse { reached, .. }) if reached.interface == "lan"),
        "{:?}",
        opened.err()
    );
    // A node whose instances are alive has to go on.
    sh("/usr/sbin/ip link set lan down");
    let node = machine.open();
    let instance = machine.shell("alive", "sleep 60");
    node.create(&instance).unwrap();
    drop(node);
    sh("/usr/sbin/ip link set lan up");
    machine.open().destroy(&instance.id).unwrap();
    sh("/usr/sbin/ip link del lan");
}
