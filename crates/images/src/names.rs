//! The names of images, in one small file each, because a name can be longer than a file name may
//! be.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::manifest;
use crate::reference::Reference;

/// Prefix of the tag that says which recipe an image was made from.
pub(crate) const KEY_TAG: &str = "recipe-";

pub(crate) struct Names(PathBuf);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: Reference,
    /// Digest of the image's manifest.
    pub(crate) image: Digest,
    /// Missing in names that earlier releases wrote.
    #[serde(default)]
    pub(crate) audience: Option<Audience>,
}

/// Who may use an image by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Audience {
    /// Everyone: the operator made, imported or pulled the image.
    Everyone,
    /// Only workspaces that were granted the image, because a tenant pulled it. The name exists to
    /// keep the image from being collected.
    Granted,
}

impl Named {
    /// Returns whether everyone may use the image. Where an earlier release did not record it, a
    /// name without a registry is public, because only the operator could create one; for the
    /// others nobody can tell any more.
    pub(crate) fn is_public(&self) -> bool {
        self.audience.map_or(self.name.host().is_none(), |audience| audience == Audience::Everyone)
    }
}

impl Names {
    pub(crate) fn open(store: &Path) -> Result<Self, Error> {
        let folder = store.join("names");
        disk::make_folder(&folder)?;
        Ok(Self(folder))
    }

    fn path(&self, name: &Reference) -> PathBuf {
        self.0.join(Digest::of(name.to_string().as_bytes()).hex())
    }

    pub(crate) fn find(&self, name: &Reference) -> Result<Option<Named>, Error> {
        let path = self.path(name);
        match fs::read(&path) {
            Ok(bytes) => manifest::read("name", &bytes).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    pub(crate) fn set(
        &self,
        name: &Reference,
        image: Digest,
        audience: Audience,
        scratch: &Path,
    ) -> Result<(), Error> {
        let bytes = manifest::write(
            "name",
            &Named { name: name.clone(), image, audience: Some(audience) },
        )?;
        disk::write(&self.path(name), scratch, &bytes)
    }

    pub(crate) fn remove(&self, name: &Reference) -> Result<(), Error> {
        disk::remove_file(&self.path(name))
    }

    /// Lists all names, sorted.
    pub(crate) fn list(&self) -> Result<Vec<Named>, Error> {
        let mut all = Vec::new();
        for file in disk::digests_in(&self.0)? {
            let path = self.0.join(file.hex());
            match fs::read(&path) {
                Ok(bytes) => all.push(manifest::read::<Named>("name", &bytes)?),
                // Removed since the folder was listed.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(Error::io("read", &path)(error)),
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }
}

/// Returns whether a name only records which recipe its image was made from.
pub(crate) fn is_key(name: &Reference) -> bool {
    name.tag().is_some_and(|tag| tag.starts_with(KEY_TAG))
}
