//! Tunnels of instances. The test implements the other end itself.

use crate::firewall::{IN_VAIN, MACHINE, SERVER, at, connect, pid, sleeper};
use crate::machine::{Machine, await_console, await_that};
use crate::network::{make_internet, within};
use boringtun::noise::{Tunn, TunnResult};
use boringtun::x25519::{PublicKey, StaticSecret};
use node::{Egress, Level, Node, Spec, TunnelError, View};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use types::tunnel::{Endpoint, PrivateKey, TunnelSettings};

const PORT: u16 = 51_820;
const OWN_KEY: [u8; 32] = [7; 32];
const PEER_KEY: [u8; 32] = [9; 32];
/// The address of the instance within its tunnel.
const INNER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

fn public(key: [u8; 32]) -> PublicKey {
    PublicKey::from(&StaticSecret::from(key))
}

fn settings(allowed: &str, routes_all: bool) -> TunnelSettings {
    TunnelSettings {
        interface: "wg0".into(),
        local: "10.9.0.2/32".parse().unwrap(),
        endpoint: Endpoint { host: SERVER.to_string(), port: PORT },
        peer_key: *public(PEER_KEY).as_bytes(),
        own_key: PrivateKey::new(OWN_KEY),
        mtu: 1420,
        allowed: vec![allowed.parse().unwrap()],
        keepalive: Some(25),
        routes_all,
    }
}

/// A machine on which the internet's server may be the other end of a tunnel.
fn machine() -> Machine {
    let mut machine = Machine::new();
    let Egress::Internet { inside, .. } = &mut machine.settings.egress else { unreachable!() };
    inside.push("203.0.113.1/32".parse().unwrap());
    machine
}

fn endpoint() -> SocketAddr {
    (SERVER, PORT).into()
}

