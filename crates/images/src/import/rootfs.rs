//! Imports a plain root filesystem as an image of one layer.

use std::io::{self, BufReader, Read, Write};

use crate::blobs::Writer;
use crate::digest::{Digest, Hasher};
use crate::error::Error;
use crate::layers::Hashed;
use crate::leases::Lease;
use crate::manifest::{
    self, Config, Descriptor, Manifest, OCI_CONFIG, OCI_MANIFEST, Platform, Setup,
};
use crate::packing::{self, Packing};
use crate::reference::Reference;
use crate::store::{Parts, Store};

/// Fast enough to keep up with a disk; higher levels save little on programs.
const ZSTD_LEVEL: i32 = 3;

pub(crate) struct StoredLayer {
    pub(crate) packed: Descriptor,
    pub(crate) unpacked: Digest,
}

impl Store {
    /// Makes an image from the tar archive of a root filesystem (plain, gzip or zstd).
    pub fn import_rootfs(
        &self,
        archive: impl Read,
        config: &Config,
        name: &Reference,
    ) -> Result<Digest, Error> {
        let lease = self.0.leases.take();
        let digest = self.0.store_rootfs(archive, config, &lease)?;
        self.0.name(name, digest)?;
        Ok(digest)
    }
}

impl Parts {
    pub(crate) fn store_rootfs(
        &self,
        archive: impl Read,
        config: &Config,
        lease: &Lease,
    ) -> Result<Digest, Error> {
        let layer = self.store_layer(archive, lease)?;
        self.store_image(vec![layer.packed], vec![layer.unpacked], config, lease)
    }

    /// Stores the documents of an image whose layers are stored already, and unpacks the image.
    pub(crate) fn store_image(
        &self,
        packed: Vec<Descriptor>,
        unpacked: Vec<Digest>,
        config: &Config,
        lease: &Lease,
    ) -> Result<Digest, Error> {
        let setup = Setup::new(Platform::here(), config.clone(), unpacked);
        let config =
            self.store_document(OCI_CONFIG, &manifest::write("configuration", &setup)?, lease)?;
        let manifest = manifest::write("manifest", &Manifest::new(config, packed))?;
        let image = self.store_document(OCI_MANIFEST, &manifest, lease)?;
        self.unpack(&image.digest, lease)?;
        Ok(image.digest)
    }

    /// Stores a layer, compressing it first if it is a plain archive.
    pub(crate) fn store_layer(
        &self,
        archive: impl Read,
        lease: &Lease,
    ) -> Result<StoredLayer, Error> {
        let limits = &self.settings.limits;
        let mut archive = BufReader::new(archive);
        let packing = Packing::of(io::BufRead::fill_buf(&mut archive)?);
        if packing == Packing::Plain {
            let mut archive = packing::unpacked(archive, limits)?;
            return self.pack_layer(lease, |layer| {
                io::copy(&mut archive, layer)?;
                Ok(())
            });
        }
        let (digest, size) = self.store_blob(archive, None, limits.blob_bytes_max, lease)?;
        let mut unpacked = packing::unpacked(self.blobs.open_blob(&digest)?, limits)?;
        let unpacked = digest_of(&mut unpacked)?;
        Ok(StoredLayer { packed: Descriptor::new(packing.media_type(), digest, size), unpacked })
    }

    /// Stores a layer that `fill` writes as a plain archive.
    pub(crate) fn pack_layer(
        &self,
        lease: &Lease,
        fill: impl FnOnce(&mut Packer) -> Result<(), Error>,
    ) -> Result<StoredLayer, Error> {
        let writer = self.blob_writer(self.settings.limits.blob_bytes_max)?;
        let mut layer =
            Packer { packed: zstd::Encoder::new(writer, ZSTD_LEVEL)?, hasher: Hasher::default() };
        fill(&mut layer)?;
        let mut writer = layer.packed.finish()?;
        writer.flush()?;
        let (digest, size) = self.blobs.finish(writer, None, lease)?;
        let packed = Descriptor::new(Packing::Zstd.media_type(), digest, size);
        Ok(StoredLayer { packed, unpacked: layer.hasher.finish() })
    }
}

/// Compresses a layer on its way into the store.
pub(crate) struct Packer {
    packed: zstd::Encoder<'static, Writer>,
    hasher: Hasher,
}

impl Write for Packer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.packed.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.packed.flush()
    }
}

fn digest_of(bytes: &mut impl Read) -> Result<Digest, Error> {
    let mut hashed = Hashed { inner: bytes, hasher: Hasher::default() };
    io::copy(&mut hashed, &mut io::sink())?;
    Ok(hashed.hasher.finish())
}
