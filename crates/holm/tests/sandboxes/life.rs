//! What a sandbox reports about itself is true.

use crate::setup::{Place, STARTING, body, eventually};
use serde_json::json;

#[test]
fn a_sandbox_sleeps_wakes_and_keeps_what_it_had() {
    let mut place = Place::new("1s");
    let (server, client) = place.start();
    let made = client.create("sleeper", &json!({}));
    assert_eq!((&made["status"], &made["state"]), (&json!("DEPLOYED"), &json!("RUNNING")));
    client.run("sleeper", "echo kept > /tmp/file; umask");
    eventually("it sleeps", || client.get("sleeper")["state"] == "STANDBY");
    let slept_at = client.get("sleeper")["lastUsedAt"].clone();
    assert_eq!(client.run("sleeper", "cat /tmp/file; stat -c %a /tmp/file"), "kept\n644\n");
    eventually("it is awake", || {
        // Each time anew, because it sleeps again a second later.
        client.run("sleeper", "true");
        let now = client.get("sleeper");
        now["state"] == "RUNNING" && now["lastUsedAt"].as_str() > slept_at.as_str()
    });
    place.clear(server, &client);
}

#[test]
fn a_process_that_keeps_alive_holds_it_awake() {
    let mut place = Place::new("1s");
    let (server, client) = place.start();
    for name in ["held", "left"] {
        client.create(name, &json!({}));
    }
    let work = "until [ -e /tmp/enough ]; do sleep 0.1; done";
    let asked = json!({"command": work, "keepAlive": true, "name": "work", "timeout": 0});
    client.done("POST", "/main/sandboxes/held/process", Some(&asked));
    eventually("the other one sleeps", || client.get("left")["state"] == "STANDBY");
    assert_eq!(client.get("held")["state"], "RUNNING");
    client.run("held", "touch /tmp/enough");
    eventually("it sleeps when the process has ended", || client.get("held")["state"] == "STANDBY");
    assert_eq!(
        client.done("GET", "/main/sandboxes/held/process/work", None)["status"],
        "completed"
    );
    place.clear(server, &client);
}

#[test]
fn time_ends_a_sandbox_and_then_its_record() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    let short = json!({"runtime": {"ttl": "8s"}, "lifecycle": {"terminatedRetention": "10s"}});
    let made = client.create("short", &short);
    assert!(made["expiresIn"].as_i64().is_some_and(|left| left <= 8), "{made}");
    let preview = json!({"metadata": {"name": "web"}, "spec": {"port": 3000, "public": true}});
    client.done("POST", "/v0/sandboxes/short/previews", Some(&preview));
    eventually("it has ended", || client.get("short")["status"] == "TERMINATED");
    assert_eq!(client.done("GET", "/v0/sandboxes/short/previews", None), json!([]));
    assert!(client.names().is_empty(), "a terminated sandbox is listed only when asked for");
    assert_eq!(client.ask("GET", "/main/sandboxes/short/health", None).unwrap().0, 404);
    eventually("its record is gone", || {
        client.ask("GET", "/v0/sandboxes/short", None).unwrap().0 == 404
    });
    place.clear(server, &client);
}

#[test]
fn a_disabled_sandbox_answers_nothing_and_is_as_it_was_afterwards() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.create("rested", &json!({}));
    client.run("rested", "echo kept > /tmp/file");
    let off = client.done(
        "PUT",
        "/v0/sandboxes/rested",
        Some(&body("rested", &json!({"enabled": false}))),
    );
    assert_eq!(off["status"], "DEACTIVATED");
    let (status, refused) = client.ask("GET", "/main/sandboxes/rested/health", None).unwrap();
    assert_eq!((status, &refused["error"]["code"]), (404, &json!("WORKLOAD_UNAVAILABLE")));
    // The error links to where this server explains it.
    let link = refused["error"]["docs_url"].as_str().unwrap();
    let explained = client.done("GET", link.strip_prefix(&client.base).unwrap(), None);
    assert!(explained.as_str().unwrap().contains("\n## WORKLOAD_UNAVAILABLE\n"), "{link}");
    client.done("PUT", "/v0/sandboxes/rested", Some(&body("rested", &json!({"enabled": true}))));
    assert_eq!(client.run("rested", "cat /tmp/file"), "kept\n");
    assert_eq!(client.get("rested")["status"], "DEPLOYED");
    place.clear(server, &client);
}

#[test]
fn whoever_is_connected_keeps_no_sandbox_awake_that_is_to_sleep_or_to_end() {
    // It sleeps only if it is put to sleep.
    let mut place = Place::new("1h");
    let (server, client) = place.start();
    for (name, end) in [("rested", "1h"), ("short", "15s")] {
        client.create(name, &json!({"runtime": {"ttl": end}}));
        let long = json!({"command": "sleep 1000", "name": "long", "timeout": 0});
        client.done("POST", &format!("/main/sandboxes/{name}/process"), Some(&long));
        let path = format!("/main/sandboxes/{name}/process/long/logs/stream");
        let stream = client.open(&path);
        if name == "rested" {
            let off = json!({"enabled": false, "runtime": {"ttl": end}});
            let off = client.done("PUT", "/v0/sandboxes/rested", Some(&body(name, &off)));
            assert_eq!(off["status"], "DEACTIVATED");
            eventually("it sleeps", || client.get(name)["state"] == "STANDBY");
        } else {
            eventually("it has ended", || client.get(name)["status"] == "TERMINATED");
        }
        // Or it breaks: either way it ends in time.
        let ended = std::io::read_to_string(stream);
        assert!(!ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock));
    }
    let on = json!({"runtime": {"ttl": "1h"}});
    client.done("PUT", "/v0/sandboxes/rested", Some(&body("rested", &on)));
    assert_eq!(client.run("rested", "echo here"), "here\n");
    place.clear(server, &client);
}

