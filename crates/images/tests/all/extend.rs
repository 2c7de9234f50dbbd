//! Recipes that extend a tiny image: one static busybox. No network.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use images::{Builder, Config, Image, Recipe, RecipeError, Settings, Store};

use crate::archive::{Archive, Header};
use crate::{Fixture, OWN, reference};

const PATH: &str = "/bin:/usr/bin";

/// Returns a store with `tiny:latest`, which has some files that a recipe can change.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    let busybox = fs::read("/bin/busybox").unwrap();
    let mut archive = Archive::new()
        .folder("bin")
        .entry(&Header { mode: 0o755, ..Header::new(b'0', "bin/busybox") }, &busybox);
    for applet in
        ["sh", "mkdir", "cp", "rm", "ln", "chmod", "dirname", "cat", "mkfifo", "env", "mv", "touch"]
    {
        archive = archive.symlink(&format!("bin/{applet}"), "busybox");
    }
    let archive = archive
        .folder("old")
        .file("old/kept", "kept")
        .file("old/gone", "gone")
        .folder("away")
        .file("away/x", "x");
    let env = [("PATH".to_owned(), PATH.to_owned()), ("BELOW".to_owned(), "1".to_owned())].into();
    let config =
        Config { env, cmd: vec!["sh".into()], exposed: vec!["1/tcp".into()], ..Config::default() };
    fixture.store.import_rootfs(archive.bytes().as_slice(), &config, &reference("tiny")).unwrap();
    fixture
}

fn recipe(rest: &str) -> Recipe {
    let text = format!("name = \"bigger\"\nfrom = \"tiny\"\n{rest}");
    Recipe::read(&text, |name| Ok(format!("content of {name}").into())).unwrap()
}

fn make(store: &Store, rest: &str) -> Result<Image, RecipeError> {
    store.make(&recipe(rest), &Builder::new("none"), |_| {})?;
    Ok(store.resolve(&reference("bigger")).unwrap().unwrap())
}

fn is_whiteout(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|data| data.file_type().is_char_device() && data.rdev() == 0)
}

fn is_opaque(path: &Path) -> bool {
    let mut value = [0; 1];
    rustix::fs::lgetxattr(path, "trusted.overlay.opaque", &mut value) == Ok(1) && value == *b"y"
}

const CHANGES: &str = r#"
run = ["""
rm /old/gone
rm -r /away && mkdir /away && echo new > /away/y
mkdir -p /new/deep
echo one > /new/one && ln /new/one /new/two && ln -s one /new/link && mkfifo /new/fifo
echo long > /new/$(printf %0120d 0)
chmod 0750 /new/deep && chmod 4755 /new/one
"""]
"#;

#[test]
fn only_the_difference_is_stored() {
    let fixture = fixture();
    let tiny = fixture.store.resolve(&reference("tiny")).unwrap().unwrap();
    let image = make(&fixture.store, CHANGES).unwrap();
    assert_eq!((image.layers.len(), &image.layers[0]), (2, &tiny.layers[0]));
    let layer = &image.layers[1];
    assert!(
        is_whiteout(&layer.join("old/gone"))
            && !layer.join("old/kept").exists()
            && !is_opaque(&layer.join("old"))
    );
    assert!(is_opaque(&layer.join("away")) && !layer.join("away/x").exists());
    assert_eq!(fs::read_to_string(layer.join("away/y")).unwrap(), "new\n");
    let (one, two) = (
        fs::metadata(layer.join("new/one")).unwrap(),
        fs::metadata(layer.join("new/two")).unwrap(),
    );
    assert_eq!((one.ino(), one.permissions().mode() & 0o7777), (two.ino(), 0o755));
    assert_eq!(fs::read_link(layer.join("new/link")).unwrap(), Path::new("one"));
    assert!(fs::metadata(layer.join("new/fifo")).unwrap().file_type().is_fifo());
    assert_eq!(fs::metadata(layer.join("new/deep")).unwrap().permissions().mode() & 0o7777, 0o750);
    assert!(layer.join("new").join("0".repeat(120)).exists());
    assert!(!layer.join("bin").exists() && !layer.join("tmp/x").exists());
    assert_eq!(fixture.parts(), Vec::<String>::new());
}

