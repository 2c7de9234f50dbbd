//! Every documented field of a sandbox has its documented effect in the real program.

use crate::setup::{Client, IMAGE, Place, body, eventually};
use serde_json::{Value, json};

/// Returns a sandbox with every field but `volumes`, which would need a volume that exists.
/// `enabled` is true, because the sandbox could not run otherwise.
fn everything() -> Value {
    json!({
        "metadata": {"name": "whole", "displayName": "The whole", "externalId": "outside-7", "labels": {"team": "one"}},
        "spec": {
            "enabled": true,
            "region": "local",
            "lifecycle": {
                "expirationPolicies": [{"type": "ttl-max-age", "value": "3h", "action": "delete"}],
                "terminatedRetention": "10m",
            },
            "network": {"allowedDomains": ["example.org"]},
            "runtime": {
                "envs": [{"name": "PLAIN", "value": "a b"}, {"name": "HIDDEN", "value": "hush", "secret": true}],
                "expires": "2099-01-02T03:04:05Z",
                "extraArgs": {"nfs": "disabled"},
                "generation": "mk2",
                "image": IMAGE,
                "memory": 512,
                "ports": [{"name": "web", "target": 3000, "protocol": "HTTP"}],
                "snapshotEnabled": false,
                "storageMb": 64,
                "terminationGracePeriodSeconds": 1,
                "ttl": "2h",
                "dockerConfig": "{\"auths\":{}}",
                "skipBuild": true,
            },
        },
    })
}

#[test]
fn every_documented_field_is_kept_and_has_its_effect() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    let made = client.done("POST", "/v0/sandboxes", Some(&everything()));
    assert_eq!(
        (&made["status"], &made["state"]),
        (&json!("DEPLOYED"), &json!("RUNNING")),
        "{made}"
    );
    let told = client.get("whole");
    assert_kept(&told);
    // The first of its three time limits.
    let left = told["expiresIn"].as_i64().unwrap();
    assert!((7_000..=7_200).contains(&left), "{left}");
    assert!(told.get("errors").is_none(), "{told}");

    assert_eq!(client.run("whole", "echo $PLAIN:$HIDDEN; cat /etc/hostname"), "a b:hush\nwhole\n");
    assert_eq!(memory_limits(&place), [512 << 20]);
    client.run("whole", "mkdir -p /www && echo served > /www/index.html");
    let serve = json!({"command": "busybox httpd -f -p 3000 -h /www || httpd -f -p 3000 -h /www", "name": "web", "waitForPorts": [3000]});
    client.done("POST", "/main/sandboxes/whole/process", Some(&serve));
    let page = client.ask("GET", "/main/sandboxes/whole/port/3000/index.html", None);
    assert_eq!(page.unwrap(), (200, json!("served\n")));
    let refused = client.ask(
        "POST",
        "/v0/sandboxes",
        Some(&body("more", &json!({"volumes": [{"name": "v", "mountPath": "/v"}]}))),
    );
    assert_eq!(refused.unwrap().0, 400, "a volume that is not there");
    place.clear(server, &client);
}

/// Checks that the fields come back as they were sent, with secrets masked.
fn assert_kept(told: &Value) {
    let sent = everything();
    for field in ["name", "displayName", "externalId", "labels"] {
        assert_eq!(told["metadata"][field], sent["metadata"][field], "{field}");
    }
    for field in ["enabled", "region", "lifecycle", "network"] {
        assert_eq!(told["spec"][field], sent["spec"][field], "{field}");
    }
    let (told, sent) = (&told["spec"]["runtime"], &sent["spec"]["runtime"]);
    for (field, value) in sent.as_object().unwrap() {
        match field.as_str() {
            "envs" => {
                assert_eq!(told["envs"][0], sent["envs"][0]);
                assert!(!told["envs"].to_string().contains("hush"), "{told}");
            }
            "dockerConfig" => assert_ne!(told["dockerConfig"], *value),
            "expires" => {
                assert!(told["expires"].as_str().unwrap().starts_with("2099-01-02T03:04:05"))
            }
            _ => assert_eq!(told[field], *value, "{field}"),
        }
    }
}

