//! Writable layers on the machine's disk: one folder per instance.
//!
//! What an instance wrote there belongs to ids that nobody else on the machine has, and it could make neither devices nor
//! links that the node would follow. Its size is limited by a project quota, where the file system has those. The quota calls
//! were written by the kernel's documented interface; no kernel with project quotas was at hand to run them on.

use crate::disk;
use crate::seats::Seat;
use crate::spec::Id;
use crate::sys;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct Disks {
    folder: PathBuf,
}

impl Disks {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        let folder = folder.join("disks");
        // Nobody on the machine but root comes near what instances wrote, such as programs that take their owner's rights.
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Self { folder })
    }

    pub(crate) fn make(&self, id: &Id, mb: u32, seat: &Seat, files: &[(&str, String)]) -> io::Result<OwnedFd> {
        let path = self.path(id);
        fs::create_dir(&path)?;
        let folder = File::open(&path)?;
        limit(&folder, seat.root, mb)?;
        disk::fill(folder.as_fd(), seat.root, files)?;
        Ok(open_tree(CWD, &path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?)
    }

    pub(crate) fn remove(&self, id: &Id) -> io::Result<()> {
        match fs::remove_dir_all(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn list(&self) -> io::Result<Vec<Id>> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            ids.extend(entry?.file_name().to_str().and_then(|name| Id::new(name).ok()));
        }
        Ok(ids)
    }

    /// Whether the sizes of disks are enforced here.
    pub(crate) fn are_limited(&self) -> io::Result<bool> {
        has_quotas(&File::open(&self.folder)?)
    }

    fn path(&self, id: &Id) -> PathBuf {
        self.folder.join(id.as_str())
    }
}

/// Puts everything that will be in a folder into a project of its own, and limits what that may take. A file system without
/// project quotas is left as it is.
fn limit(folder: &File, project: u32, mb: u32) -> io::Result<()> {
    if !has_quotas(folder)? {
        return Ok(());
    }
    sys::join_project(folder.as_fd(), project)?;
    Ok(sys::limit_project(folder.as_fd(), project, u64::from(mb) << 20, disk::files_for(mb))?)
}

fn has_quotas(folder: &File) -> io::Result<bool> {
    match sys::project_quotas(folder.as_fd()) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH | Errno::NOSYS | Errno::NOTSUP | Errno::INVAL | Errno::NODEV) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