#[test]
fn a_sandbox_that_runs_out_of_memory_says_so_and_can_be_made_anew() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.create("small", &json!({"runtime": {"memory": 128}}));
    let gone = json!({"command": "kill -9 1; kill -11 1; true", "waitForCompletion": true});
    client.done("POST", "/main/sandboxes/small/process", Some(&gone));
    assert_eq!(
        client.run("small", "echo still"),
        "still\n",
        "its first process cannot be killed from inside"
    );
    // Every process of the sandbox uses some memory, so that none is much larger than the first.
    let hog = "for i in $(seq 40); do (head -c 20000000 /dev/zero | tail -c 20000000 | sleep 30) & done; wait";
    client.ask("POST", "/main/sandboxes/small/process", Some(&json!({"command": hog})));
    let again = client
        .ask("POST", "/v0/sandboxes?createIfNotExist=true", Some(&body("small", &json!({}))))
        .unwrap();
    assert_eq!(again.0, 200);
    eventually("it answers", || {
        client.ask("GET", "/main/sandboxes/small/health", None).unwrap().0 == 200
    });
    place.clear(server, &client);
}

#[test]
fn a_schedule_wakes_its_sandbox_and_keeps_its_history() {
    let mut place = Place::new("1s");
    let (server, client) = place.start();
    client.create("clock", &json!({}));
    let once = json!({"id": "once", "type": "sleep", "value": "3s", "input": {"command": "echo $WHO > /tmp/fired", "env": {"WHO": "me"}}});
    let made = client.done("POST", "/v0/sandboxes/clock/schedules", Some(&once));
    assert_eq!((&made["type"], &made["input"]["env"]["WHO"]), (&json!("at"), &json!("***")));
    eventually("it sleeps", || client.get("clock")["state"] == "STANDBY");
    eventually("it has fired", || {
        let history = client.done("GET", "/v0/sandboxes/clock/schedule-executions", None);
        history["data"][0]["statusCode"] == 200
    });
    eventually("the command has run", || client.run("clock", "cat /tmp/fired || true") == "me\n");
    assert_eq!(
        client.done("GET", "/v0/sandboxes/clock/schedules", None)["data"],
        json!([]),
        "it fires once"
    );
    place.clear(server, &client);
}

#[test]
fn what_an_image_starts_by_itself_runs_as_a_process() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    client.create("app", &json!({"runtime": {"image": STARTING}}));
    eventually("it has said something", || {
        client.done("GET", "/main/sandboxes/app/process/entrypoint/logs", None)["stdout"]
            == "it says hello\n"
    });
    assert_eq!(
        client.done("GET", "/main/sandboxes/app/process/entrypoint", None)["status"],
        "running"
    );
    place.clear(server, &client);
}

#[test]
fn an_unknown_image_is_refused_with_those_that_there_are() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    let wish = body("nothing", &json!({"runtime": {"image": "no/such:1"}}));
    let (status, refused) = client.ask("POST", "/v0/sandboxes", Some(&wish)).unwrap();
    assert_eq!(
        (status, &refused["code"], &refused["error"]),
        (400, &json!(400), &json!("INVALID_IMAGE"))
    );
    assert_eq!(refused["details"]["requested_image"], "no/such:1");
    let there_are = json!(["holm/starting:latest", "holm/task:latest", "holm/tiny:latest"]);
    assert_eq!(refused["details"]["supported_images"], there_are);
    let inside = body("inside", &json!({"runtime": {"image": "127.0.0.1:1/x:1"}}));
    client.done("POST", "/v0/sandboxes", Some(&inside));
    eventually("it has failed", || client.get("inside")["status"] == "FAILED");
    let errors = client.get("inside")["errors"][0].clone();
    assert_eq!((&errors["code"], &errors["fatal"]), (&json!("IMAGE_UNAVAILABLE"), &json!(true)));
    place.clear(server, &client);
}

#[test]
fn a_caller_that_goes_away_while_a_sandbox_is_made_leaves_nothing_half_made() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    for round in 0..30 {
        client.begin(
            "POST",
            "/v0/sandboxes",
            &body(&format!("left-{round}"), &json!({})),
            round % 6,
        );
    }
    eventually("each instance has its sandbox", || {
        let (names, groups) = (client.names(), place.groups().len());
        names.len() == groups && names.iter().all(|name| client.get(name)["status"] == "DEPLOYED")
    });
    for name in client.names() {
        // Its address works a moment after its row says that it is deployed.
        let asked = json!({"command": "echo here", "waitForCompletion": true});
        let path = format!("/main/sandboxes/{name}/process");
        eventually("it is reached", || {
            client.ask("POST", &path, Some(&asked)).is_some_and(|(status, _)| status == 200)
        });
        assert_eq!(
            client.get(&name)["events"].as_array().map(Vec::len),
            Some(2),
            "{name} was made twice"
        );
    }
    place.clear(server, &client);
}
