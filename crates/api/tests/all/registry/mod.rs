//! The registry of the workspaces' own images, as its clients and hostile ones use it.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod several;
mod tokens;
mod upkeep;
mod workspaces;

use crate::common::machine::{PASSWORD, Pretended};
use crate::common::{Answer, Cloud, settings};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use control::machine::Machine;
use control::registry::Registry;
use host::{LocalRegistry, RegistrySettings};
use http::Method;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use types::instance::Outcome;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const BLOB_MAX: u64 = 1 << 20;

fn limits() -> RegistrySettings {
    RegistrySettings {
        disk_mb: 16,
        share_percent: 50,
        blob_bytes_max: BLOB_MAX,
        manifest_bytes_max: 64 << 10,
        uploads_max: 8,
        uploads_workspace_max: 4,
        upload_keep: Duration::from_secs(3600),
        untagged_keep: Duration::from_secs(3600),
        stall: Duration::from_secs(10),
    }
}

/// A cloud with a registry, and the places of its content.
struct Town {
    cloud: Cloud,
    machine: Arc<Pretended>,
    images: images::Store,
    _folder: tempfile::TempDir,
}

fn digest(bytes: &[u8]) -> String {
    images::Digest::of(bytes).to_string()
}

fn open(images: &images::Store) -> LocalRegistry {
    LocalRegistry::open(images.clone(), limits(), crate::common::test_world().0).unwrap()
}

/// Returns a machine with a registry of its own.
fn keeper(name: &'static str) -> (Arc<Pretended>, images::Store, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let images = images::Store::open(folder.path(), images::Settings::default()).unwrap();
    let machine = Pretended::new(|_| Ok(Outcome::SUCCESS)).named(name);
    let machine = Arc::new(machine.keeping(images.clone(), open(&images)));
    (machine, images, folder)
}

impl Town {
    async fn start() -> Self {
        Self::start_with(settings()).await
    }

    async fn start_with(settings: control::Settings) -> Self {
        let (machine, images, folder) = keeper("pretended");
        let cloud = Cloud::start_on_machine(machine.clone(), settings).await;
        Self { cloud, machine, images, _folder: folder }
    }

    fn registry(&self) -> Arc<dyn Registry> {
        self.machine.registry().unwrap()
    }

    async fn send(
        &self,
        key: &str,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let basic = format!("Basic {}", STANDARD.encode(format!("anything:{key}")));
        let mut headers = vec![("authorization", basic.as_str())];
        headers.extend_from_slice(more);
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.cloud.raw(method, &format!("/v2/{path}"), &headers, body.to_vec()).await
    }

    async fn call(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.send(&self.cloud.first.api_key, method, path, &[], body).await
    }

    /// Uploads a blob in one request.
    async fn upload(&self, repository: &str, bytes: &[u8]) -> String {
        let digest = digest(bytes);
        let path = format!("{repository}/blobs/uploads/?digest={digest}");
        assert_eq!(self.call("POST", &path, bytes).await.status, 201);
        digest
    }

    async fn put(&self, repository: &str, at: &str, manifest: &Value, kind: &str) -> Answer {
        let path = format!("{repository}/manifests/{at}");
        let body = manifest.to_string().into_bytes();
        self.send(&self.cloud.first.api_key, "PUT", &path, &[("content-type", kind)], &body).await
    }

    /// Pushes a small image; returns its manifest.
    async fn push(&self, repository: &str, tag: &str, content: &str) -> Value {
        let config = json!({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [digest(content.as_bytes())]}}).to_string();
        self.upload(repository, config.as_bytes()).await;
        self.upload(repository, content.as_bytes()).await;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": link("application/vnd.oci.image.config.v1+json", config.as_bytes()),
            "layers": [link("application/vnd.oci.image.layer.v1.tar", content.as_bytes())],
        });
        let answer = self.put(repository, tag, &manifest, MANIFEST).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        manifest
    }
}

