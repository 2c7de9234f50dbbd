//! Sandboxes in a VPC, and the addresses from which their traffic leaves.

use crate::internet::Internet;
use crate::setup::{Client, Place, eventually};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

const PORT: u16 = 8_000;

fn in_vpc(vpc: &str) -> Value {
    json!({"vpc": vpc})
}

/// Returns what is served at the port of another sandbox, or nothing.
fn hears(client: &Client, name: &str, host: &str) -> String {
    client.run(name, &format!("nc -w 5 {host} {PORT} </dev/null 2>/dev/null || true"))
}

fn address(client: &Client, name: &str) -> String {
    let shown = client.run(name, "ip -4 -o address show dev eth0");
    let address = shown.split("inet ").nth(1).and_then(|rest| rest.split(['/', ' ']).next());
    address.unwrap_or_else(|| panic!("{shown}")).to_owned()
}

#[test]
fn sandboxes_reach_those_of_their_own_vpc_by_name_and_nobody_else() {
    let mut place = Place::new("600s");
    let (mut server, mut client) = place.start();
    for vpc in ["team", "others"] {
        let wish = json!({"metadata": {"name": vpc}, "spec": {"reachable": true}});
        client.done("POST", "/v0/vpcs", Some(&wish));
    }
    let all = [("web", "team"), ("friend", "team"), ("stranger", "others"), ("web2", "others")];
    for (name, vpc) in all {
        client.create(name, &in_vpc(vpc));
    }
    client.create("alone", &json!({}));
    for name in ["web", "web2"] {
        let serve = format!("nc -ll -p {PORT} -e echo served by {name}");
        let serving = json!({"command": serve, "name": "serving", "keepAlive": true});
        client.done("POST", &format!("/main/sandboxes/{name}/process"), Some(&serving));
    }
    let at = address(&client, "web");
    for run in 0..2 {
        for host in ["web.team.internal", "WEB.team.internal", &at] {
            eventually(&format!("{host} is reached"), || {
                hears(&client, "friend", host) == "served by web\n"
            });
        }
        eventually("the other one is reached", || {
            hears(&client, "stranger", "web2.others.internal") == "served by web2\n"
        });
        for (name, host) in [
            ("stranger", "web.team.internal"),
            ("stranger", &at),
            ("alone", "web.team.internal"),
            ("alone", &at),
            ("friend", "web2.others.internal"),
            ("friend", "web2.team.internal"),
        ] {
            assert_eq!(hears(&client, name, host), "", "{name} reaches {host}");
        }
        if run == 0 {
            server.kill();
            (server, client) = place.start();
        }
    }
    // A VPC with sandboxes cannot be deleted.
    assert_eq!(client.ask("DELETE", "/v0/vpcs/team", None).unwrap().0, 409);
    place.clear(server, &client);
}

#[test]
fn asking_for_a_name_in_a_vpc_wakes_who_has_it() {
    let mut place = Place::new("1s");
    let (server, client) = place.start();
    let wish = json!({"metadata": {"name": "team"}, "spec": {"reachable": true}});
    client.done("POST", "/v0/vpcs", Some(&wish));
    for name in ["web", "friend"] {
        client.create(name, &in_vpc("team"));
    }
    let serve = format!("nc -ll -p {PORT} -e echo served by web");
    let serving = json!({"command": serve, "name": "serving", "keepAlive": false});
    client.done("POST", "/main/sandboxes/web/process", Some(&serving));
    for _ in 0..2 {
        eventually("it sleeps", || client.get("web")["state"] == "STANDBY");
        // More than once, because it may sleep again between the question and the connection.
        eventually("it is woken", || {
            hears(&client, "friend", "web.team.internal") == "served by web\n"
        });
    }
    place.clear(server, &client);
}

/// Returns the address from which an outside server sees a sandbox.
fn seen(client: &Client, name: &str, to: (Ipv4Addr, u16)) -> String {
    let (host, port) = to;
    let head =
        format!("GET / HTTP/1.1\\r\\nHost: {host}:{port}\\r\\nConnection: close\\r\\n\\r\\n");
    let told = client.run(name, &format!("(printf '{head}'; sleep 2) | nc -w 10 {host} {port}"));
    told.rsplit_once("from ").unwrap_or_else(|| panic!("{told}")).1.trim().to_owned()
}

#[test]
fn a_sandbox_leaves_with_the_address_of_its_gateway() {
    let mut internet = Internet::open();
    let own = internet.lead_here(9);
    let to = (internet.server(), internet.serve());
    let mut place = Place::new("600s");
    place.settings = vec![("HOLM_EGRESS__ADDRESSES", format!("[\"{own}\"]"))];
    let (mut server, mut client) = place.start();
    let gateways = "/v0/vpcs/default/egressgateways";
    let gateway = json!({"metadata": {"name": "out"}, "spec": {"region": "local"}});
    client.done("POST", gateways, Some(&gateway));
    let address = json!({"metadata": {"name": "first"}, "spec": {"ipFamily": "IPv4"}});
    client.done("POST", &format!("{gateways}/out/ips"), Some(&address));
    let egress = json!({"mode": "dedicated", "gateway": "out"});
    client.create("plain", &json!({}));
    client.create("own", &json!({"network": {"egress": egress}}));
    // Its requests go through the proxy, which sends them anew.
    let lists = [to.0.to_string()];
    client.create("ruled", &json!({"network": {"egress": egress, "allowedDomains": lists}}));
    for run in 0..2 {
        assert_eq!(seen(&client, "plain", to), internet.machine().to_string());
        assert_eq!(seen(&client, "own", to), own.to_string());
        assert_eq!(seen(&client, "ruled", to), own.to_string());
        if run == 0 {
            server.kill();
            (server, client) = place.start();
        }
    }
    place.clear(server, &client);
}
