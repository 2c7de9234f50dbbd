//! Tests with a real service: conditional puts, parts, lists and failures over HTTP with
//! signatures.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use objects::{Digest, Error, Folder, Objects, PART_BYTES, Secret, Settings, Stored};
use std::error::Error as _;
use std::io::{Read, Write};
use std::time::Duration;
use testing::SeaweedFs;
use tokio::runtime::{Handle, Runtime};

struct Place {
    service: SeaweedFs,
    objects: Objects,
    runtime: Runtime,
}

fn settings(service: &SeaweedFs) -> Settings {
    Settings {
        endpoint: service.endpoint(),
        bucket: "holm-test".to_owned(),
        region: "us-east-1".to_owned(),
        key_id: SeaweedFs::KEY_ID.to_owned(),
        secret: Secret::new(SeaweedFs::SECRET),
        prefix: "deep/below".to_owned(),
        parallel: 3,
        timeout: Duration::from_secs(30),
        retries: 3,
    }
}

impl Place {
    fn new() -> Self {
        // Fails only if it was already done.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let service = SeaweedFs::start().unwrap();
        let objects = Objects::open(&settings(&service)).unwrap();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        Self { service, objects, runtime }
    }

    fn runtime(&self) -> Handle {
        self.runtime.handle().clone()
    }

    fn put(&self, objects: &Objects, name: &str, content: &[u8]) -> Result<Stored, Error> {
        let mut upload = objects.put(folder(name), self.runtime());
        match upload.write_all(content) {
            Ok(()) => upload.finish(),
            Err(error) => Err(error.downcast::<Error>().unwrap()),
        }
    }

    fn get(&self, name: &str, stored: &Stored) -> Result<Vec<u8>, Error> {
        let download = self.objects.get(folder(name), &stored.digest, self.runtime());
        let mut content = Vec::new();
        let mut download = self.runtime.block_on(download)?;
        download.read_to_end(&mut content).map_err(|error| error.downcast::<Error>().unwrap())?;
        Ok(content)
    }
}

fn folder(name: &str) -> Folder {
    Folder::new(["space", name]).unwrap()
}

#[test]
fn a_real_service_keeps_streams() {
    let mut place = Place::new();
    let content: Vec<u8> =
        (0..5 * PART_BYTES / 2).map(|at| (at % 251) as u8 ^ (at >> 16) as u8).collect();
    let stored = place.put(&place.objects, "one", &content).unwrap();
    assert_eq!(place.put(&place.objects, "one", &content).unwrap(), stored, "it is there already");
    place.put(&place.objects, "other", b"small").unwrap();
    assert!(place.get("one", &stored).unwrap() == content);
    let mut folders = place.runtime.block_on(place.objects.folders()).unwrap();
    folders.sort();
    assert_eq!(folders, [folder("one"), folder("other")]);

    // What is stored survives a restart of the service. While it is down, an error says so.
    place.service.stop();
    let hasty =
        Settings { retries: 0, timeout: Duration::from_secs(2), ..settings(&place.service) };
    let hasty = Objects::open(&hasty).unwrap();
    let refused = place.put(&hasty, "one", b"more");
    assert!(matches!(refused, Err(Error::Service(_))), "{refused:?}");
    place.service.restart().unwrap();
    assert!(place.get("one", &stored).unwrap() == content);

    place.runtime.block_on(place.objects.remove(&folder("one"))).unwrap();
    let gone = place.get("one", &stored);
    assert!(matches!(gone, Err(Error::Gone(_))), "{gone:?}");
    // This service shows empty folders for a while.
    let folders = place.runtime.block_on(place.objects.folders()).unwrap();
    assert!(folders.contains(&folder("other")), "{folders:?}");
    place.runtime.block_on(place.objects.remove(&folder("one"))).unwrap();
}

#[test]
fn a_wrong_secret_is_refused_and_not_told() {
    let place = Place::new();
    let wrong = Settings { secret: Secret::new("another secret"), ..settings(&place.service) };
    let wrong = Objects::open(&wrong).unwrap();
    let refused = place.put(&wrong, "one", b"content").unwrap_err();
    let said = format!("{wrong:?} {refused:?} {refused}");
    assert!(!said.contains("another secret"), "{said}");
    // Tenants read messages, and details are for whoever runs the server.
    let Error::Service(details) = &refused else { panic!("{refused:?}") };
    assert!(details.to_string().contains("403"), "{details}");
    assert_eq!(refused.to_string(), "the object service failed");
    assert!(refused.source().is_none());
}

#[test]
fn a_digest_of_nothing_there_is_gone() {
    let place = Place::new();
    let digest = Digest::try_from("0".repeat(64)).unwrap();
    let gone = place.get("none", &Stored { digest, size_bytes: 0 });
    assert!(matches!(gone, Err(Error::Gone(_) | Error::Service(_))), "{gone:?}");
}
