//! Sandboxes restored with their files over an image whose name has since got a new meaning. The
//! server is killed while snapshots are taken, while the image is replaced, and while something
//! starts from them.

use crate::registry::{Tools, digest, layout, login, run};
use crate::setup::{Client, IMAGE, Place, eventually, make_image_with};
use crate::volumes_killed::chances;
use serde_json::{Value, json};
use std::time::Duration;
use testing::Holm;

const ROUNDS: usize = 5;
const LIFE_MS_MAX: u64 = 500;
/// Prints what was written, and the number in the image below.
const LOOK: &str = "cat /work; cat /etc/number";

/// Replaces the content of the image, as an operator can do whether or not the server runs.
fn replace(place: &Place, number: usize) {
    make_image_with(place.data(), &[("etc/number", &number.to_string())]);
}

/// Sends a request, and kills the server some time later.
fn kill_within(
    place: &mut Place,
    (server, client): (&mut Holm, &mut Client),
    (path, body): (&str, Value),
    chances: &mut fastrand::Rng,
) {
    let (asked, path) = (client.clone(), path.to_owned());
    let asking = std::thread::spawn(move || asked.ask("POST", &path, Some(&body)));
    std::thread::sleep(Duration::from_millis(chances.u64(..LIFE_MS_MAX)));
    server.kill();
    let _ = asking.join().unwrap();
    (*server, *client) = place.start();
}

fn settled(client: &Client, name: &str) -> Value {
    let mut found = Value::Null;
    eventually(&format!("{name} is somewhere"), || {
        found = client.get(name);
        let status = found["status"].as_str().unwrap();
        assert_ne!(status, "FAILED", "{found}");
        ["DEPLOYED", "ARCHIVED", "STANDBY"].contains(&status)
    });
    found
}

fn listed(client: &Client) -> Vec<Value> {
    let all = client.done("GET", "/v0/snapshots?limit=200", None);
    all.as_array().or_else(|| all["data"].as_array()).unwrap().clone()
}

/// Takes the snapshot, unless it is complete in spite of the kill.
fn have_snapshot(client: &Client, path: &str) {
    eventually("there is a snapshot", || {
        let all = listed(client);
        let mine = all.iter().find(|one| path.contains(one["source"]["name"].as_str().unwrap()));
        match mine.map(|one| (one["status"].as_str().unwrap(), one["id"].as_str().unwrap())) {
            Some(("ready", _)) => return true,
            Some(("pending", _)) => {}
            Some((_, id)) => drop(client.ask("DELETE", &format!("/v0/snapshots/{id}"), None)),
            None => drop(client.ask("POST", path, Some(&json!({"name": "s"})))),
        }
        false
    });
}

#[test]
fn what_was_written_over_an_image_comes_back_over_that_image() {
    let mut place = Place::new("15s");
    let (mut server, mut client) = place.start();
    let mut chances = chances();
    for round in 0..ROUNDS {
        replace(&place, round);
        let (name, fork) = (format!("box-{round}"), format!("fork-{round}"));
        client.create(&name, &json!({"runtime": {"image": IMAGE}}));
        client.run(&name, "echo kept > /work");
        let wanted = format!("kept\n{round}");
        assert_eq!(client.run(&name, LOOK), wanted);

        let path = format!("/v0/sandboxes/{name}/snapshots");
        let both = (&mut server, &mut client);
        kill_within(&mut place, both, (&path, json!({"name": "s"})), &mut chances);
        have_snapshot(&client, &path);
        replace(&place, ROUNDS + round);

        let path = format!("/v0/sandboxes/{name}/fork");
        let to = json!({"targetType": "sandbox", "targetName": fork, "snapshotId": "s"});
        let both = (&mut server, &mut client);
        kill_within(&mut place, both, (&path, to.clone()), &mut chances);
        if client.ask("GET", &format!("/v0/sandboxes/{fork}"), None).unwrap().0 != 200 {
            client.done("POST", &path, Some(&to));
        }
        settled(&client, &fork);
        assert_eq!(client.run(&fork, LOOK), wanted, "round {round}");

        let path = format!("/v0/sandboxes/{name}/archive");
        let both = (&mut server, &mut client);
        kill_within(&mut place, both, (&path, Value::Null), &mut chances);
        if settled(&client, &name)["status"] != "ARCHIVED" {
            client.done("POST", &path, None);
            eventually("it is archived", || client.get(&name)["status"] == "ARCHIVED");
        }
        client.done("POST", &format!("/v0/sandboxes/{name}/unarchive"), None);
        eventually("it is back", || client.get(&name)["status"] == "DEPLOYED");
        assert_eq!(client.run(&name, LOOK), wanted, "round {round}");
        client.delete(&fork);
        client.delete(&name);
        for one in listed(&client) {
            let path = format!("/v0/snapshots/{}", one["id"].as_str().unwrap());
            assert_eq!(client.ask("DELETE", &path, None).unwrap().0, 204);
        }
    }
    place.clear(server, &client);
}

#[test]
fn an_image_of_ones_own_stays_below_a_snapshot_when_it_is_deleted() {
    let mut place = Place::new("15s");
    place.settings.extend(
        [("HOLM_REGISTRY__UNTAGGED_KEEP", "1s"), ("HOLM_REGISTRY__TIDY_EVERY", "200ms")]
            .map(|(name, value)| (name, value.to_owned())),
    );
    let home = tempfile::tempdir().unwrap();
    let (mut server, mut client) = place.start();
    let registry = client.base.trim_start_matches("http://").to_owned();
    let mut tools = Tools { home: home.path(), registry };
    login(&tools, &client);
    let push = |tools: &Tools<'_>, folder: &str| {
        let folder = home.path().join(folder);
        layout(&place, &folder);
        let (from, to) = (format!("oci:{}", folder.display()), tools.image("main/sandbox/own:v1"));
        run(tools.skopeo(&["copy", "--dest-tls-verify=false", &from, &to]));
        digest(tools, "main/sandbox/own:v1")
    };
    let old = push(&tools, "old");
    client.create("box", &json!({"runtime": {"image": "sandbox/own:v1"}}));
    client.run("box", "echo kept > /work");
    let taken = client.done("POST", "/v0/sandboxes/box/snapshots", Some(&json!({"name": "s"})));
    let forks = format!("/v0/snapshots/{}/fork", taken["id"].as_str().unwrap());
    let fork = |client: &Client, name: &str| {
        let to = json!({"targetType": "sandbox", "targetName": name});
        client.done("POST", &forks, Some(&to));
        settled(client, name);
        client.run(name, "cat /work; [ ! -e /etc/number ] || echo another image")
    };

    replace(&place, 1);
    assert_ne!(push(&tools, "new"), old);
    assert_eq!(fork(&client, "moved"), "kept\n");
    client.delete("box");
    client.delete("moved");
    let image = tools.image("main/sandbox/own:v1");
    run(tools.skopeo(&["delete", "--tls-verify=false", &image]));
    let image = tools.image(&format!("main/sandbox/own@{old}"));
    eventually("nobody can pull the old one", || {
        let inspect = tools.skopeo(&["inspect", "--tls-verify=false", &image]).output();
        !inspect.unwrap().status.success()
    });
    assert_eq!(fork(&client, "nameless"), "kept\n");
    server.kill();
    (server, client) = place.start();
    tools.registry = client.base.trim_start_matches("http://").to_owned();
    client.delete("nameless");
    assert_eq!(fork(&client, "again"), "kept\n");
    place.clear(server, &client);
}
