//! Archives at a real S3 service: what one uses on the machine, that it comes back unchanged, and
//! what holds while the service is away or the server is killed.

use crate::command_line::{done, holm};
use crate::setup::{Client, Place, eventually};
use crate::volumes_killed::chances;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testing::{Holm, SeaweedFs};

pub(crate) fn place(service: &SeaweedFs) -> Place {
    let mut place = Place::new("15s");
    place.settings.extend(service.settings());
    let short = [
        ("HOLM_OBJECTS__TIDY_EVERY", "200ms"),
        ("HOLM_OBJECTS__RETRIES", "0"),
        ("HOLM_OBJECTS__TIMEOUT", "10s"),
        ("HOLM_SNAPSHOTS__TIDY_EVERY", "200ms"),
        ("HOLM_SNAPSHOTS__FORK_WITHIN", "200ms"),
    ];
    place.settings.extend(short.map(|(name, value)| (name, value.to_owned())));
    place
}

fn status(client: &Client, name: &str) -> Value {
    client.get(name)["status"].clone()
}

#[track_caller]
fn becomes(client: &Client, name: &str, wanted: &str) {
    eventually(&format!("{name} is {wanted}"), || status(client, name) == wanted);
}

#[track_caller]
fn archive(client: &Client, name: &str) {
    client.done("POST", &format!("/v0/sandboxes/{name}/archive"), None);
    becomes(client, name, "ARCHIVED");
}

#[track_caller]
fn unarchive(client: &Client, name: &str) {
    client.done("POST", &format!("/v0/sandboxes/{name}/unarchive"), None);
    becomes(client, name, "DEPLOYED");
}

fn last_message(client: &Client, name: &str) -> String {
    let sandbox = client.get(name);
    let events = sandbox["events"].as_array().expect("events");
    events.iter().map(|event| event["message"].to_string()).collect()
}

/// Returns the number of snapshots whose files are on the machine, and of all snapshots.
pub(crate) fn snapshots(data: &Path) -> (usize, usize) {
    let owners = std::fs::read_dir(data.join("node/snapshots")).unwrap();
    let owners = owners.map(|owner| owner.unwrap().path()).filter(|path| path.is_dir());
    let all = owners.flat_map(|owner| std::fs::read_dir(owner).unwrap());
    let all: Vec<PathBuf> = all.map(|one| one.unwrap().path()).collect();
    (all.iter().filter(|path| path.join("layer").exists()).count(), all.len())
}

const WRITE: &str = "mkdir -p /work/deep && echo kept > /work/deep/file && ln /work/deep/file /work/same \
    && ln -s deep/file /work/link && rm -rf /tmp/gone && chmod 4750 /work/deep/file && touch -d '2001-02-03 04:05:06' /work/deep \
    && dd if=/dev/zero of=/work/sparse bs=1 count=1 seek=20971519 2>/dev/null && rm /bin/ls && head -c 300000 /dev/urandom > /work/random \
    && md5sum /work/random > /work/sum";
const READ: &str = "cat /work/link && stat -c '%a %h %Y' /work/deep/file | cut -d' ' -f1,2 && stat -c %Y /work/deep \
    && stat -c %s /work/sparse && test ! -e /bin/ls && md5sum -c /work/sum";

