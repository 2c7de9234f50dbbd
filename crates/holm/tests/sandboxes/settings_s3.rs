//! Settings of drives over the S3 protocol.

use crate::settings::{end, start};
use crate::setup::{Client, PATIENCE, eventually};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

const HOST: &str = "holm";
const FIELDS: &str = "host;x-amz-content-sha256;x-amz-date";
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const MIB: u64 = 1 << 20;

/// A client with a key for the drives of a workspace.
struct Signer {
    address: String,
    bucket: String,
    id: String,
    secret: String,
}

impl Signer {
    /// Makes a client with a drive of its own.
    fn new(client: &Client) -> Self {
        let drive = json!({"metadata": {"name": "data"}, "spec": {"region": "local"}});
        let made = client.done("POST", "/v0/drives", Some(&drive));
        let url = made["state"]["s3Url"].as_str().unwrap().to_owned();
        let account = client.done("POST", "/v0/service_accounts", Some(&json!({"name": "s3"})));
        let keys =
            format!("/v0/service_accounts/{}/api_keys", account["client_id"].as_str().unwrap());
        let key = client.done("POST", &keys, Some(&json!({"name": "k", "expires_in": "1h"})));
        let text = |key: &Value, member: &str| key[member].as_str().unwrap().to_owned();
        Self {
            address: client.base.trim_start_matches("http://").to_owned(),
            bucket: url.rsplit('/').next().unwrap().to_owned(),
            id: text(&key, "id"),
            secret: text(&key, "apiKey"),
        }
    }

    /// Returns the head of a request for an object in the drive, signed as clients do it.
    fn head(&self, method: &str, key: &str, length: u64, more: &str) -> String {
        let date = Command::new("date").args(["-u", "+%Y%m%dT%H%M%SZ"]).output().unwrap().stdout;
        let date = String::from_utf8(date).unwrap().trim().to_owned();
        let scope = format!("{}/any/s3/aws4_request", &date[..8]);
        let target = format!("/s3/{}/{key}", self.bucket);
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let fields = format!("host:{HOST}\nx-amz-content-sha256:{UNSIGNED}\nx-amz-date:{date}\n");
        let asked = format!("{method}\n{path}\n{query}\n{fields}\n{FIELDS}\n{UNSIGNED}");
        let text = format!(
            "AWS4-HMAC-SHA256\n{date}\n{scope}\n{}",
            hex(&Sha256::digest(asked.as_bytes()))
        );
        let first = format!("AWS4{}", self.secret).into_bytes();
        let signing = scope.split('/').fold(first, |key, part| mac(&key, part));
        let signature = hex(&mac(&signing, &text));
        format!(
            "{method} {target} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\
             x-amz-content-sha256: {UNSIGNED}\r\nx-amz-date: {date}\r\nAuthorization: AWS4-HMAC-SHA256 \
             Credential={}/{scope}, SignedHeaders={FIELDS}, Signature={signature}\r\n\r\n",
            self.id
        )
    }

    /// Sends a request with only this much of its body.
    fn begin(&self, method: &str, key: &str, length: u64, sent: &[u8]) -> TcpStream {
        let mut stream = self.connect(&self.head(method, key, length, ""));
        // If the request is refused before its body arrives, the connection may be closed.
        let _ = stream.write_all(sent);
        stream
    }

    /// Sends a request whose body comes later, and waits until the server asks for the body.
    fn hold(&self, method: &str, key: &str, length: u64) -> TcpStream {
        let head = self.head(method, key, length, "Expect: 100-continue\r\n");
        let mut held = None;
        // The request before may keep its place for a moment after its answer.
        eventually("the server asks for the body", || {
            let mut stream = self.connect(&head);
            let mut status = [0; "HTTP/1.1 100".len()];
            stream.read_exact(&mut status).unwrap();
            held = status.ends_with(b"100").then_some(stream);
            held.is_some()
        });
        held.unwrap()
    }

    fn connect(&self, head: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    fn ask(&self, method: &str, key: &str, body: &[u8]) -> (u16, String) {
        answer(self.begin(method, key, body.len() as u64, body))
    }
}

fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    // A server that refuses a body closes the connection while it is sent.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no answer: {text:?}")), text)
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn requests_for_objects_are_as_many_and_as_large_as_the_settings_say() {
    for setting in ["requests_max = 1", "requests_workspace_max = 1"] {
        let here = start(&format!("[node]\ndrive_mb = 20\n[s3]\nput_mb_max = 1\n{setting}"));
        let signer = Signer::new(&here.2);
        assert_eq!(signer.ask("PUT", "a", b"text").0, 200);
        let (status, why) = answer(signer.begin("PUT", "large", 2 * MIB, b""));
        assert!(status == 400 && why.contains("EntityTooLarge"), "{why}");

        let held = signer.hold("PUT", "slow", 100);
        let (status, why) = signer.ask("GET", "a", b"");
        assert!(status == 503 && why.contains("SlowDown"), "{setting}: {why}");
        drop(held);
        eventually("its place is free", || signer.ask("GET", "a", b"").0 == 200);
        end(here);
    }
}

#[test]
fn an_object_that_does_not_come_is_given_up_when_the_settings_say() {
    let here = start("[node]\ndrive_mb = 20\n[s3]\nstall = \"1s\"");
    let signer = Signer::new(&here.2);
    let begun = Instant::now();
    let (status, why) = answer(signer.begin("PUT", "slow", 100, b"half"));
    assert!(status == 400 && why.contains("RequestTimeout"), "{why}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    end(here);
}

#[test]
fn uploads_in_parts_are_as_many_and_stay_as_long_as_the_settings_say() {
    let here = start("[node]\ndrive_mb = 20\n[s3]\nuploads_max = 1\nupload_life = \"1s\"");
    let (mut server, mut place, client) = here;
    let mut signer = Signer::new(&client);
    let (status, why) = signer.ask("POST", "large?uploads=", b"");
    let begun = Instant::now();
    assert_eq!(status, 200, "{why}");
    let (status, why) = signer.ask("POST", "other?uploads=", b"");
    assert!(status != 200 && why.contains("uploads"), "{status} {why}");
    assert!(signer.ask("GET", "?uploads=", b"").1.contains("<UploadId>"));
    // Abandoned uploads are removed when a bucket is first used, and then once an hour.
    std::thread::sleep(Duration::from_millis(1001).saturating_sub(begun.elapsed()));
    server.kill();
    let (server, client) = place.start();
    signer.address = client.base.trim_start_matches("http://").to_owned();
    let (status, listed) = signer.ask("GET", "?uploads=", b"");
    assert!(status == 200 && !listed.contains("<UploadId>"), "{status} {listed}");
    assert_eq!(signer.ask("POST", "other?uploads=", b"").0, 200);
    end((server, place, client));
}
