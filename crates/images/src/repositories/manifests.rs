//! Manifests as they were pushed: documents that match their media type and need nothing that the
//! repository does not have.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Repository;
use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::leases::Held;
use crate::manifest::{self, DOCKER_INDEX, DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST};
use crate::store::{Parts, Store};

/// The reason why a manifest is refused.
#[derive(Debug, thiserror::Error)]
pub enum PushFault {
    #[error("{0}")]
    Malformed(String),
    #[error("the repository does not have {0}")]
    Unknown(Digest),
    #[error("{0} has another size than the manifest says")]
    Size(Digest),
    #[error(transparent)]
    Store(#[from] Error),
}

/// The recorded facts about a manifest, available without reading it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filed {
    #[serde(skip, default = "nothing")]
    pub digest: Digest,
    pub media_type: String,
    pub size: u64,
    /// Time of the push in milliseconds.
    pub at: i64,
    /// Configuration and layers.
    pub blobs: Vec<Digest>,
    /// Manifests that an index lists.
    pub manifests: Vec<Digest>,
    /// The manifest that this one refers to, which need not exist.
    pub subject: Option<Digest>,
    pub artifact_type: Option<String>,
    pub annotations: BTreeMap<String, String>,
}

fn nothing() -> Digest {
    Digest::of(b"")
}

/// A manifest that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    pub filed: Filed,
    /// Size of everything that it needs, each blob counted once.
    pub bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    schema_version: u32,
    media_type: Option<String>,
    artifact_type: Option<String>,
    config: Option<Link>,
    layers: Option<Vec<Link>>,
    manifests: Option<Vec<Link>>,
    subject: Option<Link>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Link {
    media_type: Option<String>,
    digest: Digest,
    size: u64,
}

impl Repository {
    pub(super) fn manifest_path(&self, digest: &Digest) -> PathBuf {
        self.folder.join("manifests").join(digest.hex())
    }

    fn subject_path(&self, subject: &Digest) -> PathBuf {
        self.folder.join("subjects").join(subject.hex())
    }

    /// Stores a pushed manifest. `media_type` is the type that the request states, if any.
    pub fn put_manifest(
        &self,
        media_type: Option<&str>,
        bytes: &[u8],
        at: i64,
    ) -> Result<Pushed, PushFault> {
        let document: Document = serde_json::from_slice(bytes)
            .map_err(|error| PushFault::Malformed(format!("not a manifest: {error}")))?;
        let sizes = sizes(&document);
        let filed = file(media_type, bytes, document, at)?;
        let _turn = self.lock();
        self.require(&filed)?;
        let parts = self.parts();
        let differs = |(digest, size): &&(Digest, u64)| parts.blobs.size(digest) != Some(*size);
        if let Some((digest, _)) = sizes.iter().find(differs) {
            return Err(PushFault::Size(*digest));
        }
        let lease = parts.leases.take();
        lease.hold(Held::Blob(filed.digest));
        parts.store_blob(bytes, Some(&filed.digest), bytes.len() as u64, &lease)?;
        self.note(&filed)?;
        let bytes = self.image_bytes(&filed)?;
        Ok(Pushed { filed, bytes })
    }

    /// Returns a manifest that was pushed here, and its bytes.
    pub fn manifest(&self, digest: &Digest) -> Result<Option<(Filed, Vec<u8>)>, Error> {
        let Some(filed) = self.filed(digest)? else { return Ok(None) };
        let bytes = self.parts().blobs.document("manifest", digest, filed.size)?;
        Ok(Some((filed, bytes)))
    }

