//! What the machine's firewall does with the packets of single instances.

use crate::machine::{BUSYBOX, Machine, PATIENCE, await_that};
use crate::network::{make_internet, within};
use node::{Egress, Firewall, Level, NAMES_PORT, Node, PROXY_PORT, Spec, TRANSPARENT_PORT, View};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// Sends packets of all kinds, as somebody with every right over the network of an instance.
fn attack(from: u32) {
    let ping = format!("timeout 1 {BUSYBOX} ping -c 1 -W 1 {SERVER}");
    let output = std::process::Command::new("nsenter")
        .args(["-t", &from.to_string(), "-n", "sh", "-c", &ping])
        .output()
        .unwrap();
    drop(output);
    within(from, || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_broadcast(true).unwrap();
        // The last is larger than a packet, and is sent in fragments.
        for (to, length) in [(9_000, 5), (443, 1_200), (123, 48), (9_000, 8_000)] {
            socket.send_to(&vec![7; length], (SERVER, to)).unwrap();
        }
        for to in ["255.255.255.255:9000", "203.0.113.255:9000", "224.0.0.251:5353"] {
            // The kernel itself may refuse this.
            let _ = socket.send_to(b"all", to);
        }
        for protocol in [47, 50, 132, 4, 255] {
            raw(protocol, SERVER);
        }
    });
}

/// Sends a packet of any protocol.
#[expect(unsafe_code, reason = "no safe interface here makes raw sockets")]
fn raw(protocol: i32, to: Ipv4Addr) {
    use std::os::fd::FromRawFd;
    // SAFETY: this makes a descriptor, which the socket then owns alone.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_RAW, protocol);
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        UdpSocket::from_raw_fd(fd)
    };
    let mut packet = vec![0_u8; 64];
    if protocol == 255 {
        // Here the sender makes the header: a late fragment of a datagram for another port.
        packet[0] = 0x45;
        packet[6..8].copy_from_slice(&[0x20, 0x08]);
        packet[8] = 64;
        packet[9] = 17;
        packet[16..20].copy_from_slice(&to.octets());
    }
    let _ = socket.send_to(&packet, (to, 0));
}

/// Counts the IPv4 packets that have arrived at the far end.
fn arrived(internet: u32) -> u64 {
    within(internet, || {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let mut ip = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let at = ip.next().unwrap().split(' ').position(|name| name == "InReceives").unwrap();
        ip.next().unwrap().split(' ').nth(at).unwrap().parse().unwrap()
    })
}

#[test]
fn nothing_but_what_is_led_leaves_a_closed_instance() {
    let machine = Machine::new();
    let internet = make_internet(&machine);
    let node = machine.open();
    let _proxy = Proxy::listen(&node);
    let spec = sleeper(&machine, "closed", at(Level::Open));
    let view = node.create(&spec).unwrap();
    await_server(pid(&view));
    let before = arrived(internet.id());
    attack(pid(&view));
    assert!(arrived(internet.id()) >= before + 8, "the attack is one");

    node.set_firewall(&spec.id, at(Level::Closed)).unwrap();
    let before = arrived(internet.id());
    attack(pid(&view));
    connect(pid(&view), (SERVER, 80)).unwrap();
    // A link keeps the order: whatever came before this has been counted by now.
    UdpSocket::bind((MACHINE, 0)).unwrap().send_to(b"end", (SERVER, 9_000)).unwrap();
    await_that("the end", || arrived(internet.id()) > before);
    assert_eq!(arrived(internet.id()), before + 1);
    node.destroy(&spec.id).unwrap();
}

/// Sends back each line that it receives.
fn echo(internet: u32, port: u16) -> (TcpListener, UdpSocket) {
    within(internet, || {
        let udp = UdpSocket::bind((SERVER, port)).unwrap();
        udp.set_read_timeout(Some(IN_VAIN)).unwrap();
        (TcpListener::bind((SERVER, port)).unwrap(), udp)
    })
}