#[test]
fn a_difference_is_the_same_in_another_store() {
    let fixture = fixture();
    let image = make(&fixture.store, CHANGES).unwrap();
    let (layout, other) = (tempfile::tempdir().unwrap(), Fixture::new());
    fixture.store.export(&reference("bigger"), layout.path()).unwrap().unwrap();
    other.store.import_folder(layout.path(), &OWN).unwrap();
    let found = other.store.resolve(&reference("bigger")).unwrap().unwrap();
    assert_eq!((found.digest, found.size_bytes), (image.digest, image.size_bytes));
    assert!(
        is_whiteout(&found.layers[1].join("old/gone")) && is_opaque(&found.layers[1].join("away"))
    );
}

#[test]
fn nothing_of_this_machine_is_left_inside() {
    let fixture = fixture();
    let run = r#"
        test -s /etc/resolv.conf && test -c /dev/null && test -d /proc/self
        touch /tmp/trash /run/trash /dev/shm/trash
        env > /environment
    "#;
    let image = make(&fixture.store, &format!("run = ['''{run}''']")).unwrap();
    let layer = &image.layers[1];
    assert_eq!(fs::read(layer.join("etc/resolv.conf")).unwrap(), b"");
    for folder in ["tmp", "run", "dev", "proc"] {
        assert_eq!(fs::read_dir(layer.join(folder)).unwrap().count(), 0, "{folder}");
    }
    let environment = fs::read_to_string(layer.join("environment")).unwrap();
    assert!(
        environment.contains(&format!("PATH={PATH}\n")) && environment.contains("BELOW=1\n"),
        "{environment}"
    );
    assert!(!environment.contains("CARGO"), "{environment}");
    assert_eq!(image.config.env.keys().collect::<Vec<_>>(), ["BELOW", "PATH"]);
}

#[test]
fn files_and_settings_lie_over_those_below() {
    let fixture = fixture();
    let rest = "files = { \"/old/kept\" = \"a\", \"/it's/new\" = \"b\" }\n[config]\nentrypoint = [\"serve\"]\n\
                workdir = \"/work\"\nexposed = [\"2/tcp\"]\nenv = { ABOVE = \"2\" }";
    let image = make(&fixture.store, rest).unwrap();
    assert_eq!(fs::read_to_string(image.layers[1].join("old/kept")).unwrap(), "content of a");
    assert_eq!(fs::read_to_string(image.layers[1].join("it's/new")).unwrap(), "content of b");
    assert!(image.layers[1].join("work").is_dir());
    assert_eq!((image.config.entrypoint, image.config.cmd), (vec!["serve".to_owned()], vec![]));
    assert_eq!(
        (image.config.workdir.as_str(), image.config.exposed),
        ("/work", vec!["1/tcp".to_owned(), "2/tcp".into()])
    );
    assert_eq!(image.config.env.keys().collect::<Vec<_>>(), ["ABOVE", "BELOW", "PATH"]);
}

/// As under the program, whose umask makes files for itself only.
#[test]
fn every_user_of_an_image_can_read_what_a_recipe_makes() {
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let fixture = fixture();
    let rest = "files = { \"/srv/app/main\" = \"main\" }\nconfig = { workdir = \"/work/here\" }\n\
                run = ['mkdir /made; echo x > /made/file; busybox stat -c %a / > /made/root']";
    let image = make(&fixture.store, rest).unwrap();
    rustix::process::umask(before);
    let layer = &image.layers[1];
    let mode = |path: &str| fs::metadata(layer.join(path)).unwrap().permissions().mode() & 0o7777;
    for folder in ["", "srv", "srv/app", "work", "work/here", "made", "etc", "dev"] {
        assert_eq!(mode(folder), 0o755, "/{folder}");
    }
    for file in ["srv/app/main", "made/file", "etc/resolv.conf"] {
        assert_eq!(mode(file), 0o644, "/{file}");
    }
    assert_eq!(fs::read_to_string(layer.join("made/root")).unwrap(), "755\n");
}

#[test]
fn a_file_need_not_be_text() {
    let fixture = fixture();
    let text = "name = \"bigger\"\nfrom = \"tiny\"\nfiles = { \"/logo.png\" = \"logo.png\" }";
    let bytes = b"\x89PNG\r\n\x1a\n\0\xff";
    let recipe = Recipe::read(text, |_| Ok(bytes.to_vec())).unwrap();
    fixture.store.make(&recipe, &Builder::new("none"), |_| {}).unwrap();
    let image = fixture.store.resolve(&reference("bigger")).unwrap().unwrap();
    assert_eq!(fs::read(image.layers[1].join("logo.png")).unwrap(), bytes);
}

