use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use images::{Config, Error, Naming};
use serde_json::json;

use crate::archive::{Archive, gzip};
use crate::{Fixture, OWN, digest_of, reference};

fn config() -> Config {
    Config {
        env: BTreeMap::from([("PATH".into(), "/bin".into()), ("EMPTY".into(), String::new())]),
        workdir: "/work".into(),
        entrypoint: vec!["/bin/sh".into(), "-c".into()],
        cmd: vec!["true".into()],
        user: "1000:1000".into(),
        exposed: vec!["80/tcp".into()],
    }
}

fn tar_of(folder: &Path) -> Vec<u8> {
    std::process::Command::new("tar")
        .arg("-C")
        .arg(folder)
        .args(["-cf", "-", "."])
        .output()
        .unwrap()
        .stdout
}

#[test]
fn a_root_filesystem_is_taken_plain_or_packed() {
    let plain = Archive::new().file("bin/program", "content").bytes();
    let fixture = Fixture::new();
    for (name, bytes) in [
        ("plain", plain.clone()),
        ("gzip", gzip(&plain)),
        ("zstd", zstd::encode_all(plain.as_slice(), 1).unwrap()),
    ] {
        fixture.store.import_rootfs(bytes.as_slice(), &config(), &reference(name)).unwrap();
        let image = fixture.store.resolve(&reference(name)).unwrap().unwrap();
        assert_eq!(image.config, config());
        assert_eq!(fs::read(image.layers[0].join("bin/program")).unwrap(), b"content");
    }
    assert_eq!(fixture.files("layers/trusted").len(), 1);
}

#[test]
fn what_is_exported_comes_back_the_same() {
    let first = Fixture::new();
    let archive = Archive::new().file("file", "content").bytes();
    first.store.import_rootfs(archive.as_slice(), &config(), &reference("holm/base:v1")).unwrap();
    let layout = tempfile::tempdir().unwrap();
    let digest = first.store.export(&reference("holm/base:v1"), layout.path()).unwrap().unwrap();
    assert_eq!(first.store.export(&reference("missing"), layout.path()).unwrap(), None);

    let second = Fixture::new();
    let imported = second.store.import_folder(layout.path(), &OWN).unwrap();
    assert_eq!((imported[0].name.clone(), imported[0].digest), (reference("holm/base:v1"), digest));
    let packed = tar_of(layout.path());
    second.store.import_archive(gzip(&packed).as_slice(), &Naming::As(reference("other"))).unwrap();
    let image = second.store.resolve(&reference("other")).unwrap().unwrap();
    assert_eq!((image.digest, image.config), (digest, config()));
    assert_eq!(second.parts(), Vec::<String>::new());
}

#[test]
fn what_docker_saves_is_taken() {
    let lower = Archive::new().file("lower", "1").bytes();
    let upper = Archive::new().file("upper", "22").bytes();
    let config = json!({
        "architecture": images::Platform::here().architecture, "os": "linux",
        "config": {"Env": ["A=b=c"], "Cmd": ["sh"], "Entrypoint": null, "ExposedPorts": {"53/udp": {}}},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(&lower), digest_of(&upper)]},
    });
    let manifest = json!([{"Config": "c.json", "RepoTags": ["name:1", "name:2"], "Layers": ["1/layer.tar", "2/layer.tar"]}]);
    let archive = Archive::new()
        .folder("1")
        .file("1/layer.tar", &lower)
        .folder("2")
        .file("real", &upper)
        .symlink("2/layer.tar", "../real")
        .file("c.json", config.to_string())
        .file("manifest.json", manifest.to_string())
        .bytes();
    let fixture = Fixture::new();
    let imported = fixture.store.import_archive(archive.as_slice(), &OWN).unwrap();
    assert_eq!(imported.len(), 2);
    let image = fixture.store.resolve(&reference("name:2")).unwrap().unwrap();
    assert!(image.layers[0].join("lower").exists() && image.layers[1].join("upper").exists());
    assert_eq!(image.config.env["A"], "b=c");
    assert_eq!((image.config.exposed, image.size_bytes), (vec!["53/udp".to_owned()], 3));
}

#[test]
fn a_layer_that_comes_twice_is_mounted_once_where_it_is_highest() {
    let [one, two] = ["one", "two"].map(|name| Archive::new().file(name, "").bytes());
    let diff_ids = [digest_of(&one), digest_of(&two), digest_of(&one)];
    let config = json!({"rootfs": {"type": "layers", "diff_ids": diff_ids}});
    let manifest = json!([{"Config": "c", "RepoTags": ["twice"], "Layers": ["1", "2", "1"]}]);
    let archive = Archive::new().file("1", &one).file("2", &two).file("c", config.to_string());
    let archive = archive.file("manifest.json", manifest.to_string()).bytes();
    let fixture = Fixture::new();
    fixture.store.import_archive(archive.as_slice(), &OWN).unwrap();
    let layers = fixture.store.resolve(&reference("twice")).unwrap().unwrap().layers;
    assert_eq!(layers.len(), 2);
    assert!(layers[0].join("two").exists() && layers[1].join("one").exists());
}

