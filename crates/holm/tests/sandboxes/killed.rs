//! The server is killed at random moments while sandboxes are made, used, put to sleep and deleted.

use crate::setup::{Client, Place, body, eventually};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const WRITERS: u64 = 3;
const SANDBOXES_EACH: u64 = 4;
const LIFE_MS_MAX: u64 = 700;

/// What a writer knows about one of its sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    There,
    Gone,
    /// The server was killed before it answered.
    Open,
}

#[test]
fn a_killed_server_loses_no_sandbox_and_leaves_none_behind() {
    let kills = if std::env::var("HOLM_FAULTS").is_ok_and(|form| form == "long") { 100 } else { 8 };
    let mut place = Place::new("1s");
    let (mut server, mut client) = place.start();
    client.create("steady", &json!({}));
    let count = "i=0; while true; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done";
    let counter = json!({"command": count, "name": "counter", "keepAlive": true, "timeout": 0});
    client.done("POST", "/main/sandboxes/steady/process", Some(&counter));
    let pid = client.done("GET", "/main/sandboxes/steady/process/counter", None)["pid"].clone();

    let mut chances = fastrand::Rng::new();
    let mut writers: Vec<_> =
        (0..WRITERS).map(|number| (number, BTreeMap::new(), chances.fork())).collect();
    for kill in 0..kills {
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            for (number, known, chances) in &mut writers {
                let (client, ended) = (&client, &ended);
                scope.spawn(move || write(client, *number, known, chances, ended));
            }
            thread::sleep(Duration::from_millis(chances.u64(..LIFE_MS_MAX)));
            server.kill();
            ended.store(true, Ordering::Relaxed);
        });
        (server, client) = place.start();
        check(&client, &mut writers);
        let process = client.done("GET", "/main/sandboxes/steady/process/counter", None);
        assert_eq!(
            (&process["status"], &process["pid"]),
            (&json!("running"), &pid),
            "after kill {kill}"
        );
    }
    let before: u64 = client.run("steady", "cat /tmp/count").trim().parse().unwrap();
    eventually("the counter goes on", || {
        client.run("steady", "cat /tmp/count").trim().parse::<u64>().unwrap() > before
    });
    // Whatever was started and not answered is either a sandbox or nothing; no instance is without
    // its row.
    eventually("each instance has its sandbox", || place.groups().len() == client.names().len());
    place.clear(server, &client);
}

/// Makes, uses and deletes sandboxes until the server stops answering.
fn write(
    client: &Client,
    number: u64,
    known: &mut BTreeMap<String, Known>,
    chances: &mut fastrand::Rng,
    ended: &AtomicBool,
) {
    while !ended.load(Ordering::Relaxed) {
        let name = format!("box-{number}-{}", chances.u64(..SANDBOXES_EACH));
        let next = match known.get(&name) {
            Some(Known::There) if chances.bool() => {
                let asked = json!({"command": "true", "waitForCompletion": true});
                match client.ask("POST", &format!("/main/sandboxes/{name}/process"), Some(&asked)) {
                    Some((200, done)) => assert_eq!(done["exitCode"], 0),
                    Some(other) => panic!("{name}: {other:?}"),
                    None => return,
                }
                continue;
            }
            Some(Known::There) => ("DELETE", format!("/v0/sandboxes/{name}"), None, Known::Gone),
            _ => ("POST", "/v0/sandboxes".to_owned(), Some(body(&name, &json!({}))), Known::There),
        };
        let (method, path, body, then) = next;
        known.insert(name.clone(), Known::Open);
        match client.ask(method, &path, body.as_ref()) {
            Some((200, _)) => known.insert(name, then),
            Some(other) => panic!("{method} {name}: {other:?}"),
            None => return,
        };
    }
}

/// Checks that everything acknowledged is true, and that every existing sandbox answers.
fn check(client: &Client, writers: &mut [(u64, BTreeMap<String, Known>, fastrand::Rng)]) {
    let names = client.names();
    for (_, known, _) in writers {
        for (name, known) in known {
            let there = names.contains(name);
            match known {
                Known::There => assert!(there, "{name} was made and is lost"),
                Known::Gone => assert!(!there, "{name} was deleted and is back"),
                Known::Open => *known = if there { Known::There } else { Known::Gone },
            }
        }
    }
    for name in names {
        assert_eq!(client.run(&name, "echo here"), "here\n");
        assert_eq!(client.get(&name)["status"], Value::from("DEPLOYED"), "{name}");
    }
}
