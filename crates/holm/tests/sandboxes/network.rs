//! What sandboxes reach, as their rules say, and that no kill of the server opens a way.

use crate::dns::NameServer;
use crate::setup::{Client, Place, eventually};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use testing::{Holm, machine};

/// Servers at an address of the machine: loopback would be that of the sandbox, in there.
struct World {
    address: Ipv4Addr,
    port: u16,
    /// Hosts that it was asked for.
    asked: Arc<Mutex<BTreeSet<String>>>,
    names: NameServer,
}

impl World {
    fn open() -> Self {
        let subnet = machine::own().subnet();
        let subnet: Ipv4Addr = subnet.split('/').next().unwrap().parse().unwrap();
        // The last ones of the subnet are given to no instance.
        let address = Ipv4Addr::from_bits(subnet.to_bits() + 4_094);
        ip(&["address", "replace", &format!("{address}/32"), "dev", "lo"]);
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(BTreeSet::new()));
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || answer(stream.unwrap(), &noted));
            }
        });
        Self { address, port, asked, names: NameServer::start_at(address) }
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![
            ("HOLM_EGRESS__NAMESERVERS", format!("[\"{}\"]", self.names.address)),
            ("HOLM_EGRESS__INSIDE", "[\"*.test\"]".to_owned()),
        ]
    }

    fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/", self.port)
    }

    fn asked(&self, host: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|asked| asked.starts_with(host))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        ip(&["address", "delete", &format!("{}/32", self.address), "dev", "lo"]);
    }
}

fn ip(arguments: &[&str]) {
    let _ = Command::new("ip").args(arguments).status();
}

/// Says what it was asked, and notes the host.
fn answer(stream: TcpStream, noted: &Mutex<BTreeSet<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let (mut head, mut line) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            head.push_str(&line);
        }
        let lower = head.to_lowercase();
        let host = lower.lines().find_map(|line| line.strip_prefix("host: "))?.trim().to_owned();
        noted.lock().unwrap().insert(host);
        let (length, mut stream) = (head.len(), &stream);
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{head}").ok()?;
    }
}

fn start(place: &mut Place, world: &World) -> (Holm, Client) {
    place.settings = world.settings();
    place.start()
}

fn allowed(domain: &str) -> Value {
    json!({"network": {"allowedDomains": [domain]}})
}

/// What a request in a sandbox is told, or nothing.
fn reaches(client: &Client, name: &str, url: &str) -> String {
    client.run(name, &format!("wget -T 15 -qO- {url} 2>/dev/null || true"))
}

#[test]
fn rules_hold_while_the_server_is_killed_and_when_it_comes_back() {
    let world = World::open();
    let mut place = Place::new("600s");
    let (mut server, mut client) = start(&mut place, &world);
    client.create("box", &allowed("good.test"));
    assert!(reaches(&client, "box", &world.url("good.test")).contains("good.test"));
    assert_eq!(reaches(&client, "box", &world.url("bad.test")), "");
    let literal = world.url(&world.address.to_string());
    assert_eq!(reaches(&client, "box", &literal), "");
    // It goes on while nobody is there to refuse it.
    let bad = world.url("leak.test");
    let (one, two) = (format!("wget -T 1 -qO- {literal}"), format!("wget -T 1 -qO- {bad}"));
    let tries = format!(
        "while true; do ({one}; {two}) >>/tmp/leaks 2>/dev/null; echo x >>/tmp/tries; done"
    );
    let trying = json!({"command": tries, "name": "trying", "keepAlive": true});
    client.done("POST", "/main/sandboxes/box/process", Some(&trying));
    for _ in 0..3 {
        server.kill();
        (server, client) = start(&mut place, &world);
        assert!(reaches(&client, "box", &world.url("good.test")).contains("good.test"));
        assert_eq!(reaches(&client, "box", &world.url("bad.test")), "");
        let before = client.run("box", "wc -l </tmp/tries");
        eventually("it goes on trying", || client.run("box", "wc -l </tmp/tries") != before);
        assert_eq!(client.run("box", "cat /tmp/leaks"), "");
    }
    for host in ["bad.test", "leak.test", &world.address.to_string()] {
        assert!(!world.asked(host), "{host} was reached");
    }
    place.clear(server, &client);
}

#[test]
fn a_change_of_rules_holds_when_it_is_answered_and_makes_nothing_anew() {
    let world = World::open();
    let mut place = Place::new("600s");
    let (server, client) = start(&mut place, &world);
    client.create("box", &json!({}));
    client.run("box", "echo kept >/tmp/kept");
    // Without rules nothing inside is reached, whatever `inside` says.
    assert_eq!(reaches(&client, "box", &world.url("one.test")), "");
    for (allowed_one, refused) in [("one", "two"), ("two", "one"), ("one", "two")] {
        let mut wish = client.get("box");
        wish["spec"]["network"] = json!({"allowedDomains": [format!("{allowed_one}.test")]});
        client.done("PUT", "/v0/sandboxes/box", Some(&wish));
        let name = format!("{allowed_one}.test");
        assert!(reaches(&client, "box", &world.url(&name)).contains(&name));
        assert_eq!(reaches(&client, "box", &world.url(&format!("{refused}.test"))), "");
    }
    assert_eq!(client.run("box", "cat /tmp/kept"), "kept\n");
    place.clear(server, &client);
}

#[test]
fn a_secret_reaches_its_destination_and_not_the_sandbox_that_uses_it() {
    let world = World::open();
    let mut place = Place::new("600s");
    let (server, client) = start(&mut place, &world);
    let rule = json!({"destinations": ["api.test"], "headers": {"x-key": "{{SECRET:key}}"}, "secrets": {"key": "s3cret-4711"}});
    let made = client.create("box", &json!({"network": {"proxy": {"routing": [rule]}}}));
    assert_eq!(made["spec"]["network"]["proxy"]["routing"][0]["secrets"]["key"], "s3cret-4711");
    assert!(!client.get("box").to_string().contains("s3cret"));
    assert!(reaches(&client, "box", &world.url("api.test")).contains("x-key: s3cret-4711"));
    assert!(!reaches(&client, "box", &world.url("other.test")).contains("s3cret"));
    let search = "! grep -rlsF s3cret-47 /proc/[0-9]*/environ /proc/[0-9]*/cmdline /etc /var /run";
    client.run("box", search);
    place.clear(server, &client);
}

#[test]
fn forks_keep_to_rules_of_their_own() {
    let world = World::open();
    let mut place = Place::new("600s");
    let (server, client) = start(&mut place, &world);
    client.create("box", &allowed("good.test"));
    client.run("box", "echo kept >/tmp/kept");
    let fork = json!({"targetName": "fork", "targetType": "sandbox"});
    client.done("POST", "/v0/sandboxes/box/fork", Some(&fork));
    eventually("the fork runs", || client.get("fork")["status"] == "DEPLOYED");
    assert_eq!(client.run("fork", "cat /tmp/kept"), "kept\n");
    assert!(reaches(&client, "fork", &world.url("good.test")).contains("good.test"));
    assert_eq!(reaches(&client, "fork", &world.url("bad.test")), "");
    // The credential of one opens nothing for the other.
    let proxies = ["box", "fork"].map(|name| client.run(name, "echo $HTTP_PROXY"));
    assert_ne!(proxies[0], proxies[1]);
    place.clear(server, &client);
}