    pub(super) fn filed(&self, digest: &Digest) -> Result<Option<Filed>, Error> {
        let path = self.manifest_path(digest);
        match fs::read(&path) {
            Ok(note) => {
                let filed: Filed = manifest::read("note", &note)?;
                Ok(Some(Filed { digest: *digest, ..filed }))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    /// Lists manifests that refer to `subject`, ordered by digest and starting after `after`.
    /// Returns at least one, and as many as have descriptions below `bytes_max`; the flag says
    /// whether there are more.
    pub fn referrers(
        &self,
        subject: &Digest,
        after: Option<&Digest>,
        bytes_max: usize,
    ) -> Result<(Vec<Filed>, bool), Error> {
        let folder = self.subject_path(subject);
        if !folder.exists() {
            return Ok((Vec::new(), false));
        }
        let mut all = disk::digests_in(&folder)?;
        all.sort_unstable();
        let (mut found, mut bytes) = (Vec::new(), 0);
        for digest in all.into_iter().filter(|digest| after.is_none_or(|after| digest > after)) {
            let Some(filed) = self.filed(&digest)? else { continue };
            let texts = filed.annotations.iter().map(|(name, value)| name.len() + value.len());
            bytes += texts.sum::<usize>() + 512;
            if bytes > bytes_max && !found.is_empty() {
                return Ok((found, true));
            }
            found.push(filed);
        }
        Ok((found, false))
    }

    /// Adds an image to the repository that came into the store by a build or from another
    /// registry. The caller has checked that the workspace was granted the image.
    pub fn adopt(&self, image: &Digest, at: i64) -> Result<Pushed, PushFault> {
        let lease = self.parts().leases.take();
        lease.hold(Held::Image(*image));
        let filed = self.parts().filed_image(image, at)?;
        for (blob, size) in self.parts().sizes_of(&filed)? {
            self.add_blob(&blob, size, at, &lease)?;
        }
        let _turn = self.lock();
        self.note(&filed)?;
        let bytes = self.image_bytes(&filed)?;
        Ok(Pushed { filed, bytes })
    }

    fn note(&self, filed: &Filed) -> Result<(), Error> {
        self.make()?;
        if let Some(subject) = &filed.subject {
            let folder = self.subject_path(subject);
            disk::make_folder(&folder)?;
            disk::write(&folder.join(filed.digest.hex()), &self.parts().scratch(), b"")?;
        }
        let note = manifest::write("note", filed)?;
        disk::write(&self.manifest_path(&filed.digest), &self.parts().scratch(), &note)
    }

    pub(super) fn unnote(&self, filed: &Filed) -> Result<(), Error> {
        disk::remove_file(&self.manifest_path(&filed.digest))?;
        match &filed.subject {
            Some(subject) => {
                disk::remove_file(&self.subject_path(subject).join(filed.digest.hex()))
            }
            None => Ok(()),
        }
    }

    /// Checks that everything a manifest needs is in the repository.
    fn require(&self, filed: &Filed) -> Result<(), PushFault> {
        let missing = |digest: &&Digest| self.blob_size(digest).is_none();
        if let Some(digest) = filed.blobs.iter().find(missing) {
            return Err(PushFault::Unknown(*digest));
        }
        let missing = |digest: &&Digest| !self.manifest_path(digest).exists();
        match filed.manifests.iter().find(missing) {
            Some(digest) => Err(PushFault::Unknown(*digest)),
            None => Ok(()),
        }
    }

    /// Returns the size of everything a manifest needs, each blob counted once.
    fn image_bytes(&self, filed: &Filed) -> Result<u64, Error> {
        let (mut seen, mut open) = (HashSet::from([filed.digest]), vec![filed.clone()]);
        let mut bytes = 0u64;
        while let Some(filed) = open.pop() {
            bytes = bytes.saturating_add(filed.size);
            for blob in filed.blobs.into_iter().filter(|blob| seen.insert(*blob)) {
                bytes = bytes.saturating_add(self.parts().blobs.size(&blob).unwrap_or(0));
            }
            for child in filed.manifests.into_iter().filter(|child| seen.insert(*child)) {
                open.extend(self.filed(&child)?);
            }
        }
        Ok(bytes)
    }
}

impl Store {
    /// Returns the manifest of an image and every blob that it needs, with their sizes.
    pub fn contents_of_image(&self, image: &Digest) -> Result<Vec<(Digest, u64)>, PushFault> {
        let filed = self.0.filed_image(image, 0)?;
        let mut contents = self.0.sizes_of(&filed)?;
        contents.push((filed.digest, filed.size));
        Ok(contents)
    }
}

impl Parts {
    fn filed_image(&self, image: &Digest, at: i64) -> Result<Filed, PushFault> {
        let bytes_max = self.settings.limits.document_bytes_max;
        if self.blobs.size(image).is_none() {
            return Err(PushFault::Unknown(*image));
        }
        let bytes = self.blobs.document("manifest", image, bytes_max)?;
        let document: Document = manifest::read("manifest", &bytes)?;
        let media_type = document.media_type.clone().unwrap_or_else(|| OCI_MANIFEST.into());
        file(Some(&media_type), &bytes, document, at)
    }

    fn sizes_of(&self, filed: &Filed) -> Result<Vec<(Digest, u64)>, PushFault> {
        let sized = |blob: &Digest| {
            self.blobs.size(blob).map(|size| (*blob, size)).ok_or(PushFault::Unknown(*blob))
        };
        filed.blobs.iter().map(sized).collect()
    }
}

/// Returns the stated sizes of everything a manifest needs.
fn sizes(document: &Document) -> Vec<(Digest, u64)> {
    let lists = [&document.layers, &document.manifests].into_iter().flatten().flatten();
    lists.chain(&document.config).map(|link| (link.digest, link.size)).collect()
}

/// Describes a manifest, or says why it is not acceptable.
fn file(
    sent_as: Option<&str>,
    bytes: &[u8],
    document: Document,
    at: i64,
) -> Result<Filed, PushFault> {
    let malformed = |why: &str| Err(PushFault::Malformed(why.to_owned()));
    if document.schema_version != 2 {
        return malformed("only manifests of schema version 2 are taken");
    }
    let own = document.media_type.as_deref();
    let Some(media_type) = own.or(sent_as).map(str::to_owned) else {
        return malformed("neither the manifest nor the request says its type");
    };
    if sent_as.is_some_and(|sent| sent != media_type) {
        return malformed("the manifest is of another type than the request says");
    }
    let links = match (media_type.as_str(), document.manifests) {
        (OCI_MANIFEST | DOCKER_MANIFEST, None) => Vec::new(),
        (OCI_INDEX | DOCKER_INDEX, Some(links)) if document.layers.is_none() => links,
        (OCI_MANIFEST | DOCKER_MANIFEST | OCI_INDEX | DOCKER_INDEX, _) => {
            return malformed("the manifest is of another type than it says");
        }
        _ => return malformed("manifests and indexes of OCI and of Docker are taken"),
    };
    let is_image = matches!(media_type.as_str(), OCI_MANIFEST | DOCKER_MANIFEST);
    let blobs = match (is_image, document.config.as_ref(), document.layers) {
        (true, Some(config), Some(layers)) => {
            std::iter::once(config.digest).chain(layers.iter().map(|link| link.digest)).collect()
        }
        (true, _, _) => return malformed("the manifest has no configuration or no layers"),
        (false, None, _) => Vec::new(),
        (false, Some(_), _) => return malformed("an index has no configuration"),
    };
    let of_config = || document.config.and_then(|config| config.media_type);
    Ok(Filed {
        digest: Digest::of(bytes),
        media_type,
        size: bytes.len() as u64,
        at,
        blobs,
        manifests: links.iter().map(|link| link.digest).collect(),
        subject: document.subject.map(|subject| subject.digest),
        artifact_type: document.artifact_type.filter(|name| !name.is_empty()).or_else(of_config),
        annotations: document.annotations.unwrap_or_default(),
    })
}
