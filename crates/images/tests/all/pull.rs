use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use images::{Credentials, Digest, Error, Progress, PullError, Puller, Reference, RetryPolicy};

use crate::Fixture;
use crate::faulty_registry::{Access, Fault, Registry};

fn puller() -> Puller {
    puller_for(RetryPolicy::default().whole)
}

/// Returns a puller that lets an image take as long as `whole`.
fn puller_for(whole: Duration) -> Puller {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retries = RetryPolicy {
        pause: Duration::from_millis(1),
        pause_max: Duration::from_millis(5),
        whole,
        ..RetryPolicy::default()
    };
    Puller::new(reqwest::Client::builder().no_proxy().build().unwrap(), retries)
}

fn password() -> Credentials {
    Credentials::Basic { user: "user".into(), password: "pass".to_owned().into() }
}

async fn pull(
    registry: &Registry,
    credentials: &Credentials,
) -> (Fixture, Result<Digest, PullError>) {
    let fixture = Fixture::new();
    let result = puller().pull(&fixture.store, &registry.image(), credentials, |_| {}).await;
    (fixture, result)
}

#[tokio::test]
async fn an_image_is_pulled_for_this_machine() {
    let registry = Registry::start(Fault::None, Access::Open).await;
    let fixture = Fixture::new();
    let received = AtomicUsize::new(0);
    let progress = |step| {
        if let Progress::Received { bytes, .. } = step {
            received.fetch_add(bytes as usize, Ordering::Relaxed);
        }
    };
    let digest = puller()
        .pull(&fixture.store, &registry.image(), &Credentials::None, progress)
        .await
        .unwrap();
    let image = fixture.store.resolve(&registry.image()).unwrap().unwrap();
    assert_eq!((image.digest, image.layers.len(), image.size_bytes), (digest, 2, 300_001));
    assert!(image.layers[1].join("upper").exists());
    assert!(received.load(Ordering::Relaxed) > 300_000);

    let before = registry.served.blob_requests.load(Ordering::Relaxed);
    puller().pull(&fixture.store, &registry.image(), &Credentials::None, |_| {}).await.unwrap();
    assert_eq!(
        registry.served.blob_requests.load(Ordering::Relaxed),
        before,
        "nothing was asked for twice"
    );
}

#[tokio::test]
async fn an_image_that_takes_too_long_is_given_up() {
    let (fixture, registry) = (Fixture::new(), Registry::start(Fault::None, Access::Open).await);
    let (hasty, image) = (puller_for(Duration::ZERO), registry.image());
    let pulled = hasty.pull_for(&fixture.store, &image, &Credentials::None, u64::MAX).await;
    assert!(matches!(pulled, Err(PullError::Slow)), "{pulled:?}");
}

#[tokio::test]
async fn an_image_that_there_is_no_room_for_is_not_fetched() {
    let registry = Registry::start(Fault::None, Access::Open).await;
    let fixture = Fixture::new();
    let image = registry.image();
    let within = async |bytes_max: u64| {
        puller().pull_for(&fixture.store, &image, &Credentials::None, bytes_max).await
    };
    let refused = within(10_000).await;
    assert!(
        matches!(refused, Err(PullError::Store(Error::Limit { max: 10_000, .. }))),
        "{refused:?}"
    );
    assert_eq!(registry.served.blob_requests.load(Ordering::Relaxed), 0);
    let (_, bytes) = within(10_000_000).await.unwrap();
    // There is room for the packed bytes, but not for the unpacked ones.
    let other = Fixture::new();
    let tight = puller().pull_for(&other.store, &image, &Credentials::None, bytes - 1).await;
    assert!(matches!(tight, Err(PullError::Store(Error::Limit { .. }))), "{tight:?}");
    assert_eq!(other.store.find(&image).unwrap(), None);
}

/// Pulls for a tenant with room for everything.
async fn pull_for(
    fixture: &Fixture,
    image: &Reference,
    credentials: &Credentials,
) -> Result<Digest, PullError> {
    puller().pull_for(&fixture.store, image, credentials, u64::MAX).await.map(|(digest, _)| digest)
}

#[tokio::test]
async fn what_a_tenant_pulls_is_for_nobody_else() {
    let (fixture, registry) = (Fixture::new(), Registry::start(Fault::None, Access::Token).await);
    let name = registry.image();
    let digest = pull_for(&fixture, &name, &password()).await.unwrap();
    let by_digest = name.at(digest);
    assert!(fixture.store.has(&digest));
    for name in [&name, &by_digest] {
        assert_eq!(fixture.store.find_public(name).unwrap(), None, "{name}");
    }
    assert!(fixture.store.public_names().unwrap().is_empty());
    for name in [&name, &by_digest] {
        let stranger = pull_for(&fixture, name, &Credentials::None).await;
        assert!(matches!(stranger, Err(PullError::Unauthorized)), "{name}: {stranger:?}");
    }
    // Any caller that the repository lets in shares what is here.
    let before = registry.served.blob_requests.load(Ordering::Relaxed);
    assert_eq!(pull_for(&fixture, &name, &password()).await.unwrap(), digest);
    assert_eq!(registry.served.blob_requests.load(Ordering::Relaxed), before);
    fixture.store.collect().unwrap();
    assert!(fixture.store.has(&digest), "its name keeps it");
    // The operator's pull makes it public, and a tenant's pull does not undo that.
    puller().pull(&fixture.store, &name, &password(), |_| {}).await.unwrap();
    pull_for(&fixture, &name, &password()).await.unwrap();
    for name in [&name, &by_digest] {
        assert_eq!(fixture.store.find_public(name).unwrap(), Some(digest), "{name}");
    }
}

