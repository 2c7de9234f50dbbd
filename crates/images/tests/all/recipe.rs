//! The tool is a script here that writes a tiny root filesystem; the real one takes minutes and needs Debian's servers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use images::{Kitchen, Recipe, RecipeError};

use crate::{Fixture, reference};

fn recipe() -> Recipe {
    Recipe::read("name = \"holm/tiny\"\npackages = [\"busybox-static\"]\nrun = [\"true\"]\n[config]\ncmd = [\"sh\"]")
        .unwrap()
}

fn kitchen(folder: &Path, script: &str) -> Kitchen {
    let program = folder.join("tool");
    fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    Kitchen { mmdebstrap: program, ..Kitchen::new("bookworm") }
}

const WORKING: &str = r#"
echo "I: working" >&2
echo run >> "$0.runs"
printf '%s\n' "$@" > "$0.arguments"
tar -C / -ch -f - bin/busybox
"#;

#[test]
fn a_recipe_becomes_an_image_once() {
    let folder = tempfile::tempdir().unwrap();
    let kitchen = kitchen(folder.path(), WORKING);
    let fixture = Fixture::new();
    let mut steps = Vec::new();
    let digest = fixture.store.make(&recipe(), &kitchen, |step| steps.push(step.to_owned())).unwrap();
    assert_eq!(steps, ["working"]);
    let image = fixture.store.resolve(&reference("holm/tiny")).unwrap().unwrap();
    assert_eq!((image.digest, image.config.cmd.as_slice()), (digest, ["sh".to_owned()].as_slice()));
    assert!(image.layers[0].join("bin/busybox").exists());
    let arguments = fs::read_to_string(folder.path().join("tool.arguments")).unwrap();
    assert!(arguments.contains("--include=busybox-static\n") && arguments.contains("bookworm\n-\n"), "{arguments}");

    assert_eq!(fixture.store.make(&recipe(), &kitchen, |_| {}).unwrap(), digest);
    assert_eq!(fs::read_to_string(folder.path().join("tool.runs")).unwrap(), "run\n");
    let changed = Recipe { run: Vec::new(), ..recipe() };
    fixture.store.make(&changed, &kitchen, |_| {}).unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("tool.runs")).unwrap(), "run\nrun\n");
}

#[test]
fn a_tool_that_fails_leaves_no_image() {
    for script in ["echo why >&2; exit 3", "tar -C / -ch -f - bin/busybox; echo why >&2; exit 3"] {
        let folder = tempfile::tempdir().unwrap();
        let fixture = Fixture::new();
        let error = fixture.store.make(&recipe(), &kitchen(folder.path(), script), |_| {}).unwrap_err();
        assert!(matches!(&error, RecipeError::Failed { last_words } if last_words == &["why"]), "{error:?}");
        assert_eq!(fixture.store.list().unwrap(), []);
        fixture.store.collect().unwrap();
        assert_eq!((fixture.files("blobs/sha256").len(), fixture.files("scratch").len()), (0, 0));
    }
}

#[test]
fn a_tool_that_hangs_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let kitchen = Kitchen { time_max: Duration::from_secs(1), ..kitchen(folder.path(), "exec sleep 600") };
    let error = Fixture::new().store.make(&recipe(), &kitchen, |_| {}).unwrap_err();
    assert!(matches!(error, RecipeError::TooSlow(_)), "{error:?}");
}

#[test]
fn a_tool_that_is_not_there_is_an_error() {
    let kitchen = Kitchen { mmdebstrap: "/missing".into(), ..Kitchen::new("bookworm") };
    let error = Fixture::new().store.make(&recipe(), &kitchen, |_| {}).unwrap_err();
    assert!(matches!(error, RecipeError::Start { .. }), "{error:?}");
}

/// By hand: `cargo nextest run -p images --run-ignored only --no-capture`.
#[test]
#[ignore = "takes minutes and Debian's servers"]
fn the_base_image_is_made_from_packages_of_debian() {
    let fixture = Fixture::new();
    let start = std::time::Instant::now();
    let step = |step: &str| println!("{:6.1} s  {step}", start.elapsed().as_secs_f64());
    fixture.store.make(&Recipe::base().unwrap(), &Kitchen::new("bookworm"), step).unwrap();
    let image = fixture.store.resolve(&reference("blaxel/base-image:latest")).unwrap().unwrap();
    println!("{:6.1} s  done, {} MB unpacked", start.elapsed().as_secs_f64(), image.size_bytes / 1_000_000);
    for command in ["git --version", "python3 --version", "node --version", "npm --version", "curl --version", "ip -V"]
    {
        let script = "mount --rbind /dev \"$1/dev\" && exec chroot \"$1\" sh -c \"$2\"";
        let mut inside = std::process::Command::new("unshare");
        inside.args(["--mount", "sh", "-euc", script, "-"]).arg(&image.layers[0]).arg(command);
        let status = inside.status().unwrap();
        assert!(status.success(), "{command}");
    }
    assert!(!image.layers[0].join("etc/apt/apt.conf.d/99mmdebstrap").exists());
}
