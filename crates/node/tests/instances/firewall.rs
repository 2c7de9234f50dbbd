//! What the machine's firewall does with the packets of single instances.

mod closed;
mod nodes;

use crate::machine::{Machine, PATIENCE, await_that};
use crate::network::{make_internet, within};
use node::{Egress, Firewall, Level, NAMES_PORT, Node, PROXY_PORT, Spec, TRANSPARENT_PORT, View};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// The server of [`make_internet`], and the machine's address as the server sees it.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
pub(crate) const MACHINE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
/// How long to wait for something that must not arrive. What does arrive here takes no time.
pub(crate) const IN_VAIN: Duration = Duration::from_millis(300);

pub(crate) fn at(level: Level) -> Firewall {
    Firewall { level, ..Firewall::default() }
}

pub(crate) fn sleeper(machine: &Machine, id: &str, firewall: Firewall) -> Spec {
    Spec { firewall, ..machine.shell(id, "sleep 1000 & wait") }
}

pub(crate) fn pid(view: &View) -> u32 {
    view.pid.unwrap().unsigned_abs()
}

pub(crate) fn connect(from: u32, to: impl Into<SocketAddr>) -> io::Result<TcpStream> {
    let to = to.into();
    within(from, || TcpStream::connect_timeout(&to, IN_VAIN))
}

/// Returns the server's answer, if it can be reached.
fn fetch(from: u32) -> io::Result<String> {
    let mut stream = connect(from, (SERVER, 80))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// The ports of this machine's proxy, to see whether something arrives there.
struct Proxy {
    transparent: TcpListener,
    explicit: TcpListener,
    names: UdpSocket,
}

impl Proxy {
    fn listen(node: &Node) -> Self {
        let address = node.proxy_address().unwrap();
        let names = UdpSocket::bind((address, NAMES_PORT)).unwrap();
        names.set_read_timeout(Some(PATIENCE)).unwrap();
        let listen = |port| TcpListener::bind((address, port)).unwrap();
        Self { transparent: listen(TRANSPARENT_PORT), explicit: listen(PROXY_PORT), names }
    }

    /// Returns who connected, and where the connection was meant to go.
    fn diverted(&self) -> (Ipv4Addr, SocketAddrV4, TcpStream) {
        let (stream, from) = self.transparent.accept().unwrap();
        let IpAddr::V4(from) = from.ip() else { unreachable!("{from}") };
        (from, original_destination(&stream), stream)
    }
}

#[expect(unsafe_code, reason = "no safe interface here asks for the destination before diversion")]
fn original_destination(stream: &TcpStream) -> SocketAddrV4 {
    use std::os::fd::AsRawFd;
    let mut address = libc::sockaddr_in {
        sin_family: 0,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: 0 },
        sin_zero: [0; 8],
    };
    let mut length = libc::socklen_t::try_from(size_of_val(&address)).unwrap();
    // SAFETY: the kernel writes at most `length` bytes into `address`.
    let told = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_IP,
            libc::SO_ORIGINAL_DST,
            (&raw mut address).cast(),
            &raw mut length,
        )
    };
    assert_eq!(told, 0, "{}", io::Error::last_os_error());
    let ip = Ipv4Addr::from_bits(u32::from_be(address.sin_addr.s_addr));
    SocketAddrV4::new(ip, u16::from_be(address.sin_port))
}

fn await_server(from: u32) {
    await_that("the server", || fetch(from).is_ok_and(|text| text.ends_with("reached\n")));
}

