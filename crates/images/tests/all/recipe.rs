//! Recipes made with a script in place of the tool, which writes a tiny root filesystem. The real
//! tool takes minutes and needs Debian's servers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use images::{Builder, Recipe, RecipeError};

use crate::{Fixture, reference};

fn read(text: &str) -> Recipe {
    Recipe::read(text, |name| Ok(format!("content of {name}").into())).unwrap()
}

fn recipe() -> Recipe {
    read(
        "name = \"holm/tiny\"\naliases = [\"other/tiny\"]\npackages = [\"busybox-static\"]\n[config]\ncmd = [\"sh\"]",
    )
}

fn builder(folder: &Path, script: &str) -> Builder {
    let program = folder.join("tool");
    fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    Builder { mmdebstrap: program, ..Builder::new("bookworm") }
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
    let builder = builder(folder.path(), WORKING);
    let fixture = Fixture::new();
    let mut steps = Vec::new();
    let digest = fixture
        .store
        .make(&recipe(), &builder, |step| steps.push((step.number, step.what.to_owned())))
        .unwrap();
    assert_eq!(steps, [(1, "working".to_owned())]);
    let image = fixture.store.resolve(&reference("holm/tiny")).unwrap().unwrap();
    assert_eq!((image.digest, image.config.cmd.as_slice()), (digest, ["sh".to_owned()].as_slice()));
    assert!(image.layers[0].join("bin/busybox").exists());
    let arguments = fs::read_to_string(folder.path().join("tool.arguments")).unwrap();
    assert!(
        arguments.contains("--include=busybox-static\n") && arguments.contains("bookworm\n-\n"),
        "{arguments}"
    );

    assert_eq!(fixture.store.make(&recipe(), &builder, |_| {}).unwrap(), digest);
    assert_eq!(fs::read_to_string(folder.path().join("tool.runs")).unwrap(), "run\n");
    let changed = Recipe { packages: vec!["busybox".into()], ..recipe() };
    fixture.store.make(&changed, &builder, |_| {}).unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("tool.runs")).unwrap(), "run\nrun\n");
}

#[test]
fn a_tool_that_fails_leaves_no_image() {
    for script in ["echo why >&2; exit 3", "tar -C / -ch -f - bin/busybox; echo why >&2; exit 3"] {
        let folder = tempfile::tempdir().unwrap();
        let fixture = Fixture::new();
        let error =
            fixture.store.make(&recipe(), &builder(folder.path(), script), |_| {}).unwrap_err();
        assert!(
            matches!(&error, RecipeError::Failed { last_words, .. } if last_words == &["why"]),
            "{error:?}"
        );
        assert_eq!(fixture.store.list().unwrap(), []);
        fixture.store.collect().unwrap();
        assert_eq!((fixture.files("blobs/sha256").len(), fixture.parts().len()), (0, 0));
    }
}

#[test]
fn a_tool_that_hangs_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let builder =
        Builder { time_max: Duration::from_secs(1), ..builder(folder.path(), "exec sleep 600") };
    let error = Fixture::new().store.make(&recipe(), &builder, |_| {}).unwrap_err();
    assert!(matches!(error, RecipeError::TooSlow(_)), "{error:?}");
}

#[test]
fn a_tool_that_is_not_there_is_an_error() {
    let builder = Builder { mmdebstrap: "/missing".into(), ..Builder::new("bookworm") };
    let error = Fixture::new().store.make(&recipe(), &builder, |_| {}).unwrap_err();
    assert!(matches!(error, RecipeError::Start { .. }), "{error:?}");
}

/// Returns what our front end of apt asks of the real apt.
fn asked_of_apt(folder: &Path, arguments: &str) -> String {
    let asked = folder.join("asked");
    for tool in ["apt-get", "apt-cache", "dpkg-query"] {
        let said = format!("#!/bin/sh\necho {tool} \"$@\" >> {}\n", asked.display());
        fs::write(folder.join(tool), said).unwrap();
        fs::set_permissions(folder.join(tool), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(&asked, "").unwrap();
    let front = Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes/base/apk");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("/bin/sh");
    command
        .arg(front)
        .args(arguments.split(' '))
        .env("PATH", path)
        .env("APK_FRONT_GROUPS", folder.join("groups"));
    assert!(command.status().unwrap().success(), "{arguments}");
    fs::read_to_string(asked).unwrap()
}

#[test]
fn packages_are_asked_for_by_the_names_of_another_distribution() {
    let folder = tempfile::tempdir().unwrap();
    let asked = |arguments: &str| asked_of_apt(folder.path(), arguments);
    let installs = |names: &str| {
        format!("apt-get -q update\napt-get -qy --no-install-recommends install {names}\n")
    };
    assert_eq!(
        asked("add -U --no-cache build-base python3-dev py3-pip"),
        installs("build-essential python3-dev python3-pip")
    );
    assert_eq!(
        asked("--update-cache add git=2.43-r0 curl bash libc6-compat"),
        installs("git curl bash")
    );
    assert_eq!(asked("add -U libc6-compat"), "", "there is nothing to do");
    assert_eq!(asked("update"), "apt-get -q update\n");
    let group = asked("add -U --virtual .build-deps gcc musl-dev postgresql-dev");
    assert_eq!(group, installs("gcc libc6-dev libpq-dev"));
    let removed = "apt-get -qy --autoremove remove gcc libc6-dev libpq-dev jq\n";
    assert_eq!(asked("del .build-deps jq"), removed);
    assert_eq!(asked("del jq"), "apt-get -qy --autoremove remove jq\n");
    assert!(asked("info -e git").starts_with("dpkg-query -W"));
}

#[test]
fn the_images_of_applications_leave_the_first_start_to_their_user() {
    for name in ["holm/nextjs", "holm/vite"] {
        let recipe = Recipe::of(&reference(name)).unwrap().unwrap();
        // If the image started a server of its own, that would hold the port and the lock of the
        // one that is requested.
        assert!(recipe.config.entrypoint.is_none_or(|words| words.is_empty()), "{name}");
    }
}