fn link(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()})
}

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status.as_u16(), status, "{}", answer.text);
    assert_eq!(answer.body["errors"][0]["code"], code, "{}", answer.text);
    assert!(!answer.body["errors"][0]["message"].as_str().unwrap().is_empty());
}

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_key_or_a_token_is_the_password() {
    let town = Town::start().await;
    let stranger = town.cloud.raw(Method::GET, "/v2/", &[], vec![]).await;
    refused(&stranger, 401, "UNAUTHORIZED");
    assert!(header(&stranger, "www-authenticate").starts_with("Bearer realm="));
    refused(&town.send("wrong", "GET", "", &[], b"").await, 401, "UNAUTHORIZED");
    refused(&town.send("", "GET", "", &[], b"").await, 401, "UNAUTHORIZED");
    let welcome = town.call("GET", "", b"").await;
    assert_eq!(welcome.status, 200);
    assert_eq!(header(&welcome, "docker-distribution-api-version"), "registry/2.0");
    assert_eq!(town.cloud.get("/v2/").await.status, 200, "as a bearer token too");
    refused(&town.call("POST", "", b"").await, 405, "UNSUPPORTED");
}

#[tokio::test]
async fn what_is_pushed_in_pieces_is_pulled_whole_and_in_part() {
    let town = Town::start().await;
    let begun = town.call("POST", "main/job/a/blobs/uploads/", b"").await;
    assert_eq!(begun.status, 202);
    let place = header(&begun, "location").trim_start_matches("/v2/").to_owned();
    let piece = |range: &'static str| [("content-range", range)];
    let key = town.cloud.first.api_key.clone();
    let first = town.send(&key, "PATCH", &place, &piece("0-4"), b"hello").await;
    assert_eq!((first.status.as_u16(), header(&first, "range")), (202, "0-4"));
    let gap = town.send(&key, "PATCH", &place, &piece("9-9"), b"x").await;
    refused(&gap, 416, "BLOB_UPLOAD_INVALID");
    assert_eq!(header(&gap, "range"), "0-4");
    let shorter = [("content-range", "5-99"), ("content-length", "6")];
    let shorter = town.send(&key, "PATCH", &place, &shorter, b" world").await;
    refused(&shorter, 400, "SIZE_INVALID");
    let seen = town.call("GET", &place, b"").await;
    assert_eq!((seen.status.as_u16(), header(&seen, "range")), (204, "0-4"));
    let other = town.call("POST", "main/job/a/blobs/uploads/", b"").await;
    let other = header(&other, "location").trim_start_matches("/v2/").to_owned();
    let longer = town.send(&key, "PATCH", &other, &piece("0-1"), b"hello").await;
    refused(&longer, 400, "SIZE_INVALID");
    let digest = digest(b"hello world");
    let done = town.call("PUT", &format!("{place}?digest={digest}"), b" world").await;
    assert_eq!(done.status, 201, "{}", done.text);
    refused(&town.call("GET", &place, b"").await, 404, "BLOB_UPLOAD_UNKNOWN");

    let blob = format!("main/job/a/blobs/{digest}");
    let head = town.call("HEAD", &blob, b"").await;
    assert_eq!(
        (head.status.as_u16(), header(&head, "content-length"), head.text.as_str()),
        (200, "11", "")
    );
    assert_eq!(town.call("GET", &blob, b"").await.text, "hello world");
    let part = town.send(&key, "GET", &blob, &[("range", "bytes=6-")], b"").await;
    assert_eq!((part.status.as_u16(), part.text.as_str()), (206, "world"));
    assert_eq!(header(&part, "content-range"), "bytes 6-10/11");
    let beyond = town.send(&key, "GET", &blob, &[("range", "bytes=11-")], b"").await;
    refused(&beyond, 416, "RANGE_INVALID");
    // Nothing has a tag yet, so there is no image.
    refused(&town.call("GET", "main/job/a/tags/list", b"").await, 404, "NAME_UNKNOWN");
    assert_eq!(town.cloud.get("/v0/images").await.ok(), json!([]));
}

