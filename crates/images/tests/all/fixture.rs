//! The setup that all tests share.

use images::{Config, Digest, Error, Image, Naming, Reference, Settings, Store};

/// The names in an archive, whatever they are.
pub(crate) const OWN: Naming = Naming::Own { reserved: &[] };

/// A store in a folder of its own.
pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) folder: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { store: Store::open(folder.path(), settings).unwrap(), folder }
    }

    pub(crate) fn import(&self, name: &str, archive: &[u8]) -> Result<Image, Error> {
        self.store.import_rootfs(archive, &Config::default(), &reference(name))?;
        Ok(self.store.resolve(&reference(name))?.unwrap())
    }

    /// Returns the names of work in progress.
    pub(crate) fn parts(&self) -> Vec<String> {
        let mut parts = self.files("scratch/0");
        parts.retain(|name| name != "lock");
        parts
    }

    /// Returns the files in one of the store's folders, sorted.
    pub(crate) fn files(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join(folder)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

pub(crate) fn reference(name: &str) -> Reference {
    name.parse().unwrap()
}

pub(crate) fn digest_of(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}
