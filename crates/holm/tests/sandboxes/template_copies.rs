//! Versions of volume templates at a real S3 service: volumes begin with them where the files are
//! gone or never were, and what holds while the service is away or damaged, or the server is killed.

use crate::archives::place;
use crate::command_line::{done, holm};
use crate::setup::{Client, Place, eventually};
use crate::volumes::{TEMPLATE, files_below, ready, status_of_newest};
use reqwest::blocking;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use testing::SeaweedFs;

/// Where copies of versions are in the bucket: below the prefix that the settings have by default.
const COPIES: &str = "/holm/templates";

/// A template's folder on the machine of whoever deploys it.
struct Sources(tempfile::TempDir);

impl Sources {
    fn new() -> Self {
        let here = tempfile::tempdir().unwrap();
        std::fs::create_dir(here.path().join("base")).unwrap();
        Self(here)
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.0.path().join("base").join(name), content).unwrap();
    }

    fn deploy(&self, client: &Client) -> std::process::Command {
        let arguments = ["deploy", "base", "--yes", "-n", "base", "-t", "volume-template"];
        let mut command = holm(client, &arguments);
        command.current_dir(self.0.path());
        command
    }
}

/// The files that the service has of all versions of templates.
struct Objects {
    http: blocking::Client,
    bucket: String,
}

impl Objects {
    fn of(service: &SeaweedFs) -> Self {
        let http = blocking::Client::builder().no_proxy().build().unwrap();
        Self { http, bucket: format!("{}/holm", service.buckets()) }
    }

    /// Returns the paths of all objects below a path in the bucket.
    fn below(&self, path: &str) -> Vec<String> {
        let asked = self.http.get(format!("{}{path}/?limit=1000", self.bucket));
        let answer = asked.header("accept", "application/json").send();
        let Some(listed) = answer.ok().filter(|answer| answer.status().is_success()) else {
            return Vec::new();
        };
        let listed: Value = listed.json().unwrap();
        let entries = listed["Entries"].as_array().cloned().unwrap_or_default();
        let found = entries.iter().flat_map(|entry| {
            let name = entry["FullPath"].as_str().unwrap().rsplit('/').next().unwrap();
            let path = format!("{path}/{name}");
            // Folders have this bit in the mode that this service shows.
            match entry["Mode"].as_u64().unwrap() & 1 << 31 {
                0 => vec![path],
                _ => self.below(&path),
            }
        });
        found.collect()
    }

    /// Returns the folders of the versions that it has anything of.
    fn versions(&self) -> BTreeSet<String> {
        let all = self.below(COPIES);
        all.iter().map(|path| path.rsplit_once('/').unwrap().0.to_owned()).collect()
    }

    fn read(&self, path: &str) -> Vec<u8> {
        let answer = self.http.get(format!("{}{path}", self.bucket)).send().unwrap();
        answer.bytes().unwrap().to_vec()
    }

    fn write(&self, path: &str, content: Vec<u8>) {
        let answer = self.http.put(format!("{}{path}", self.bucket)).body(content).send().unwrap();
        assert!(answer.status().is_success(), "{answer:?}");
    }
}

/// Returns a place whose server lets go of versions at once.
fn forgetful(service: &SeaweedFs) -> Place {
    let mut place = place(service);
    place.settings.push(("HOLM_SNAPSHOTS__OFFLOAD_AFTER", "1s".to_owned()));
    place.settings.push(("HOLM_BUILDS__ATTEMPTS_MAX", "1".to_owned()));
    place
}

/// Counts the files of volumes and versions on a machine.
fn kept(data: &Path) -> usize {
    let folders = testing::machine::volume_folders(data).unwrap();
    folders.iter().map(|folder| files_below(folder)).sum()
}

fn volume(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"template": "base:latest"}})
}

#[track_caller]
fn make(client: &Client, name: &str) {
    client.done("POST", "/v0/volumes", Some(&volume(name)));
}

/// Tries to make a volume. Returns why that failed.
#[track_caller]
fn refused(client: &Client, name: &str) -> String {
    let (status, body) = client.ask("POST", "/v0/volumes", Some(&volume(name))).unwrap();
    assert_eq!(status, 500, "{body}");
    assert_eq!(client.ask("GET", &format!("/v0/volumes/{name}"), None).unwrap().0, 404);
    body.to_string()
}

#[track_caller]
fn holds(client: &Client, volume: &str, content: &str) {
    client.mount("reader", volume);
    assert_eq!(client.run("reader", "cat /data/file"), content);
    client.delete("reader");
}

