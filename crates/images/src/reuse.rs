//! What a pull may take from the store instead of the registry.
//!
//! Layers are shared below, whoever brought them. A registry that lists the digest of a layer does
//! not thereby have it, and a configuration that names one is not thereby made of it: else whoever
//! learns a digest could have what is behind it mounted. So for tenants only that is taken from the
//! store which is in images for everybody, or in images of the very repository that lets them in;
//! the rest the registry has to show.

use crate::digest::Digest;
use crate::error::Error;
use crate::reference::Reference;
use crate::store::Store;
use std::collections::HashSet;

pub(crate) enum Reuse {
    /// The operator's pulls.
    All,
    Known {
        blobs: HashSet<Digest>,
        /// Layers as they are packed, and what they were seen to unpack to.
        layers: HashSet<(Digest, Digest)>,
    },
}

impl Reuse {
    /// For a tenant who pulls an image. Blocks.
    pub(crate) fn for_tenant(store: &Store, image: &Reference) -> Result<Self, Error> {
        let (mut blobs, mut layers) = (HashSet::new(), HashSet::new());
        for named in store.0.names.list()? {
            if !named.is_public() && named.name.repository() != image.repository() {
                continue;
            }
            // It may be removed at this moment; then there is nothing to share.
            let Ok((manifest, setup)) = store.0.documents(&named.image) else { continue };
            blobs.insert(manifest.config.digest);
            blobs.extend(manifest.layers.iter().map(|layer| layer.digest));
            layers.extend(
                manifest.layers.iter().map(|layer| layer.digest).zip(setup.rootfs.diff_ids),
            );
        }
        Ok(Self::Known { blobs, layers })
    }

    pub(crate) fn blob(&self, blob: &Digest) -> bool {
        match self {
            Self::All => true,
            Self::Known { blobs, .. } => blobs.contains(blob),
        }
    }

    /// Whether a layer is known to be what its packed form unpacks to.
    pub(crate) fn layer(&self, packed: &Digest, layer: &Digest) -> bool {
        match self {
            Self::All => true,
            Self::Known { layers, .. } => layers.contains(&(*packed, *layer)),
        }
    }
}