fn memory_limits(place: &Place) -> Vec<u64> {
    let read = |file: &str| {
        let limits = place
            .groups()
            .into_iter()
            .filter_map(|group| std::fs::read_to_string(group.join(file)).ok());
        limits.map(|limit| limit.trim().parse().unwrap()).collect::<Vec<u64>>()
    };
    [read("memory.limit_in_bytes"), read("memory.max")].concat()
}

fn disk_mb(client: &Client, name: &str) -> u64 {
    client.run(name, "df -m / | tail -1 | awk '{print $2}'").trim().parse().unwrap()
}

/// `storageMb`: the disk has the given size and no more, uses no memory, survives a restart of the
/// server and growing, never shrinks, and is gone in the end.
#[test]
fn storage_is_a_disk_of_its_size() {
    let mut place = Place::new("15s");
    let (mut server, client) = place.start();
    client.create("stored", &json!({"runtime": {"memory": 128, "storageMb": 300}}));
    let size = disk_mb(&client, "stored");
    // On a small disk XFS uses 64 MB for its log, ext4 less.
    assert!((230..=300).contains(&size), "{size}");
    let full = "dd if=/dev/zero of=/big bs=1M count=400 2>&1 | grep -c 'No space'; ls -l /big | awk '{print ($5 > 190000000)}'";
    assert_eq!(client.run("stored", full), "1\n1\n");
    client.run("stored", "rm /big; echo kept > /file; chown 1000:1000 /file");

    server.kill();
    let (server, client) = place.start();
    assert_eq!(client.run("stored", "cat /file; stat -c %u:%g /file"), "kept\n1000:1000\n");
    let put = |mb: u32| {
        let wish = body("stored", &json!({"runtime": {"memory": 128, "storageMb": mb}}));
        client.ask("PUT", "/v0/sandboxes/stored", Some(&wish)).unwrap()
    };
    let (status, refused) = put(40);
    assert_eq!(status, 400, "{refused}");
    assert!(refused["message"].to_string().contains("cannot shrink"), "{refused}");
    assert_eq!(put(400).0, 200);
    eventually("it has the other size", || {
        client.get("stored")["status"] == "DEPLOYED"
            && (330..=400).contains(&disk_mb(&client, "stored"))
    });
    assert_eq!(client.run("stored", "cat /file"), "kept\n");
    // No disk is left over: `clear` looks for loop devices.
    place.clear(server, &client);
}

#[test]
fn what_is_larger_than_the_machine_is_refused_at_once() {
    let mut place = Place::new("15s");
    place.settings.push(("HOLM_NODE__VOLUME_MB", "1000".to_owned()));
    let (server, client) = place.start();
    let disk = json!({"metadata": {"name": "disk"}, "spec": {"size": 100}});
    client.done("POST", "/v0/volumes", Some(&disk));
    let ask = |name: &str, spec: Value| {
        let (status, answer) =
            client.ask("POST", "/v0/sandboxes", Some(&body(name, &spec))).unwrap();
        (
            status,
            answer["error"].as_str().unwrap_or_default().to_owned(),
            answer["message"].to_string(),
        )
    };
    // One with a volume starts only after its row is written.
    for volumes in [json!([]), json!([{"name": "disk", "mountPath": "/data"}])] {
        let of = |runtime: Value| json!({"runtime": runtime, "volumes": volumes});
        let (status, error, message) = ask("vast", of(json!({"memory": 262_144})));
        assert_eq!((status, error.as_str()), (400, "QUOTA_EXCEEDED"), "{message}");
        assert!(message.contains("262144 MB of memory: this machine has at most"), "{message}");
        let (status, error, message) = ask("wide", of(json!({"storageMb": 801})));
        assert_eq!((status, error.as_str()), (400, "QUOTA_EXCEEDED"), "{message}");
        assert!(message.contains("at most 800 MB of volumes"), "{message}");
        assert!(client.names().is_empty());
    }
    client.done("DELETE", "/v0/volumes/disk", None);
    place.clear(server, &client);
}

