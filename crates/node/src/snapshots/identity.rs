//! Gives a fork its own machine id and seeds, so that it is not taken for the machine it was copied
//! from.

use super::entry::is_whiteout;
use super::folder::{is_gone, kind, look, open_folder};
use super::place::open;
use super::tree::SEEDS;
use crate::users::IDS_PER_INSTANCE;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Statx, Uid, XattrFlags, chmodat, chownat, fchmod,
    fsetxattr, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use types::{World, hex};

/// The files by which programs tell one machine from another.
const MACHINE_IDS: [&str; 2] = ["etc/machine-id", "var/lib/dbus/machine-id"];
const UPPER: &str = "upper";
const OPAQUE: &str = "user.overlay.opaque";

/// A new machine id, for a machine that has one.
pub(crate) struct Identity {
    machine_id: String,
}

impl Identity {
    pub(crate) fn new(world: &World) -> Self {
        Self { machine_id: format!("{}\n", hex::encode(&world.random_bytes::<16>())) }
    }

    /// Writes the machine id into a fresh writable layer, wherever the layers below, given newest
    /// first, have another. New files get the owners that they have in the layers, shifted by
    /// `root`.
    pub(crate) fn write(
        &self,
        layer: BorrowedFd<'_>,
        layers: &[PathBuf],
        root: u32,
    ) -> io::Result<()> {
        let layers = open_all(layers)?;
        let upper = upper_of(layer)?;
        // The folders that the layer starts with get the owners and permissions that the snapshot
        // has.
        for folder in ["", "etc"] {
            if let Some(stat) = find(&layers, Path::new(folder))?
                && kind(&stat) == FileType::Directory
            {
                dress(&upper, folder, &stat, root)?;
            }
        }
        self.write_ids(&upper, &layers, root)
    }

    /// Turns the clone of a disk, which lies over these layers, into another machine's: with these
    /// files in its `/etc`, and without a random seed. Everything on it may come from an attacker,
    /// but nobody changes it meanwhile: no link is followed, and whatever is in the way of a file
    /// is removed.
    pub(crate) fn renew(
        &self,
        layer: BorrowedFd<'_>,
        layers: &[PathBuf],
        etc: &[(&str, String)],
    ) -> io::Result<()> {
        let upper = upper_of(layer)?;
        for seed in SEEDS.map(Path::new) {
            let Some((above, name)) = place_of(&upper, seed)? else { continue };
            if is_file(&above, name)? {
                unlinkat(&above, name, AtFlags::empty())?;
            }
        }
        let mut all = vec![rustix::io::fcntl_dupfd_cloexec(&upper, 0)?];
        all.extend(open_all(layers)?);
        self.write_ids(&upper, &all, 0)?;
        // If it is not a folder, that was the choice of whoever put it there.
        let Some(folder) = etc_of(&upper)? else { return Ok(()) };
        let top = crate::file_system::top(layer)?;
        for (name, text) in etc {
            self.clear(&folder, name, &top)?;
            write_file(&folder, OsStr::new(name), text)?;
        }
        Ok(())
    }

    fn write_ids(&self, upper: &OwnedFd, layers: &[OwnedFd], root: u32) -> io::Result<()> {
        for path in MACHINE_IDS.map(Path::new) {
            let Some(stat) = find(layers, path)? else { continue };
            if kind(&stat) != FileType::RegularFile || stat.stx_size == 0 {
                continue;
            }
            let (above, name) = (path.parent(), path.file_name().unwrap_or_default());
            let above = above.map(|above| make_folders(upper, above, layers, root)).transpose()?;
            let Some(above) = above.flatten() else { continue };
            // The file may exist here, or only in a layer below.
            ignore_missing(unlinkat(&above, name, AtFlags::empty()))?;
            write_file(&above, name, &self.machine_id)?;
            dress(&above, name, &stat, root)?;
        }
        Ok(())
    }

    /// Removes an entry of a folder. If it is a folder, it may hold more than can be removed
    /// quickly, so it is moved to where no instance sees it.
    fn clear(&self, folder: &OwnedFd, name: &str, top: &OwnedFd) -> io::Result<()> {
        match unlinkat(folder, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {
                let aside = format!("{name}-{}", self.machine_id.trim_end());
                Ok(renameat(folder, name, top, aside)?)
            }
            removed => ignore_missing(removed),
        }
    }
}

fn upper_of(layer: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let top = crate::file_system::top(layer)?;
    let upper = open_folder(&top, Path::new(UPPER))?;
    upper.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn open_all(layers: &[PathBuf]) -> io::Result<Vec<OwnedFd>> {
    layers.iter().map(|folder| open(folder)).collect()
}

/// Opens the parent folder of a path, and returns the last part of the path with it. `None` if a
/// parent is not a folder.
fn place_of<'p>(upper: &OwnedFd, path: &'p Path) -> io::Result<Option<(OwnedFd, &'p OsStr)>> {
    let above = open_folder(upper, path.parent().unwrap_or(Path::new("")))?;
    Ok(above.map(|above| (above, path.file_name().unwrap_or_default())))
}

