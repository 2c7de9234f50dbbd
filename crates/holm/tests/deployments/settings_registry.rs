//! Settings of the registry.

use crate::place::{Client, eventually};
use crate::settings::{end, noise, start};
use crate::tools::{Answer, Request, basic, send};
use serde_json::{Value, json};

const REPOSITORY: &str = "/v2/main/sandbox/tiny";
const MIB: usize = 1 << 20;

fn ask(client: &Client, line: &str, body: &[u8]) -> Answer {
    send(client, line, &basic(client), body)
}

/// Sends a blob in one request.
fn push(client: &Client, bytes: &[u8]) -> (Answer, String) {
    let digest = images::Digest::of(bytes).to_string();
    let line = format!("POST {REPOSITORY}/blobs/uploads/?digest={digest}");
    (ask(client, &line, bytes), digest)
}

/// Starts an upload; the answer says where it continues.
fn begin(client: &Client) -> Answer {
    ask(client, &format!("POST {REPOSITORY}/blobs/uploads/"), b"")
}

/// Pushes the parts of an image without content, and returns its manifest.
fn manifest(client: &Client, note: &str) -> String {
    let part = |kind: &str, bytes: &[u8]| {
        let (answer, digest) = push(client, bytes);
        assert_eq!(answer.status, 201, "{}", answer.body);
        let kind = format!("application/vnd.oci.image.{kind}");
        json!({"mediaType": kind, "digest": digest, "size": bytes.len()})
    };
    let config = part("config.v1+json", b"{\"rootfs\": {\"type\": \"layers\", \"diff_ids\": []}}");
    let layer = part("layer.v1.tar", &noise(1000));
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let parts = json!({"config": config, "layers": [layer], "annotations": {"note": note}});
    let mut all = json!({"schemaVersion": 2, "mediaType": kind});
    all.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
    all.to_string()
}

fn tag(client: &Client, name: &str, manifest: &str) -> Answer {
    let headers = basic(client) + "Content-Type: application/vnd.oci.image.manifest.v1+json\r\n";
    send(client, &format!("PUT {REPOSITORY}/manifests/{name}"), &headers, manifest.as_bytes())
}

fn tags(client: &Client) -> Vec<String> {
    let answer = ask(client, &format!("GET {REPOSITORY}/tags/list"), b"");
    let list: Value = serde_json::from_str(&answer.body).unwrap();
    serde_json::from_value(list["tags"].clone()).unwrap()
}

#[test]
fn what_is_pushed_is_as_large_as_the_settings_say() {
    let place = start("[registry]\nblob_mb_max = 1\nmanifest_bytes_max = 1000\ntags_max = 1");
    let client = &place.2;
    assert_eq!(push(client, &noise(2 * MIB)).0.status, 413);
    assert_eq!(push(client, &noise(1000)).0.status, 201);
    let large = manifest(client, &"x".repeat(1000));
    assert_eq!(tag(client, "large", &large).status, 413);
    let small = manifest(client, "x");
    let answer = tag(client, "one", &small);
    assert_eq!(answer.status, 201, "{}", answer.body);
    let answer = tag(client, "two", &small);
    assert!(answer.status == 400 && answer.body.contains("tags"), "{}", answer.body);
    assert_eq!(tags(client), ["one"]);
    end(place);

    // One workspace may have four fifths of it, in steps of 4 MB.
    let place = start("[registry]\ndisk_mb = 16");
    let client = &place.2;
    let to = begin(client).header("location").unwrap().to_owned();
    let answer = ask(client, &format!("PATCH {to}"), &vec![7; 11 * MIB]);
    assert_eq!(answer.status, 202, "{}", answer.body);
    let to = answer.header("location").unwrap().to_owned();
    let answer = ask(client, &format!("PATCH {to}"), &vec![7; 2 * MIB]);
    assert!(answer.status == 403 && answer.body.contains("DENIED"), "{}", answer.body);
    end(place);
}

#[test]
fn pushes_are_as_many_as_the_settings_say() {
    for (setting, whose) in
        [("uploads_max = 1", "the whole server"), ("uploads_workspace_max = 1", "one owner")]
    {
        let place = start(&format!("[registry]\n{setting}"));
        assert_eq!(begin(&place.2).status, 202);
        let answer = begin(&place.2);
        assert!(answer.status == 429 && answer.body.contains(whose), "{}", answer.body);
        end(place);
    }
}

#[test]
fn a_push_that_is_silent_ends() {
    let place = start("[registry]\nstall = \"500ms\"");
    let client = &place.2;
    let to = begin(client).header("location").unwrap().to_owned();
    let mut request = Request::begin(client, &format!("PATCH {to}"), &basic(client), 1000);
    request.send(b"half");
    let answer = request.answer();
    assert!(answer.status == 400 && answer.body.contains("BLOB_UPLOAD_INVALID"), "{}", answer.body);
    end(place);
}

#[test]
fn what_nothing_needs_stays_as_long_as_the_settings_say() {
    let place = start(
        "[registry]\nupload_keep = \"500ms\"\nuntagged_keep = \"500ms\"\nkeep_tags = 1\ntidy_every = \"500ms\"",
    );
    let client = &place.2;
    let upload = begin(client).header("location").unwrap().to_owned();
    eventually("the upload is given up", || {
        ask(client, &format!("GET {upload}"), b"").status == 404
    });
    let (_, blob) = push(client, &noise(1000));
    eventually("the blob has gone", || {
        ask(client, &format!("HEAD {REPOSITORY}/blobs/{blob}"), b"").status == 404
    });
    for name in ["one", "two"] {
        // Its parts may be tidied away before it is tagged.
        eventually("it has its tag", || tag(client, name, &manifest(client, name)).status == 201);
    }
    eventually("only the newest tag is left", || tags(client) == ["two"]);
    end(place);
}
