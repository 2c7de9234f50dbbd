//! Volumes and disks of sandboxes: what was written outlives the sandbox, the server and everything
//! that runs on the machine.

use crate::command_line::{done, holm};
use crate::setup::{Client, IMAGE, Place, eventually};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Child;

fn volume(name: &str, size: u32) -> Value {
    json!({"metadata": {"name": name}, "spec": {"size": size}})
}

impl Client {
    /// Makes a sandbox with a volume, and waits until it runs.
    #[track_caller]
    pub(crate) fn mount(&self, name: &str, volume: &str) {
        let volumes = json!([{"name": volume, "mountPath": "/data"}]);
        self.create(name, &json!({"runtime": {"image": IMAGE}, "volumes": volumes}));
        self.until_deployed(name);
    }

    #[track_caller]
    fn until_deployed(&self, name: &str) {
        eventually(&format!("{name} runs"), || {
            let sandbox = self.get(name);
            assert_ne!(sandbox["status"], "FAILED", "{sandbox}");
            sandbox["status"] == "DEPLOYED"
        });
    }

    fn attached_to(&self, volume: &str) -> Value {
        self.done("GET", &format!("/v0/volumes/{volume}"), None)["state"]["attachedTo"].clone()
    }
}

#[test]
fn what_is_written_to_a_volume_outlives_its_sandbox_and_the_server() {
    let mut place = Place::new("15s");
    let (mut server, mut client) = place.start();
    client.done("POST", "/v0/volumes", Some(&volume("disk", 64)));
    client.mount("one", "disk");
    assert_eq!(client.attached_to("disk"), "sandbox:one");
    client.run("one", "echo kept > /data/x && sync && stat -c %u:%g /data/x");
    assert_eq!(client.ask("DELETE", "/v0/volumes/disk", None).unwrap().0, 409);
    client.delete("one");
    assert!(client.attached_to("disk").is_null());
    // The old sandbox may not be gone yet.
    client.mount("two", "disk");
    assert_eq!(client.run("two", "cat /data/x && stat -c %u:%g /data/x"), "kept\n0:0\n");
    client.run("two", "echo more >> /data/x && sync");

    server.kill();
    (server, client) = place.start();
    assert_eq!(client.run("two", "cat /data/x"), "kept\nmore\n", "it has run on");

    // As after a restart of the machine, only files are left.
    server.kill();
    testing::machine::sweep(place.data()).unwrap();
    (server, client) = place.start();
    client.until_deployed("two");
    assert_eq!(client.run("two", "cat /data/x"), "kept\nmore\n");
    let size = "df -m /data | tail -1 | awk '{print ($2 > 40 && $2 <= 64)}'";
    assert_eq!(client.run("two", size), "1\n");
    let full = "dd if=/dev/zero of=/data/full bs=1M count=80 2>&1 | grep -o 'No space left'; rm /data/full";
    assert_eq!(client.run("two", full), "No space left\n");

    client.done("PUT", "/v0/volumes/disk", Some(&volume("disk", 128)));
    let shrunk = client.ask("PUT", "/v0/volumes/disk", Some(&volume("disk", 64)));
    assert_eq!(shrunk.unwrap().0, 400);
    client.delete("two");
    client.mount("three", "disk");
    let size = "df -m /data | tail -1 | awk '{print ($2 > 90 && $2 <= 128)}'";
    assert_eq!(client.run("three", size), "1\n");
    client.delete("three");
    client.done("DELETE", "/v0/volumes/disk", None);
    eventually("its files are gone", || {
        let volumes = place.data().join("node/volumes");
        let owners = std::fs::read_dir(volumes).unwrap().map(|owner| owner.unwrap().path());
        owners.into_iter().all(|owner| std::fs::read_dir(owner).unwrap().count() == 0)
    });
    place.clear(server, &client);
}

