//! Imports OCI image layouts: `index.json` and `blobs/`.

use super::source::{Found, Source};
use crate::error::Error;
use crate::leases::Lease;
use crate::manifest::{
    self, Descriptor, FULL_NAME_ANNOTATION, INDEX_DEPTH_MAX, Index, Manifest, NAME_ANNOTATION,
    Platform,
};
use crate::reference::Reference;
use crate::store::Parts;

pub(super) fn import(
    parts: &Parts,
    source: &Source<'_>,
    lease: &Lease,
) -> Result<Vec<Found>, Error> {
    let index: Index = manifest::read("index", &source.document("index.json")?)?;
    let platform = Platform::here();
    // The index lists either one image, with an entry for each platform, or several images.
    let several =
        index.manifests.iter().all(|entry| entry.platform.is_none() || name(entry).is_some());
    let entries =
        if several { index.manifests.iter().collect() } else { vec![index.choose(&platform)?] };
    let for_here =
        |entry: &&Descriptor| entry.platform.as_ref().is_none_or(|found| *found == platform);
    let mut found = Vec::new();
    for entry in entries.into_iter().filter(for_here) {
        let image = image(parts, source, entry, &platform, lease)?;
        found.push(Found { digest: image.digest, names: name(entry).into_iter().collect() });
    }
    if found.is_empty() { Err(Error::NoPlatform(platform.to_string())) } else { Ok(found) }
}

/// Returns the full name of an entry. A tag alone names no image, because the repository is
/// missing.
fn name(entry: &Descriptor) -> Option<Reference> {
    let full = entry.annotations.get(FULL_NAME_ANNOTATION);
    let own = entry.annotations.get(NAME_ANNOTATION).filter(|name| name.contains(['/', ':']));
    full.or(own)?.parse().ok()
}

fn image(
    parts: &Parts,
    source: &Source<'_>,
    entry: &Descriptor,
    platform: &Platform,
    lease: &Lease,
) -> Result<Descriptor, Error> {
    let mut entry = entry.clone();
    for _ in 0..INDEX_DEPTH_MAX {
        let bytes_max = parts.settings.limits.document_bytes_max;
        let path = path(&entry);
        let (digest, _) =
            parts.store_blob(source.open(&path)?, Some(&entry.digest), bytes_max, lease)?;
        let bytes = parts.blobs.document("manifest", &digest, bytes_max)?;
        if !entry.is_index() {
            store(parts, source, &manifest::read("manifest", &bytes)?, lease)?;
            parts.unpack(&digest, lease)?;
            return Ok(entry);
        }
        entry = manifest::read::<Index>("index", &bytes)?.choose(platform)?.clone();
    }
    Err(manifest::too_deep())
}

fn store(
    parts: &Parts,
    source: &Source<'_>,
    manifest: &Manifest,
    lease: &Lease,
) -> Result<(), Error> {
    let limits = &parts.settings.limits;
    parts.store_blob(
        source.open(&path(&manifest.config))?,
        Some(&manifest.config.digest),
        limits.document_bytes_max,
        lease,
    )?;
    for layer in &manifest.layers {
        parts.store_blob(
            source.open(&path(layer))?,
            Some(&layer.digest),
            limits.blob_bytes_max,
            lease,
        )?;
    }
    Ok(())
}

fn path(blob: &Descriptor) -> String {
    format!("blobs/sha256/{}", blob.digest.hex())
}
