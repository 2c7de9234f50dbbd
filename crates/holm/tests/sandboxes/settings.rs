//! Settings, given in a file, of machines, of the gateway, and of stored data: the effect of each
//! can be seen from outside.

use crate::setup::{Client, Place, eventually};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use testing::{Holm, machine};

/// Starts a server with these settings in its file. The server is dropped before its place.
pub(crate) fn start(text: &str) -> (Holm, Place, Client) {
    let mut place = Place::new("15s");
    std::fs::write(place.data().join("holm.toml"), text).unwrap();
    let (server, client) = place.start();
    (server, place, client)
}

pub(crate) fn end((server, place, client): (Holm, Place, Client)) {
    place.clear(server, &client);
}

/// Starts a program that accepts connections at a port and runs the shell command for each.
#[track_caller]
fn serve(client: &Client, name: &str, port: u16, shell: &str) {
    let command = format!("nc -ll -p {port} -e sh -c '{shell}'");
    let serve = json!({"command": command, "name": format!("at-{port}"), "waitForPorts": [port]});
    client.done("POST", &format!("/main/sandboxes/{name}/process"), Some(&serve));
}

/// Returns status and body of a request to a port of a sandbox.
fn port(client: &Client, name: &str, port: u16) -> (u16, Value) {
    client.ask("GET", &format!("/main/sandboxes/{name}/port/{port}/"), None).unwrap()
}

/// Sends a request to a port that does not answer.
fn hang(client: &Client, name: &str, port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(client.base.trim_start_matches("http://")).unwrap();
    let path = format!("/main/sandboxes/{name}/port/{port}/");
    let head = format!("Host: holm\r\nAuthorization: Bearer {}\r\n\r\n", client.key);
    write!(stream, "GET {path} HTTP/1.1\r\n{head}").unwrap();
    stream
}

const SILENT: &str = "cat >/dev/null";

#[test]
fn the_limits_of_one_sandbox_are_what_the_settings_say() {
    let here = start("[node]\npids_max = 40\nopen_files_max = 100");
    let client = &here.2;
    client.create("box", &json!({}));
    assert_eq!(client.run("box", "ulimit -n"), "100\n");
    let many = "(for i in $(seq 60); do sleep 9 >/dev/null 2>&1 & done) 2>&1 | grep -c fork; true";
    assert_ne!(client.run("box", many), "0\n");
    end(here);
}

#[test]
fn requests_that_are_under_way_are_as_many_as_the_settings_say() {
    let of_workspace = "requests_workspace_max = 2\nrequests_public_max = 1";
    for (setting, status) in [("requests_max = 1", 503), (of_workspace, 429)] {
        let here = start(&format!("[gateway]\nlaunch_grace = \"0s\"\n{setting}"));
        let client = &here.2;
        client.create("box", &json!({}));
        serve(client, "box", 3000, SILENT);
        let mut held = Vec::new();
        eventually("the next is refused", || {
            // Unless it comes while the last request still has a place.
            held.push(hang(client, "box", 3000));
            port(client, "box", 3001).0 == status
        });
        drop(held);
        eventually("its place is free", || port(client, "box", 3001).0 != status);
        end(here);
    }
}

