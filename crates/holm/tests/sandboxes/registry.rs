//! Pushing to the server's registry and pulling from it with common tools.

use crate::setup::{Client, IMAGE, Place};
use serde_json::json;
use std::path::Path;
use std::process::{Command, Output};

/// The tools, with a home folder and a store of their own, and shared credentials.
pub(crate) struct Tools<'t> {
    pub(crate) home: &'t Path,
    pub(crate) registry: String,
}

impl Tools<'_> {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.home).env("XDG_RUNTIME_DIR", self.home);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("REGISTRY_AUTH_FILE", self.home.join("auth.json")).env("TMPDIR", self.home);
        command
    }

    pub(crate) fn skopeo(&self, arguments: &[&str]) -> Command {
        let mut command = self.command("skopeo");
        command.args(["--insecure-policy"]).args(arguments);
        command
    }

    /// Returns a command for `podman` or `buildah`, which accept the same flags.
    fn stored(&self, program: &str, arguments: &[&str]) -> Command {
        let (root, run) = (self.home.join(program), self.home.join(format!("{program}-run")));
        let mut command = self.command(program);
        command.arg("--root").arg(root).arg("--runroot").arg(run).args(["--storage-driver", "vfs"]);
        command.args(arguments);
        command
    }

    pub(crate) fn image(&self, name: &str) -> String {
        format!("docker://{}/{name}", self.registry)
    }
}

#[track_caller]
pub(crate) fn run(mut command: Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let noted = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {noted}");
    String::from_utf8(stdout).unwrap()
}

#[track_caller]
fn refused(mut command: Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(!status.success(), "{command:?}");
    String::from_utf8(stderr).unwrap()
}

/// Exports the place's image in a layout that the tools can read.
pub(crate) fn layout(place: &Place, to: &Path) {
    let settings =
        images::Settings { overlay: images::Overlay::User, ..images::Settings::default() };
    let store = images::Store::open(&place.data().join("images"), settings).unwrap();
    store.export(&IMAGE.parse().unwrap(), to).unwrap().unwrap();
}

pub(crate) fn login(tools: &Tools<'_>, client: &Client) {
    let wrong = ["login", "--tls-verify=false", "-u", "me", "-p", "wrong", tools.registry.as_str()];
    let said = refused(tools.stored("podman", &wrong));
    assert!(said.contains("invalid username/password") || said.contains("unauthorized"), "{said}");
    let right = ["login", "--tls-verify=false", "-u", "me", "-p", &client.key, &tools.registry];
    assert!(run(tools.stored("podman", &right)).contains("Login Succeeded"));
}

pub(crate) fn digest(tools: &Tools<'_>, name: &str) -> String {
    let format = ["inspect", "--tls-verify=false", "--format", "{{.Digest}}", &tools.image(name)];
    run(tools.skopeo(&format)).trim().to_owned()
}

