use crate::common::{Guest, Response};
use crate::form;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;

fn part(guest: &Guest, id: &str, number: &str, content: &[u8]) -> Response {
    let (body, kind) = form(&[("file", content)]);
    guest.send(
        "PUT",
        &format!("/filesystem-multipart/{id}/part?partNumber={number}"),
        &[("Content-Type", kind)],
        &body,
    )
}

fn start(guest: &Guest, path: &str) -> String {
    let started = guest
        .post(&format!("/filesystem-multipart/initiate/{path}"), &json!({"permissions": "0600"}))
        .ok();
    started["uploadId"].as_str().unwrap().to_owned()
}

fn complete(guest: &Guest, id: &str, parts: &Value) -> Response {
    guest.post(&format!("/filesystem-multipart/{id}/complete"), &json!({"parts": parts}))
}

#[test]
fn parts_in_any_order_and_at_once_become_the_file() {
    let guest = Guest::start();
    let id = start(&guest, "deep/file");
    assert_eq!(id.len(), 36);
    let content = |number: u8| vec![number; 1_200_000 + usize::from(number)];
    let named: Vec<Value> = std::thread::scope(|scope| {
        let sends: Vec<_> = [3_u8, 1, 4, 2]
            .map(|number| {
                let (guest, id) = (&guest, &id);
                scope.spawn(move || part(guest, id, &number.to_string(), &content(number)).ok())
            })
            .into_iter()
            .collect();
        sends.into_iter().map(|send| send.join().unwrap()).collect()
    });
    assert_eq!(named[1]["size"], 1_200_001);
    assert_eq!(named[1]["etag"].as_str().unwrap().len(), 32);
    let listed = guest.get(&format!("/filesystem-multipart/{id}/parts")).ok();
    let numbers: Vec<u64> = listed["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["partNumber"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let done = complete(&guest, &id, &json!(named)).ok();
    let path = guest.path().join("deep/file");
    assert_eq!(done["path"], path.to_str().unwrap());
    assert!(std::fs::read(&path).unwrap() == (1..=4).flat_map(content).collect::<Vec<u8>>());
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    complete(&guest, &id, &json!(named)).refused(404);
    assert_eq!(guest.get("/filesystem-multipart").ok(), json!({"uploads": []}));
}

#[test]
fn an_upload_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let variables =
        [("TMPDIR", folder.path().to_str().unwrap()), ("WORKDIR", folder.path().to_str().unwrap())];
    let guest = Guest::start_with(&variables);
    let id = start(&guest, "odd%FFname");
    let first = part(&guest, &id, "1", b"one").ok();
    drop(guest);
    let guest = Guest::start_with(&variables);
    let listed = guest.get("/filesystem-multipart").ok();
    assert_eq!(listed["uploads"][0]["uploadId"], id);
    assert_eq!(listed["uploads"][0]["permissions"], 0o600);
    assert_eq!(listed["uploads"][0]["parts"]["1"]["etag"], first["etag"]);
    let second = part(&guest, &id, "2", b"two").ok();
    complete(&guest, &id, &json!([second, first])).ok();
    assert_eq!(guest.get("/filesystem/odd%FFname").ok()["content"], "onetwo");
}

#[test]
fn a_repeated_part_replaces_the_first() {
    let guest = Guest::start();
    let id = start(&guest, "file");
    let old = part(&guest, &id, "1", b"old").ok();
    let new = part(&guest, &id, "1", b"new").ok();
    assert_eq!(new["etag"], "22af645d1859cb5ca6da0c484f1f37ea");
    complete(&guest, &id, &json!([old])).refused(400);
    complete(
        &guest,
        &id,
        &json!([{"partNumber": 1, "etag": format!("\"{}\"", new["etag"].as_str().unwrap())}]),
    )
    .ok();
    assert_eq!(guest.get("/filesystem/file").ok()["content"], "new");
}

#[test]
fn wrong_parts_and_uploads_are_refused() {
    let guest = Guest::start();
    let id = start(&guest, "file");
    for number in ["0", "10001", "-1", "x", ""] {
        part(&guest, &id, number, b"x").refused(400);
    }
    complete(&guest, &id, &json!([])).refused(400);
    complete(&guest, &id, &json!([{"partNumber": 1, "etag": "x"}])).refused(400);
    let known = part(&guest, &id, "1", b"x").ok();
    complete(&guest, &id, &json!([known, known])).refused(400);
    for unknown in ["0b8a6cb4-0000-4000-8000-000000000000", "..", "%2e%2e%2f", "x"] {
        part(&guest, unknown, "1", b"x").refused(404);
        complete(&guest, unknown, &json!([known])).refused(404);
        guest.delete(&format!("/filesystem-multipart/{unknown}/abort")).refused(404);
    }
    guest.delete(&format!("/filesystem-multipart/{id}/abort")).ok();
    guest.get(&format!("/filesystem-multipart/{id}/parts")).refused(404);
    assert!(!guest.path().join("file").exists());
}

#[test]
fn a_large_upload_takes_little_memory() {
    let guest = Guest::start();
    let (body, kind) = form(&[("file", &vec![b'x'; 64 << 20])]);
    guest.send("PUT", "/filesystem/large", &[("Content-Type", kind)], &body).ok();
    assert_eq!(guest.path().join("large").metadata().unwrap().len(), 64 << 20);
    assert!(guest.peak_kib() < 40 << 10, "{} KiB", guest.peak_kib());
}
