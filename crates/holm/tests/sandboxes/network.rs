//! Sandboxes reach what their rules allow, and killing the server opens nothing else.

use crate::setup::{Client, Place, eventually};
use crate::world::{World, request};
use serde_json::{Value, json};
use testing::Holm;

const TRIES: usize = 10;

fn start(place: &mut Place, world: &World) -> (Holm, Client) {
    place.settings = world.settings();
    place.start()
}

fn allowed(domain: &str) -> Value {
    json!({"network": {"allowedDomains": [domain]}})
}

/// Returns the answer to a request from a sandbox, or nothing. The host name decides where it goes;
/// there is nothing at the address.
fn asks(client: &Client, name: &str, host: &str, world: &World) -> String {
    let request = request("203.0.113.9", host, world.port);
    client.run(name, &format!("({request}) 2>/dev/null || true"))
}

/// Like [`asks`], for requests that get an answer. On a busy machine the first bytes may come so late
/// that the connection has been taken for one on which the server speaks first: it is led to the
/// address and breaks off, since nothing is there.
fn answered(client: &Client, name: &str, host: &str, world: &World) -> String {
    let mut tries = (0..TRIES).map(|_| asks(client, name, host, world));
    tries.find(|told| !told.is_empty()).unwrap_or_default()
}

#[track_caller]
fn passes(client: &Client, name: &str, host: &str, world: &World) {
    let told = answered(client, name, host, world);
    assert!(told.contains("200 OK") && told.contains(host), "{told}");
}

#[track_caller]
fn is_blocked(client: &Client, name: &str, host: &str, world: &World) {
    let told = answered(client, name, host, world);
    assert!(told.contains(" 403 ") && told.contains("firewall_blocked"), "{told}");
    assert!(!world.asked(host), "{host} was reached");
}