#[test]
fn programs_push_and_pull_and_what_they_pushed_runs() {
    let mut place = Place::new("15s");
    let home = tempfile::tempdir().unwrap();
    let from = home.path().join("layout");
    layout(&place, &from);
    let (server, client) = place.start();
    let registry = client.base.trim_start_matches("http://").to_owned();
    let tools = Tools { home: home.path(), registry };
    let source = format!("oci:{}", from.display());
    let copy = |from: &str, to: &str| {
        let insecure = ["copy", "--src-tls-verify=false", "--dest-tls-verify=false"];
        tools.skopeo(&[insecure.as_slice(), &[from, to]].concat())
    };
    let said = refused(copy(&source, &tools.image("main/sandbox/tiny:v1")));
    assert!(said.contains("unauthorized") || said.contains("authentication"), "{said}");
    login(&tools, &client);

    // skopeo in both directions.
    run(copy(&source, &tools.image("main/sandbox/tiny:v1")));
    let pushed = digest(&tools, "main/sandbox/tiny:v1");
    let back = format!("dir:{}", home.path().join("back").display());
    run(copy(&tools.image("main/sandbox/tiny:v1"), &back));
    run(copy(&tools.image("main/sandbox/tiny:v1"), &tools.image("main/job/tiny:copied")));
    assert_eq!(digest(&tools, "main/job/tiny:copied"), pushed);

    // podman and buildah in both directions.
    let name = |name: &str| format!("{}/{name}", tools.registry);
    for (program, tag) in [("podman", "v2"), ("buildah", "v3")] {
        let (old, new) = (name("main/sandbox/tiny:v1"), name(&format!("main/tiny:{tag}")));
        run(tools.stored(program, &["pull", "--tls-verify=false", &old]));
        run(tools.stored(program, &["tag", &old, &new]));
        run(tools.stored(program, &["push", "--tls-verify=false", &new]));
        run(tools.stored(program, &["rmi", "--all", "--force"]));
        run(tools.stored(program, &["pull", "--tls-verify=false", &new]));
    }
    let listed =
        run(tools.skopeo(&["list-tags", "--tls-verify=false", &tools.image("main/sandbox/tiny")]));
    for tag in ["v1", "v2", "v3"] {
        assert!(listed.contains(&format!("\"{tag}\"")), "{listed}");
    }

    // Pushed images can be run, and are kept while they run.
    for (sandbox, image) in [("one", "sandbox/tiny:v1"), ("two", "sandbox/tiny:v3")] {
        client.create(sandbox, &json!({"runtime": {"image": image}}));
        assert_eq!(client.run(sandbox, "echo it runs").trim(), "it runs");
    }
    let remove = |tag: &str| {
        let image = tools.image(&format!("main/sandbox/tiny:{tag}"));
        tools.skopeo(&["delete", "--tls-verify=false", &image])
    };
    refused(remove("v1"));
    client.delete("one");
    client.delete("two");
    run(remove("v1"));
    refused(copy(&tools.image("main/sandbox/tiny:v1"), &back));
    place.clear(server, &client);
}

#[test]
fn what_cannot_run_is_pushed_all_the_same_and_says_why() {
    let mut place = Place::new("15s");
    let home = tempfile::tempdir().unwrap();
    let from = home.path().join("layout");
    layout(&place, &from);
    let (server, client) = place.start();
    let registry = client.base.trim_start_matches("http://").to_owned();
    let tools = Tools { home: home.path(), registry };
    login(&tools, &client);
    // An image for a different architecture.
    let index = std::fs::read_to_string(from.join("index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let blob = |digest: &serde_json::Value| {
        let digest = digest.as_str().unwrap().trim_start_matches("sha256:").to_owned();
        std::fs::read_to_string(from.join("blobs/sha256").join(digest)).unwrap()
    };
    let manifest: serde_json::Value =
        serde_json::from_str(&blob(&index["manifests"][0]["digest"])).unwrap();
    let config = blob(&manifest["config"]["digest"]);
    let own = images::Platform::here().architecture;
    let foreign = config.replace(&format!("\"{own}\""), "\"s390x\"");
    assert_ne!(config, foreign);
    let folder = home.path().join("foreign");
    std::fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| {
        let digest = images::Digest::of(text.as_bytes());
        std::fs::write(folder.join(name.replace("{}", &digest.hex())), text).unwrap();
        digest.to_string()
    };
    write("version", "Directory Transport Version: 1.1\n");
    let mut other = manifest.clone();
    other["config"]["digest"] = json!(write("{}", &foreign));
    other["config"]["size"] = json!(foreign.len());
    write("manifest.json", &other.to_string());
    for layer in manifest["layers"].as_array().unwrap() {
        let digest = layer["digest"].as_str().unwrap().trim_start_matches("sha256:");
        std::fs::copy(from.join("blobs/sha256").join(digest), folder.join(digest)).unwrap();
    }
    let to = tools.image("main/sandbox/foreign:v1");
    run(tools.skopeo(&[
        "copy",
        "--dest-tls-verify=false",
        &format!("dir:{}", folder.display()),
        &to,
    ]));
    let wish = crate::setup::body("one", &json!({"runtime": {"image": "sandbox/foreign:v1"}}));
    let (status, answer) = client.ask("POST", "/v0/sandboxes", Some(&wish)).unwrap();
    assert_eq!(status, 400, "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("no image for linux/"), "{answer}");
    place.clear(server, &client);
}
