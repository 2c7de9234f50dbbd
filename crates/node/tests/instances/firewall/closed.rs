//! What does not leave an instance, or the proxy, although somebody tries.

use super::*;
use crate::machine::BUSYBOX;

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

/// A program that waits for an answer sends nothing that could be diverted anew.
#[test]
fn what_is_led_to_the_proxy_goes_on_under_other_rules() {
    let machine = Machine::new();
    let internet = make_internet(&machine);
    crate::network::sh("/usr/sbin/ip addr add 203.0.113.11/32 dev wire");
    let node = machine.open();
    let proxy = Proxy::listen(&node);
    let spec = sleeper(&machine, "led", at(Level::Open));
    let view = node.create(&spec).unwrap();
    await_server(pid(&view));
    node.set_firewall(&spec.id, at(Level::Proxied)).unwrap();
    let mut stream = connect(pid(&view), (SERVER, 9_000)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (.., mut led) = proxy.diverted();
    let (_listener, server) = echo(internet.id(), 9_000);
    let socket = within(pid(&view), || UdpSocket::bind("0.0.0.0:0").unwrap());
    let mut word = [0; 3];
    let mut seen = || {
        let _ = socket.send_to(b"one", (SERVER, 9_000));
        server.recv_from(&mut word).map(|(_, from)| from.ip().to_string()).ok()
    };
    assert_eq!(seen(), Some(MACHINE.to_string()));
    let source = Some(Ipv4Addr::new(203, 0, 113, 11));
    for (level, source, leaves) in [
        (Level::Proxied, source, Some("203.0.113.11")),
        (Level::Closed, source, None),
        (Level::Closed, None, None),
        (Level::Names, None, Some("203.0.113.2")),
        (Level::Closed, source, None),
    ] {
        node.set_firewall(&spec.id, Firewall { source, ..at(level) }).unwrap();
        assert_eq!(seen().as_deref(), leaves, "datagrams obey at once");
        led.write_all(b"led").unwrap();
        let mut word = [0; 3];
        stream.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"led", "{level:?} {source:?}");
    }
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