#[tokio::test]
async fn a_tag_is_an_image_of_the_workspace() {
    let town = Town::start().await;
    let manifest = town.push("main/job/a", "v1", "one").await;
    town.push("main/job/a", "v2", "two!").await;
    let image = town.cloud.get("/v0/images/job/a").await.ok();
    assert_eq!(image["metadata"]["status"], "BUILT");
    let tags = image["spec"]["tags"].as_array().unwrap();
    assert_eq!(tags.len(), 2);
    let sum: i64 = tags.iter().map(|tag| tag["size"].as_i64().unwrap()).sum();
    assert_eq!(image["spec"]["size"], sum);

    let pulled = town.call("GET", "main/job/a/manifests/v1", b"").await;
    assert_eq!((pulled.status.as_u16(), &pulled.body), (200, &manifest));
    assert_eq!(header(&pulled, "content-type"), MANIFEST);
    let digest = digest(manifest.to_string().as_bytes());
    assert_eq!(header(&pulled, "docker-content-digest"), digest);
    let by_digest = format!("main/job/a/manifests/{digest}");
    assert_eq!(town.call("GET", &by_digest, b"").await.text, pulled.text);
    assert_eq!(
        town.call("GET", "main/a/manifests/v1", b"").await.text,
        pulled.text,
        "without its type"
    );
    let head = town.call("HEAD", "main/job/a/manifests/v1", b"").await;
    assert_eq!(header(&head, "content-length"), pulled.text.len().to_string());

    let page = town.call("GET", "main/job/a/tags/list?n=1", b"").await;
    assert_eq!(page.body, json!({"name": "main/job/a", "tags": ["v1"]}));
    assert_eq!(header(&page, "link"), r#"</v2/main/job/a/tags/list?n=1&last=v1>; rel="next""#);
    let rest = town.call("GET", "main/job/a/tags/list?n=1&last=v1", b"").await;
    assert_eq!((&rest.body["tags"], header(&rest, "link")), (&json!(["v2"]), ""));
    let all = town.call("GET", "_catalog", b"").await;
    assert_eq!(all.body, json!({"repositories": ["main/job/a"]}));

    // A workload that names it keeps it.
    let job = json!({"metadata": {"name": "j"}, "spec": {"runtime": {"image": "job/a:v1"}}});
    assert_eq!(town.cloud.post("/v0/jobs", job).await.ok()["status"], "DEPLOYED");
    refused(&town.call("DELETE", "main/job/a/manifests/v1", b"").await, 400, "DENIED");
    refused(&town.call("DELETE", &by_digest, b"").await, 400, "DENIED");
    assert_eq!(town.call("DELETE", "main/job/a/manifests/v2", b"").await.status, 202);
    refused(&town.call("GET", "main/job/a/manifests/v2", b"").await, 404, "MANIFEST_UNKNOWN");
    assert_eq!(town.images.collect().unwrap().blobs, 0, "it was freed at once");
    town.cloud.delete("/v0/jobs/j").await.ok();
    assert_eq!(town.call("DELETE", &by_digest, b"").await.status, 202);
    assert_eq!(town.registry().places().await.unwrap(), []);
    assert_eq!(town.cloud.get("/v0/images/job/a").await.ok()["spec"]["tags"], json!([]));
}

#[tokio::test]
async fn workloads_find_own_images_and_learn_what_there_is() {
    let town = Town::start().await;
    let manifest = town.push("main/sandbox/a", "v1", "one").await;
    let sandbox = |name: &str, image: &str| json!({"metadata": {"name": name}, "spec": {"runtime": {"image": image}}});
    let by_digest = format!("sandbox/a@{}", digest(manifest.to_string().as_bytes()));
    for (name, image) in [("one", "sandbox/a:v1"), ("two", by_digest.as_str())] {
        town.cloud.post("/v0/sandboxes", sandbox(name, image)).await.ok();
    }
    let image = town.cloud.get("/v0/images/sandbox/a").await.ok();
    assert!(image["metadata"]["lastDeployedAt"].is_string(), "{image}");
    for unknown in ["sandbox/a:v2", "sandbox/b", "sandbox/..:1", "job/a:v1"] {
        let answer = town.cloud.post("/v0/sandboxes", sandbox("three", unknown)).await;
        assert_eq!(answer.body["error"], "INVALID_IMAGE", "{unknown}: {}", answer.body);
        assert_eq!(answer.body["details"]["supported_images"], json!(["sandbox/a:v1"]));
    }
    town.cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    let elsewhere =
        town.cloud.post("/v0/sandboxes?workspace=team", sandbox("one", "sandbox/a:v1")).await;
    assert_eq!(elsewhere.body["error"], "INVALID_IMAGE", "{}", elsewhere.body);
    assert_eq!(elsewhere.body["details"]["supported_images"], json!([]));
}

#[tokio::test]
async fn what_is_wrong_is_refused_and_leaves_nothing() {
    let town = Town::start().await;
    let wrong = format!("main/job/a/blobs/uploads/?digest={}", digest(b"else"));
    refused(&town.call("POST", &wrong, b"something").await, 400, "DIGEST_INVALID");
    refused(
        &town.call("POST", "main/job/a/blobs/uploads/?digest=sha256:1", b"x").await,
        400,
        "DIGEST_INVALID",
    );
    let large = vec![7; usize::try_from(BLOB_MAX).unwrap() + 1];
    let path = format!("main/job/a/blobs/uploads/?digest={}", digest(&large));
    refused(&town.call("POST", &path, &large).await, 413, "SIZE_INVALID");
    assert_eq!(town.registry().places().await.unwrap(), []);
    assert!(town.images.left_uploads().unwrap().is_empty());
    assert_eq!(town.images.collect().unwrap().bytes, 0);

    let huge = vec![b' '; (64 << 10) + 1];
    refused(&town.call("PUT", "main/job/a/manifests/v1", &huge).await, 413, "SIZE_INVALID");
    for (manifest, code) in [
        (json!({}), "MANIFEST_INVALID"),
        (json!({"schemaVersion": 1, "mediaType": MANIFEST}), "MANIFEST_INVALID"),
        (json!({"schemaVersion": 2, "mediaType": INDEX, "layers": []}), "MANIFEST_INVALID"),
        (
            json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": link("x", b"1")}),
            "MANIFEST_INVALID",
        ),
    ] {
        let kind = manifest["mediaType"].as_str().unwrap_or(MANIFEST).to_owned();
        refused(&town.put("main/job/a", "v1", &manifest, &kind).await, 400, code);
    }
    town.upload("main/job/a", b"{}").await;
    let mut link = link("application/vnd.oci.empty.v1+json", b"{}");
    link["size"] = json!(3);
    let sized = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": link, "layers": []});
    refused(&town.put("main/job/a", "v1", &sized, MANIFEST).await, 400, "SIZE_INVALID");
    refused(&town.put("main/job/a", "v1", &sized, INDEX).await, 400, "MANIFEST_INVALID");
    let other = format!("sha256:{}", "0".repeat(64));
    refused(&town.put("main/job/a", &other, &sized, MANIFEST).await, 400, "DIGEST_INVALID");
    refused(&town.put("main/job/a", "-", &sized, MANIFEST).await, 400, "TAG_INVALID");
    for path in [
        "main/job/../tags/list",
        "main/zoo/a/tags/list",
        "main//a/tags/list",
        "main/job/A/tags/list",
        "main/job/%2e%2e/tags/list",
        "main/job/a%2fb/tags/list",
    ] {
        refused(&town.call("GET", path, b"").await, 400, "NAME_INVALID");
    }
    for path in ["main", "main/job/a", "main/job/a/b/c/tags/list", "_catalog/x"] {
        refused(&town.call("GET", path, b"").await, 404, "NAME_INVALID");
    }
    refused(&town.call("GET", "_catalog?n=many", b"").await, 400, "PAGINATION_NUMBER_INVALID");
    assert_eq!(town.cloud.get("/v0/images").await.ok(), json!([]), "no image came of it");
}

#[tokio::test]
async fn an_upload_survives_a_restart_and_goes_when_nobody_goes_on() {
    let town = Town::start().await;
    let begun = town.call("POST", "main/job/a/blobs/uploads/", b"").await;
    let place = header(&begun, "location").trim_start_matches("/v2/").to_owned();
    assert_eq!(town.call("PATCH", &place, b"hello ").await.status, 202);
    let id = place.rsplit('/').next().unwrap().to_owned();
    let workspace = town.cloud.workspace("main").await;
    let at = control::registry::Place { workspace, repository: "job/a".parse().unwrap() };
    let (world, clock) = crate::common::test_world();
    let again = LocalRegistry::open(town.images.clone(), limits(), world).unwrap();
    assert_eq!(again.uploaded(at.clone(), id.clone()).await.unwrap(), 6);
    let (send, rest) = tokio::sync::mpsc::channel(1);
    send.send(Ok("world".into())).await.unwrap();
    drop(send);
    assert_eq!(again.append(at.clone(), id.clone(), Some(6), rest).await.unwrap(), 11);
    clock.advance_s(3500);
    again.tidy().await.unwrap();
    let wanted = digest(b"hello world");
    assert_eq!(again.finish_upload(at.clone(), id, wanted.clone()).await.unwrap(), 11);
    let left = again.begin_upload(at.clone()).await.unwrap();
    clock.advance_s(3700);
    again.tidy().await.unwrap();
    assert!(again.uploaded(at.clone(), left).await.is_err());
    // Blobs that no manifest needs are removed in the same way.
    let keep = control::registry::Keep::default();
    assert_eq!(again.prune(at.clone(), keep).await.unwrap(), Vec::<String>::new());
    assert!(again.blob(at, wanted).await.is_err());
}

#[tokio::test]
async fn artifacts_refer_to_an_image() {
    let town = Town::start().await;
    let image = town.push("main/job/a", "v1", "one").await;
    let subject = link(MANIFEST, image.to_string().as_bytes());
    town.upload("main/job/a", b"{}").await;
    let artifact = |kind: &str| {
        json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": kind, "layers": [],
            "config": link("application/vnd.oci.empty.v1+json", b"{}"), "subject": subject,
            "annotations": {"kind": kind},
        })
    };
    for kind in ["application/x.one", "application/x.two"] {
        let at = digest(artifact(kind).to_string().as_bytes());
        let answer = town.put("main/job/a", &at, &artifact(kind), MANIFEST).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        assert_eq!(header(&answer, "oci-subject"), subject["digest"]);
    }
    let path = format!("main/job/a/referrers/{}", subject["digest"].as_str().unwrap());
    let all = town.call("GET", &path, b"").await;
    assert_eq!(all.body["manifests"].as_array().unwrap().len(), 2);
    let one = town.call("GET", &format!("{path}?artifactType=application/x.one"), b"").await;
    assert_eq!(header(&one, "oci-filters-applied"), "artifactType");
    assert_eq!(one.body["manifests"][0]["annotations"]["kind"], "application/x.one");
    let none = format!("main/job/a/referrers/{}", digest(b"nothing"));
    assert_eq!(town.call("GET", &none, b"").await.body["manifests"], json!([]));
}