#[test]
fn no_connection_goes_on_past_a_stricter_level() {
    let machine = Machine::new();
    let internet = make_internet(&machine);
    let node = machine.open();
    let proxy = Proxy::listen(&node);
    let spec = sleeper(&machine, "raised", at(Level::Open));
    let view = node.create(&spec).unwrap();
    await_server(pid(&view));
    let (listener, server) = echo(internet.id(), 9_000);
    let names = within(internet.id(), || UdpSocket::bind((SERVER, 53)).unwrap());
    let mut stream = connect(pid(&view), (SERVER, 9_000)).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let socket = within(pid(&view), || UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.set_read_timeout(Some(IN_VAIN)).unwrap();
    let mut word = [0; 4];
    socket.send_to(b"one", (SERVER, 9_000)).unwrap();
    let (_, from) = server.recv_from(&mut word).unwrap();
    socket.send_to(b"ask", (SERVER, 53)).unwrap();
    names.set_read_timeout(Some(PATIENCE)).unwrap();
    let (_, asked_from) = names.recv_from(&mut word).unwrap();

    node.set_firewall(&spec.id, at(Level::Names)).unwrap();
    // From the same port as before, and yet it is diverted.
    socket.send_to(b"ask", (SERVER, 53)).unwrap();
    assert_eq!(proxy.names.recv_from(&mut word).unwrap().1.ip(), view.address);
    stream.write_all(b"on").unwrap();
    far.read_exact(&mut word[..2]).unwrap();

    node.set_firewall(&spec.id, at(Level::Closed)).unwrap();
    server.send_to(b"two", from).unwrap();
    names.send_to(b"late", asked_from).unwrap();
    socket.send_to(b"one", (SERVER, 9_000)).unwrap();
    assert!(server.recv_from(&mut word).is_err(), "datagrams stop");
    assert!(socket.recv_from(&mut word).is_err(), "in both directions");
    // Either the kernel refuses at once, or the connection is gone.
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(b"more");
    assert!(stream.read(&mut word).map_or(true, |length| length == 0), "the connection is cut");
    far.set_read_timeout(Some(IN_VAIN)).unwrap();
    assert!(!far.read(&mut word).is_ok_and(|length| length > 0), "nothing of it arrived");

    node.set_firewall(&spec.id, at(Level::Open)).unwrap();
    await_server(pid(&view));
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

/// Lists the sets and maps of this machine, without the counts of connections, which the kernel
/// forgets whenever it likes.
fn elements() -> String {
    let output =
        std::process::Command::new("/usr/sbin/nft").args(["list", "sets"]).output().unwrap();
    let maps = std::process::Command::new("/usr/sbin/nft").args(["list", "maps"]).output().unwrap();
    let text = String::from_utf8([output.stdout, maps.stdout].concat()).unwrap();
    text.lines().filter(|line| !line.contains("ct count")).collect()
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

/// A second barrier, behind the proxy's own checks.
#[test]
fn marked_sockets_do_not_reach_what_is_closed() {
    let mut machine = Machine::new();
    let internet = make_internet(&machine);
    let Egress::Internet { inside, .. } = &mut machine.settings.egress else { unreachable!() };
    inside.push("10.1.1.0/24".parse().unwrap());
    let node = machine.open();
    let _listeners = ["10.1.1.1:9000", "169.254.169.254:9000", "203.0.113.1:9000"]
        .map(|at| within(internet.id(), || TcpListener::bind(at).unwrap()));
    let _own = TcpListener::bind((MACHINE, 9_000)).unwrap();
    let marked = |to: &str| {
        use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
        let to: SocketAddr = to.parse().unwrap();
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        mark(&socket);
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(IN_VAIN)).unwrap();
        connect(&socket, &to).is_ok()
    };
    await_that("the internet", || marked("203.0.113.1:9000"));
    assert!(marked("10.1.1.1:9000"), "what the settings name");
    assert!(!marked("169.254.169.254:9000"), "metadata");
    assert!(!marked("203.0.113.2:9000"), "the machine");
    assert!(!marked("127.0.0.1:9000"), "the machine");
    assert!(TcpStream::connect("169.254.169.254:9000").is_ok(), "others do");
    drop(node);
}

#[expect(unsafe_code, reason = "no safe interface here marks sockets")]
fn mark(socket: &impl std::os::fd::AsRawFd) {
    let mark = node::EGRESS_MARK;
    // SAFETY: the kernel reads four bytes of `mark`.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MARK,
            (&raw const mark).cast(),
            4,
        )
    };
    assert_eq!(set, 0);
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