fn is_file(folder: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    match look(folder, name) {
        Ok(stat) => Ok(kind(&stat) == FileType::RegularFile),
        Err(error) if is_gone(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens a folder of a writable layer. If it or a parent is missing there, it is made with the
/// owner and permissions that it has in the layers. `None` if something else is in the way.
fn make_folders(
    upper: &OwnedFd,
    path: &Path,
    layers: &[OwnedFd],
    root: u32,
) -> io::Result<Option<OwnedFd>> {
    let mut at = rustix::io::fcntl_dupfd_cloexec(upper, 0)?;
    let mut walked = PathBuf::new();
    for part in path.iter() {
        walked.push(part);
        match mkdirat(&at, part, Mode::from_raw_mode(0o755)) {
            Err(Errno::EXIST) => {}
            made => {
                made?;
                if let Some(stat) = find(layers, &walked)? {
                    dress(&at, part, &stat, root)?;
                }
            }
        }
        match open_folder(&at, Path::new(part))? {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// Opens the `/etc` of a disk, and makes it if it was removed. `None` if it is not a folder.
fn etc_of(upper: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let name = OsStr::new("etc");
    let hides_lower = match look(upper, name) {
        Ok(stat) if is_whiteout(&stat) => true,
        Ok(_) => return open_folder(upper, Path::new(name)),
        Err(error) if is_gone(&error) => false,
        Err(error) => return Err(error),
    };
    if hides_lower {
        unlinkat(upper, name, AtFlags::empty())?;
    }
    mkdirat(upper, name, Mode::from_raw_mode(0o755))?;
    let folder = open_folder(upper, Path::new(name))?.ok_or(io::ErrorKind::NotFound)?;
    // The umask of this process may have taken bits away.
    fchmod(&folder, Mode::from_raw_mode(0o755))?;
    if hides_lower {
        fsetxattr(&folder, OPAQUE, b"y", XattrFlags::empty())?;
    }
    Ok(Some(folder))
}

/// Makes a file. Its name must not be taken.
fn write_file(folder: &OwnedFd, name: &OsStr, text: &str) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let mut file = File::from(openat(folder, name, flags, mode)?);
    // The umask of this process may have taken bits away.
    fchmod(&file, mode)?;
    file.write_all(text.as_bytes())
}

fn ignore_missing(done: rustix::io::Result<()>) -> io::Result<()> {
    match done {
        Err(Errno::NOENT) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Finds a path like an overlay of the layers does, but without following links.
fn find(layers: &[OwnedFd], path: &Path) -> io::Result<Option<Statx>> {
    for layer in layers {
        let mut folder = rustix::io::fcntl_dupfd_cloexec(layer, 0)?;
        let mut hides_lower = false;
        let mut parts = path.iter().peekable();
        let mut found = Some(look(&folder, OsStr::new(""))?);
        while let (Some(part), Some(_)) = (parts.next(), found.as_ref()) {
            hides_lower |= is_opaque(&folder);
            found = match look(&folder, part) {
                Ok(stat) => Some(stat),
                Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => None,
                Err(error) => return Err(error),
            };
            if parts.peek().is_none() || found.is_none() {
                continue;
            }
            // Anything but a folder hides what is below it.
            match open_folder(&folder, Path::new(part))? {
                Some(next) => folder = next,
                None => return Ok(None),
            }
        }
        match found {
            Some(stat) => return Ok(Some(stat)),
            None if hides_lower => return Ok(None),
            None => {}
        }
    }
    Ok(None)
}

fn is_opaque(folder: &OwnedFd) -> bool {
    let mut value = [0; 4];
    rustix::fs::fgetxattr(folder, OPAQUE, &mut value[..])
        .is_ok_and(|length| &value[..length] == b"y")
}

/// Sets owner and permissions. The ids on disk are those that an instance sees.
fn dress(folder: &OwnedFd, name: impl AsRef<Path>, stat: &Statx, root: u32) -> io::Result<()> {
    let name = name.as_ref();
    let name = if name.as_os_str().is_empty() { Path::new(".") } else { name };
    let outside = |id: u32| root + if id < IDS_PER_INSTANCE { id } else { 0 };
    let (uid, gid) = (Uid::from_raw(outside(stat.stx_uid)), Gid::from_raw(outside(stat.stx_gid)));
    chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o7777);
    Ok(chmodat(folder, name, mode, AtFlags::empty())?)
}