/// A change that needs more than there is leaves the sandbox as it is, instead of ending it.
#[test]
fn no_sandbox_ends_for_a_size_that_the_machine_lacks() {
    let mut place = Place::new("15s");
    place.settings.push(("HOLM_NODE__VOLUME_MB", "1000".to_owned()));
    let (server, client) = place.start();
    client.create("plain", &json!({"runtime": {"memory": 128}}));
    client.create("stored", &json!({"runtime": {"memory": 256, "storageMb": 300}}));
    client.run("stored", "echo kept > /file");
    let put = |name: &str, runtime: Value| {
        let wish = body(name, &json!({"runtime": runtime}));
        client.ask("PUT", &format!("/v0/sandboxes/{name}"), Some(&wish)).unwrap()
    };
    for (name, runtime) in [
        ("plain", json!({"memory": 262_144})),
        ("plain", json!({"memory": 128, "storageMb": 501})),
        ("stored", json!({"memory": 256, "storageMb": 801})),
    ] {
        let (status, refused) = put(name, runtime);
        assert_eq!((status, &refused["error"]), (400, &json!("QUOTA_EXCEEDED")), "{refused}");
        assert_eq!(client.get(name)["status"], "DEPLOYED");
    }
    // What is left can be had, and a smaller size or the same is no question of room.
    assert_eq!(put("stored", json!({"memory": 256, "storageMb": 800})).0, 200);
    eventually("it is larger", || {
        client.get("stored")["status"] == "DEPLOYED" && disk_mb(&client, "stored") > 600
    });
    assert_eq!(put("stored", json!({"memory": 128, "storageMb": 800})).0, 200);
    eventually("it runs", || client.get("stored")["status"] == "DEPLOYED");
    assert_eq!(client.run("stored", "cat /file"), "kept\n");
    place.clear(server, &client);
}

/// One workspace has its share of the machine, and another can start and work beside it.
#[test]
fn who_takes_all_is_refused_and_not_the_neighbour() {
    let mut place = Place::new("15s");
    place.settings.extend([
        ("HOLM_NODE__INSTANCES_MAX", "4".to_owned()),
        ("HOLM_NODE__WORKSPACE_SHARE_PERCENT", "50".to_owned()),
    ]);
    let (server, client) = place.start();
    client.done("POST", "/v0/workspaces", Some(&json!({"name": "team"})));
    let (greedy, neighbour) = (client.in_workspace("main"), client.in_workspace("team"));
    for name in ["one", "two"] {
        greedy.create(name, &json!({}));
    }
    let (status, refused) =
        greedy.ask("POST", "/v0/sandboxes", Some(&body("three", &json!({})))).unwrap();
    assert_eq!((status, &refused["error"]), (400, &json!("QUOTA_EXCEEDED")), "{refused}");
    for name in ["one", "two"] {
        neighbour.create(name, &json!({}));
    }
    let (status, full) =
        neighbour.ask("POST", "/v0/sandboxes", Some(&body("three", &json!({})))).unwrap();
    assert_eq!((status, &full["error"]), (400, &json!("QUOTA_EXCEEDED")), "{full}");
    let metrics = client.ask("GET", "/metrics", None).unwrap().1;
    let line = r#"holm_admission_held{resource="sandboxes and tasks"} 4"#;
    assert!(metrics.as_str().unwrap().contains(line), "{metrics}");
    for name in ["one", "two"] {
        neighbour.delete(name);
    }
    client.done("DELETE", "/v0/workspaces/team", None);
    place.clear(server, &client);
}
