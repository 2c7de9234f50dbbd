//! The format that `docker save` wrote before OCI layouts: `manifest.json`, configurations and
//! plain layers.

use serde::Deserialize;

use super::source::{Found, Source};
use crate::error::Error;
use crate::leases::Lease;
use crate::manifest::{self, Manifest, OCI_CONFIG, OCI_MANIFEST, Setup};
use crate::reference::Reference;
use crate::store::Parts;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<Reference>>,
    layers: Vec<String>,
}

pub(super) fn import(
    parts: &Parts,
    source: &Source<'_>,
    lease: &Lease,
) -> Result<Vec<Found>, Error> {
    let saved: Vec<Saved> = manifest::read("manifest", &source.document("manifest.json")?)?;
    saved.into_iter().map(|image| import_one(parts, source, image, lease)).collect()
}

fn import_one(
    parts: &Parts,
    source: &Source<'_>,
    saved: Saved,
    lease: &Lease,
) -> Result<Found, Error> {
    let config = source.document(&saved.config)?;
    let setup: Setup = manifest::read("configuration", &config)?;
    if saved.layers.len() > parts.settings.limits.layers_max {
        return Err(Error::Limit { what: "layers", max: parts.settings.limits.layers_max as u64 });
    }
    let mut layers = Vec::new();
    for (path, wanted) in saved.layers.iter().zip(&setup.rootfs.diff_ids) {
        let layer = parts.store_layer(source.open(path)?, lease)?;
        if layer.unpacked != *wanted {
            return Err(Error::Digest {
                what: "unpacked layer",
                wanted: *wanted,
                found: layer.unpacked,
            });
        }
        layers.push(layer.packed);
    }
    let config = parts.store_document(OCI_CONFIG, &config, lease)?;
    let manifest = manifest::write("manifest", &Manifest::new(config, layers))?;
    let image = parts.store_document(OCI_MANIFEST, &manifest, lease)?;
    parts.unpack(&image.digest, lease)?;
    Ok(Found { digest: image.digest, names: saved.repo_tags.unwrap_or_default() })
}
