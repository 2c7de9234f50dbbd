//! Pulls images from registries that speak the OCI distribution protocol.

mod blob;
mod blocking;
mod challenge;
mod credentials;
mod downloads;
mod error;
mod progress;
mod registry;
mod retries;

use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use serde::de::IgnoredAny;

pub use credentials::Credentials;
pub(crate) use downloads::Downloads;
pub use error::PullError;
pub use progress::Progress;
pub use retries::RetryPolicy;

use blocking::blocking;
use registry::Registry;

use crate::digest::Digest;
use crate::error::Error;
use crate::leases::Lease;
use crate::manifest::{
    self, DOCKER_INDEX, DOCKER_MANIFEST, Descriptor, INDEX_DEPTH_MAX, Index, Manifest, OCI_INDEX,
    OCI_MANIFEST, Platform, Setup,
};
use crate::reference::{DEFAULT_TAG, Reference};
use crate::reuse::Reuse;
use crate::store::{Store, check};

/// What to pull, and under which conditions.
struct Wanted<'w> {
    image: &'w Reference,
    credentials: &'w Credentials,
    reuse: Reuse,
    bytes_max: u64,
}

/// An image that has been brought into the store. The lease keeps it there until it has a name.
struct Brought {
    digest: Digest,
    /// Packed and unpacked size together.
    bytes: u64,
    _lease: Arc<Lease>,
}

/// Pulls images. The client that is passed in decides where connections may go.
#[derive(Clone, Debug)]
pub struct Puller {
    http: reqwest::Client,
    retries: RetryPolicy,
}

impl Puller {
    pub fn new(http: reqwest::Client, retries: RetryPolicy) -> Self {
        Self { http, retries }
    }

    /// Pulls the image for this machine and gives it its public name here. Blobs that are stored
    /// already are not fetched again.
    pub async fn pull(
        &self,
        store: &Store,
        image: &Reference,
        credentials: &Credentials,
        progress: impl Fn(Progress) + Sync,
    ) -> Result<Digest, PullError> {
        let wanted = Wanted { image, credentials, reuse: Reuse::All, bytes_max: u64::MAX };
        let brought = self.bring(store, wanted, progress).await?;
        let (store, image, digest) = (store.clone(), image.clone(), brought.digest);
        blocking(move || store.0.name(&image, digest)).await?;
        Ok(digest)
    }

    /// Pulls the image with a tenant's credentials, and makes it public for nobody. The registry is
    /// always asked. Returns the image that it handed out, and its packed and unpacked size
    /// together, which may not exceed `bytes_max`.
    pub async fn pull_for(
        &self,
        store: &Store,
        image: &Reference,
        credentials: &Credentials,
        bytes_max: u64,
    ) -> Result<(Digest, u64), PullError> {
        let (known, name) = (store.clone(), image.clone());
        let reuse = blocking(move || known.0.reuse_for(&name)).await?;
        let brought =
            self.bring(store, Wanted { image, credentials, reuse, bytes_max }, |_| {}).await?;
        let (store, image, digest) = (store.clone(), image.clone(), brought.digest);
        blocking(move || store.0.keep_granted(&image, digest)).await?;
        Ok((digest, brought.bytes))
    }

    /// Brings an image into the store and unpacks it.
    async fn bring(
        &self,
        store: &Store,
        wanted: Wanted<'_>,
        progress: impl Fn(Progress) + Sync,
    ) -> Result<Brought, PullError> {
        let lease = Arc::new(store.0.leases.take());
        let fetch = self.fetch(store, &wanted, &lease, &progress);
        // A registry that sends a byte now and then would keep the room for the image for ever.
        let fetched = tokio::time::timeout(self.retries.whole, fetch).await;
        let (digest, packed) = fetched.map_err(|_| PullError::Slow)??;
        progress(Progress::Unpacking);
        let (store, Wanted { reuse, bytes_max, .. }) = (store.clone(), wanted);
        blocking(move || {
            let unpacked = store.0.unpack_within(&digest, &lease, &reuse, bytes_max - packed)?;
            Ok(Brought { digest, bytes: packed + unpacked, _lease: lease })
        })
        .await
    }

