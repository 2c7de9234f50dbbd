//! The tool is a script here that writes a tiny root filesystem; the real one takes minutes and needs Debian's servers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use images::{Kitchen, Recipe, RecipeError};

use crate::{Fixture, reference};

fn read(text: &str) -> Recipe {
    Recipe::read(text, |name| Ok(format!("content of {name}").into())).unwrap()
}

fn recipe() -> Recipe {
    read("name = \"holm/tiny\"\naliases = [\"other/tiny\"]\npackages = [\"busybox-static\"]\n[config]\ncmd = [\"sh\"]")
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
    let digest =
        fixture.store.make(&recipe(), &kitchen, |step| steps.push((step.number, step.what.to_owned()))).unwrap();
    assert_eq!(steps, [(1, "working".to_owned())]);
    let image = fixture.store.resolve(&reference("holm/tiny")).unwrap().unwrap();
    assert_eq!((image.digest, image.config.cmd.as_slice()), (digest, ["sh".to_owned()].as_slice()));
    assert!(image.layers[0].join("bin/busybox").exists());
    let arguments = fs::read_to_string(folder.path().join("tool.arguments")).unwrap();
    assert!(arguments.contains("--include=busybox-static\n") && arguments.contains("bookworm\n-\n"), "{arguments}");

    assert_eq!(fixture.store.make(&recipe(), &kitchen, |_| {}).unwrap(), digest);
    assert_eq!(fs::read_to_string(folder.path().join("tool.runs")).unwrap(), "run\n");
    let changed = Recipe { packages: vec!["busybox".into()], ..recipe() };
    fixture.store.make(&changed, &kitchen, |_| {}).unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("tool.runs")).unwrap(), "run\nrun\n");
}

#[test]
fn a_tool_that_fails_leaves_no_image() {
    for script in ["echo why >&2; exit 3", "tar -C / -ch -f - bin/busybox; echo why >&2; exit 3"] {
        let folder = tempfile::tempdir().unwrap();
        let fixture = Fixture::new();
        let error = fixture.store.make(&recipe(), &kitchen(folder.path(), script), |_| {}).unwrap_err();
        assert!(matches!(&error, RecipeError::Failed { last_words, .. } if last_words == &["why"]), "{error:?}");
        assert_eq!(fixture.store.list().unwrap(), []);
        fixture.store.collect().unwrap();
        assert_eq!((fixture.files("blobs/sha256").len(), fixture.parts().len()), (0, 0));
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
