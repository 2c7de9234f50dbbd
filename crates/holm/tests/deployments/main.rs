//! Agents, MCP servers and applications with the real program, on this machine.
//!
//! `HOLM_PROGRAM` names a different build of the program.

#![cfg(test)]

mod bad_input;
mod command_line;
mod kills;
#[expect(dead_code, reason = "the place is that of the tests of sandboxes, which use more of it")]
#[path = "../sandboxes/setup.rs"]
mod place;
mod settings;
mod settings_calls;
mod settings_lease;
mod settings_lists;
mod settings_registry;
mod settings_served;
mod sources;
mod tools;
mod web;
mod wishes;

use place::{Client, Place, TASK, eventually};
use serde_json::{Value, json};
use std::path::PathBuf;
use testing::machine;

/// Removes the instances of a failed test, which nothing else would. The server must be gone by
/// then.
struct Sweep(PathBuf);

impl Sweep {
    fn of(place: &Place) -> Self {
        Self(place.data().to_owned())
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        if std::thread::panicking() {
            machine::sweep(&self.0).unwrap();
        }
    }
}

const LISTENS: &str = "echo up; exec httpd -f -p $PORT -h /etc";

fn agent(command: &str) -> Value {
    let envs = json!([{"name": "COMMAND", "value": command}, {"name": "PATH", "value": "/bin"}]);
    let runtime = json!({"image": TASK, "memory": 128, "minScale": 1, "envs": envs});
    json!({"metadata": {"name": "a"}, "spec": {"runtime": runtime}})
}

fn deploy(client: &Client, command: &str) {
    client.done("PUT", "/v0/agents/a", Some(&agent(command)));
}

/// Returns the agent once it has this status.
fn until(client: &Client, status: &str) -> Value {
    let mut agent = Value::Null;
    eventually(&format!("it is {status}"), || {
        agent = client.done("GET", "/v0/agents/a", None);
        agent["status"] == status
    });
    agent
}

fn printed(client: &Client) -> Vec<String> {
    let path = "/v0/observability/logs?resourceType=agents&workloadIds=a&limit=1000";
    let answer = client.done("GET", path, None);
    let lines = answer["a"]["logs"].as_array().unwrap();
    lines.iter().rev().map(|line| line["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_replica_outlives_the_server_and_ends_with_its_agent() {
    let mut place = Place::new("15s");
    let (mut server, mut client) = place.start();
    client.done("POST", "/v0/agents", Some(&agent(LISTENS)));
    until(&client, "DEPLOYED");
    let first = place.groups();
    assert_eq!(first.len(), 1);
    eventually("what it printed is kept", || printed(&client) == ["up"]);

    server.kill();
    (server, client) = place.start();
    until(&client, "DEPLOYED");
    assert_eq!(place.groups(), first, "the same instance");

    deploy(&client, "echo oops; exit 3");
    let failed = until(&client, "FAILED");
    let why = failed["events"].as_array().unwrap().last().unwrap()["message"].clone();
    let wanted =
        "its program exited with code 3 before it listened on port 8080; its last output: oops";
    assert_eq!(why, wanted);
    eventually("only what serves is left", || place.groups() == first);

    // A deployment that a kill interrupts is finished, and the new version serves.
    deploy(&client, &format!("sleep 5; {LISTENS}"));
    eventually("its replica starts", || place.groups().len() == 2);
    server.kill();
    (server, client) = place.start();
    until(&client, "DEPLOYED");
    eventually("the old replica ends", || place.groups().len() == 1 && place.groups() != first);
    eventually("nothing was lost", || printed(&client) == ["up", "oops", "up"]);

    client.done("DELETE", "/v0/agents/a", None);
    place.clear(server, &client);
}