#[test]
fn volumes_outlive_a_start_without_their_database() {
    let mut place = Place::new("15s");
    let (mut server, client) = place.start();
    client.done("POST", "/v0/volumes", Some(&volume("disk", 64)));
    client.mount("one", "disk");
    client.run("one", "echo kept > /data/x && sync");
    client.delete("one");
    eventually("nothing runs", || place.groups().is_empty());
    server.end().unwrap();

    let aside = place.data().join("aside");
    fs::create_dir(&aside).unwrap();
    let database = || ["holm.db", "holm.db-wal", "holm.db-shm"].into_iter();
    database().for_each(|name| drop(fs::rename(place.data().join(name), aside.join(name))));
    assert!(place.run().is_err(), "the server starts");
    database().for_each(|name| assert!(!place.data().join(name).exists(), "{name} is new"));
    database().for_each(|name| drop(fs::rename(aside.join(name), place.data().join(name))));

    let (server, client) = place.start();
    client.mount("two", "disk");
    assert_eq!(client.run("two", "cat /data/x"), "kept\n");
    place.clear(server, &client);
}

#[test]
fn the_disk_of_a_sandbox_comes_back_with_its_files_unless_its_image_changes() {
    let mut place = Place::new("15s");
    let (mut server, mut client) = place.start();
    let spec = |memory: u32, image: &str| json!({"runtime": {"image": image, "storageMb": 64, "memory": memory}});
    client.create("box", &spec(256, IMAGE));
    client.run("box", "echo mine > /root.txt && sync");

    server.kill();
    testing::machine::sweep(place.data()).unwrap();
    (server, client) = place.start();
    client.until_deployed("box");
    assert_eq!(client.run("box", "cat /root.txt"), "mine\n");

    let change = |client: &Client, spec: &Value| {
        let body = json!({"metadata": {"name": "box"}, "spec": spec});
        client.done("PUT", "/v0/sandboxes/box", Some(&body));
        client.until_deployed("box");
    };
    change(&client, &spec(512, IMAGE));
    assert_eq!(client.run("box", "cat /root.txt"), "mine\n");
    change(&client, &spec(512, crate::setup::STARTING));
    assert_eq!(client.run("box", "[ -e /root.txt ] || echo anew"), "anew\n");
    place.clear(server, &client);
}

