//! Which content a pull may take from the store instead of from the registry.
//!
//! Layers are shared between tenants. A registry that lists the digest of a layer does not prove
//! that it has the layer, and a configuration that names one does not prove that the image is made
//! of it; otherwise everybody who learns a digest could have its content mounted. So a tenant's
//! pull takes from the store only what belongs to public images, or to images of the same
//! repository that lets the tenant in. The registry must hand out everything else.

use crate::digest::Digest;
use std::collections::HashSet;

pub(crate) enum Reuse {
    /// For pulls by the operator.
    All,
    Known {
        blobs: HashSet<Digest>,
        /// Digests of packed layers, each with the layer that it was seen to unpack to.
        layers: HashSet<(Digest, Digest)>,
    },
}

impl Reuse {
    pub(crate) fn blob(&self, blob: &Digest) -> bool {
        match self {
            Self::All => true,
            Self::Known { blobs, .. } => blobs.contains(blob),
        }
    }

    /// Returns whether a packed layer is known to unpack to this layer.
    pub(crate) fn layer(&self, packed: &Digest, layer: &Digest) -> bool {
        match self {
            Self::All => true,
            Self::Known { layers, .. } => layers.contains(&(*packed, *layer)),
        }
    }
}