#[test]
fn rules_hold_while_the_server_is_killed_and_when_it_comes_back() {
    let world = World::open();
    let mut place = Place::new("600s");
    let (mut server, mut client) = start(&mut place, &world);
    client.create("box", &allowed("good.test"));
    passes(&client, "box", "good.test", &world);
    is_blocked(&client, "box", "bad.test", &world);
    let literal = world.address.to_string();
    is_blocked(&client, "box", &literal, &world);
    // Keeps trying while no server is there to refuse it.
    let tries = [
        request(&literal, "leak.test", world.port),
        request(&literal, &literal, world.port),
        request("203.0.113.9", "leak.test", world.port),
    ];
    let tries = format!(
        "while true; do ({}) 2>/dev/null | grep '200 OK' >>/tmp/leaks; echo x >>/tmp/tries; done",
        tries.join("; ")
    );
    let trying = json!({"command": tries, "name": "trying", "keepAlive": true});
    client.done("POST", "/main/sandboxes/box/process", Some(&trying));
    for _ in 0..3 {
        server.kill();
        (server, client) = start(&mut place, &world);
        passes(&client, "box", "good.test", &world);
        is_blocked(&client, "box", "bad.test", &world);
        let before = client.run("box", "wc -l </tmp/tries");
        eventually("it goes on trying", || client.run("box", "wc -l </tmp/tries") != before);
        assert_eq!(client.run("box", "cat /tmp/leaks"), "");
    }
    for host in ["bad.test", "leak.test", &literal] {
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
    let set = |network: Value| {
        let mut wish = client.get("box");
        wish["spec"]["network"] = network;
        client.done("PUT", "/v0/sandboxes/box", Some(&wish));
    };
    for (one, other) in [("one.test", "two.test"), ("three.test", "four.test")] {
        set(json!({"allowedDomains": [one]}));
        passes(&client, "box", one, &world);
        is_blocked(&client, "box", other, &world);
    }
    set(json!({"forbiddenDomains": ["three.test"]}));
    passes(&client, "box", "four.test", &world);
    let told = answered(&client, "box", "three.test", &world);
    assert!(told.contains("firewall_blocked"), "{told}");
    // Without rules nothing inside can be reached, whatever `inside` says.
    set(json!({}));
    assert_eq!(asks(&client, "box", "one.test", &world), "");
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
    assert!(answered(&client, "box", "api.test", &world).contains("x-key: s3cret-4711"));
    assert!(!answered(&client, "box", "other.test", &world).contains("s3cret"));
    let search =
        "part=s3cret; ! grep -rlsF $part-47 /proc/[0-9]*/environ /proc/[0-9]*/cmdline /etc /var";
    client.run("box", search);
    // The log has what the rules did, by name.
    let mut log = String::new();
    eventually("it is in the log", || {
        let path = "/v0/observability/logs?resourceType=sandboxes&workloadIds=box";
        log = client.done("GET", path, None).to_string();
        log.contains("api.test")
    });
    assert!(log.contains("injected") && !log.contains("s3cret"), "{log}");
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
    passes(&client, "fork", "good.test", &world);
    is_blocked(&client, "fork", "bad.test", &world);
    // The credentials of one do not work for the other.
    let proxies = ["box", "fork"].map(|name| client.run(name, "echo $HTTP_PROXY"));
    assert_ne!(proxies[0], proxies[1]);
    place.clear(server, &client);
}

/// Returns whether a request is answered within a second, into whose body a secret would go.
pub(crate) fn posts(client: &Client, name: &str, host: &str, world: &World) -> bool {
    let head = format!("POST / HTTP/1.1\\r\\nHost: {host}:{}\\r\\nConnection: close", world.port);
    let head =
        format!("{head}\\r\\nContent-Type: application/json\\r\\nContent-Length: 2\\r\\n\\r\\n");
    let request = format!("printf '{head}{{}}' | timeout 1 nc 203.0.113.9 {}", world.port);
    client.run(name, &format!("({request}) 2>/dev/null || true")).contains("200 OK")
}

/// Holds the only place that a body of the workspace `main` may have, and gives it back.
fn waits_for_a_place(total: usize, another_waits: bool) {
    let world = World::open();
    let mut place = Place::new("600s");
    place.settings = world.settings();
    place.settings.push(("HOLM_EGRESS__BODIES_WORKSPACE_MAX", "1".into()));
    place.settings.push(("HOLM_EGRESS__BODIES_TOTAL_MAX", total.to_string()));
    let (server, client) = place.start();
    let rule = json!({"destinations": ["api.test"], "body": {"key": "{{SECRET:key}}"}, "secrets": {"key": "hush"}});
    let rules = json!({"network": {"proxy": {"routing": [rule]}}});
    client.done("POST", "/v0/workspaces", Some(&json!({"name": "team"})));
    let (client, team) = (client.in_workspace("main"), client.in_workspace("team"));
    for (client, name) in [(&client, "holder"), (&client, "waiter"), (&team, "other")] {
        client.create(name, &rules);
        eventually("it is answered", || posts(client, name, "api.test", &world));
    }

    let head = format!("POST / HTTP/1.1\\r\\nHost: api.test:{}\\r\\nContent-Length: 2", world.port);
    let head = format!("{head}\\r\\nContent-Type: application/json\\r\\n\\r\\n{{");
    let hold = format!("(printf '{head}'; sleep 600) | nc 203.0.113.9 {}", world.port);
    let holding = json!({"command": hold, "name": "holding", "keepAlive": true, "timeout": 0});
    client.done("POST", "/main/sandboxes/holder/process", Some(&holding));
    eventually("a body waits", || !posts(&client, "waiter", "api.test", &world));
    eventually("what needs no place passes", || posts(&client, "waiter", "free.test", &world));
    match another_waits {
        true => assert!(!posts(&team, "other", "api.test", &world)),
        false => eventually("another passes", || posts(&team, "other", "api.test", &world)),
    }

    client.delete("holder");
    eventually("the place is free", || posts(&client, "waiter", "api.test", &world));
    team.delete("other");
    client.done("DELETE", "/v0/workspaces/team", None);
    place.clear(server, &client);
}

#[test]
fn bodies_of_one_workspace_wait_for_its_places_and_not_those_of_others() {
    waits_for_a_place(2, false);
}

#[test]
fn bodies_of_all_workspaces_wait_for_the_places_of_the_server() {
    waits_for_a_place(1, true);
}