    /// Fetches all blobs of an image. Returns the image and its packed size.
    async fn fetch(
        &self,
        store: &Store,
        wanted: &Wanted<'_>,
        lease: &Arc<Lease>,
        progress: &(impl Fn(Progress) + Sync),
    ) -> Result<(Digest, u64), PullError> {
        let Wanted { image, credentials, reuse, bytes_max } = wanted;
        let registry = Registry::new(&self.http, image, credentials, &self.retries)?;
        let (digest, manifest) = find(&registry, store, image, lease).await?;
        for Descriptor { digest, size, .. } in &manifest.layers {
            let here = store
                .0
                .blobs
                .size(digest)
                .or_else(|| store.0.blobs.partial_size(digest))
                .unwrap_or(0);
            progress(Progress::Layer { layer: *digest, bytes: *size, here });
        }
        let packed = packed_bytes(&manifest, *bytes_max)?;
        let from = blob::Source { registry: &registry, reuse };
        blob::fetch(from, store, &manifest.config, lease, progress).await?;
        refuse_early(store, &manifest).await?;
        futures_util::stream::iter(manifest.layers.clone())
            .map(|layer| async move { blob::fetch(from, store, &layer, lease, progress).await })
            .buffer_unordered(self.retries.layers_at_once.max(1))
            .try_collect::<()>()
            .await?;
        Ok((digest, packed))
    }
}

/// Returns the packed size of an image, before any of its layers is fetched.
fn packed_bytes(manifest: &Manifest, max: u64) -> Result<u64, PullError> {
    let bytes = manifest
        .layers
        .iter()
        .fold(manifest.config.size, |sum, layer| sum.saturating_add(layer.size));
    match bytes {
        bytes if bytes > max => {
            Err(Error::Limit { what: "bytes that there is room for", max }.into())
        }
        bytes => Ok(bytes),
    }
}

/// Finds the manifest for this machine behind a name.
async fn find(
    registry: &Registry<'_>,
    store: &Store,
    image: &Reference,
    lease: &Arc<Lease>,
) -> Result<(Digest, Manifest), PullError> {
    let accept = [OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX].join(", ");
    let mut wanted = image.digest().copied();
    for _ in 0..INDEX_DEPTH_MAX {
        let name = wanted.map_or_else(
            || image.tag().unwrap_or(DEFAULT_TAG).to_owned(),
            |digest| digest.to_string(),
        );
        let answer = registry.get(&format!("manifests/{name}"), &accept, 0).await?;
        let bytes = registry.document(answer, store.0.settings.limits.document_bytes_max).await?;
        let found = Digest::of(&bytes);
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            return Err(Error::Digest { what: "manifest", wanted, found }.into());
        }
        if is_index(&bytes)? {
            wanted =
                Some(manifest::read::<Index>("index", &bytes)?.choose(&Platform::here())?.digest);
            continue;
        }
        let read = manifest::read("manifest", &bytes)?;
        let (store, lease) = (store.clone(), lease.clone());
        blocking(move || store.0.store_document(OCI_MANIFEST, &bytes, &lease)).await?;
        return Ok((found, read));
    }
    Err(manifest::too_deep().into())
}

/// Returns whether a document is an index, judging by its members, because the media type sent
/// along may be wrong.
pub(crate) fn is_index(bytes: &[u8]) -> Result<bool, Error> {
    #[derive(Deserialize)]
    struct Shape {
        manifests: Option<IgnoredAny>,
        layers: Option<IgnoredAny>,
    }
    match manifest::read("manifest", bytes)? {
        Shape { manifests: Some(_), layers: None } => Ok(true),
        Shape { manifests: None, layers: Some(_) } => Ok(false),
        _ => Err(Error::malformed("manifest", "it is not exactly one of manifest and index")),
    }
}

/// Rejects an image that could not run here before its layers are downloaded for nothing.
async fn refuse_early(store: &Store, manifest: &Manifest) -> Result<(), PullError> {
    let (config, limits) = (manifest.config.digest, store.0.settings.limits.clone());
    let store = store.clone();
    let bytes = blocking(move || {
        store.0.blobs.document("configuration", &config, limits.document_bytes_max)
    })
    .await?;
    let setup: Setup = manifest::read("configuration", &bytes)?;
    Ok(check(manifest, &setup, limits.layers_max)?)
}