#[test]
fn tcp_of_a_proxied_instance_arrives_at_the_proxy_with_its_destination() {
    let mut machine = Machine::new();
    let _internet = make_internet(&machine);
    let door = SocketAddrV4::new(MACHINE, 8_088);
    machine.settings.egress = Egress::internet_only(vec![door]);
    let node = machine.open();
    let proxy = Proxy::listen(&node);
    let at_door = TcpListener::bind(door).unwrap();
    for level in [Level::Proxied, Level::Closed] {
        let spec = sleeper(&machine, "led", at(level));
        let view = node.create(&spec).unwrap();
        assert_eq!(node.firewall(&spec.id).unwrap(), at(level));
        for to in ["203.0.113.1:80", "169.254.169.254:80", "10.199.0.77:443", "169.254.1.1:22"] {
            let to: SocketAddrV4 = to.parse().unwrap();
            let mut stream = connect(pid(&view), to).unwrap();
            let (from, wanted, mut diverted) = proxy.diverted();
            assert_eq!((from, wanted), (view.address, to), "{level:?}");
            diverted.write_all(b"led").unwrap();
            let mut word = [0; 3];
            stream.read_exact(&mut word).unwrap();
            assert_eq!((&word, stream.peer_addr().unwrap()), (b"led", to.into()));
        }
        drop(connect(pid(&view), door).unwrap());
        assert_eq!(*at_door.accept().unwrap().1.ip().to_string(), view.address.to_string());
        drop(connect(pid(&view), (node.proxy_address().unwrap(), PROXY_PORT)).unwrap());
        proxy.explicit.accept().unwrap();
        // A connection that was not diverted has no original destination.
        let straight = (node.proxy_address().unwrap(), TRANSPARENT_PORT);
        assert!(connect(pid(&view), straight).is_err());
        node.destroy(&spec.id).unwrap();
    }
}

#[test]
fn questions_for_names_arrive_at_the_resolver_and_are_answered_by_who_was_asked() {
    let machine = Machine::new();
    let _internet = make_internet(&machine);
    let node = machine.open();
    let proxy = Proxy::listen(&node);
    let names = TcpListener::bind((node.proxy_address().unwrap(), NAMES_PORT)).unwrap();
    let spec = sleeper(&machine, "asks", at(Level::Names));
    let view = node.create(&spec).unwrap();
    let socket = within(pid(&view), || UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let own = (node.proxy_address().unwrap(), NAMES_PORT);
    for asked in ["192.0.2.53:53".parse().unwrap(), (SERVER, 53).into(), SocketAddr::from(own)] {
        socket.send_to(b"who?", asked).unwrap();
        let mut text = [0; 16];
        let (length, from) = proxy.names.recv_from(&mut text).unwrap();
        assert_eq!((&text[..length], from.ip()), (&b"who?"[..], view.address.into()));
        proxy.names.send_to(b"me", from).unwrap();
        let (length, from) = socket.recv_from(&mut text).unwrap();
        assert_eq!((&text[..length], from), (&b"me"[..], asked));
    }
    drop(connect(pid(&view), (SERVER, 53)).unwrap());
    assert_eq!(names.accept().unwrap().1.ip(), view.address);
    // Everything else goes to its destination.
    await_server(pid(&view));
    node.destroy(&spec.id).unwrap();
}

#[test]
fn questions_of_one_instance_leave_the_socket_to_others() {
    let mut machine = Machine::new();
    machine.settings.limits.questions_per_s = 1;
    let node = machine.open();
    let proxy = Proxy::listen(&node);
    let [greedy, next] = ["greedy", "next"].map(|id| sleeper(&machine, id, at(Level::Names)));
    let (view, neighbour) = (node.create(&greedy).unwrap(), node.create(&next).unwrap());
    within(pid(&view), || {
        // As one connection, and as many.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for _ in 0..200 {
            // If a packet is dropped, sending may fail.
            let _ = socket.send_to(b"who?", (SERVER, 53));
            let other = UdpSocket::bind("0.0.0.0:0").unwrap();
            let _ = other.send_to(b"who?", (SERVER, 53));
        }
    });
    within(pid(&neighbour), || {
        UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"who?", (SERVER, 53)).unwrap();
    });
    let mut asked = 0;
    while proxy.names.recv_from(&mut [0; 16]).unwrap().1.ip() != neighbour.address {
        asked += 1;
    }
    assert!((1..200).contains(&asked), "{asked} questions");
    for spec in [greedy, next] {
        node.destroy(&spec.id).unwrap();
    }
}

#[test]
fn the_proxy_is_for_instances_with_a_level_alone() {
    let machine = Machine::new();
    let internet = make_internet(&machine);
    let node = machine.open();
    let _proxy = Proxy::listen(&node);
    let address = node.proxy_address().unwrap();
    let spec = sleeper(&machine, "open", at(Level::Open));
    let view = node.create(&spec).unwrap();
    await_server(pid(&view));
    for port in [PROXY_PORT, TRANSPARENT_PORT] {
        assert!(connect(pid(&view), (address, port)).is_err(), "{port}");
    }
    // Nobody connected to the machine gets there either, whatever routes they have.
    crate::network::sh(&format!(
        "nsenter -t {} -n /usr/sbin/ip route add {address}/32 via {MACHINE}",
        internet.id()
    ));
    assert!(connect(internet.id(), (address, PROXY_PORT)).is_err());
    node.destroy(&spec.id).unwrap();
}

