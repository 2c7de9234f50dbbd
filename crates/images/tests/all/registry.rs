//! Pushed content: which repository has it, what may run, and what is removed.

use images::{Digest, Error, Keep, PushFault, Repository, Store};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::archive::Archive;
use crate::{Fixture, digest_of};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const AT: i64 = 1_000;

fn upload(store: &Store, repository: &Repository, bytes: &[u8]) -> Digest {
    let id: String = format!("u{}", digest_of(bytes).hex()).chars().take(40).collect();
    let mut upload = store.begin_upload(&id, b"mine").unwrap();
    for piece in bytes.chunks(1000) {
        upload.append(piece).unwrap();
    }
    let lease = store.begin_work();
    let digest = digest_of(bytes);
    let size = store.finish_upload(upload, &digest, &lease).unwrap();
    repository.add_blob(&digest, size, AT, &lease).unwrap();
    digest
}

fn link(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest_of(bytes), "size": bytes.len()})
}

fn config(layers: &[Digest]) -> Vec<u8> {
    let text = json!({
        "architecture": images::Platform::here().architecture, "os": "linux",
        "config": {"Cmd": ["/run"]}, "rootfs": {"type": "layers", "diff_ids": layers},
    });
    text.to_string().into_bytes()
}

fn manifest(config: &[u8], layers: &[&[u8]]) -> Vec<u8> {
    let layers: Vec<Value> = layers.iter().map(|layer| link(LAYER, layer)).collect();
    let text = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": link(CONFIG, config), "layers": layers,
    });
    text.to_string().into_bytes()
}

fn layer(content: &str) -> Vec<u8> {
    Archive::new().file("file", content).bytes()
}

/// Pushes an image of one layer; returns its digest.
fn push(store: &Store, repository: &Repository, content: &str) -> Digest {
    let layer = layer(content);
    let config = config(&[digest_of(&layer)]);
    upload(store, repository, &layer);
    upload(store, repository, &config);
    let manifest = manifest(&config, &[&layer]);
    repository.put_manifest(Some(MANIFEST), &manifest, AT).unwrap().filed.digest
}

#[test]
fn what_was_pushed_is_read_back_and_runs_when_it_was_looked_at() {
    let Fixture { store, folder: _folder } = &Fixture::new();
    let repository = store.repository("one/job/a");
    let image = push(store, &repository, "hello");
    let (filed, bytes) = repository.manifest(&image).unwrap().unwrap();
    assert_eq!((filed.digest, digest_of(&bytes)), (image, image));
    assert_eq!(store.runnable(&image).unwrap(), image);
    assert!(!store.is_ready(&image));
    let (bytes, lease) = store.prepare(&image, 1 << 20).unwrap();
    store.set_ready(&image, &lease).unwrap();
    assert_eq!(bytes, 5);
    drop(lease);
    store.collect().unwrap();
    assert!(store.is_ready(&image), "what is in a repository is kept, unpacked too");
    assert_eq!(store.repositories().unwrap().len(), 1);
    assert_eq!(repository.contents().unwrap().len(), 3);
}

#[test]
fn an_image_may_take_no_more_than_its_room() {
    let Fixture { store, folder: _folder } = &Fixture::new();
    let image = push(store, &store.repository("one/job/a"), "hello");
    assert!(matches!(store.prepare(&image, 4), Err(Error::Limit { .. })));
    assert!(!store.is_ready(&image));
}

#[test]
fn layers_of_public_images_take_no_room() {
    let fixture = Fixture::new();
    let store = &fixture.store;
    let image = push(store, &store.repository("one/job/a"), "hello");
    assert!(store.prepare(&image, 4).is_err());
    fixture.import("base", &layer("hello")).unwrap();
    let (bytes, _lease) = store.prepare(&image, 4).unwrap();
    assert_eq!(bytes, 0);
    // What a workspace pushed is not public.
    let other = push(store, &store.repository("one/job/a"), "others");
    let (_, _other) = store.prepare(&other, 1 << 20).unwrap();
    assert!(store.prepare(&push(store, &store.repository("two/job/a"), "others"), 4).is_err());
}

#[test]
fn a_digest_opens_nothing_in_another_repository() {
    let Fixture { store, folder: _folder } = &Fixture::new();
    let (mine, theirs) = (store.repository("one/job/a"), store.repository("two/job/a"));
    let secret = layer("secret");
    let image = push(store, &mine, "secret");
    let digest = digest_of(&secret);
    assert!(theirs.blob(&digest).unwrap().is_none() && theirs.blob_size(&digest).is_none());
    assert!(theirs.manifest(&image).unwrap().is_none());
    // Nor is it accepted as the layer of an image that names it.
    let config = config(&[digest]);
    upload(store, &theirs, &config);
    let pushed = theirs.put_manifest(Some(MANIFEST), &manifest(&config, &[&secret]), AT);
    assert!(matches!(pushed, Err(PushFault::Unknown(unknown)) if unknown == digest));
    let elsewhere = store.repository("two/job/b");
    assert_eq!(elsewhere.mount(&theirs, &digest, AT).unwrap(), None);
    assert_eq!(elsewhere.mount(&mine, &digest, AT).unwrap(), Some(secret.len() as u64));
}

