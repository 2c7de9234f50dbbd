//! Bad input, sent by mistake or on purpose. Each is refused, or fails with its reason in the
//! events and in the log, and the version that served before keeps serving.

use crate::Sweep;
use crate::place::{Client, Place, TASK, eventually};
use crate::sources::{Entry, tar, tar_of, zip, zip_of};
use crate::web::{Answer, Web};
use crate::wishes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::Duration;
use testing::Holm;

const PATH: &str = "/v0/agents/a";
const REPOSITORY: &str = "/v2/main/agent/pushed";

/// A server with an agent that answers `r0`.
struct Stage {
    // Fields are dropped in this order.
    server: Holm,
    _sweep: Sweep,
    place: Place,
    client: Client,
    web: Web,
}

impl Stage {
    fn new(settings: &[(&'static str, &str)]) -> Self {
        let mut place = Place::new("15s");
        let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned()));
        place.settings = settings.collect();
        place.settings.push(("HOLM_BUILDS__SHOWN_FOR", "50ms".to_owned()));
        let (server, client) = place.start();
        let web = Web::new(&client);
        let _sweep = Sweep::of(&place);
        let stage = Self { place, server, client, web, _sweep };
        stage.client.done("POST", "/v0/agents", Some(&wishes::agent("a", &wishes::answers("r0"))));
        stage.until("DEPLOYED");
        stage
    }

    fn until(&self, status: &str) -> Value {
        let mut agent = Value::Null;
        eventually(&format!("it is {status}"), || {
            agent = self.client.done("GET", PATH, None);
            agent["status"] == status
        });
        agent
    }

    #[track_caller]
    fn serves_on(&self, after: &str) {
        let answer = self.web.member("GET", "/main/agents/a/", None).unwrap();
        assert_eq!((answer.status, answer.text().trim()), (200, "r0"), "after {after}");
    }

    fn ask(&self) -> String {
        let wish = wishes::built("a");
        let asked = self.web.member("PUT", &format!("{PATH}?upload=true"), Some(&wish)).unwrap();
        assert_eq!(asked.status, 200, "{}", asked.text());
        asked.header("x-blaxel-upload-url").unwrap().to_owned()
    }

    fn upload(&self, url: &str, sources: Vec<u8>) -> Answer {
        self.web.upload(url, sources, Duration::ZERO).unwrap()
    }