#[test]
fn an_archive_is_at_the_service_and_comes_back_as_it_was() {
    let mut service = SeaweedFs::start().unwrap();
    let mut place = place(&service);
    let (mut server, mut client) = place.start();
    client.create("base", &json!({}));
    client.run("base", WRITE);
    let wanted = client.run("base", READ);
    // One more in the chain: a fork contains only what it wrote itself.
    let fork = json!({"targetType": "sandbox", "targetName": "box"});
    client.done("POST", "/v0/sandboxes/base/fork", Some(&fork));
    client.run("box", "echo mine > /mine");
    client.delete("base");

    archive(&client, "box");
    let size = client.get("box")["archive"]["size"].clone();
    assert!(size.as_u64().is_some_and(|size| size > 0), "it is paid for: {size}");
    for words in [&["exec", "box", "ls"][..], &["cp", "box:/mine", "/nowhere"]] {
        let told = String::from_utf8(done(&mut holm(&client, words), 6).stderr).unwrap();
        assert!(told.contains("archived") && told.contains("next: "), "{words:?}: {told}");
        assert!(!told.contains("has no file") && !told.contains("holm get"), "{told}");
    }
    eventually("nothing of the archive is on the machine", || snapshots(place.data()).0 == 0);
    assert_eq!(snapshots(place.data()).1, 2);

    // The server is killed, and starts again while the service is away.
    server.kill();
    service.stop();
    (server, client) = place.start();
    assert_eq!(status(&client, "box"), "ARCHIVED");
    client.done("POST", "/v0/sandboxes/box/unarchive", None);
    becomes(&client, "box", "ARCHIVED");
    let said = last_message(&client, "box");
    assert!(said.contains("object service"), "{said}");
    service.restart().unwrap();

    unarchive(&client, "box");
    assert_eq!(client.run("box", READ), wanted);
    assert_eq!(client.run("box", "cat /mine"), "mine\n");
    assert_eq!(snapshots(place.data()), (2, 2));

    // A sandbox that cannot be archived continues as before.
    service.stop();
    client.done("POST", "/v0/sandboxes/box/archive", None);
    becomes(&client, "box", "DEPLOYED");
    let said = last_message(&client, "box");
    assert!(said.contains("could not be archived"), "{said}");
    assert_eq!(client.run("box", "cat /mine"), "mine\n");
    service.restart().unwrap();
    archive(&client, "box");
    client.delete("box");
    eventually("nothing is left", || snapshots(place.data()).1 == 0);
    place.clear(server, &client);
}

const ROUNDS: usize = 4;
const LIFE_MS_MAX: u64 = 600;

/// Kills the server a while after a sandbox was asked to be archived or restored, perhaps before
/// the request arrives, and starts the next server.
fn kill_within(
    place: &mut Place,
    (server, client): (&mut Holm, &mut Client),
    act: &str,
    chances: &mut fastrand::Rng,
) {
    let asked = client.clone();
    let path = format!("/v0/sandboxes/box/{act}");
    let asking = std::thread::spawn(move || asked.ask("POST", &path, None));
    std::thread::sleep(Duration::from_millis(chances.u64(..LIFE_MS_MAX)));
    server.kill();
    let _ = asking.join().unwrap();
    (*server, *client) = place.start();
}

#[test]
fn a_killed_server_loses_no_archive() {
    let service = SeaweedFs::start().unwrap();
    let mut place = place(&service);
    let (mut server, mut client) = place.start();
    let mut chances = chances();
    client.create("box", &json!({}));
    client.run("box", WRITE);
    let wanted = client.run("box", READ);
    for round in 1..=ROUNDS {
        kill_within(&mut place, (&mut server, &mut client), "archive", &mut chances);
        eventually("it is archived, or was not asked to be", || {
            ["ARCHIVED", "DEPLOYED"].contains(&status(&client, "box").as_str().unwrap())
        });
        if status(&client, "box") == "DEPLOYED" {
            assert_eq!(client.run("box", READ), wanted);
            archive(&client, "box");
        }
        eventually("no file of it is on the machine", || snapshots(place.data()).0 == 0);
        kill_within(&mut place, (&mut server, &mut client), "unarchive", &mut chances);
        eventually("it is back, or was not asked to be", || {
            ["ARCHIVED", "DEPLOYED"].contains(&status(&client, "box").as_str().unwrap())
        });
        if status(&client, "box") == "ARCHIVED" {
            unarchive(&client, "box");
        }
        assert_eq!(client.run("box", READ), wanted);
        // Each archive lies over the one from which the sandbox was restored.
        eventually("no other snapshot is left", || snapshots(place.data()).1 <= round);
    }
    client.delete("box");
    eventually("nothing is left", || snapshots(place.data()).1 == 0);
    place.clear(server, &client);
}
