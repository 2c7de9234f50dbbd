//! Tests with the S3 client of AWS, and with requests that were tampered with, on a real folder.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod place;

use place::{BUCKET, KEY, SECRET};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs one part of `client.py`, which exits with 0 on success.
fn client(endpoint: &str, root: &Path, part: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/s3/client.py");
    let done = Command::new(place::python())
        .arg(script)
        .args([part, endpoint, KEY, SECRET, BUCKET])
        .arg(root.join(BUCKET))
        .env_remove("AWS_PROFILE")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}{said}", String::from_utf8_lossy(&done.stdout));
}

async fn against_folder(part: &'static str) {
    let root = tempfile::tempdir().unwrap();
    let endpoint = place::serve(root.path()).await;
    let path = root.path().to_owned();
    tokio::task::spawn_blocking(move || client(&endpoint, &path, part)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_put_read_copied_and_deleted() {
    against_folder("objects").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_have_odd_keys_in_pages() {
    against_folder("lists").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_come_in_parts() {
    against_folder("multipart").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_in_parts_have_the_checksums_that_came() {
    against_folder("sums").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_not_right_are_refused() {
    against_folder("refusals").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn traps_in_the_tree_lead_nowhere() {
    against_folder("traps").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_mounts_and_who_speaks_s3_see_the_same_files() {
    against_folder("consistency").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_key_has_begun_ends_with_it() {
    against_folder("revoked").await;
}

/// The server process that the test below kills.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "the server that another test starts and kills"]
async fn server_process() {
    let root = std::env::var("S3_TEST_ROOT").unwrap();
    println!("serving {}", place::serve(Path::new(&root)).await);
    std::future::pending::<()>().await;
}

#[test]
fn a_kill_leaves_whole_objects_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    for _ in 0..5 {
        let mut server = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "server_process", "--nocapture"])
            .env("S3_TEST_ROOT", root.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let endpoint = loop {
            let line = lines.next().unwrap().unwrap();
            if let Some((_, endpoint)) = line.split_once("serving ") {
                break endpoint.to_owned();
            }
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/s3/client.py");
        // It writes until the server is gone, and reports how often it got an answer.
        let mut writer = Command::new(place::python())
            .arg(script)
            .args(["writer", &endpoint, KEY, SECRET, BUCKET])
            .arg(root.path().join(BUCKET))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(writer.stdout.take().unwrap()).lines();
        for _ in 0..10 {
            said.next().unwrap().unwrap();
        }
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(writer.wait().unwrap().success());
        let last = said.last().unwrap().unwrap();
        let done = Command::new(place::python())
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/s3/client.py"))
            .args(["judge", &last, KEY, SECRET, BUCKET])
            .arg(root.path().join(BUCKET))
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}