#[test]
fn a_configuration_that_names_somebodys_unpacked_layer_gets_nothing() {
    let Fixture { store, folder: _folder } = &Fixture::new();
    let mine = store.repository("one/job/a");
    let image = push(store, &mine, "secret");
    let (_, lease) = store.prepare(&image, 1 << 20).unwrap();
    store.set_ready(&image, &lease).unwrap();
    // Somebody who knows the digest of the layer pushes another layer under that digest.
    let theirs = store.repository("two/job/a");
    let (own, lie) = (layer("own"), config(&[digest_of(&layer("secret"))]));
    upload(store, &theirs, &own);
    upload(store, &theirs, &lie);
    let manifest = manifest(&lie, &[&own]);
    let liar = theirs.put_manifest(Some(MANIFEST), &manifest, AT).unwrap().filed.digest;
    assert!(matches!(store.prepare(&liar, 1 << 20), Err(Error::Digest { .. })));
    assert!(!store.is_ready(&liar));
}

#[test]
fn an_index_runs_the_image_for_this_machine() {
    let Fixture { store, folder: _folder } = &Fixture::new();
    let repository = store.repository("one/job/a");
    let (here, other) =
        (push(store, &repository, "here"), push(store, &repository, "other machine"));
    let bytes = |digest: &Digest| repository.manifest(digest).unwrap().unwrap().1;
    let entry = |digest: &Digest, architecture: &str| {
        let mut entry = link(MANIFEST, &bytes(digest));
        entry["platform"] = json!({"os": "linux", "architecture": architecture});
        entry
    };
    let own = images::Platform::here().architecture;
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry(&other, "s390x"), entry(&here, &own)]});
    let pushed = repository.put_manifest(Some(INDEX), index.to_string().as_bytes(), AT).unwrap();
    assert_eq!(store.runnable(&pushed.filed.digest).unwrap(), here);
    // Images that only other machines can run are kept all the same.
    let foreign = json!({"schemaVersion": 2, "manifests": [entry(&other, "s390x")]});
    let pushed = repository.put_manifest(Some(INDEX), foreign.to_string().as_bytes(), AT).unwrap();
    assert!(matches!(store.runnable(&pushed.filed.digest), Err(Error::NoPlatform(_))));
    let unknown = json!({"schemaVersion": 2, "manifests": [{"mediaType": MANIFEST, "digest": digest_of(b"x"), "size": 1}]});
    let pushed = repository.put_manifest(Some(INDEX), unknown.to_string().as_bytes(), AT);
    assert!(matches!(pushed, Err(PushFault::Unknown(_))));
}

#[test]
fn an_artifact_is_kept_and_says_why_it_does_not_run() {
    let Fixture { store, folder: _folder } = &Fixture::new();
    let repository = store.repository("one/job/a");
    let image = push(store, &repository, "hello");
    upload(store, &repository, b"{}");
    let subject = link(MANIFEST, &repository.manifest(&image).unwrap().unwrap().1);
    let signature = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "artifactType": "application/x.signature",
        "config": link("application/vnd.oci.empty.v1+json", b"{}"), "layers": [],
        "subject": subject, "annotations": {"by": "me"},
    });
    let pushed =
        repository.put_manifest(Some(MANIFEST), signature.to_string().as_bytes(), AT).unwrap();
    assert!(matches!(store.runnable(&pushed.filed.digest), Err(Error::Malformed { .. })));
    let (found, more) = repository.referrers(&image, None, 1 << 20).unwrap();
    assert_eq!((found.len(), more), (1, false));
    assert_eq!(found[0].artifact_type.as_deref(), Some("application/x.signature"));
    // It stays with the manifest that it refers to, and is removed with it.
    let keep = Keep { manifests: vec![image], since: AT + 1, except: vec![] };
    assert_eq!(repository.prune(&keep).unwrap(), []);
    let keep = Keep { manifests: vec![], since: AT + 1, except: vec![] };
    assert_eq!(repository.prune(&keep).unwrap().len(), 5);
    assert!(repository.referrers(&image, None, 1 << 20).unwrap().0.is_empty());
    assert!(store.repositories().unwrap().is_empty());
    assert_eq!(store.collect().unwrap().blobs, 5);
}

