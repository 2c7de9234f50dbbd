//! A stand-in for the internet: a separate network, at addresses that are not routed and that no
//! rule takes for inside addresses.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use testing::machine;

/// Removed on drop.
pub(crate) struct Internet {
    name: String,
    network: [u8; 3],
    /// Further addresses of this machine in that network.
    own: Vec<Ipv4Addr>,
}

impl Internet {
    pub(crate) fn open() -> Self {
        let subnet = machine::own().subnet();
        let subnet: Ipv4Addr = subnet.split('/').next().unwrap().parse().unwrap();
        let [_, a, b, _] = subnet.octets();
        let own = Self { name: format!("hti{a}-{b}"), network: [11, a, b], own: Vec::new() };
        own.clear();
        let (name, near) = (own.name.as_str(), own.name.as_str());
        ip(&["netns", "add", name]);
        ip(&["link", "add", near, "type", "veth", "peer", "name", "far", "netns", name]);
        ip(&["address", "add", &format!("{}/30", own.machine()), "dev", near]);
        ip(&["link", "set", near, "up"]);
        ip(&["-n", name, "address", "add", &format!("{}/30", own.server()), "dev", "far"]);
        ip(&["-n", name, "link", "set", "far", "up"]);
        own
    }

    fn address(&self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.network;
        Ipv4Addr::new(a, b, c, last)
    }

    /// Returns the address of this machine as seen from there.
    pub(crate) fn machine(&self) -> Ipv4Addr {
        self.address(1)
    }

    pub(crate) fn server(&self) -> Ipv4Addr {
        self.address(2)
    }

    /// Adds an address that leads to this machine.
    pub(crate) fn lead_here(&mut self, last: u8) -> Ipv4Addr {
        let (address, machine) = (self.address(last), self.machine().to_string());
        let one = format!("{address}/32");
        ip(&["-n", &self.name, "route", "add", &one, "via", &machine]);
        ip(&["address", "replace", &one, "dev", "lo"]);
        self.own.push(address);
        address
    }

    pub(crate) fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let space = File::open(format!("/run/netns/{}", self.name)).unwrap();
        let act = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(space.as_fd(), kind).unwrap();
            act()
        };
        std::thread::scope(|scope| scope.spawn(act).join().unwrap())
    }

    /// Starts a server that tells its clients the address they come from, and returns its port. It
    /// serves until the process ends.
    pub(crate) fn serve(&self) -> u16 {
        let listener = self.within(|| TcpListener::bind((self.server(), 0)).unwrap());
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || answer(stream.unwrap()));
            }
        });
        port
    }

    /// Removes everything. The interface goes first, by its name: removed with the network, it
    /// would vanish some time after the network's name, and the next test with this number could
    /// not make its own.
    fn clear(&self) {
        let name = self.name.as_str();
        for arguments in [["link", "delete", name], ["netns", "delete", name]] {
            let _ = Command::new("ip").args(arguments).stderr(Stdio::null()).status();
        }
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        for address in &self.own {
            let one = format!("{address}/32");
            let _ = Command::new("ip").args(["address", "delete", &one, "dev", "lo"]).status();
        }
        self.clear();
    }
}

fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).status().unwrap();
    assert!(done.success(), "ip {}", arguments.join(" "));
}

fn answer(mut stream: TcpStream) -> Option<()> {
    let from: IpAddr = stream.peer_addr().ok()?.ip();
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    while !lines.next()?.ok()?.is_empty() {}
    let body = format!("from {from}");
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).ok()
}