#[test]
fn instances_of_one_group_reach_each_other_and_no_others() {
    let machine = Machine::new();
    let node = machine.open();
    let of = |level, group: &str| Firewall { group: Some(group.to_owned()), ..at(level) };
    let made = [
        ("a", of(Level::Closed, "one")),
        ("b", of(Level::Names, "one")),
        ("c", of(Level::Open, "two")),
        ("d", Firewall::default()),
    ]
    .map(|(id, firewall)| {
        let spec = sleeper(&machine, id, firewall);
        (node.create(&spec).unwrap(), spec.id)
    });
    let [a, b, c, d] = &made.each_ref().map(|(view, _)| view);
    let listener = within(pid(b), || TcpListener::bind("0.0.0.0:80").unwrap());
    let reach = |from: &View, to: &View| connect(pid(from), (to.address, 80)).is_ok();
    assert!(reach(a, b));
    assert_eq!(listener.accept().unwrap().1.ip(), a.address, "under its own address");
    let datagrams = within(pid(b), || UdpSocket::bind("0.0.0.0:53").unwrap());
    datagrams.set_read_timeout(Some(PATIENCE)).unwrap();
    within(pid(a), || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(b"any", (b.address, 53)).unwrap();
    });
    let mut word = [0; 4];
    assert_eq!(datagrams.recv_from(&mut word).unwrap().1.ip(), a.address, "whatever the protocol");
    for stranger in [c, d] {
        assert!(!reach(stranger, b));
    }
    within(pid(a), || {
        let _ = TcpListener::bind("0.0.0.0:80").map(std::mem::forget);
    });
    assert!(reach(b, a));

    node.set_firewall(&made[0].1, of(Level::Closed, "two")).unwrap();
    assert!(!reach(a, b) && !reach(b, a), "not after it has left");
    assert!(reach(c, a));
    node.set_firewall(&made[0].1, at(Level::Closed)).unwrap();
    assert!(!reach(c, a));
    for (_, id) in &made {
        node.destroy(id).unwrap();
    }
}

#[test]
fn what_has_a_source_address_leaves_with_it() {
    let machine = Machine::new();
    let internet = make_internet(&machine);
    crate::network::sh(
        "for last in 11 12; do /usr/sbin/ip addr add 203.0.113.$last/32 dev wire; done",
    );
    let node = machine.open();
    let source =
        |last| Firewall { source: Some(Ipv4Addr::new(203, 0, 113, last)), ..Firewall::default() };
    let spec = sleeper(&machine, "sourced", source(11));
    let view = node.create(&spec).unwrap();
    await_server(pid(&view));
    let listener = within(internet.id(), || TcpListener::bind((SERVER, 9_000)).unwrap());
    let seen = || {
        drop(connect(pid(&view), (SERVER, 9_000)).unwrap());
        listener.accept().unwrap().1.ip().to_string()
    };
    assert_eq!(seen(), "203.0.113.11");
    node.set_firewall(&spec.id, source(12)).unwrap();
    assert_eq!(seen(), "203.0.113.12");
    node.set_firewall(&spec.id, Firewall::default()).unwrap();
    assert_eq!(seen(), MACHINE.to_string());
    node.destroy(&spec.id).unwrap();
}

/// Run it by its name. A change must be cheap, because it is part of each start with rules.
#[test]
#[ignore = "a measurement"]
fn a_change_takes_no_time() {
    let machine = Machine::new();
    let node = machine.open();
    let spec = sleeper(&machine, "changed", at(Level::Open));
    node.create(&spec).unwrap();
    let mut times: Vec<_> = (0..200)
        .map(|round| {
            let level = if round % 2 == 0 { Level::Closed } else { Level::Open };
            let begin = Instant::now();
            node.set_firewall(&spec.id, at(level)).unwrap();
            begin.elapsed()
        })
        .collect();
    times.sort_unstable();
    println!("p10 {:?} p50 {:?} p99 {:?}", times[20], times[100], times[198]);
    node.destroy(&spec.id).unwrap();
}