#[test]
fn what_is_taken_out_leaves_what_others_need() {
    let Fixture { store, folder: _folder } = &Fixture::new();
    let repository = store.repository("one/job/a");
    let (old, new) = (push(store, &repository, "old"), push(store, &repository, "new"));
    let dangling = upload(store, &repository, b"dangling");
    let shared = digest_of(&layer("old"));
    store.repository("one/job/b").mount(&repository, &shared, AT).unwrap().unwrap();
    assert!(!repository.remove_blob(&shared).unwrap(), "a manifest needs it");
    // Only what was asked for is removed at once; what may belong to an unfinished push stays.
    let keep = Keep { manifests: vec![new], since: AT, except: vec![old] };
    assert_eq!(repository.prune(&keep).unwrap().len(), 3);
    assert!(repository.blob_size(&dangling).is_some() && repository.blob_size(&shared).is_none());
    assert_eq!(store.collect().unwrap().blobs, 2, "another repository has the layer");
    let keep = Keep { manifests: vec![new], since: AT + 1, except: vec![] };
    assert_eq!(repository.prune(&keep).unwrap(), [dangling]);
    assert!(repository.manifest(&new).unwrap().is_some());
}

#[test]
fn what_another_push_has_brought_again_stays() {
    let Fixture { store, folder: _folder } = &Fixture::new();
    let repository = store.repository("one/job/a");
    let image = push(store, &repository, "old");
    let (layer, config) = (layer("old"), config(&[digest_of(&layer("old"))]));
    // Somebody else is about to push a manifest with the same layer.
    let lease = store.begin_work();
    let digest = digest_of(&layer);
    repository.add_blob(&digest, layer.len() as u64, AT + 1, &lease).unwrap();
    let keep = Keep { manifests: vec![], since: AT, except: vec![image] };
    assert_eq!(repository.prune(&keep).unwrap().len(), 2);
    assert!(repository.blob_size(&digest).is_some());
    upload(store, &repository, &config);
    repository.put_manifest(Some(MANIFEST), &manifest(&config, &[&layer]), AT + 2).unwrap();
    // Once nothing else is pushed, all of it goes with the manifest.
    assert_eq!(repository.prune(&keep).unwrap().len(), 3);
}

#[test]
fn an_upload_goes_on_after_a_restart_and_a_wrong_one_leaves_nothing() {
    let fixture = Fixture::new();
    let folder = fixture.folder;
    let mut upload = fixture.store.begin_upload("abc", b"whose").unwrap();
    upload.append(b"hello ").unwrap();
    drop((upload, fixture.store));
    let store = Store::open(folder.path(), images::Settings::default()).unwrap();
    std::fs::create_dir_all(folder.path().join("uploads/cut")).unwrap();
    let left = store.left_uploads().unwrap();
    assert_eq!(left.len(), 1, "what was cut while it began is gone");
    assert_eq!(
        (left[0].id.as_str(), left[0].about.as_slice(), left[0].size),
        ("abc", b"whose".as_slice(), 6)
    );
    let mut upload = store.resume_upload("abc").unwrap();
    upload.append(b"world").unwrap();
    let lease = store.begin_work();
    assert_eq!(store.finish_upload(upload, &digest_of(b"hello world"), &lease).unwrap(), 11);
    let mut wrong = store.begin_upload("wrong", b"").unwrap();
    wrong.append(b"something").unwrap();
    let refused = store.finish_upload(wrong, &digest_of(b"else"), &lease);
    assert!(matches!(refused, Err(Error::Digest { .. })));
    assert!(store.left_uploads().unwrap().is_empty());
    assert!(store.begin_upload("../x", b"").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_manifest_panics_and_none_is_taken_that_needs_what_is_not_there(
        version in 1u32..4,
        kind in proptest::option::of(prop_oneof![Just(MANIFEST), Just(INDEX), Just("text/plain"), Just("")]),
        sent in proptest::option::of(prop_oneof![Just(MANIFEST), Just(INDEX)]),
        parts in proptest::collection::vec((0usize..4, 0u64..20), 0..3),
        noise in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let fixture = Fixture::new();
        let repository = fixture.store.repository("one/job/a");
        prop_assert!(repository.put_manifest(sent, &noise, AT).is_err());
        let names = ["config", "layers", "manifests", "subject"];
        let mut text = json!({"schemaVersion": version});
        if let Some(kind) = kind {
            text["mediaType"] = json!(kind);
        }
        for (name, size) in parts {
            let link = json!({"mediaType": CONFIG, "digest": digest_of(b"absent"), "size": size});
            text[names[name]] = if matches!(name, 1 | 2) { json!([link]) } else { link };
        }
        let needs = text.get("config").is_some() || text.get("manifests").is_some();
        let pushed = repository.put_manifest(sent, text.to_string().as_bytes(), AT);
        prop_assert!(pushed.is_err() || !needs, "{text}");
    }
}