#[tokio::test]
async fn an_image_of_another_registry_is_registered() {
    let town = Town::start().await;
    let archive = tar(b"content");
    let name: images::Reference = "registry.example/team/app:v1".parse().unwrap();
    town.images.import_rootfs(archive.as_slice(), &images::Config::default(), &name).unwrap();
    let wish = |config: &str| json!({"name": "a", "resourceType": "sandbox", "image": crate::common::machine::PRIVATE, "dockerConfig": config});
    let path = "/v0/images?skip-build=true";
    let message = town.cloud.post(path, wish("wrong")).await.refused(400);
    assert!(message.contains("the registry refuses"), "{message}");
    let answer = town.cloud.post(path, wish(PASSWORD)).await.ok();
    assert_eq!((&answer["image"], &answer["build"]), (&json!("sandbox/a:v1"), &json!(false)));
    assert_eq!(town.call("GET", "main/sandbox/a/manifests/v1", b"").await.status, 200);
    let bad =
        json!({"name": "a/b", "resourceType": "sandbox", "image": crate::common::machine::PRIVATE});
    town.cloud.post(path, bad).await.refused(400);
    let local =
        json!({"name": "a", "resourceType": "sandbox", "image": crate::common::machine::IMAGE});
    town.cloud.post(path, local).await.refused(400);
}

/// Returns an archive of one file.
fn tar(content: &[u8]) -> Vec<u8> {
    let mut header = [0u8; 512];
    header[..4].copy_from_slice(b"file");
    header[100..107].copy_from_slice(b"0000644");
    header[108..115].copy_from_slice(b"0000000");
    header[116..123].copy_from_slice(b"0000000");
    write!(&mut header[124..135], "{:011o}", content.len()).unwrap();
    header[136..147].copy_from_slice(b"00000000000");
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    write!(&mut header[148..155], "{sum:06o}\0").unwrap();
    let mut all = header.to_vec();
    all.extend_from_slice(content);
    all.resize(all.len().next_multiple_of(512) + 1024, 0);
    all
}