/// The other end, which sends every datagram back to where it came from.
struct Peer {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    fn start(internet: u32) -> Self {
        let socket = within(internet, || UdpSocket::bind((SERVER, PORT)).unwrap());
        socket.set_read_timeout(Some(IN_VAIN)).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let key = StaticSecret::from(PEER_KEY);
            let mut noise = Tunn::new(key, public(OWN_KEY), None, None, 5, None);
            while !ends.load(Ordering::SeqCst) {
                answer(&socket, &mut noise);
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

fn answer(socket: &UdpSocket, noise: &mut Tunn) {
    let (mut datagram, mut plain, mut sealed) = ([0; 4_096], [0; 4_096], [0; 4_096]);
    let Ok((length, from)) = socket.recv_from(&mut datagram) else { return };
    assert_eq!(from.ip(), MACHINE, "outside, it is a socket of the machine's");
    match noise.decapsulate(None, &datagram[..length], &mut plain) {
        TunnResult::WriteToNetwork(packet) => {
            socket.send_to(packet, from).unwrap();
            send_nonsense(socket, from);
        }
        TunnResult::WriteToTunnelV4(packet, source) => {
            assert_eq!(source, INNER);
            // Only datagrams, because a connection needs more than an echo.
            if packet[9] != 17 {
                return;
            }
            // The checksums stay right when source and destination are swapped.
            let (source, rest) = packet[12..].split_at_mut(4);
            source.swap_with_slice(&mut rest[..4]);
            let (source, rest) = packet[20..].split_at_mut(2);
            source.swap_with_slice(&mut rest[..2]);
            if let TunnResult::WriteToNetwork(packet) = noise.encapsulate(packet, &mut sealed) {
                socket.send_to(packet, from).unwrap();
            }
        }
        TunnResult::WriteToTunnelV6(..) | TunnResult::Done => {}
        TunnResult::Err(error) => unreachable!("{error:?}"),
    }
}

/// Sends invalid messages of every kind and many lengths. If the tunnel still works afterwards,
/// they did no harm.
fn send_nonsense(socket: &UdpSocket, to: SocketAddr) {
    for length in [0, 1, 4, 31, 32, 33, 64, 92, 148, 1_420, 1_452, 1_900, 4_000, 60_000] {
        for kind in 0..6 {
            let mut datagram = vec![kind; length];
            if let Some(rest) = datagram.get_mut(1..) {
                rest.fill(0);
            }
            socket.send_to(&datagram, to).unwrap();
        }
    }
}

/// Returns true if what an instance sends to this address comes back. Only the peer answers.
fn comes_back(view: &View, to: &str) -> bool {
    let socket = within(pid(view), || UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.set_read_timeout(Some(IN_VAIN)).unwrap();
    let mut word = [0; 8];
    socket.send_to(b"through", to).is_ok()
        && socket.recv_from(&mut word).is_ok_and(|(length, from)| {
            assert_eq!((&word[..length], from.to_string().as_str()), (&b"through"[..], to));
            true
        })
}

fn has_interface(view: &View) -> bool {
    within(pid(view), || {
        let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        text.contains("wg0:")
    })
}

#[test]
fn everything_goes_through_a_tunnel_that_root_inside_has_no_rights_over() {
    let machine = machine();
    let internet = make_internet(&machine);
    let node = machine.open();
    let _peer = Peer::start(internet.id());
    // Before it is up and has its routes, taking it down succeeds and changes nothing.
    let script = "until grep -q wg0 /proc/net/route; do sleep 0.02; done
        ip link set wg0 down && echo changed
        ip addr add 10.9.0.3/32 dev wg0 && echo changed
        ip route del 0.0.0.0/1 && echo changed
        ip link del wg0 && echo changed
        echo tried; sleep 1000 & wait";
    let spec = Spec { firewall: at(Level::Names), ..machine.shell("tunnel", script) };
    let view = node.create(&spec).unwrap();
    assert!(!node.has_tunnel(&spec.id).unwrap());
    node.set_tunnel(&spec.id, &settings("0.0.0.0/0", true), endpoint()).unwrap();
    await_that("a way through", || comes_back(&view, "198.51.100.7:7000"));
    await_that("a way to where the other end is", || comes_back(&view, "203.0.113.1:7000"));
    await_console(&node, &spec.id, "tried");
    let console = String::from_utf8(node.console(&spec.id).unwrap()).unwrap();
    assert!(!console.contains("changed"), "{console}");

    // What belongs to the instance's own machine does not go through the tunnel.
    let own = TcpListener::bind((node.proxy_address().unwrap(), node::PROXY_PORT)).unwrap();
    connect(pid(&view), own.local_addr().unwrap()).unwrap();

    assert!(node.remove_tunnel(&spec.id).unwrap());
    assert!(!node.remove_tunnel(&spec.id).unwrap());
    assert!(!has_interface(&view) && !comes_back(&view, "198.51.100.7:7000"));
    node.destroy(&spec.id).unwrap();
}

#[test]
fn a_tunnel_takes_what_is_allowed_and_no_more() {
    let machine = machine();
    let internet = make_internet(&machine);
    let node = machine.open();
    let _peer = Peer::start(internet.id());
    let spec = sleeper(&machine, "some", at(Level::Open));
    let view = node.create(&spec).unwrap();
    node.set_tunnel(&spec.id, &settings("10.9.0.0/24", false), endpoint()).unwrap();
    await_that("a way through", || comes_back(&view, "10.9.0.1:7000"));
    assert!(!comes_back(&view, "10.8.0.1:7000"), "another network goes its own way");
    // Other settings replace them.
    node.set_tunnel(&spec.id, &settings("10.8.0.0/24", false), endpoint()).unwrap();
    await_that("another way through", || comes_back(&view, "10.8.0.1:7000"));
    assert!(!comes_back(&view, "10.9.0.1:7000"));
    // If all addresses are allowed, that does not mean that they are routed.
    node.set_tunnel(&spec.id, &settings("0.0.0.0/0", false), endpoint()).unwrap();
    assert!(has_interface(&view) && !comes_back(&view, "198.51.100.7:7000"));
    node.destroy(&spec.id).unwrap();
}

#[test]
fn a_change_that_is_refused_leaves_the_tunnel_as_it_was() {
    let mut machine = machine();
    machine.settings.limits.tunnels = 1;
    let internet = make_internet(&machine);
    let node = machine.open();
    let _peer = Peer::start(internet.id());
    let spec = sleeper(&machine, "steady", at(Level::Open));
    let view = node.create(&spec).unwrap();
    node.set_tunnel(&spec.id, &settings("10.9.0.0/24", false), endpoint()).unwrap();
    await_that("a way through", || comes_back(&view, "10.9.0.1:7000"));
    // No interface has packets this small, and nothing leads from the machine to this address.
    let unfit = TunnelSettings { mtu: 10, ..settings("10.8.0.0/24", false) };
    let refused = node.set_tunnel(&spec.id, &unfit, endpoint());
    assert!(matches!(refused, Err(TunnelError::Unfit(_))), "{refused:?}");
    let elsewhere = "[2001:4860:4860::8888]:51820".parse().unwrap();
    let refused = node.set_tunnel(&spec.id, &settings("10.8.0.0/24", false), elsewhere);
    assert!(matches!(refused, Err(TunnelError::Machine(_))), "{refused:?}");
    assert!(node.has_tunnel(&spec.id).unwrap() && has_interface(&view));
    await_that("the old way through", || comes_back(&view, "10.9.0.1:7000"));
    assert_eq!(ends(), 1);
    node.destroy(&spec.id).unwrap();
}

/// Counts the files of this process that are ends of tunnels.
fn ends() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    links.filter(|link| link.to_str() == Some("/dev/net/tun")).count()
}

#[test]
fn a_tunnel_ends_with_its_instance_and_before_a_firewall_that_it_would_lead_past() {
    let mut machine = machine();
    machine.settings.limits.tunnels = 1;
    let internet = make_internet(&machine);
    let node = machine.open();
    let _peer = Peer::start(internet.id());
    let [one, other] = ["one", "other"].map(|id| sleeper(&machine, id, at(Level::Open)));
    let view = node.create(&one).unwrap();
    node.create(&other).unwrap();
    let set = |node: &Node, spec: &Spec, to: &str| {
        node.set_tunnel(&spec.id, &settings("0.0.0.0/0", true), to.parse().unwrap())
    };
    for inside in ["203.0.113.2:51820", "10.1.1.1:51820", "127.0.0.1:1", "[::1]:1"] {
        assert!(matches!(set(&node, &one, inside), Err(TunnelError::Endpoint(_))), "{inside}");
    }
    set(&node, &one, "203.0.113.1:51820").unwrap();
    let full = set(&node, &other, "203.0.113.1:51820");
    assert!(matches!(full, Err(TunnelError::Refused(_))));
    assert_eq!(ends(), 1);
    await_that("a way through", || comes_back(&view, "198.51.100.7:7000"));

    node.set_firewall(&one.id, at(Level::Closed)).unwrap();
    assert!(!has_interface(&view) && !node.has_tunnel(&one.id).unwrap());
    assert!(matches!(set(&node, &one, "203.0.113.1:51820"), Err(TunnelError::Closed)));
    node.set_firewall(&one.id, at(Level::Proxied)).unwrap();
    set(&node, &one, "203.0.113.1:51820").unwrap();
    node.destroy(&one.id).unwrap();
    assert_eq!(ends(), 0);
    assert!(matches!(set(&node, &one, "203.0.113.1:51820"), Err(TunnelError::Gone)));
    set(&node, &other, "203.0.113.1:51820").unwrap();
    let view = node.inspect(&other.id).unwrap();
    drop(node);
    let node = machine.open();
    assert!(!has_interface(&view) && !node.has_tunnel(&other.id).unwrap());
    set(&node, &other, "203.0.113.1:51820").unwrap();
    await_that("a way through again", || comes_back(&view, "198.51.100.7:7000"));
    node.destroy(&other.id).unwrap();
}
