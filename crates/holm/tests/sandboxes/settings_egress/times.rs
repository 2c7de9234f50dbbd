//! How long things may take.

use super::{NOWHERE, UNFINISHED, allowed, asks, greets, resolves, serve, start, told};
use crate::settings::end;
use crate::setup::{Client, eventually};
use crate::world::World;
use socket2::{Domain, Socket, Type};
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;
use testing::machine;

/// The port of the proxy for instances.
const PROXY_PORT: u16 = 3128;

/// Returns whether a connection ends soon on which the program says only this.
fn ends(client: &Client, name: &str, begin: &str, to: impl std::fmt::Display, port: u16) -> bool {
    let say = format!("rm -f /tmp/say; mkfifo /tmp/say; exec 3<>/tmp/say; printf '{begin}' >&3");
    let listen = format!("timeout 5 nc {to} {port} <&3 >/dev/null; [ $? != 143 ] && echo ended");
    told(client, name, &format!("{say}; {listen}")) == "ended\n"
}

/// Returns an address that accepts no connections, because its queue is full, and what fills it.
fn full(address: Ipv4Addr) -> (u16, Socket, Vec<TcpStream>) {
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    full.listen(0).unwrap();
    let to = full.local_addr().unwrap().as_socket().unwrap();
    let soon = Duration::from_millis(200);
    let queue = std::iter::from_fn(|| TcpStream::connect_timeout(&to, soon).ok()).collect();
    (to.port(), full, queue)
}

#[test]
fn connections_and_answers_may_take_as_long_as_the_settings_say() {
    let world = World::open();
    let here = start(&world, "connect_timeout = \"1s\"\nanswer_timeout = \"1s\"");
    let client = &here.2;
    client.create("box", &allowed(&["*.test"]));
    let (port, _socket, _queue) = full(world.address);
    for (host, port) in [("good.test", port), ("mute.test", world.port)] {
        eventually("it is given up in time", || {
            let answer = asks(client, "box", host, port);
            answer.contains(" 504 ") && answer.contains("upstream_timeout")
        });
    }
    end(here);
}

#[test]
fn programs_may_be_silent_as_long_as_the_settings_say() {
    let world = World::open();
    let port = world.greet();
    let here = start(&world, "hello_timeout = \"1s\"\nidle = \"1s\"");
    let client = &here.2;
    client.create("box", &allowed(&["*.test"]));
    eventually("it has to say where it goes", || {
        ends(client, "box", UNFINISHED, NOWHERE, world.port)
    });
    eventually("the name is known", || resolves(client, "box", "good.test"));
    // Both before and after the program has said something.
    for begin in ["", "hello "] {
        eventually("it is reached", || greets(client, "box", world.address, port));
        eventually("silence ends it", || ends(client, "box", begin, world.address, port));
    }
    end(here);
}

#[test]
fn workloads_wait_for_their_rules_as_long_as_the_settings_say() {
    let world = World::open();
    let here = start(&world, "launch_wait = \"1s\"");
    let subnet = machine::own().subnet();
    let subnet: Ipv4Addr = subnet.split('/').next().unwrap().parse().unwrap();
    let proxy = SocketAddr::from((Ipv4Addr::from_bits(subnet.to_bits() + 1), PROXY_PORT));
    eventually("nobody waits any longer", || {
        // The address could be one of a sandbox, and never gets rules.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((world.address, 0)).into()).unwrap();
        socket.connect(&proxy.into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        matches!(stream.read(&mut [0]), Ok(0))
    });
    end(here);
}

#[test]
fn names_count_as_long_after_their_answers_as_the_settings_say() {
    let world = World::open();
    let port = world.greet();
    let here = start(&world, "names_grace = \"0s\"");
    let client = &here.2;
    client.create("box", &allowed(&["*.test"]));
    // Answers are valid for a second.
    eventually("it is reached", || {
        let both = format!("nslookup -type=a kept.test; : | timeout 5 nc {} {port}", world.address);
        told(client, "box", &both).contains("220 hello")
    });
    eventually("the name has expired", || !greets(client, "box", world.address, port));
    end(here);
}

#[test]
fn the_next_name_server_is_asked_when_the_settings_say() {
    let world = World::open();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let servers = [silent.local_addr().unwrap(), world.names.address].map(|it| it.to_string());
    let rest = "inside = [\"*.test\"]\nnameserver_timeout = \"100ms\"";
    let here = serve(&format!("nameservers = {servers:?}\n{rest}"));
    let client = &here.2;
    client.create("box", &allowed(&["*.test"]));
    let mut count = 0;
    eventually("it is told in time", || {
        // Names that were asked for before may be known meanwhile.
        count += 1;
        resolves(client, "box", &format!("name-{count}.test"))
    });
    end(here);
}
