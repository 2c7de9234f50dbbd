//! `holm image` with a separate store and a tiny image: one static busybox.

use crate::common::{Server, holm, text, write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const RECIPE: &str = r#"
name = "own/greeter"
from = "tiny"
files = { "/greeting" = "greeting.txt" }
run = ["cat /greeting >/copy"]
"#;

fn image(home: &Path, arguments: &[&str], code: i32) -> String {
    let mut command = holm(home);
    text(&command.arg("image").args(arguments).args(["--data", "data"]).output().unwrap(), code)
}

/// Packs a root filesystem, and returns the path of the archive.
fn rootfs(home: &Path) -> String {
    let root = home.join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    std::fs::set_permissions(root.join("bin/busybox"), PermissionsExt::from_mode(0o755)).unwrap();
    for applet in ["sh", "mkdir", "cp", "cat", "dirname"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
    let archive = home.join("root.tar");
    let packed = Command::new("tar")
        .arg("-C")
        .arg(&root)
        .arg("-cf")
        .arg(&archive)
        .arg(".")
        .status()
        .unwrap();
    assert!(packed.success());
    archive.to_str().unwrap().to_owned()
}

#[test]
fn images_are_imported_made_listed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let archive = rootfs(home);
    image(home, &["import", &archive], 1);
    assert!(
        image(home, &["import", &archive, "--name", "tiny"], 0).starts_with("tiny:latest sha256:")
    );

    write(home, "greeting.txt", "hello");
    let recipe = write(home, "own.toml", RECIPE);
    let recipe = recipe.to_str().unwrap();
    assert!(image(home, &["make", recipe], 0).contains("own/greeter: made in"));
    assert!(image(home, &["make", recipe], 0).contains("own/greeter: nothing has changed"));
    image(home, &["make", "holm/unheard-of"], 6);

    let list = image(home, &["list"], 0);
    assert!(
        list.contains("own/greeter:latest")
            && list.contains("tiny:latest")
            && !list.contains("recipe-"),
        "{list}"
    );
    let list: serde_json::Value =
        serde_json::from_str(&image(home, &["list", "--json"], 0)).unwrap();
    assert_eq!(list.as_array().map(Vec::len), Some(2));

    assert_eq!(image(home, &["remove", "own/greeter"], 0).trim(), "own/greeter:latest removed");
    image(home, &["remove", "own/greeter"], 6);
    assert!(!image(home, &["list"], 0).contains("own/greeter"));
}

#[test]
fn what_cannot_be_pulled_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = holm(folder.path());
    let output =
        command.args(["image", "pull", "localhost:1/name", "--data", "data"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("pull localhost:1/name:latest") && said.contains("cannot be reached"),
        "{said}"
    );
}

#[test]
fn names_of_workspaces_images_are_for_no_image_of_everybody() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let archive = rootfs(home);
    image(home, &["import", &archive, "--name", "tiny"], 0);
    write(home, "greeting.txt", "hello");
    for (name, aliases) in [("job/greeter", "own/greeter"), ("own/greeter", "app/greeter:v1")] {
        let recipe = RECIPE.replace("own/greeter", name);
        write(home, "own.toml", &format!("aliases = [\"{aliases}\"]{recipe}"));
        let said = image(home, &["make", "own.toml"], 2);
        assert!(said.contains("`team/`") && said.contains("`holm deploy`"), "{said}");
    }
    for refused in [vec!["import", &archive, "--name", "agent/a"], vec!["pull", "sandbox/a:v1"]] {
        let said = image(home, &refused, 2);
        assert!(said.contains("agent/, function/, sandbox/, job/, app/"), "{said}");
    }
    assert_eq!(image(home, &["list"], 0).lines().filter(|line| line.contains("tiny")).count(), 1);
    assert!(!image(home, &["list"], 0).contains("greeter"));
}

#[test]
fn what_is_made_here_is_not_pulled() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["holm/base", "docker.io/blaxel/base-image:latest"] {
        let said = image(folder.path(), &["pull", name], 2);
        assert!(said.contains("is made here, not pulled: `holm image make "), "{said}");
    }
}

#[test]
fn images_come_and_go_while_a_server_runs() {
    let server = Server::start();
    let home = server.folder.path();
    let archive = rootfs(home);
    image(home, &["import", &archive, "--name", "tiny"], 0);
    assert!(image(home, &["list"], 0).contains("tiny:latest"));
    image(home, &["remove", "tiny"], 0);
    assert!(server.stop().0.success());
}
