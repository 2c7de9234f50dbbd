use std::fs;

use images::{Collected, Config, Error, Settings, Store};

use crate::archive::Archive;
use crate::{Fixture, reference};

fn archive(content: &str) -> Vec<u8> {
    Archive::new().file("file", content).bytes()
}

#[test]
fn a_layer_is_stored_and_counted_once() {
    let fixture = Fixture::new();
    let one = fixture.import("one", &archive("same")).unwrap();
    let config = Config { workdir: "/other".into(), ..Config::default() };
    fixture.store.import_rootfs(archive("same").as_slice(), &config, &reference("two")).unwrap();
    let two = fixture.store.resolve(&reference("two")).unwrap().unwrap();
    assert_ne!(one.digest, two.digest);
    assert_eq!(one.layers, two.layers);
    assert_eq!((one.size_bytes, fixture.files("layers/trusted").len()), (4, 1));
    assert_eq!(two.config, config);
}

#[test]
fn one_image_has_many_names() {
    let fixture = Fixture::new();
    let image = fixture.import("holm/base", &archive("x")).unwrap();
    fixture.store.tag(&reference("holm/base"), &reference("other:v1")).unwrap().unwrap();
    assert_eq!(fixture.store.tag(&reference("missing"), &reference("x")).unwrap(), None);
    let list = fixture.store.list().unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].names, [reference("holm/base"), reference("other:v1")]);
    let by_digest = reference(&format!("other@{}", image.digest));
    for name in [reference("other:v1"), reference("docker.io/holm/base"), by_digest] {
        assert_eq!(fixture.store.resolve(&name).unwrap().unwrap(), image, "{name}");
    }
    let elsewhere = reference(&format!("elsewhere@{}", image.digest));
    assert_eq!(fixture.store.resolve(&elsewhere).unwrap(), None);
}

#[test]
fn an_image_goes_with_all_its_names() {
    let fixture = Fixture::new();
    let image = fixture.import("a", &archive("x")).unwrap();
    fixture.store.tag(&reference("a"), &reference("b")).unwrap();
    fixture.import("c", &archive("y")).unwrap();
    assert_eq!(
        fixture.store.remove_image(&image.digest).unwrap(),
        [reference("a"), reference("b")]
    );
    assert_eq!(fixture.store.remove_image(&image.digest).unwrap(), []);
    assert_eq!(fixture.store.list().unwrap().len(), 1);
}

#[test]
fn layers_are_unpacked_in_the_form_that_is_needed() {
    let fixture = Fixture::new();
    let image = fixture.import("a", &archive("x")).unwrap();
    let settings = Settings { overlay: images::Overlay::User, ..Settings::default() };
    let other = Store::open(fixture.folder.path(), settings).unwrap();
    let found = other.resolve(&reference("a")).unwrap().unwrap();
    assert_eq!(found.digest, image.digest);
    assert!(found.layers[0].join("file").exists() && found.layers[0] != image.layers[0]);
}

#[test]
fn what_has_no_name_is_collected_and_what_shares_is_kept() {
    let fixture = Fixture::new();
    fixture.import("one", &archive("one")).unwrap();
    let two = fixture.import("two", &archive("two")).unwrap();
    assert!(fixture.store.remove(&reference("one")).unwrap());
    assert!(!fixture.store.remove(&reference("one")).unwrap());
    let collected = fixture.store.collect().unwrap();
    assert_eq!((collected.blobs, collected.layers), (3, 1));
    assert_eq!(fixture.store.resolve(&reference("two")).unwrap().unwrap(), two);
    assert_eq!(fixture.store.collect().unwrap(), Collected::default());
    assert_eq!(fixture.parts(), Vec::<String>::new());
}

#[test]
fn what_runs_is_never_collected() {
    let fixture = Fixture::new();
    let image = fixture.import("one", &archive("one")).unwrap();
    let (pinned, lease) = fixture.store.pin(&image.digest).unwrap().unwrap();
    fixture.store.remove(&reference("one")).unwrap();
    assert_eq!(fixture.store.collect().unwrap(), Collected::default());
    assert!(pinned.layers[0].join("file").exists());
    drop(lease);
    assert_eq!(fixture.store.collect().unwrap().layers, 1);
    assert!(fixture.store.pin(&image.digest).unwrap().is_none());
}

