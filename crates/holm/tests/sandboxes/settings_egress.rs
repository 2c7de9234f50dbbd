//! Settings of the way out, given in a file: the effect of each can be seen from outside. Tried
//! elsewhere are authorities (`runtimes`), the address that traffic leaves with (`vpcs`), and
//! bodies of a workspace and of all (`network`).

mod limits;
mod times;

use crate::settings::end;
use crate::setup::{Client, Place, eventually};
use crate::world::World;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use testing::Holm;

/// Nothing is there. A request that is sent to it goes to its host.
const NOWHERE: &str = "203.0.113.9";
/// The beginning of a request that does not go on.
const UNFINISHED: &str = "GET / HT";

/// Starts a server with these settings of the way out in its file.
fn serve(egress: &str) -> (Holm, Place, Client) {
    let mut place = Place::new("600s");
    std::fs::write(place.data().join("holm.toml"), format!("[egress]\n{egress}")).unwrap();
    let (server, client) = place.start();
    (server, place, client)
}

/// Starts a server for which all names of the world are inside.
fn start(world: &World, egress: &str) -> (Holm, Place, Client) {
    let names = world.names.address;
    serve(&format!("nameservers = [\"{names}\"]\ninside = [\"*.test\"]\n{egress}"))
}

fn allowed(patterns: &[&str]) -> Value {
    json!({"network": {"allowedDomains": patterns}})
}

/// Returns the output of a command, however it ends.
fn told(client: &Client, name: &str, command: &str) -> String {
    client.run(name, &format!("({command}) 2>/dev/null || true"))
}

/// Returns the answer to a request of a program that does not use the proxy, if it comes soon.
fn asks(client: &Client, name: &str, host: &str, port: u16) -> String {
    let head = format!("GET / HTTP/1.1\\r\\nHost: {host}:{port}\\r\\nConnection: close");
    told(client, name, &format!("printf '{head}\\r\\n\\r\\n' | timeout 5 nc {NOWHERE} {port}"))
}

fn passes(client: &Client, name: &str, host: &str, world: &World) -> bool {
    asks(client, name, host, world.port).contains("200 OK")
}

fn resolves(client: &Client, name: &str, host: &str) -> bool {
    told(client, name, &format!("timeout 1 nslookup -type=a {host}")).contains("Address: 1")
}

/// Returns whether the server at the address speaks to a program that says nothing.
fn greets(client: &Client, name: &str, to: Ipv4Addr, port: u16) -> bool {
    told(client, name, &format!(": | timeout 5 nc {to} {port}")).contains("220 hello")
}

#[test]
fn only_hosts_inside_that_the_settings_list_are_reached() {
    let world = World::open();
    let names = world.names.address;
    let here = serve(&format!("nameservers = [\"{names}\"]\ninside = [\"good.test\"]"));
    let client = &here.2;
    client.create("box", &allowed(&["*.test"]));
    eventually("the one inside is reached", || passes(client, "box", "good.test", &world));
    eventually("the other one is blocked", || {
        let answer = asks(client, "box", "bad.test", world.port);
        answer.contains("firewall_blocked") && answer.contains("not on the internet")
    });
    assert!(!world.asked("bad.test"));
    end(here);
}

/// Serves as the proxy of an organisation that leads everything to one address. Returns its address
/// and the heads of what it was asked.
fn organisation(to: SocketAddrV4) -> (SocketAddr, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked: Arc<Mutex<String>> = Arc::default();
    let noted = Arc::clone(&asked);
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (near, far) = (near.unwrap(), TcpStream::connect(to).unwrap());
            let mut lines = BufReader::new(near.try_clone().unwrap()).lines();
            while let Some(Ok(line)) =
                lines.next().filter(|line| line.as_ref().is_ok_and(|it| !it.is_empty()))
            {
                noted.lock().unwrap().push_str(&(line + "\n"));
            }
            (&near).write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            for (from, to) in [(&near, &far), (&far, &near)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (address, asked)
}

#[test]
fn everything_goes_through_the_proxy_of_the_settings_but_what_they_leave_out() {
    let world = World::open();
    let (proxy, asked) = organisation(SocketAddrV4::new(world.address, world.port));
    let password = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(password.path(), "open sesame\n").unwrap();
    let user =
        format!("proxy_user = \"holm\"\nproxy_password_file = \"{}\"", password.path().display());
    let here =
        start(&world, &format!("proxy = \"http://{proxy}\"\n{user}\nno_proxy = [\"near.test\"]"));
    let client = &here.2;
    client.create("box", &allowed(&["*.test"]));
    eventually("the near one is reached", || passes(client, "box", "near.test", &world));
    assert_eq!(*asked.lock().unwrap(), "");
    eventually("the far one is reached", || passes(client, "box", "far.test", &world));
    let asked = asked.lock().unwrap().clone();
    assert!(asked.starts_with(&format!("CONNECT far.test:{} HTTP/1.1\n", world.port)), "{asked}");
    // `holm:open sesame`
    assert!(asked.contains("Proxy-Authorization: Basic aG9sbTpvcGVuIHNlc2FtZQ==\n"), "{asked}");
    end(here);
}

#[test]
fn a_workspace_has_as_many_addresses_as_the_settings_say() {
    let pool = "addresses = [\"192.0.2.10\", \"192.0.2.16/31\"]";
    for (settings, statuses) in [
        (format!("{pool}\naddresses_workspace_max = 2"), [200, 200, 409, 409]),
        (pool.to_owned(), [200, 200, 200, 409]),
    ] {
        let here = serve(&settings);
        let client = &here.2;
        let gateways = "/v0/vpcs/default/egressgateways";
        let gateway = json!({"metadata": {"name": "out"}, "spec": {"region": "local"}});
        client.done("POST", gateways, Some(&gateway));
        let made = ["a", "b", "c", "d"].map(|name| {
            let address = json!({"metadata": {"name": name}, "spec": {"ipFamily": "IPv4"}});
            client.ask("POST", &format!("{gateways}/out/ips"), Some(&address)).unwrap()
        });
        assert_eq!(made.each_ref().map(|(status, _)| *status), statuses, "{made:?}");
        let given = ["192.0.2.10", "192.0.2.16"];
        assert!(
            given.iter().zip(&made).all(|(address, (_, made))| made.to_string().contains(address)),
            "{made:?}"
        );
        end(here);
    }
}