#[test]
fn what_the_image_below_starts_can_be_taken_away() {
    let fixture = fixture();
    make(&fixture.store, "config = { entrypoint = [\"serve\"], cmd = [\"--fast\"] }").unwrap();
    let above = |rest: &str| {
        let text = format!("name = \"above\"\nfrom = \"bigger\"\nconfig = {{ {rest} }}");
        let recipe = Recipe::read(&text, |_| Ok(Vec::new())).unwrap();
        fixture.store.make(&recipe, &Builder::new("none"), |_| {}).unwrap();
        let config = fixture.store.resolve(&reference("above")).unwrap().unwrap().config;
        (config.entrypoint, config.cmd)
    };
    assert_eq!(above(""), (vec!["serve".to_owned()], vec!["--fast".to_owned()]));
    assert_eq!(above("entrypoint = []"), (vec![], vec![]));
}

#[test]
fn it_is_made_again_only_when_something_changed() {
    let fixture = fixture();
    let count = |rest: &str| {
        let mut steps = 0;
        fixture.store.make(&recipe(rest), &Builder::new("none"), |_| steps += 1).unwrap();
        steps
    };
    assert_eq!((count("run = ['true']"), count("run = ['true']")), (2, 0));
    assert_eq!(count("run = ['true', 'true']"), 3);
    let names: Vec<_> =
        fixture.store.list().unwrap().into_iter().flat_map(|image| image.names).collect();
    assert_eq!(
        (names.len(), fixture.files("names").len()),
        (2, 3),
        "the third one says of which recipe"
    );
    let config = Config { workdir: "/other".into(), ..Config::default() };
    let tiny = fixture.store.resolve(&reference("tiny")).unwrap().unwrap();
    let again = Archive::new().folder("bin").file("bin/other", "").bytes();
    fixture.store.import_rootfs(again.as_slice(), &config, &reference("tiny")).unwrap();
    assert_ne!(fixture.store.resolve(&reference("tiny")).unwrap().unwrap().digest, tiny.digest);
    assert!(
        fixture
            .store
            .make(&recipe("run = ['true', 'true']"), &Builder::new("none"), |_| {})
            .is_err()
    );
}

#[test]
fn what_fails_says_why_and_leaves_nothing() {
    let fixture = fixture();
    let error = make(&fixture.store, "run = ['echo why; exit 3']").unwrap_err();
    let RecipeError::Failed { last_words, .. } = &error else { panic!("{error:?}") };
    assert_eq!(last_words.last().map(String::as_str), Some("why"));
    assert_eq!((fixture.store.list().unwrap().len(), fixture.parts().len()), (1, 0));
    let text = "name = \"x\"\nfrom = \"missing\"";
    let missing = Recipe::read(text, |_| Ok(Vec::new())).unwrap();
    let error = fixture.store.make(&missing, &Builder::new("none"), |_| {}).unwrap_err();
    assert!(matches!(error, RecipeError::NoParent(_)), "{error:?}");
}

#[test]
fn a_folder_that_is_a_link_leads_nowhere() {
    let fixture = fixture();
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().display().to_string();
    let archive = Archive::new().symlink("run", &target).bytes();
    fixture
        .store
        .import_rootfs(archive.as_slice(), &Config::default(), &reference("tiny"))
        .unwrap();
    assert!(matches!(make(&fixture.store, "run = ['true']"), Err(RecipeError::Failed { .. })));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn the_form_of_overlays_inside_of_user_namespaces_works_too() {
    let tiny = fixture();
    let layout = tempfile::tempdir().unwrap();
    tiny.store.export(&reference("tiny"), layout.path()).unwrap().unwrap();
    let fixture = Fixture::with(Settings { overlay: images::Overlay::User, ..Settings::default() });
    fixture.store.import_folder(layout.path(), &OWN).unwrap();
    let image = make(&fixture.store, CHANGES).unwrap();
    assert!(is_whiteout(&image.layers[1].join("old/gone")));
    let mut value = [0; 1];
    assert_eq!(
        rustix::fs::lgetxattr(image.layers[1].join("away"), "user.overlay.opaque", &mut value),
        Ok(1)
    );
}
