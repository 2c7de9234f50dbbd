//! What a sandbox finds inside that comes from its server.

use crate::setup::{Place, STARTING, TASK, eventually};
use serde_json::{Value, json};

#[test]
fn a_guest_is_upgraded_to_the_one_of_its_server_without_a_way_out() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.create("box", &json!({}));
    let counting = json!({"command": "sleep 1000", "name": "before"});
    client.done("POST", "/main/sandboxes/box/process", Some(&counting));
    let begun = client.done("POST", "/main/sandboxes/box/upgrade", Some(&json!({})));
    assert_eq!((&begun["version"], &begun["baseUrl"]), (&json!("latest"), &json!("")));
    let mut last = Value::Null;
    eventually("the upgrade has ended", || {
        // Connections break while one program replaces the other.
        let health = client.ask("GET", "/main/sandboxes/box/health", None);
        last = health.map(|(_, health)| health).unwrap_or_default();
        ["completed", "failed"].iter().any(|end| last["lastUpgrade"]["status"] == *end)
    });
    assert_eq!(
        (&last["lastUpgrade"]["status"], &last["upgradeCount"]),
        (&json!("completed"), &json!(1)),
        "{last}"
    );
    assert_eq!(client.done("GET", "/main/sandboxes/box/process/before", None)["status"], "running");
    assert_eq!(client.run("box", "echo on"), "on\n");
    // Only the machine may hand over a program.
    let (status, _) =
        client.ask("PUT", "/main/sandboxes/box/upgrade/program", Some(&json!({}))).unwrap();
    assert_eq!(status, 404);
    place.clear(server, &client);
}

#[test]
fn the_environment_of_a_sandbox_is_in_a_file_of_limited_size() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    let envs = json!({"runtime": {"image": STARTING, "envs": [{"name": "TOKEN", "value": "s3cret", "secret": true}]}});
    client.create("box", &envs);
    let found = client.run(
        "box",
        "tr '\\0' '\\n' < /var/secrets/bl-env | grep -A1 -x 'TOKEN\\|GREETING\\|BL_NAME'",
    );
    for pair in ["TOKEN\ns3cret", "GREETING\nhello", "BL_NAME\nbox"] {
        assert!(found.contains(pair), "{found}");
    }
    let full =
        "echo $BL_ENV_VAR_PATH; head -c 2000000 /dev/zero > /var/secrets/bl-env || echo full";
    assert_eq!(client.run("box", full), "/var/secrets/bl-env\nfull\n");
    assert_eq!(
        client.run("box", "grep ' /var/secrets ' /proc/mounts | cut -d ' ' -f 3"),
        "tmpfs\n"
    );
    place.clear(server, &client);
}

#[test]
fn a_failed_program_of_the_image_is_an_event() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    // The image runs the content of the variable.
    for (name, command) in [("bad", "exit 3"), ("done", "true"), ("good", "exec sleep 1000")] {
        let envs = json!([{"name": "COMMAND", "value": command}]);
        client.create(name, &json!({"runtime": {"image": TASK, "envs": envs}}));
    }
    let last = |name: &str| client.get(name)["events"].as_array().unwrap().last().cloned().unwrap();
    eventually("the failure is told", || last("bad")["type"] == "entrypoint");
    assert!(
        last("bad")["message"].as_str().unwrap().ends_with("it ended with code 3"),
        "{}",
        last("bad")
    );
    assert_eq!(
        (&client.get("bad")["status"], &last("bad")["status"]),
        (&json!("DEPLOYED"), &json!("DEPLOYED"))
    );
    assert_eq!(client.run("bad", "echo serves"), "serves\n");
    for name in ["done", "good"] {
        assert_eq!(last(name)["type"], "deployment");
    }
    place.clear(server, &client);
}
