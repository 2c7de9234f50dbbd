//! Writes files: a draft has no name, and gets one when it is complete.

use super::{
    FOLDER_MODE, Facts, Folder, IS_OBJECT, IS_PARENT, Object, Sheet, TRIES, beneath, is_absent,
    mark, open_folder, proc_path, set_mark,
};
use crate::error::Error;
use crate::key::Key;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::fs::File;

const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
/// Prefix of the temporary names that drafts have in the hidden folder between two system calls.
pub(crate) const PASSING: &str = "passing-";
/// Size from which a draft takes a while to reach the disk.
const LARGE: i64 = 8 << 20;
/// Number of random characters in such names.
const RANDOM: usize = 20;

impl Folder {
    /// Creates a file without a name, which disappears with its descriptor.
    pub(crate) fn draft(&self) -> Result<File, Error> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.hidden()?, ".", flags, FILE_MODE)?;
        // Whatever the umask is.
        rustix::fs::fchmod(&file, FILE_MODE)?;
        self.give(&file)?;
        Ok(File::from(file))
    }

    fn give(&self, file: impl AsFd) -> Result<(), Errno> {
        let (user, group) = (Uid::from_raw(self.owner.user), Gid::from_raw(self.owner.group));
        rustix::fs::fchown(file, Some(user), Some(group))
    }

    /// Writes a draft and its sheet to the disk.
    pub(crate) fn finish(&self, draft: &File, sheet: &mut Sheet, etag: &str) -> Result<(), Error> {
        let now = self.world.now();
        // The kernel's clock has coarse steps; no change by others happens at exactly this
        // nanosecond.
        let [low, middle, high, ..] = self.world.random_bytes::<4>();
        let random = i64::from(u32::from_le_bytes([low, middle, high, 0]) % 1_000_000);
        let ns = (now.ms().rem_euclid(1000)) * 1_000_000 + random;
        let time = Timespec { tv_sec: now.seconds(), tv_nsec: ns };
        if rustix::fs::fstat(draft)?.st_size > LARGE {
            // So that little is left to do between the seal and the name.
            rustix::fs::fdatasync(draft)?;
        }
        rustix::fs::futimens(draft, &Timestamps { last_access: time, last_modification: time })?;
        sheet.seal(etag, &Facts::of(&rustix::fs::fstat(draft)?));
        sheet.write(&proc_path(draft))?;
        Ok(rustix::fs::fsync(draft)?)
    }

    /// Gives a finished draft the name of `key`, if `condition` accepts the object that has it now.
    /// With `exclusive`, nothing may have the name. Returns once the name is on disk.
    pub(crate) fn publish(
        &self,
        (draft, mut sheet): (&File, Sheet),
        key: &Key,
        exclusive: bool,
        condition: impl Fn(Option<&Object>) -> Result<(), Error>,
    ) -> Result<Facts, Error> {
        let (parent, name) = key.split();
        for _ in 0..TRIES {
            let folder = self.make_folders(parent)?;
            let held = self.locks.of(key.path());
            condition(self.find(key)?.as_ref())?;
            match self.place(draft, &folder, name, exclusive) {
                // Someone removed the folder in the meantime.
                Err(Errno::NOENT) => continue,
                // A sandbox was faster.
                Err(Errno::EXIST) if exclusive => return Err(Error::condition()),
                Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {
                    return Err(Error::conflict());
                }
                result => result?,
            }
            drop(held);
            let facts = self.keep_sealed(draft, &mut sheet)?;
            rustix::fs::fsync(&folder)?;
            return Ok(facts);
        }
        Err(Error::broken(Errno::AGAIN))
    }

    /// Returns once the name of a key is on disk, if it has one.
    pub(crate) fn flush_name(&self, key: &Key) -> Result<(), Error> {
        let (parent, _) = key.split();
        ignore_absent(
            open_folder(&*self.files, parent).and_then(|folder| rustix::fs::fsync(&folder)),
        )
    }

    /// Must be called when a draft has its name: seals it again if that took so long that the seal
    /// no longer holds. A file that a sandbox has written since is left as the sandbox's own.
    pub(crate) fn keep_sealed(&self, draft: &File, sheet: &mut Sheet) -> Result<Facts, Error> {
        let facts = Facts::of(&rustix::fs::fstat(draft)?);
        if sheet.is_sealed(&facts) || !sheet.renew(&facts) {
            return Ok(facts);
        }
        sheet.write(&proc_path(draft))?;
        rustix::fs::fsync(draft)?;
        Ok(Facts::of(&rustix::fs::fstat(draft)?))
    }

    /// Puts a draft in place of whatever has this name.
    pub(crate) fn place(
        &self,
        draft: &File,
        folder: &OwnedFd,
        name: &str,
        exclusive: bool,
    ) -> Result<(), Errno> {
        let passing = format!("{PASSING}{}", self.world.random_text(RANDOM));
        // It exists, because the draft was created in it.
        let hidden = self.hidden.get().ok_or(Errno::BADF)?;
        let follow = AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, proc_path(draft), hidden, passing.as_str(), follow)?;
        let how = if exclusive { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
        let renamed = rustix::fs::renameat_with(hidden, passing.as_str(), folder, name, how);
        if renamed.is_err() {
            let _ = rustix::fs::unlinkat(hidden, passing.as_str(), AtFlags::empty());
        }
        renamed
    }

    /// Turns a folder into an object of its own.
    pub(crate) fn put_folder(
        &self,
        key: &Key,
        mut sheet: Sheet,
        condition: impl Fn(Option<&Object>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let folder = self.make_folders(key.path())?;
        let _held = self.locks.of(key.path());
        condition(self.find(key)?.as_ref())?;
        sheet.seal("", &Facts::of(&rustix::fs::fstat(&folder)?));
        sheet.write(&proc_path(&folder))?;
        set_mark(&folder, IS_OBJECT)?;
        Ok(rustix::fs::fsync(&folder)?)
    }

    /// Opens a folder, creating it and its parents if they are missing.
    fn make_folders(&self, path: &str) -> Result<OwnedFd, Error> {
        match open_folder(&*self.files, path) {
            Err(Errno::NOENT) => {}
            Err(errno) if is_absent(errno) => return Err(Error::conflict()),
            result => return Ok(result?),
        }
        let mut at = open_folder(&*self.files, "")?;
        for name in path.split('/') {
            let mut tries = 0;
            at = loop {
                match open_folder(&at, name) {
                    Ok(folder) => break folder,
                    Err(Errno::NOENT) if tries < TRIES => tries += 1,
                    Err(errno) if is_absent(errno) => return Err(Error::conflict()),
                    Err(errno) => return Err(errno.into()),
                }
                self.make_folder(&at, name)?;
            };
        }
        Ok(at)
    }

    fn make_folder(&self, parent: &OwnedFd, name: &str) -> Result<(), Error> {
        match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(FOLDER_MODE)) {
            Ok(()) => {}
            // Someone else created it, or removed its parent; the caller looks again.
            Err(Errno::EXIST | Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        let made = match open_folder(parent, name) {
            Ok(made) => made,
            Err(errno) if is_absent(errno) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        rustix::fs::fchmod(&made, Mode::from_raw_mode(FOLDER_MODE))?;
        self.give(&made)?;
        set_mark(&made, IS_PARENT)?;
        rustix::fs::fsync(&made)?;
        Ok(rustix::fs::fsync(parent)?)
    }

    /// Removes an object, and the folders that were only made for it. Returns whether there was
    /// one.
    pub(crate) fn remove(
        &self,
        key: &Key,
        condition: impl Fn(Option<&Object>) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let held = self.locks.of(key.path());
        let found = self.find(key)?;
        condition(found.as_ref())?;
        let Some(object) = found else { return Ok(false) };
        let (parent, name) = key.split();
        if object.is_folder() {
            let folder = open_folder(&*self.files, key.path());
            let removed = folder.and_then(|folder| {
                set_mark(&folder, IS_PARENT)?;
                rustix::fs::fsync(&folder)
            });
            ignore_absent(removed)?;
            drop(held);
            self.prune(key.path())?;
            return Ok(true);
        }
        let removed =
            beneath(&*self.files, parent, OFlags::RDONLY | OFlags::DIRECTORY).and_then(|folder| {
                rustix::fs::unlinkat(&folder, name, AtFlags::empty())?;
                rustix::fs::fsync(&folder)
            });
        match removed {
            // It has become a folder.
            Err(Errno::ISDIR) => return Ok(false),
            removed => ignore_absent(removed)?,
        }
        drop(held);
        self.prune(parent)?;
        Ok(true)
    }

    /// Removes a folder and its parents as long as they are empty and were made by puts.
    fn prune(&self, path: &str) -> Result<(), Error> {
        let mut path = path;
        while !path.is_empty() {
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let ours = beneath(&*self.files, path, OFlags::PATH | OFlags::DIRECTORY)
                .and_then(|folder| mark(&folder));
            if ours.ok().flatten().as_deref() != Some(IS_PARENT) {
                return Ok(());
            }
            let removed = open_folder(&*self.files, above).and_then(|above| {
                rustix::fs::unlinkat(&above, name, AtFlags::REMOVEDIR)?;
                rustix::fs::fsync(&above)
            });
            match removed {
                Ok(()) => path = above,
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => return Ok(()),
                Err(errno) if is_absent(errno) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

fn ignore_absent(result: Result<(), Errno>) -> Result<(), Error> {
    match result {
        Err(errno) if is_absent(errno) => Ok(()),
        result => Ok(result?),
    }
}