#[test]
fn answers_that_nobody_reads_are_let_go_when_the_settings_say() {
    let few =
        "[gateway]\nlaunch_grace = \"0s\"\nrequests_workspace_max = 2\nrequests_public_max = 1";
    let here = start(&format!("[server]\nanswer_stall = \"2s\"\n{few}"));
    let client = &here.2;
    client.create("box", &json!({}));
    serve(client, "box", 3000, r#"printf "HTTP/1.1 200 OK\r\n\r\n"; cat /dev/zero"#);
    let mut unread = Vec::new();
    eventually("all places are taken", || {
        unread.push(hang(client, "box", 3000));
        port(client, "box", 3001).0 == 429
    });
    eventually("a place is free", || port(client, "box", 3001).0 != 429);
    drop(unread);
    end(here);
}

#[test]
fn strangers_have_as_many_places_as_the_settings_say() {
    let here = start("[gateway]\nlaunch_grace = \"0s\"\nrequests_public_max = 1");
    let client = &here.2;
    client.create("box", &json!({}));
    serve(client, "box", 3000, SILENT);
    let preview = json!({"metadata": {"name": "p"}, "spec": {"port": 3000, "public": true}});
    let made = client.done("POST", "/v0/sandboxes/box/previews", Some(&preview));
    let url = made["spec"]["url"].as_str().unwrap().to_owned();
    let http = reqwest::blocking::Client::builder().no_proxy();
    let http = http.timeout(std::time::Duration::from_millis(300)).build().unwrap();
    let (address, path) = url.trim_start_matches("http://").split_once('/').unwrap();
    let mut held = Vec::new();
    eventually("the next stranger is refused", || {
        // One stranger may come while the other, refused or given up, still has the only place.
        let mut stranger = TcpStream::connect(address).unwrap();
        write!(stranger, "GET /{path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
        held.push(stranger);
        let asked = http.get(&url).send();
        asked.is_ok_and(|answer| answer.status() == 429)
    });
    assert_ne!(port(client, "box", 3001).0, 429, "its owner has places left");
    drop(held);
    end(here);
}

#[test]
fn answers_that_do_not_come_are_given_up_when_the_settings_say() {
    let here =
        start("[gateway]\nanswer_idle = \"1s\"\nlaunch_grace = \"0s\"\nbody_bytes_max = 1000");
    let client = &here.2;
    client.create("box", &json!({}));
    serve(client, "box", 3000, SILENT);
    let (status, why) = port(client, "box", 3000);
    assert_eq!(status, 504, "{why}");
    // The server does not wait for a port that nothing serves.
    let asked = std::time::Instant::now();
    let (status, why) = port(client, "box", 3002);
    assert!(status == 502 && asked.elapsed().as_secs() < 9, "{status} {why}");
    let large = json!("x".repeat(2000));
    let (status, why) = client.ask("PUT", "/main/sandboxes/box/port/3000/", Some(&large)).unwrap();
    assert_eq!(status, 413, "{why}");
    end(here);
}

#[test]
fn what_strangers_made_is_served_where_the_settings_say() {
    // Tests of certificates have the first ones.
    let free = std::net::SocketAddr::from(([127, 0, 0, 1], machine::own().port(2)));
    let here = start(&format!(
        "[server]\ncontent_listen = \"{free}\"\ncontent_url = \"https://content.example\""
    ));
    eventually("the server tells where", || {
        let told = std::fs::read_to_string(here.1.data().join("content-address"));
        told.is_ok_and(|told| told.trim() == free.to_string())
    });
    TcpStream::connect(free).unwrap();
    let client = &here.2;
    client.create("box", &json!({}));
    let preview = json!({"metadata": {"name": "p"}, "spec": {"port": 3000, "public": true}});
    let made = client.done("POST", "/v0/sandboxes/box/previews", Some(&preview));
    let url = made["spec"]["url"].as_str().unwrap();
    assert!(url.contains("content.example"), "{made}");
    end(here);
}

#[test]
fn what_a_workspace_keeps_is_as_much_as_the_settings_say() {
    let here = start(
        "[snapshots]\npending_workspace_max = 1\n[limits]\nsandbox_drives_max = 1\n[limits.quotas]\nsnapshots = 2\n\
         [node]\ndrive_mb = 20\nvolume_mb = 200\ndisks_max = 3",
    );
    let client = &here.2;
    client.create("box", &json!({}));
    for name in ["a", "b"] {
        let drive = json!({"metadata": {"name": name}, "spec": {"region": "local"}});
        client.done("POST", "/v0/drives", Some(&drive));
    }
    let mount = |drive: &str| {
        let wish = json!({"driveName": drive, "mountPath": format!("/mnt/{drive}")});
        client.ask("POST", "/main/sandboxes/box/drives/mount", Some(&wish)).unwrap()
    };
    assert_eq!(mount("a").0, 200);
    let size = "df -m /mnt/a | tail -1 | awk '{print ($2 > 8 && $2 <= 20)}'";
    assert_eq!(client.run("box", size), "1\n");
    let (status, why) = mount("b");
    assert!((400..500).contains(&status), "{status} {why}");
    // The drives take 40 of the 200 MB.
    let volume = |name: &str, size: u32| {
        let wish = json!({"metadata": {"name": name}, "spec": {"size": size}});
        client.ask("POST", "/v0/volumes", Some(&wish)).unwrap()
    };
    assert_eq!(volume("large", 170).0, 403);
    assert_eq!(volume("small", 64).0, 200);
    for count in 0..3 {
        let taken = client.ask("POST", "/v0/sandboxes/box/snapshots", Some(&json!({}))).unwrap();
        assert_eq!(taken.0 == 200, count < 2, "{taken:?}");
    }
    let unmounted = client.ask("DELETE", "/main/sandboxes/box/drives/mount/mnt/a", None).unwrap();
    assert_eq!(unmounted.0, 200, "{unmounted:?}");
    end(here);
}

/// The file of prices is read when the machine is set up already.
#[test]
fn a_start_that_fails_leaves_nothing_on_the_machine() {
    let mut place = Place::new("15s");
    place.settings.push(("HOLM_MODELS__PRICES", "/nowhere".to_owned()));
    assert!(place.run().is_err());
    // The kernel removes mounts some time after the process that had them.
    eventually("nothing is left on the machine", || {
        machine::traces(place.data()).unwrap().is_empty()
    });
}
