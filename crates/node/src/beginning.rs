//! What an instance starts from: the layers of a snapshot, and its own layer if that is kept.

use crate::disk;
use crate::error::{CreateError, SnapshotError};
use crate::shared::Shared;
use crate::snapshots::{Hold, Identity, Layer};
use crate::spec::{Spec, Writable};
use crate::volumes::{KeptLayer, Under};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

/// Everything an instance starts from, ready to be mounted.
pub(crate) struct Beginning {
    /// The snapshot that it lies over, above its image.
    pub(crate) under: Option<Hold>,
    /// The layers of that snapshot, newest first.
    pub(crate) layers: Vec<Layer>,
    /// The instance's own layer, if that is kept. Its owners are not yet the ones that the instance
    /// sees.
    pub(crate) disk: Option<OwnedFd>,
}

impl Beginning {
    pub(crate) fn of(shared: &Shared, spec: &Spec) -> Result<Self, CreateError> {
        let Writable::Kept { volume, mb, over } = &spec.writable else {
            let hold = |name| shared.stores.snapshots.hold(name);
            return Self::over(spec.snapshot.as_ref().map(hold).transpose()?);
        };
        let wanted = KeptLayer { volume, owner: &spec.owner, size_mb: *mb, over };
        let found = Self::find(shared, spec, &wanted)?;
        found.map_or_else(|| Self::make(shared, spec, &wanted), Ok)
    }

    fn over(under: Option<Hold>) -> Result<Self, CreateError> {
        let layers = under.as_ref().map(Hold::layers).transpose().map_err(SnapshotError::from)?;
        Ok(Self { under, layers: layers.unwrap_or_default(), disk: None })
    }

    /// Uses the disk that exists already.
    fn find(
        shared: &Shared,
        spec: &Spec,
        wanted: &KeptLayer<'_>,
    ) -> Result<Option<Self>, CreateError> {
        let Some(found) = shared.stores.volumes.find_layer(wanted)? else { return Ok(None) };
        let under = match found.under {
            Under::Nothing => None,
            Under::Snapshot(name) => Some(name),
            Under::Unsaid => spec.snapshot.clone(),
        };
        let hold = |name| shared.stores.snapshots.hold_under(&name, wanted.volume);
        let beginning = Self::over(under.map(hold).transpose()?)?;
        Ok(Some(Self { disk: Some(found.mount), ..beginning }))
    }

    /// Makes a new disk: a clone of the snapshot's disk, or an empty one over the snapshot's
    /// layers.
    fn make(shared: &Shared, spec: &Spec, wanted: &KeptLayer<'_>) -> Result<Self, CreateError> {
        let stores = &shared.stores;
        let hold = |name| stores.snapshots.hold(name);
        let snapshot = spec.snapshot.as_ref().map(hold).transpose()?;
        let image = snapshot.as_ref().map(Hold::image).transpose()?.flatten();
        let (file, under) = match image {
            Some((file, under)) => (Some(file), under),
            None => (None, snapshot.as_ref().map(Hold::again)),
        };
        let beginning = Self::over(under)?;
        let new = stores.volumes.begin_layer(wanted, file.as_deref())?;
        let filled = beginning.fill(shared, spec, new.mount(), file.is_some());
        filled.map_err(SnapshotError::from)?;
        let mut name = None;
        if let Some(under) = &beginning.under {
            under.add_disk(wanted.volume).map_err(SnapshotError::from)?;
            name = Some(&under.name);
        }
        let disk = new.finish(name)?;
        Ok(Self { disk: Some(disk), ..beginning })
    }

    fn fill(
        &self,
        shared: &Shared,
        spec: &Spec,
        layer: BorrowedFd<'_>,
        is_clone: bool,
    ) -> io::Result<()> {
        let files = files(shared, spec);
        if is_clone {
            let identity = Identity::new(&shared.stores.world);
            return identity.renew(layer, &self.paths(spec), &files);
        }
        disk::fill(layer, 0, &files)?;
        self.identify(shared, spec, layer, 0)
    }

    /// Gives the instance an identity of its own if it starts with the files of another, so that
    /// the two are not mistaken for each other.
    pub(crate) fn identify(
        &self,
        shared: &Shared,
        spec: &Spec,
        layer: BorrowedFd<'_>,
        root: u32,
    ) -> io::Result<()> {
        match self.layers.is_empty() {
            true => Ok(()),
            false => {
                let identity = Identity::new(&shared.stores.world);
                identity.write(layer, &self.paths(spec), root)
            }
        }
    }

    /// Returns the folders of all layers below its own, topmost first.
    fn paths(&self, spec: &Spec) -> Vec<PathBuf> {
        let under = self.layers.iter().map(Layer::path);
        under.chain(spec.layers.iter().rev().cloned()).collect()
    }
}

/// Returns the files under `/etc` that are the instance's own and not its image's.
pub(crate) fn files(shared: &Shared, spec: &Spec) -> [(&'static str, String); 3] {
    let host = &spec.hostname;
    let mut resolvers = String::new();
    for address in &shared.settings.nameservers {
        let _ = writeln!(resolvers, "nameserver {address}");
    }
    // Requests from outside arrive by IPv4. A server that is told to listen on `localhost`, as those
    // for development are by default, must not take `::1`, where they would not reach it.
    let hosts = format!("127.0.0.1 localhost\n::1 ip6-localhost ip6-loopback\n127.0.1.1 {host}\n");
    [("hostname", format!("{host}\n")), ("hosts", hosts), ("resolv.conf", resolvers)]
}
