//! Volumes that others begin as copies of, and their copies in a remote store.
//!
//! Such a volume never changes. Once the store has a copy, the file here is only a cache: it can be
//! removed, and is fetched again for the next volume that begins with it, also on a machine that
//! never had it. A fetched file has no name until it is whole and on disk, so a kill leaves nothing
//! of it. Which copies there are is the caller's to know; nothing about them is noted here.

use super::image::Image;
use super::{Place, Volumes};
use crate::error::VolumeError;
use crate::names::Owner;
use crate::remote_store::{RemoteStore, compress, decompress};
use crate::sparse::{Carrier, broken, read_number, write_number};
use parking_lot::{Condvar, Mutex};
use rustix::fd::OwnedFd;
use rustix::fs::{
    Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fstat, ftruncate, futimens, open,
};
use rustix::io::Errno;
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use types::instance::{VolumeCopy, VolumeName, VolumeSource};

const MAGIC: &[u8; 8] = b"holmvl01";
const MIB: u64 = 1 << 20;

/// The store, and what is being fetched from it.
#[derive(Debug, Default)]
pub(super) struct Remote {
    store: OnceLock<Arc<dyn RemoteStore>>,
    fetching: Mutex<HashSet<VolumeName>>,
    /// Signalled when one was fetched, or could not be.
    fetched: Condvar,
}

/// A source that is open, and can be copied even if it is removed meanwhile.
pub(super) struct Opened {
    pub(super) file: OwnedFd,
    pub(super) place: Place,
}

/// As long as this lives, nobody else fetches the same.
struct Fetching<'r> {
    remote: &'r Remote,
    name: &'r VolumeName,
}

impl Remote {
    /// Waits until nobody else fetches this.
    fn begin<'r>(&'r self, name: &'r VolumeName) -> Fetching<'r> {
        let mut fetching = self.fetching.lock();
        while !fetching.insert(name.clone()) {
            self.fetched.wait(&mut fetching);
        }
        Fetching { remote: self, name }
    }
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.remote.fetching.lock().remove(self.name);
        self.remote.fetched.notify_all();
    }
}

impl Volumes {
    /// Sets the store for copies of volumes that others begin with. Only the first call counts.
    pub fn use_remote(&self, store: Arc<dyn RemoteStore>) {
        // The program has one store, and says so when it starts.
        let _ = self.remote.store.set(store);
    }

    /// Stores a copy of a volume that never changes, and returns its digest. `None` if there is no
    /// store.
    pub fn put_copy(&self, name: &VolumeName) -> Result<Option<String>, VolumeError> {
        let Some(remote) = self.remote.store.get() else { return Ok(None) };
        let missing = || VolumeError::Missing(name.clone());
        let owner = self.held.lock().get(name).map(|held| held.owner.clone());
        let owner = owner.ok_or_else(missing)?;
        let file = self.open_here(name)?.ok_or_else(missing)?.file;
        // An earlier try may have left parts that no list names. Those that cannot be removed now
        // go with the copy.
        if let Err(error) = remote.remove(&owner, name.as_str()) {
            tracing::warn!(%error, volume = %name, "what may be left of an earlier copy stays for now");
        }
        let put = remote.put(&owner, name.as_str(), &mut |into| write(&file, into));
        Ok(Some(put.map_err(VolumeError::Remote)?.digest))
    }

    /// Lists what the store has copies of, complete or not. `None` if there is no store.
    pub fn copies(&self) -> Result<Option<Vec<(Owner, VolumeName)>>, VolumeError> {
        let Some(remote) = self.remote.store.get() else { return Ok(None) };
        let found = remote.list().map_err(VolumeError::Remote)?.into_iter();
        // Anything else there is not ours.
        let ours = found.filter_map(|(owner, name)| Some((owner, VolumeName::new(name).ok()?)));
        Ok(Some(ours.collect()))
    }

    /// Removes the copy of a volume, or what there is of it.
    pub fn remove_copy(&self, owner: &Owner, name: &VolumeName) -> Result<(), VolumeError> {
        let Some(remote) = self.remote.store.get() else { return Ok(()) };
        remote.remove(owner, name.as_str()).map_err(VolumeError::Remote)
    }

    /// Removes a volume of which the store has a copy, unless it was made, fetched or begun with
    /// since this time. Returns whether it was removed.
    pub fn release(&self, name: &VolumeName, since_s: i64) -> Result<bool, VolumeError> {
        let Ok(path) = self.path(name) else { return Ok(false) };
        if std::fs::symlink_metadata(path)?.mtime() >= since_s {
            return Ok(false);
        }
        self.remove(name).map(|()| true)
    }

    /// Opens a volume for another to begin with. If it is not here, its copy is fetched first, and
    /// kept for the next one.
    pub(super) fn open_source(
        &self,
        source: &VolumeSource,
        owner: &Owner,
    ) -> Result<Opened, VolumeError> {
        if let Some(opened) = self.open_here(&source.name)? {
            return Ok(opened);
        }
        match &source.copy {
            Some(copy) => self.fetch(&source.name, copy, owner),
            None => Err(VolumeError::SourceGone(source.name.clone())),
        }
    }

    /// Opens a volume if it is here, and notes that it was used.
    fn open_here(&self, name: &VolumeName) -> Result<Option<Opened>, VolumeError> {
        let Ok((place, path)) = self.find_place(name) else { return Ok(None) };
        let Some(file) = open_to_read(&path)? else { return Ok(None) };
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        futimens(&file, &Timestamps { last_access: omit, last_modification: now })
            .map_err(io::Error::from)?;
        Ok(Some(Opened { file, place }))
    }

    fn fetch(
        &self,
        name: &VolumeName,
        copy: &VolumeCopy,
        owner: &Owner,
    ) -> Result<Opened, VolumeError> {
        let remote = self.remote.store.get().ok_or(VolumeError::NoRemote)?;
        let _alone = self.remote.begin(name);
        if let Some(opened) = self.open_here(name)? {
            return Ok(opened);
        }
        let held = self.take(owner, copy.size_mb, self.place_of_clones())?;
        let image = Image::nameless(&self.folder_of(&held)?)?;
        let mut fill = |from: &mut dyn Read| read(from, image.file(), copy.size_mb);
        let got = remote.get(owner, name.as_str(), &copy.digest, &mut fill);
        got.map_err(VolumeError::Remote)?;
        image.sync()?;
        let opened = Opened { file: image.file().try_clone()?, place: held.place };
        self.keep(name, &image, held)?;
        Ok(opened)
    }
}

/// Opens a file. `None` if it is gone.
fn open_to_read(path: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match open(path, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn write(file: &OwnedFd, into: &mut dyn Write) -> io::Result<()> {
    let size = fstat(file)?.st_size.unsigned_abs();
    compress(into, |into| {
        into.write_all(MAGIC)?;
        write_number(into, size)?;
        Carrier::new().write(file, size, into)
    })
}

/// Reads what [`write`] wrote into an empty file.
fn read(from: &mut dyn Read, file: &OwnedFd, size_mb: u32) -> io::Result<()> {
    decompress(from, |from| {
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return Err(broken("it is no stream of a volume"));
        }
        let size = read_number(from)?;
        if size != u64::from(size_mb) * MIB {
            return Err(broken("it is of another size than was stored"));
        }
        ftruncate(file, size)?;
        Carrier::new().read(from, file, size)?;
        // Nothing may follow, because content that is not looked at would not be noticed as
        // different.
        match from.read(&mut magic)? {
            0 => Ok(()),
            _ => Err(broken("more follows than a volume")),
        }
    })
}

#[cfg(test)]
mod tests;