/// A tenant's own registry lists layers that belong to others.
#[tokio::test]
async fn the_digest_of_a_layer_does_not_give_the_layer() {
    for fault in [Fault::NoLayers, Fault::OtherLayers] {
        let (fixture, registry) =
            (Fixture::new(), Registry::start(Fault::None, Access::Token).await);
        let thief = Registry::start(fault, Access::Open).await;
        pull_for(&fixture, &registry.image(), &password()).await.unwrap();
        let stolen = pull_for(&fixture, &thief.image(), &Credentials::None).await;
        match fault {
            Fault::NoLayers => assert!(matches!(stolen, Err(PullError::NotFound)), "{stolen:?}"),
            _ => {
                assert!(matches!(stolen, Err(PullError::Store(Error::Digest { .. }))), "{stolen:?}")
            }
        }
        assert_eq!(fixture.store.find(&thief.image()).unwrap(), None);
        // An honest pull from another registry stores the same content only once.
        let mirror = Registry::start(Fault::None, Access::Open).await;
        let blobs = fixture.files("layers/trusted").len();
        pull_for(&fixture, &mirror.image(), &Credentials::None).await.unwrap();
        assert_eq!(fixture.files("layers/trusted").len(), blobs);
    }
}

#[tokio::test]
async fn credentials_open_a_registry() {
    for access in [Access::Basic, Access::Token] {
        let registry = Registry::start(Fault::None, access).await;
        pull(&registry, &password()).await.1.unwrap();
        for wrong in [
            Credentials::None,
            Credentials::Basic { user: "user".into(), password: "wrong".to_owned().into() },
            Credentials::Bearer("wrong".to_owned().into()),
        ] {
            let (_, refused) = pull(&registry, &wrong).await;
            assert!(matches!(refused, Err(PullError::Unauthorized)), "{refused:?}");
        }
    }
    let registry = Registry::start(Fault::None, Access::Token).await;
    pull(&registry, &Credentials::Bearer("granted".to_owned().into())).await.1.unwrap();
}

#[tokio::test]
async fn a_registry_in_trouble_is_asked_again() {
    for status in [429, 500, 503] {
        let registry = Registry::start(Fault::Status(status), Access::Open).await;
        pull(&registry, &Credentials::None).await.1.unwrap();
    }
}

#[tokio::test]
async fn a_registry_that_stays_in_trouble_is_given_up() {
    for (status, expect) in
        [(429, "Busy"), (503, "Registry(503)"), (404, "NotFound"), (418, "Registry(418)")]
    {
        let registry = Registry::start(Fault::Always(status), Access::Open).await;
        let (_, result) = pull(&registry, &Credentials::None).await;
        assert_eq!(format!("{:?}", result.unwrap_err()), expect);
        assert!(registry.served.requests.load(Ordering::Relaxed) <= 5);
    }
}

#[tokio::test]
async fn a_cut_download_goes_on_where_it_was() {
    for knows_ranges in [true, false] {
        let registry = Registry::start(Fault::Cut { knows_ranges }, Access::Open).await;
        let (fixture, result) = pull(&registry, &Credentials::None).await;
        result.unwrap();
        assert_eq!(fixture.files("partial"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn what_an_earlier_try_left_is_used_only_if_it_is_right() {
    let registry = Registry::start(Fault::Cut { knows_ranges: true }, Access::Open).await;
    let fixture = Fixture::new();
    for path in registry.served.documents.keys().filter(|path| path.contains("/blobs/")) {
        let hex = path.rsplit("sha256:").next().unwrap();
        std::fs::write(fixture.folder.path().join("partial").join(hex), "not what belongs here")
            .unwrap();
    }
    puller().pull(&fixture.store, &registry.image(), &Credentials::None, |_| {}).await.unwrap();
}

#[tokio::test]
async fn bytes_that_are_not_what_they_should_be_are_refused() {
    for fault in [Fault::WrongBlob, Fault::WrongManifest, Fault::TooLong] {
        let registry = Registry::start(fault, Access::Open).await;
        let (fixture, result) = pull(&registry, &Credentials::None).await;
        assert!(
            matches!(result, Err(PullError::Store(Error::Digest { .. } | Error::Limit { .. }))),
            "{fault:?}: {result:?}"
        );
        fixture.store.collect().unwrap();
        assert_eq!(fixture.files("blobs/sha256"), Vec::<String>::new());
        assert_eq!(fixture.files("partial"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_token_does_not_follow_a_redirect() {
    let registry = Registry::start(Fault::Redirect, Access::Token).await;
    pull(&registry, &password()).await.1.unwrap();
}

#[tokio::test]
async fn an_image_for_other_machines_is_refused() {
    let registry = Registry::start(Fault::OtherPlatform, Access::Open).await;
    let (_, result) = pull(&registry, &Credentials::None).await;
    assert!(matches!(result, Err(PullError::Store(Error::NoPlatform(_)))), "{result:?}");
}

#[tokio::test]
async fn a_registry_that_is_not_there_is_an_error() {
    // It has the port, but does not listen.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let image = format!("{}/org/name", closed.local_addr().unwrap()).parse().unwrap();
    let result = puller().pull(&Fixture::new().store, &image, &Credentials::None, |_| {}).await;
    assert!(matches!(result, Err(PullError::Network(_))), "{result:?}");
}

#[tokio::test]
async fn two_pulls_of_one_image_download_it_once() {
    let registry = Registry::start(Fault::None, Access::Open).await;
    let fixture = Fixture::new();
    let (puller, image) = (puller(), registry.image());
    let one = puller.pull(&fixture.store, &image, &Credentials::None, |_| {});
    let two = puller.pull(&fixture.store, &image, &Credentials::None, |_| {});
    let (one, two) = tokio::join!(one, two);
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(registry.served.blob_requests.load(Ordering::Relaxed), 3);
}
