//! Volumes and disks of sandboxes: what was written outlives the sandbox, the server and everything
//! that runs on the machine.

use crate::setup::{Client, IMAGE, Place, eventually};
use serde_json::{Value, json};

fn volume(name: &str, size: u32) -> Value {
    json!({"metadata": {"name": name}, "spec": {"size": size}})
}

impl Client {
    /// Makes a sandbox with a volume, and waits until it runs.
    #[track_caller]
    fn mount(&self, name: &str, volume: &str) {
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
    // The old sandbox may still be about to go.
    client.mount("two", "disk");
    assert_eq!(client.run("two", "cat /data/x && stat -c %u:%g /data/x"), "kept\n0:0\n");
    client.run("two", "echo more >> /data/x && sync");

    server.kill();
    (server, client) = place.start();
    assert_eq!(client.run("two", "cat /data/x"), "kept\nmore\n", "it has run on");

    // As after a start of the machine: nothing is left but files.
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