#[test]
fn imports_and_collections_at_once_lose_nothing() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let fixture = &fixture;
            scope.spawn(move || {
                for round in 0..5 {
                    let name = format!("image-{worker}");
                    fixture.import(&name, &archive(&format!("shared by {round}"))).unwrap();
                    fixture.store.collect().unwrap();
                    assert!(
                        fixture.store.resolve(&reference(&name)).unwrap().unwrap().layers[0]
                            .join("file")
                            .exists()
                    );
                }
            });
        }
    });
    fixture.store.collect().unwrap();
    assert_eq!((fixture.files("layers/trusted").len(), fixture.parts().len()), (1, 0));
}

#[test]
fn images_outlive_a_restart_and_half_work_does_not() {
    let Fixture { store, folder } = Fixture::new();
    store.import_rootfs(archive("x").as_slice(), &Config::default(), &reference("a")).unwrap();
    fs::create_dir_all(folder.path().join("scratch/7/root")).unwrap();
    fs::write(folder.path().join("scratch/8"), "half a blob").unwrap();
    let before = store.resolve(&reference("a")).unwrap().unwrap();
    drop(store);
    let store = Store::open(folder.path(), Settings::default()).unwrap();
    assert_eq!(store.resolve(&reference("a")).unwrap().unwrap(), before);
    assert!(!folder.path().join("scratch/7").exists() && !folder.path().join("scratch/8").exists());
}

#[test]
fn what_others_work_on_is_neither_cleared_away_nor_collected() {
    let Fixture { store, folder } = Fixture::new();
    let other = Store::open(folder.path(), Settings::default()).unwrap();
    let (pinned, lease) = {
        store.import_rootfs(archive("x").as_slice(), &Config::default(), &reference("a")).unwrap();
        let image = other.resolve(&reference("a")).unwrap().unwrap();
        other.pin(&image.digest).unwrap().unwrap()
    };
    store.remove(&reference("a")).unwrap();
    assert!(matches!(store.collect(), Err(Error::InUse(_))));
    let third = Store::open(folder.path(), Settings::default()).unwrap();
    third.import_rootfs(archive("y").as_slice(), &Config::default(), &reference("b")).unwrap();
    assert!(pinned.layers[0].join("file").exists());
    drop((other, lease, third));
    assert_eq!(store.collect().unwrap().layers, 1);
    assert!(store.resolve(&reference("b")).unwrap().is_some());
}

#[test]
fn two_who_store_the_same_at_once_both_have_it() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let folder = folder.path();
            scope.spawn(move || {
                for round in 0..5 {
                    let store = Store::open(folder, Settings::default()).unwrap();
                    let name = reference(&format!("image-{worker}"));
                    let content = archive(&format!("shared by {round}"));
                    store.import_rootfs(content.as_slice(), &Config::default(), &name).unwrap();
                    let image = store.resolve(&name).unwrap().unwrap();
                    assert!(image.layers[0].join("file").exists());
                }
            });
        }
    });
    let store = Store::open(folder.path(), Settings::default()).unwrap();
    assert_eq!((store.list().unwrap().len(), store.list().unwrap()[0].names.len()), (1, 4));
    assert_eq!(fs::read_dir(folder.path().join("scratch")).unwrap().count(), 1);
}

#[test]
fn other_users_of_the_machine_cannot_look_in() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new();
    assert_eq!(fs::metadata(fixture.folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_document_that_came_to_harm_is_noticed_and_nothing_is_removed() {
    let fixture = Fixture::new();
    let image = fixture.import("a", &archive("x")).unwrap();
    fixture.import("b", &archive("y")).unwrap();
    fixture.store.remove(&reference("b")).unwrap();
    let path = fixture.folder.path().join("blobs/sha256").join(image.digest.hex());
    fs::write(&path, b"{}").unwrap();
    assert!(matches!(fixture.store.resolve(&reference("a")), Err(Error::Digest { .. })));
    assert!(matches!(fixture.store.collect(), Err(Error::Digest { .. })));
    assert_eq!(fixture.files("layers/trusted").len(), 2);
}
