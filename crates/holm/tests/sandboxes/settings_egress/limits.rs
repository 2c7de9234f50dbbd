//! How much of each thing workloads may have at a time.

use super::{NOWHERE, UNFINISHED, allowed, greets, passes, resolves, start, told};
use crate::network::posts;
use crate::settings::end;
use crate::setup::{Client, eventually};
use crate::world::World;
use serde_json::json;
use std::net::Ipv4Addr;

/// Runs a command in a sandbox until that is deleted.
fn keep(client: &Client, name: &str, command: &str) {
    let process = json!({"command": command, "name": "kept", "keepAlive": true, "timeout": 0});
    client.done("POST", &format!("/main/sandboxes/{name}/process"), Some(&process));
}

/// Makes two sandboxes in one workspace and one in another, which take places there is one of:
/// `holder` keeps one with the command. `gets` says whether a sandbox gets one.
fn share(client: &Client, hold: &str, of_all: bool, gets: impl Fn(&Client, &str) -> bool) {
    client.done("POST", "/v0/workspaces", Some(&json!({"name": "team"})));
    let (client, team) = (client.in_workspace("main"), client.in_workspace("team"));
    for (client, name) in [(&client, "holder"), (&client, "waiter"), (&team, "other")] {
        client.create(name, &allowed(&["*.test"]));
        eventually("there is a place", || gets(client, name));
    }
    keep(&client, "holder", hold);
    eventually("the place is taken", || !gets(&client, "waiter"));
    match of_all {
        true => eventually("it is taken for all", || !gets(&team, "other")),
        false => eventually("others have their own", || gets(&team, "other")),
    }
    client.delete("holder");
    eventually("the place is free", || gets(&client, "waiter"));
    team.delete("other");
    client.done("DELETE", "/v0/workspaces/team", None);
}

#[test]
fn connections_are_as_many_as_the_settings_say() {
    for (setting, of_all) in [("connections_max", true), ("connections_workspace_max", false)] {
        let world = World::open();
        let here = start(&world, &format!("{setting} = 1\nhello_timeout = \"10m\""));
        // It tries until it has the place, which the waiter may have at first. Each try has a new
        // pipe, so that it finds nothing of the last one.
        let say =
            format!("rm -f /tmp/say; mkfifo /tmp/say; exec 3<>/tmp/say; printf '{UNFINISHED}' >&3");
        let hold = format!("while true; do {say}; nc {NOWHERE} {} <&3; done", world.port);
        share(&here.2, &hold, of_all, |client, name| passes(client, name, "good.test", &world));
        end(here);
    }
}

#[test]
fn questions_are_as_many_as_the_settings_say() {
    for (setting, of_all) in [("questions_max", true), ("questions_workspace_max", false)] {
        let world = World::open();
        let here = start(&world, &format!("{setting} = 1"));
        let hold = "while true; do nslookup -type=a silent.test; done";
        share(&here.2, hold, of_all, |client, name| resolves(client, name, "good.test"));
        end(here);
    }
}

#[test]
fn names_are_remembered_for_as_many_addresses_as_the_settings_say() {
    let world = World::open();
    let port = world.greet();
    for name in ["one.test", "two.test"] {
        world.names.lead(name, Ipv4Addr::new(192, 0, 2, 1));
    }
    let here = start(&world, "names_max = 2");
    let client = &here.2;
    client.create("box", &allowed(&["*.test"]));
    let learns = |name| eventually("it is told", || resolves(client, "box", name));
    assert!(!greets(client, "box", world.address, port), "nobody has asked for it");
    let is_greeted = || eventually("it is reached", || greets(client, "box", world.address, port));
    learns("kept.test");
    is_greeted();
    learns("one.test");
    learns("two.test");
    assert!(!greets(client, "box", world.address, port), "others have taken its place");
    learns("kept.test");
    is_greeted();
    end(here);
}

#[test]
fn as_many_answers_of_name_servers_are_kept_as_the_settings_say() {
    for (max, asked) in [(1, 2), (2, 1)] {
        let world = World::open();
        world.names.set_ttl(600);
        let here = start(&world, &format!("cached_names_max = {max}"));
        let client = &here.2;
        client.create("box", &allowed(&["*.test"]));
        for name in ["one.test", "two.test", "one.test"] {
            eventually("it is told", || resolves(client, "box", name));
        }
        assert_eq!(world.names.asked("one.test"), asked);
        end(here);
    }
}

#[test]
fn heads_of_requests_are_as_large_as_the_settings_say() {
    let world = World::open();
    for (setting, status) in [("head_bytes_max = 10000", " 431 "), ("", " 200 ")] {
        let here = start(&world, setting);
        let client = &here.2;
        client.create("box", &allowed(&["*.test"]));
        let field = "x: $(head -c 20000 /dev/zero | tr '\\0' x)\\r\\nConnection: close";
        let head = format!("GET / HTTP/1.1\\r\\nHost: a.test\\r\\n{field}\\r\\n\\r\\n");
        let ask = format!("printf \"{head}\" | timeout 5 nc {NOWHERE} {}", world.port);
        eventually(&format!("the answer with `{setting}` is{status}"), || {
            let answer = told(client, "box", &ask);
            answer.lines().next().is_some_and(|line| line.contains(status))
        });
        end(here);
    }
}

#[test]
fn bodies_of_one_workload_are_as_many_as_the_settings_say() {
    let world = World::open();
    let here = start(&world, "bodies_max = 1");
    let client = &here.2;
    let rule = json!({"destinations": ["api.test"], "body": {"key": "{{SECRET:key}}"}, "secrets": {"key": "hush"}});
    for name in ["holder", "other"] {
        client.create(name, &json!({"network": {"proxy": {"routing": [rule]}}}));
        eventually("it is answered", || posts(client, name, "api.test", &world));
    }
    let head = format!("POST / HTTP/1.1\\r\\nHost: api.test:{}\\r\\nContent-Length: 2", world.port);
    let head = format!("{head}\\r\\nContent-Type: application/json\\r\\n\\r\\n{{");
    keep(client, "holder", &format!("(printf '{head}'; sleep 600) | nc {NOWHERE} {}", world.port));
    eventually("a body waits", || !posts(client, "holder", "api.test", &world));
    eventually("others have places of their own", || posts(client, "other", "api.test", &world));
    end(here);
}

#[test]
fn lines_of_the_log_wait_that_are_as_many_as_the_settings_say() {
    let world = World::open();
    let here = start(&world, "events_max = 1");
    let client = &here.2;
    client.create("box", &allowed(&["good.test"]));
    let get = |path: &str| format!("printf 'GET {path} HTTP/1.1\\r\\nHost: bad.test\\r\\n\\r\\n'");
    let send = format!("timeout 5 nc {NOWHERE} {}", world.port);
    // All of these together are not too many for five seconds, which would leave some out as well.
    let (burst, mut tries) = (40, 50);
    told(client, "box", &format!("for i in $(seq {burst}); do {}; done | {send}", get("/many")));
    eventually("a line says that some were left out", || {
        if tries > 0 {
            tries -= 1;
            told(client, "box", &format!("{} | {send}", get("/next")));
        }
        let path = "/v0/observability/logs?resourceType=sandboxes&workloadIds=box";
        let log = client.done("GET", path, None).to_string();
        log.matches("leftOut").count() > log.matches(r#"leftOut\":0"#).count()
    });
    end(here);
}
