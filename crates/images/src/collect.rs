//! Removes what is not needed by a name, a lease, a repository or an image that one of them keeps.

use std::collections::HashSet;

use crate::digest::Digest;
use crate::disk;
use crate::error::Error;
use crate::leases::{Counts, Held};
use crate::store::{Parts, Store};

/// The result of [`Store::collect`]: what was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    pub blobs: usize,
    pub layers: usize,
    pub bytes: u64,
}

#[derive(Default)]
struct Needed {
    blobs: HashSet<Digest>,
    layers: HashSet<Digest>,
}

impl Store {
    /// Removes all blobs, layers and unfinished downloads that nothing needs. If one image cannot
    /// be read, nothing is removed, because what it needs is unknown. Returns [`Error::InUse`]
    /// while another process has the store open, because its leases are not visible here.
    pub fn collect(&self) -> Result<Collected, Error> {
        let parts = &self.0;
        let mut retired = Vec::new();
        let mut collected = Collected::default();
        {
            let _closed = parts.work.close()?;
            let leases = parts.leases.freeze();
            let needed = parts.needed(self, &leases)?;
            for blob in parts.blobs.list()?.iter().filter(|blob| !needed.blobs.contains(blob)) {
                collected.bytes += parts.blobs.remove(blob)?;
                collected.blobs += 1;
            }
            for blob in parts.blobs.partials()?.iter().filter(|blob| !needed.blobs.contains(blob)) {
                parts.blobs.remove_partial(blob)?;
            }
            for layer in parts.layers.list()?.iter().filter(|layer| !needed.layers.contains(layer))
            {
                let scratch = parts.scratch();
                collected.bytes += parts.layers.retire(layer, &scratch)?;
                collected.layers += 1;
                retired.push(scratch);
            }
        }
        // After the locks are released, because removing a large layer takes seconds.
        retired.iter().try_for_each(|tree| disk::remove_tree(tree))?;
        Ok(collected)
    }
}

impl Parts {
    fn needed(&self, store: &Store, leases: &Counts) -> Result<Needed, Error> {
        let mut needed = Needed::default();
        for held in leases.keys() {
            match held {
                Held::Image(image) if self.blobs.size(image).is_some() => {
                    self.add_image(&mut needed, image)?
                }
                // The image is already gone, and the caller that wanted to pin it is being told so.
                Held::Image(_) => {}
                Held::Blob(blob) => drop(needed.blobs.insert(*blob)),
                Held::Layer(layer) => drop(needed.layers.insert(*layer)),
            }
        }
        for named in self.names.list()? {
            self.add_image(&mut needed, &named.image)?;
        }
        Self::add_repositories(store, &mut needed.blobs)?;
        self.add_ready(&needed.blobs, &mut needed.layers)?;
        for step in self.cached_layers()? {
            needed.blobs.insert(step.packed.digest);
            needed.layers.insert(step.unpacked);
        }
        Ok(needed)
    }

    fn add_image(&self, needed: &mut Needed, image: &Digest) -> Result<(), Error> {
        let (manifest, setup) = self.documents(image)?;
        needed.blobs.extend([*image, manifest.config.digest]);
        needed.blobs.extend(manifest.layers.iter().map(|layer| layer.digest));
        needed.layers.extend(setup.rootfs.diff_ids);
        Ok(())
    }
}