#[test]
fn a_volume_begins_with_the_files_of_its_template() {
    let mut place = Place::new("15s");
    let (server, client) = place.start();
    let here = tempfile::tempdir().unwrap();
    let at = |path: &str| here.path().join(path);
    let holm = |arguments: &[&str], exit: i32| {
        let output = done(holm(&client, arguments).current_dir(here.path()), exit);
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    fs::create_dir_all(at("base/node_modules")).unwrap();
    let manifest = "name = 'base'\ntype = 'volume-template'\ndefaultSize = 128\n";
    fs::write(at("base/blaxel.toml"), manifest).unwrap();
    fs::write(at("base/node_modules/x"), "first").unwrap();
    let told = holm(&["deploy", "base", "--yes"], 0);
    assert!(told.contains("version 1"), "{told}");
    fs::write(at("base/node_modules/x"), "second").unwrap();
    let told = holm(&["deploy", "base", "--yes"], 0);
    assert!(told.contains("version 2"), "{told}");
    let told = holm(&["get", "volumetemplates"], 0);
    let line = told.lines().find(|line| line.contains("base")).unwrap();
    assert!(line.contains("ready") && line.contains("128"), "{told}");

    let of = |name: &str, template: &str| json!({"metadata": {"name": name}, "spec": {"template": template}});
    client.done("POST", "/v0/volumes", Some(&of("disk", "base:latest")));
    client.done("POST", "/v0/volumes", Some(&of("old", "base:1")));
    let mut small = of("small", "base");
    small["spec"]["size"] = json!(1);
    let (status, refusal) = client.ask("POST", "/v0/volumes", Some(&small)).unwrap();
    assert_eq!(status, 400, "{refusal}");
    client.mount("one", "disk");
    client.mount("two", "old");
    let look = "cat /data/node_modules/x; ls -A /data";
    assert_eq!(client.run("one", look), "secondnode_modules\n");
    assert_eq!(client.run("two", look), "firstnode_modules\n");
    let size = "df -m /data | tail -1 | awk '{print ($2 > 90 && $2 <= 128)}'";
    assert_eq!(client.run("one", size), "1\n");
    // The volume is a separate copy, which outlives the template.
    client.run("one", "echo changed > /data/node_modules/x && sync");
    client.done("DELETE", "/v0/volume_templates/base/versions/2", None);
    client.done("DELETE", "/v0/volume_templates/base", None);
    assert_eq!(client.run("one", "cat /data/node_modules/x"), "changed\n");
    let told = holm(&["get", "volumes"], 0);
    let line = told.lines().find(|line| line.contains("disk")).unwrap();
    assert!(line.contains("128") && line.contains("sandbox:one"), "{told}");

    // Through the sandbox that has it, and through a temporary one.
    holm(&["volume", "cp", "disk:/node_modules/x", "seen"], 0);
    assert_eq!(fs::read_to_string(at("seen")).unwrap(), "changed\n");
    client.delete("one");
    eventually("the volume is free", || client.attached_to("disk").is_null());
    let told = holm(&["volume", "cp", "--image", IMAGE, "base", "disk:/"], 0);
    assert!(told.contains("copied 2 files"), "{told}");
    holm(&["volume", "cp", "--image", IMAGE, "disk:/", "out"], 0);
    assert_eq!(fs::read_to_string(at("out/base/node_modules/x")).unwrap(), "second");
    assert_eq!(fs::read_to_string(at("out/node_modules/x")).unwrap(), "changed\n");
    let told = holm(&["volume", "cp", "--image", IMAGE, "disk:/nowhere", "x"], 6);
    assert!(told.contains("`disk` has no file or folder `/nowhere`"), "{told}");
    holm(&["volume", "cp", "disk:/../etc", "x"], 2);
    eventually("no sandbox is left of the copies", || client.names() == ["two"]);
    assert!(client.attached_to("disk").is_null());
    client.delete("two");
    place.clear(server, &client);
}

/// Counts the files below a folder of the server, whoever owns them.
pub(crate) fn files_below(folder: &Path) -> usize {
    let Ok(found) = fs::read_dir(folder) else { return 0 };
    found
        .map(|entry| entry.unwrap().path())
        .map(|path| if path.is_dir() { files_below(&path) } else { 1 })
        .sum()
}

#[test]
fn a_kill_leaves_a_version_whole_or_nothing_of_it() {
    let mut place = Place::new("15s");
    let (mut server, mut client) = place.start();
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("base")).unwrap();
    for number in 0..400 {
        let file = here.path().join(format!("base/{number}"));
        fs::write(file, format!("{number} ").repeat(10_000)).unwrap();
    }
    let data = place.data().to_owned();
    let kept = || {
        let folders = testing::machine::volume_folders(&data).unwrap();
        folders.iter().map(|folder| files_below(folder)).sum::<usize>()
    };
    let sources = place.data().join("builds/sources");
    // The row, the sources, the version: the server is killed as soon as each exists.
    let steps: [&dyn Fn(&Client) -> bool; 4] = [
        &|client| client.ask("GET", TEMPLATE, None).is_some_and(|(status, _)| status == 200),
        &|_| files_below(&sources) > 0,
        &|client| {
            let template = client.done("GET", TEMPLATE, None);
            kept() > ready(&template)
        },
        &|client| status_of_newest(&client.done("GET", TEMPLATE, None)) == "READY",
    ];
    for step in steps {
        let arguments = ["deploy", "base", "--yes", "-n", "base", "-t", "volume-template"];
        let mut deploying = holm(&client, &arguments).current_dir(here.path()).spawn().unwrap();
        let ended = |deploying: &mut Child| deploying.try_wait().unwrap().is_some();
        eventually("a step", || step(&client) || ended(&mut deploying));
        server.kill();
        let _ = deploying.kill();
        deploying.wait().unwrap();
        (server, client) = place.start();
        // Either nothing was uploaded, or the upload is finished.
        eventually("the end", || {
            let template = client.done("GET", TEMPLATE, None);
            let awaited = status_of_newest(&template) == "CREATED" && files_below(&sources) > 0;
            !awaited && kept() == ready(&template)
        });
    }
    let template = client.done("GET", TEMPLATE, None);
    assert!(ready(&template) > 0, "{template}");
    client.done("DELETE", TEMPLATE, None);
    eventually("nothing is kept", || kept() == 0);
    place.clear(server, &client);
}

pub(crate) const TEMPLATE: &str = "/v0/volume_templates/base";

pub(crate) fn ready(template: &Value) -> usize {
    let versions = template["versions"].as_array().unwrap();
    versions.iter().filter(|version| version["status"] == "READY").count()
}

pub(crate) fn status_of_newest(template: &Value) -> &str {
    let newest = template["versions"].as_array().and_then(|versions| versions.last());
    newest.and_then(|version| version["status"].as_str()).unwrap_or_default()
}
