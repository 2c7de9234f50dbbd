//! What makes one machine another than its copy: a fork gets it anew.

use super::folder::{kind, look, open_folder};
use crate::network_pool::IDS_PER_INSTANCE;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Statx, Uid, chmodat, chownat, mkdirat, openat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use types::World;

/// Files by which programs tell one machine from another.
const MACHINE_IDS: [&str; 2] = ["etc/machine-id", "var/lib/dbus/machine-id"];
const UPPER: &str = "upper";
const OPAQUE: &str = "user.overlay.opaque";

/// A new name for a machine that has one.
pub(crate) struct Identity {
    machine_id: String,
}

impl Identity {
    pub(crate) fn new(world: &World) -> Self {
        let mut machine_id = String::new();
        for byte in world.random_bytes::<16>() {
            let _ = write!(machine_id, "{byte:02x}");
        }
        machine_id.push('\n');
        Self { machine_id }
    }

    /// Writes it into a fresh writable layer, over these layers, newest first, wherever they have
    /// another. What is made has the owners of the layers, shifted by `root`.
    pub(crate) fn write(
        &self,
        layer: BorrowedFd<'_>,
        layers: &[&Path],
        root: u32,
    ) -> io::Result<()> {
        let layers = layers.iter().map(|folder| open(folder)).collect::<io::Result<Vec<_>>>()?;
        let top = crate::file_system::top(layer)?;
        let upper = open_folder(&top, Path::new(UPPER))?.ok_or(io::ErrorKind::NotFound)?;
        // The folders that the layer begins with are as the snapshot has them.
        for folder in ["", "etc"] {
            if let Some(stat) = find(&layers, Path::new(folder))?
                && kind(&stat) == FileType::Directory
            {
                dress(&upper, folder, &stat, root)?;
            }
        }
        for path in MACHINE_IDS {
            match find(&layers, Path::new(path))? {
                Some(stat) if kind(&stat) == FileType::RegularFile && stat.stx_size > 0 => {
                    self.write_one(&upper, Path::new(path), &layers, &stat, root)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn write_one(
        &self,
        upper: &OwnedFd,
        path: &Path,
        layers: &[OwnedFd],
        stat: &Statx,
        root: u32,
    ) -> io::Result<()> {
        let above: Vec<_> = path.ancestors().skip(1).collect();
        for folder in above.into_iter().rev().filter(|folder| !folder.as_os_str().is_empty()) {
            match mkdirat(upper, folder, Mode::from_raw_mode(0o755)) {
                Err(Errno::EXIST) => continue,
                made => made?,
            }
            if let Some(stat) = find(layers, folder)? {
                dress(upper, folder, &stat, root)?;
            }
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(upper, path, flags, Mode::from_raw_mode(0o644))?;
        File::from(file).write_all(self.machine_id.as_bytes())?;
        dress(upper, path, stat, root)
    }
}

fn open(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::empty())?)
}

/// As an overlay of the layers finds it, but that no link is followed.
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
            // Anything but a folder is in the way of what is below.
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

/// The ids of a layer on disk are those that an instance sees.
fn dress(upper: &OwnedFd, path: impl AsRef<Path>, stat: &Statx, root: u32) -> io::Result<()> {
    let path = path.as_ref();
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let outside = |id: u32| root + if id < IDS_PER_INSTANCE { id } else { 0 };
    let (uid, gid) = (Uid::from_raw(outside(stat.stx_uid)), Gid::from_raw(outside(stat.stx_gid)));
    chownat(upper, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(u32::from(stat.stx_mode) & 0o7777);
    Ok(chmodat(upper.as_fd(), path, mode, AtFlags::empty())?)
}