    /// Builds sources that cannot be built. Each must fail with its reason in an event and in the
    /// log.
    #[track_caller]
    fn fail(&self, cases: impl IntoIterator<Item = (&'static str, Vec<u8>, &'static str)>) {
        let fails = |(what, sources, reason)| self.fails(what, sources, reason).err();
        let wrong: Vec<String> = cases.into_iter().filter_map(fails).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    fn fails(&self, what: &str, sources: Vec<u8>, reason: &str) -> Result<(), String> {
        let answer = self.upload(&self.ask(), sources);
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        let why = last(&self.until("FAILED"));
        if !why.contains(reason) {
            return Err(format!("{what}: {why}"));
        }
        eventually(&format!("{what}: the log says why"), || {
            self.lines().iter().any(|line| line.contains(reason))
        });
        self.serves_on(what);
        Ok(())
    }

    fn lines(&self) -> Vec<String> {
        let path = "/v0/observability/logs?resourceType=agents&workloadIds=a&limit=1000";
        let answer = self.client.done("GET", path, None);
        let lines = answer["a"]["logs"].as_array().unwrap().iter();
        lines.map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }

    fn clear(self) {
        self.client.done("DELETE", PATH, None);
        self.place.clear(self.server, &self.client);
    }
}

/// Returns the reason for the present status, from the last event.
fn last(agent: &Value) -> String {
    let last = agent["events"].as_array().unwrap().last().unwrap();
    last["message"].as_str().unwrap().to_owned()
}

#[test]
fn sources_that_are_none_fail_with_the_reason_and_what_served_serves_on() {
    let stage = Stage::new(&[
        ("HOLM_BUILDER__SOURCES_MB_MAX", "8"),
        ("HOLM_BUILDER__SOURCES_FILES_MAX", "1000"),
        ("HOLM_BUILDER__MEMORY_MB", "256"),
        ("HOLM_BUILDER__DISK_MB", "64"),
    ]);
    let dockerfile = format!("FROM {TASK}\nCOPY out /x\n");
    let from = format!("FROM {TASK}\n");
    let large = format!("{from}ENV PATH=/bin\nRUN head -c 100000000 /dev/zero >/x\n");
    let link_out = |entry| tar_of(&[("Dockerfile", Entry::File(dockerfile.as_bytes())), entry]);
    let zeros = vec![0; 64 << 20];
    let bomb = zip_of(&[("Dockerfile", from.as_bytes()), ("zeros", &zeros)]);
    let names: Vec<String> = (0..2000).map(|number| format!("f{number}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let deep = format!("{}x", "d/".repeat(20_000));
    stage.fail([
        ("text", b"hello, this is no archive".repeat(100), "archive"),
        ("half a zip", zip(&[("Dockerfile", &from)])[..40].to_vec(), "archive"),
        ("half a tar", tar(&[("Dockerfile", &"# ".repeat(2000))])[..1000].to_vec(), "archive"),
        ("a zip of zeros", bomb, "archive"),
        ("very many files", zip(&many), "files"),
        ("a very deep path", zip(&[("Dockerfile", &from), (&deep, "x")]), "one path"),
        ("a path out", zip(&[("Dockerfile", &from), ("../../out", "x")]), "a path with `..`"),
        ("a link out", link_out(("out", Entry::Link("/etc/shadow"))), "there is no `out`"),
        (
            "a hard link out",
            link_out(("out", Entry::HardLink("/etc/shadow"))),
            "archive is refused",
        ),
        ("too much on the disk", tar(&[("Dockerfile", &large)]), "line 3: "),
        ("nothing to begin with", zip(&[("readme", "hello")]), "Dockerfile"),
    ]);
    stage.clear();
}

#[test]
fn steps_that_fail_or_never_end_leave_what_serves() {
    let stage = Stage::new(&[
        ("HOLM_BUILDS__TIMEOUT", "10s"),
        ("HOLM_BUILDER__LOG_KB_MAX", "64"),
        ("HOLM_BUILDER__MEMORY_MB", "256"),
        ("HOLM_BUILDER__DISK_MB", "16"),
    ]);
    let file =
        |lines: &str| tar(&[("Dockerfile", &format!("FROM {TASK}\nENV PATH=/bin\n{lines}\n"))]);
    stage.fail([(
        "a step that fails",
        file("RUN echo before; exit 3"),
        "line 3: the command ended with exit code 3",
    )]);
    let lines = stage.lines();
    assert!(lines.iter().any(|line| line == "before"), "what a step prints is kept: {lines:?}");
    stage.fail([
        ("no instruction", file("NONSENSE"), "line 3: `NONSENSE`"),
        ("a file that is not there", file("COPY missing /x"), "line 3: there is no `missing`"),
        (
            "another architecture",
            tar(&[("Dockerfile", &format!("FROM --platform=linux/s390x {TASK}\n"))]),
            "this machine builds for",
        ),
        ("a step that never ends", file("RUN while :; do :; done"), "10 s"),
        ("a step that prints for ever", file("RUN yes"), "10 s"),
    ]);
    eventually("no step is left", || stage.place.groups().len() == 1);
    stage.clear();
}

#[test]
fn images_that_do_not_serve_leave_what_serves() {
    let stage = Stage::new(&[("HOLM_DEPLOYMENTS__START_TIMEOUT", "15s")]);
    for (what, command, reason) in [
        ("never listens", "echo idle; sleep 1000", "8080"),
        (
            "ends at once",
            "exit 0",
            "its program exited with code 0 before it listened on port 8080",
        ),
        (
            "crashes",
            "echo oops; kill -9 $$",
            "before it listened on port 8080; its last output: oops",
        ),
        ("another port", "exec httpd -f -p 9090 -h /etc", "8080"),
    ] {
        stage.client.done("PUT", PATH, Some(&wishes::agent("a", command)));
        let why = last(&stage.until("FAILED"));
        assert!(why.contains(reason), "{what}: {why}");
        stage.serves_on(what);
        eventually(&format!("only what serves is left of {what}"), || {
            stage.place.groups().len() == 1
        });
    }
    // It listens and then crashes, over and over: it is restarted after ever longer pauses.
    let crashes = format!("{} & sleep 1; exit 5", wishes::answers("r9").replace("exec ", ""));
    stage.client.done("PUT", PATH, Some(&wishes::agent("a", &crashes)));
    stage.until("DEPLOYED");
    eventually("an event tells of the crash", || {
        let agent = stage.client.done("GET", PATH, None);
        agent["events"].to_string().contains("code 5")
    });
    // There is always a way back.
    stage.client.done("PUT", PATH, Some(&wishes::agent("a", &wishes::answers("r0"))));
    stage.until("DEPLOYED");
    stage.serves_on("a crash loop");

    // An image for a different architecture, from a registry.
    push(&stage.web, "s390x");
    let mut wish = wishes::agent("a", "true");
    wish["spec"]["runtime"]["image"] = json!("agent/pushed:foreign");
    let put = stage.web.member("PUT", PATH, Some(&wish)).unwrap();
    assert_eq!(put.status, 200, "{}", put.text());
    let why = last(&stage.until("FAILED"));
    assert!(why.contains("linux/"), "{why}");
    stage.serves_on("an image of another architecture");

    // A revision that does not exist.
    let mut canary = stage.client.done("GET", PATH, None);
    canary["spec"]["revision"] = json!({"canary": "nowhere", "canaryPercent": 50});
    let refused = stage.web.member("PUT", PATH, Some(&canary)).unwrap();
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("nowhere"), "{}", refused.text());
    stage.serves_on("a canary that is not there");
    stage.clear();
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn registry(web: &Web, key: &str, method: &str, path: &str, body: &[u8]) -> Answer {
    let key = format!("Bearer {key}");
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let head: &[(&str, &str)] = match key.as_str() {
        "Bearer " => &[("content-type", kind)],
        key => &[("content-type", kind), ("authorization", key)],
    };
    web.ask(method, &format!("{REPOSITORY}/{path}"), head, body.to_vec()).unwrap()
}

/// Pushes an image for machines of this architecture.
fn push(web: &Web, architecture: &str) {
    let layer = tar(&[("file", "content")]);
    let config = json!({"architecture": architecture, "os": "linux", "config": {"Cmd": ["/file"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]}});
    let config = config.to_string().into_bytes();
    for blob in [&layer, &config] {
        let path = format!("blobs/uploads/?digest={}", digest(blob));
        assert_eq!(registry(web, &web.key, "POST", &path, blob).status, 201);
    }
    let manifest = json!({"schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest(&config), "size": config.len()},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": digest(&layer), "size": layer.len()}]});
    let manifest = manifest.to_string().into_bytes();
    let put = registry(web, &web.key, "PUT", "manifests/foreign", &manifest);
    assert_eq!(put.status, 201, "{}", put.text());
}

#[test]
fn addresses_and_pushes_are_taken_from_whom_they_are_for_and_once() {
    let mut stage = Stage::new(&[
        ("HOLM_BUILDS__UPLOAD_MB_MAX", "1"),
        ("HOLM_BUILDER__MEMORY_MB", "256"),
        ("HOLM_BUILDER__DISK_MB", "64"),
    ]);
    let good = zip(&[("Dockerfile", &wishes::dockerfile("r0", "")), ("note", "")]);
    let url = stage.ask();
    assert_eq!(stage.upload(&url, good.clone()).status, 200);
    assert_eq!(stage.upload(&url, good.clone()).status, 410, "an address takes one upload");
    eventually("it is built", || {
        let agent = stage.client.done("GET", PATH, None);
        agent["status"] == "DEPLOYED" && agent["spec"]["runtime"]["image"] != TASK
    });
    stage.serves_on("an upload that came twice");
    let replaced = stage.ask();
    let large = stage.ask();
    assert_eq!(stage.upload(&replaced, good.clone()).status, 410, "a newer one took its place");
    assert_eq!(stage.upload(&large, vec![b'x'; 2 << 20]).status, 413);
    assert_eq!(stage.upload(&large, good.clone()).status, 410, "it is used up");
    stage.until("FAILED");
    let unknown = url.rsplit_once('/').unwrap().0.to_owned() + "/" + &"a".repeat(52);
    assert_eq!(stage.upload(&unknown, good.clone()).status, 404);
    stage.serves_on("uploads that were refused");

    // Wrong digests, missing parts, and strangers.
    let wrong = format!("blobs/uploads/?digest={}", digest(b"something else"));
    let web = stage.web.clone();
    let refused = registry(&web, &web.key, "POST", &wrong, b"content");
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("DIGEST_INVALID"), "{}", refused.text());
    let manifest = json!({"schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest(b"content"), "size": 7}, "layers": []});
    let manifest = manifest.to_string().into_bytes();
    let refused = registry(&web, &web.key, "PUT", "manifests/v1", &manifest);
    assert_eq!(refused.status, 404, "{}", refused.text());
    let other = format!("manifests/{}", digest(b"another manifest"));
    assert_eq!(registry(&web, &web.key, "PUT", &other, &manifest).status, 400);
    for key in ["", "nobody"] {
        let path = format!("blobs/uploads/?digest={}", digest(b"content"));
        assert_eq!(registry(&web, key, "POST", &path, b"content").status, 401);
        assert_eq!(registry(&web, key, "GET", "manifests/v1", b"").status, 401);
    }

    // After the address has expired.
    stage.place.settings.push(("HOLM_BUILDS__UPLOAD_VALID", "1s".to_owned()));
    stage.server.end().unwrap();
    (stage.server, stage.client) = stage.place.start();
    stage.web = Web::new(&stage.client);
    let late = stage.ask();
    stage.until("FAILED");
    assert_eq!(stage.upload(&late, good).status, 410);
    stage.serves_on("an upload after its time");
    stage.clear();
}
