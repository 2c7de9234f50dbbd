//! Unpacked layers, named by the digest of their archive. A layer under its final name is complete
//! and flushed, and is trusted from then on: reading tens of thousands of files again at each start
//! would cost more than it finds. A layer that is removed is unpacked again from its archive.
//!
//! ```text
//! layers/<form>/<digest>/root    what overlayfs mounts
//! layers/<form>/<digest>/bytes   the size of its files
//! ```

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::digest::{Digest, Hasher};
use crate::disk;
use crate::error::Error;
use crate::packing;
use crate::settings::Settings;
use crate::unpack;

pub(crate) struct Layers {
    folder: PathBuf,
    /// One lock for each layer that is being unpacked, so that two images that share a layer do not
    /// both unpack it.
    busy: Mutex<HashMap<Digest, Arc<Mutex<()>>>>,
}

impl Layers {
    pub(crate) fn open(store: &Path, settings: &Settings) -> Result<Self, Error> {
        let folder = store.join("layers").join(settings.overlay.name());
        disk::make_folder(&folder)?;
        Ok(Self { folder, busy: Mutex::default() })
    }

    pub(crate) fn root(&self, layer: &Digest) -> PathBuf {
        self.folder.join(layer.hex()).join("root")
    }

    /// Returns the size of the layer's files if the layer is unpacked.
    pub(crate) fn bytes(&self, layer: &Digest) -> Result<Option<u64>, Error> {
        let path = self.folder.join(layer.hex()).join("bytes");
        match fs::read_to_string(&path) {
            Ok(text) => text.parse().map(Some).map_err(|error| Error::malformed("layer", error)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("read", &path)(error)),
        }
    }

    /// Unpacks a layer if that is still to be done. `packed` is opened only when needed: to unpack
    /// the layer or, if `known` is false, to verify that the blob contains this layer.
    pub(crate) fn ensure(
        &self,
        layer: &Digest,
        packed: impl FnOnce() -> Result<fs::File, Error>,
        known: bool,
        scratch: &Path,
        settings: &Settings,
    ) -> Result<u64, Error> {
        let lock = self.busy.lock().entry(*layer).or_default().clone();
        let turn = lock.lock();
        let result = match self.bytes(layer)? {
            Some(bytes) if known => Ok(bytes),
            Some(bytes) => {
                packed().and_then(|packed| verify(layer, packed, settings)).map(|()| bytes)
            }
            None => {
                let done =
                    packed().and_then(|packed| self.unpack(layer, packed, scratch, settings));
                disk::remove_tree(scratch)?;
                done
            }
        };
        drop(turn);
        self.busy.lock().retain(|_, lock| Arc::strong_count(lock) > 1);
        result
    }

    fn unpack(
        &self,
        layer: &Digest,
        packed: fs::File,
        scratch: &Path,
        settings: &Settings,
    ) -> Result<u64, Error> {
        let root = scratch.join("root");
        // This folder becomes the root of an instance.
        disk::make_open_folder(&root)?;
        let mut hashed = Hashed {
            inner: packing::unpacked(packed, &settings.limits)?,
            hasher: Hasher::default(),
        };
        let bytes = unpack::unpack(&mut hashed, &root, settings)?.bytes;
        hashed.require(layer)?;
        let size = scratch.join("bytes");
        fs::write(&size, bytes.to_string()).map_err(Error::io("write", &size))?;
        disk::flush_tree(scratch)?;
        match disk::rename(scratch, &self.folder.join(layer.hex())) {
            // Another process finished first.
            Err(_) if self.bytes(layer)?.is_some() => Ok(bytes),
            renamed => renamed.map(|()| bytes),
        }
    }

    pub(crate) fn list(&self) -> Result<Vec<Digest>, Error> {
        disk::digests_in(&self.folder)
    }

    /// Takes a layer out of use in one step, by renaming it; removing its files takes longer.
    pub(crate) fn retire(&self, layer: &Digest, scratch: &Path) -> Result<u64, Error> {
        let bytes = self.bytes(layer)?.unwrap_or(0);
        disk::rename(&self.folder.join(layer.hex()), scratch)?;
        Ok(bytes)
    }
}

/// Verifies that a packed layer unpacks to the layer with this digest.
fn verify(layer: &Digest, packed: fs::File, settings: &Settings) -> Result<(), Error> {
    let mut hashed =
        Hashed { inner: packing::unpacked(packed, &settings.limits)?, hasher: Hasher::default() };
    std::io::copy(&mut hashed, &mut std::io::sink())?;
    hashed.require(layer)
}

pub(crate) struct Hashed<R> {
    pub(crate) inner: R,
    pub(crate) hasher: Hasher,
}

impl<R> Hashed<R> {
    /// Fails unless everything that was read adds up to this layer.
    fn require(self, layer: &Digest) -> Result<(), Error> {
        let found = self.hasher.finish();
        if found == *layer {
            Ok(())
        } else {
            Err(Error::Digest { what: "unpacked layer", wanted: *layer, found })
        }
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        Ok(read)
    }
}