#[test]
fn a_version_is_at_the_service_and_comes_back_for_each_volume() {
    let mut service = SeaweedFs::start().unwrap();
    let mut place = forgetful(&service);
    let (server, client) = place.start();
    let (sources, objects) = (Sources::new(), Objects::of(&service));
    sources.write("file", "first");
    done(&mut sources.deploy(&client), 0);
    assert_eq!(objects.versions().len(), 1, "it was ready, so it is there");
    eventually("it is not on the machine any more", || kept(place.data()) == 0);
    make(&client, "one");
    holds(&client, "one", "first");
    eventually("only the volume is on the machine", || kept(place.data()) == 1);

    service.stop();
    let said = refused(&client, "two");
    assert!(said.contains("object service"), "{said}");
    assert!(!said.contains(SeaweedFs::SECRET), "{said}");
    assert_eq!(kept(place.data()), 1);
    sources.write("file", "lost");
    let failed = sources.deploy(&client).output().unwrap();
    assert!(!failed.status.success(), "{failed:?}");
    let template = client.done("GET", TEMPLATE, None);
    assert_eq!(status_of_newest(&template), "FAILED", "{template}");
    assert!(template.to_string().contains("object service"), "{template}");
    eventually("nothing of it is left", || kept(place.data()) == 1);
    service.restart().unwrap();

    for path in objects.below(COPIES) {
        let right = objects.read(&path);
        let mut wrong = right.clone();
        wrong[right.len() / 2] ^= 1;
        objects.write(&path, wrong);
        let said = refused(&client, "two");
        assert!(said.contains("is not what was stored under this name"), "{said}");
        assert!(said.contains(path.rsplit('/').next().unwrap()), "{said} names {path}");
        assert_eq!(kept(place.data()), 1, "nothing half there");
        objects.write(&path, right);
    }
    make(&client, "two");
    holds(&client, "two", "first");

    sources.write("file", "second");
    done(&mut sources.deploy(&client), 0);
    assert_eq!(objects.versions().len(), 2);
    client.done("DELETE", &format!("{TEMPLATE}/versions/1"), None);
    eventually("only the second version is there", || objects.versions().len() == 1);
    make(&client, "three");
    holds(&client, "three", "second");
    client.done("DELETE", TEMPLATE, None);
    eventually("no object is left", || objects.below(COPIES).is_empty());
    eventually("only volumes are left", || kept(place.data()) == 3);
    place.clear(server, &client);
}

#[test]
fn a_kill_leaves_a_version_that_is_ready_at_the_service_or_nothing() {
    let service = SeaweedFs::start().unwrap();
    let mut place = forgetful(&service);
    let (mut server, mut client) = place.start();
    let (sources, objects) = (Sources::new(), Objects::of(&service));
    // Several parts, so that kills hit between them.
    let mut chances = crate::volumes_killed::chances();
    for number in 0..4 {
        let noise: String = (0..6_000_000).map(|_| chances.alphanumeric()).collect();
        sources.write(&number.to_string(), &noise);
    }
    sources.write("file", "kept");
    let uploads = place.data().join("builds/sources");
    let data = place.data().to_owned();
    // What it comes to, in order: the server is killed as soon as it has.
    let steps: [&dyn Fn(&Client) -> bool; 4] = [
        &|_| files_below(&uploads) > 0,
        &|_| kept(&data) > 0,
        &|client| objects.versions().len() > ready(&client.done("GET", TEMPLATE, None)),
        &|client| status_of_newest(&client.done("GET", TEMPLATE, None)) == "READY",
    ];
    for step in steps {
        let mut deploying = sources.deploy(&client).spawn().unwrap();
        eventually("a step", || step(&client) || deploying.try_wait().unwrap().is_some());
        server.kill();
        let _ = deploying.kill();
        deploying.wait().unwrap();
        (server, client) = place.start();
        // Either nothing was uploaded, or the upload is finished.
        eventually("the end", || {
            let Some((200, template)) = client.ask("GET", TEMPLATE, None) else { return true };
            let awaited = status_of_newest(&template) == "CREATED" && files_below(&uploads) > 0;
            !awaited && objects.versions().len() == ready(&template)
        });
    }
    assert!(ready(&client.done("GET", TEMPLATE, None)) > 0);
    eventually("no version is on the machine", || kept(place.data()) == 0);
    make(&client, "one");
    holds(&client, "one", "kept");
    client.done("DELETE", TEMPLATE, None);
    eventually("no object is left", || objects.below(COPIES).is_empty());
    place.clear(server, &client);
}

/// Returns one of two servers on this database, each with half of this process's share of the
/// machine.
fn one_of_two(service: &SeaweedFs, database: &str, keys: &Path, second: bool) -> Place {
    let own = testing::machine::own();
    let subnet = own.subnet().replace("/20", "/21");
    let [a, b, c, d] = subnet.split('.').collect::<Vec<_>>().try_into().unwrap();
    let third: u32 = c.parse().unwrap();
    let half = u32::from(second);
    let mut place = forgetful(service);
    place.settings.extend([
        ("HOLM_STORE__URL", database.to_owned()),
        ("HOLM_STORE__KEY_FILE", keys.display().to_string()),
        ("HOLM_NODE__SUBNET", format!("{a}.{b}.{}.{d}", third + 8 * half)),
        ("HOLM_NODE__FIRST_UID", (own.first_uid() + 14_000_000 * half).to_string()),
        ("HOLM_NODE__INSTANCES_MAX", "200".to_owned()),
    ]);
    place
}

#[test]
fn a_version_outlives_the_machine_on_which_it_was_unpacked() {
    let service = SeaweedFs::start().unwrap();
    let (database, folder) = (testing::postgres(), tempfile::tempdir().unwrap());
    let keys = folder.path().join("keys");
    let mut first = one_of_two(&service, &database, &keys, false);
    let mut second = one_of_two(&service, &database, &keys, true);
    let (server, client) = first.start();
    second.key = Some(client.key.clone());
    let (other, its_client) = second.start();
    let (sources, objects) = (Sources::new(), Objects::of(&service));
    sources.write("file", "shared");
    done(&mut sources.deploy(&client), 0);
    make(&its_client, "there");
    holds(&its_client, "there", "shared");
    eventually("only the volume is there", || kept(second.data()) == 1);
    // The first machine is gone with its folder.
    first.clear(server, &client);
    drop(first);
    make(&its_client, "later");
    holds(&its_client, "later", "shared");
    its_client.done("DELETE", TEMPLATE, None);
    eventually("no object is left", || objects.below(COPIES).is_empty());
    second.clear(other, &its_client);
}