#[test]
fn a_reserved_name_in_an_archive_is_refused_and_names_nothing() {
    let source = Fixture::new();
    source.import("agent/a", &Archive::new().file("file", "content").bytes()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    source.store.export(&reference("agent/a"), folder.path()).unwrap();
    let fixture = Fixture::new();
    let import = |naming| fixture.store.import_folder(folder.path(), &naming);
    let refused = import(Naming::Own { reserved: &["job", "agent"] }).unwrap_err();
    assert!(matches!(refused, Error::Reserved(name) if name == reference("agent/a")));
    assert!(fixture.store.list().unwrap().iter().all(|image| image.names.is_empty()));
    import(Naming::Own { reserved: &["job"] }).unwrap();
    import(Naming::As(reference("team/a"))).unwrap();
}

/// Imports an OCI layout of one image in which `change` has broken something.
fn layout(change: impl FnOnce(&Path, &str)) -> Result<Vec<images::Imported>, Error> {
    let source = Fixture::new();
    source.import("a/b", &Archive::new().file("file", "content").bytes())?;
    let folder = tempfile::tempdir().unwrap();
    let digest = source.store.export(&reference("a/b"), folder.path())?.unwrap();
    change(folder.path(), &digest.hex());
    let fixture = Fixture::new();
    let imported = fixture.store.import_folder(folder.path(), &OWN);
    assert_eq!(fixture.parts(), Vec::<String>::new());
    imported
}

#[test]
fn a_layout_that_lies_is_refused() {
    assert!(layout(|_, _| {}).is_ok());
    let changed = layout(|folder, _| {
        for blob in fs::read_dir(folder.join("blobs/sha256")).unwrap() {
            fs::write(blob.unwrap().path(), "{}").unwrap();
        }
    });
    assert!(matches!(changed, Err(Error::Digest { .. })), "{changed:?}");
    let missing =
        layout(|folder, digest| fs::remove_file(folder.join("blobs/sha256").join(digest)).unwrap());
    assert!(matches!(missing, Err(Error::Io { .. })), "{missing:?}");
    let unnamed = layout(|folder, _| {
        let text = fs::read_to_string(folder.join("index.json")).unwrap();
        fs::write(folder.join("index.json"), text.replace("io.containerd.image.name", "other"))
            .unwrap();
    });
    assert!(matches!(unnamed, Err(Error::Malformed { .. })), "{unnamed:?}");
    let nothing = layout(|folder, _| fs::remove_file(folder.join("index.json")).unwrap());
    assert!(matches!(nothing, Err(Error::Malformed { .. })), "{nothing:?}");
    let other_machine = layout(|folder, _| {
        let mut index: serde_json::Value =
            serde_json::from_slice(&fs::read(folder.join("index.json")).unwrap()).unwrap();
        index["manifests"][0]["platform"] = json!({"os": "linux", "architecture": "s390x"});
        fs::write(folder.join("index.json"), index.to_string()).unwrap();
    });
    assert!(matches!(other_machine, Err(Error::NoPlatform(_))), "{other_machine:?}");
}

#[test]
fn a_real_program_runs_from_an_image() {
    let program = fs::read("/bin/busybox").unwrap();
    let header =
        crate::archive::Header { mode: 0o755, ..crate::archive::Header::new(b'0', "bin/busybox") };
    let archive =
        Archive::new().folder("bin").entry(&header, &program).symlink("bin/sh", "busybox").bytes();
    let fixture = Fixture::new();
    let image = fixture.import("holm/tiny", &archive).unwrap();
    let output = std::process::Command::new("chroot")
        .arg(&image.layers[0])
        .args(["/bin/sh", "-c", "echo hello"])
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"hello\n");
}

#[test]
fn what_a_file_holds_is_found_out() {
    let (first, folder) = (Fixture::new(), tempfile::tempdir().unwrap());
    let rootfs = folder.path().join("rootfs.tar");
    fs::write(&rootfs, Archive::new().file("file", "content").bytes()).unwrap();
    let named = Naming::As(reference("a"));
    let image = first.store.import(&rootfs, &named, &config()).unwrap()[0].digest;
    assert_eq!(first.store.resolve(&reference("a")).unwrap().unwrap().config, config());
    assert!(first.store.import(&rootfs, &OWN, &config()).is_err(), "it says no name");
    let layout = folder.path().join("layout");
    first.store.export(&reference("a"), &layout).unwrap().unwrap();
    let archive = folder.path().join("layout.tar.gz");
    fs::write(&archive, gzip(&tar_of(&layout))).unwrap();
    for path in [layout, archive] {
        let imported = Fixture::new().store.import(&path, &OWN, &Config::default()).unwrap();
        assert_eq!((imported[0].name.clone(), imported[0].digest), (reference("a"), image));
    }
}
