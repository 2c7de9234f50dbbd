//! Which image a name means. One small file for each name, because names are longer than file names
//! may be.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::manifest;
use crate::reference::Reference;

/// The tag that says of which recipe an image was made.
pub(crate) const KEY_TAG: &str = "recipe-";

pub(crate) struct Names(PathBuf);

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: Reference,
    /// Of the manifest.
    pub(crate) image: Digest,
    /// Names of earlier releases do not say.
    #[serde(default)]
    pub(crate) audience: Option<Audience>,
}

/// Who may use an image under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Audience {
    /// What the operator made, imported or pulled.
    Everyone,
    /// Whoever was granted it: a tenant's pull. The name is there to keep the image.
    Granted,
}

impl Named {
    /// Only the operator could bring what has no registry in its name; of the rest nobody knows any
    /// more.
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

    /// In the order of the names.
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

/// Whether a name only says of which recipe its image was made.
pub(crate) fn is_key(name: &Reference) -> bool {
    name.tag().is_some_and(|tag| tag.starts_with(KEY_TAG))
}
