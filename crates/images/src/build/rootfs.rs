//! Combines the files of some layers into one tree that can collect changes. The tree is mounted at
//! no path: only the holder of its descriptor can reach it, and it disappears with the last
//! descriptor, even after a kill.

use crate::error::Error;
use crate::settings::Overlay;
use crate::unpack::Tree;
use rustix::fd::AsFd as _;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use std::path::{Path, PathBuf};

/// The folders in which an overlay collects changes.
pub(super) struct Changes<'a> {
    pub(super) upper: &'a Path,
    pub(super) work: &'a Path,
}

/// Combines `layers`, the lowest first, over an empty folder. Without `changes` the tree is
/// read-only.
pub(super) fn view(
    layers: &[PathBuf],
    empty: &Path,
    form: Overlay,
    changes: Option<&Changes<'_>>,
) -> Result<Tree, Error> {
    let failed = |error: rustix::io::Errno| Error::io("look at", empty)(error.into());
    mount(layers, empty, form, changes).map_err(failed)
}

fn mount(
    layers: &[PathBuf],
    empty: &Path,
    form: Overlay,
    changes: Option<&Changes<'_>>,
) -> rustix::io::Result<Tree> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let context = context.as_fd();
    fsconfig_set_string(context, "source", "holm")?;
    for layer in layers.iter().rev().map(PathBuf::as_path) {
        fsconfig_set_string(context, "lowerdir+", layer)?;
    }
    // A read-only overlay must have at least two layers.
    fsconfig_set_string(context, "lowerdir+", empty)?;
    match changes {
        Some(Changes { upper, work }) => {
            fsconfig_set_string(context, "upperdir", *upper)?;
            fsconfig_set_string(context, "workdir", *work)?;
            fsconfig_set_flag(context, "volatile")?;
        }
        None if layers.is_empty() => fsconfig_set_string(context, "lowerdir+", second(empty)?)?,
        None => {}
    }
    match form {
        Overlay::User => fsconfig_set_flag(context, "userxattr")?,
        Overlay::Trusted => {
            // The upper folder must contain whole files only.
            for (option, value) in
                [("redirect_dir", "nofollow"), ("metacopy", "off"), ("index", "off")]
            {
                fsconfig_set_string(context, option, value)?;
            }
        }
    }
    fsconfig_create(context)?;
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    if changes.is_none() {
        attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
    }
    fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map(Tree::of)
}

/// Creates a second empty folder, because an overlay refuses the same one twice.
fn second(empty: &Path) -> rustix::io::Result<PathBuf> {
    let second = empty.with_extension("second");
    match rustix::fs::mkdir(&second, rustix::fs::Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(second),
        Err(error) => Err(error),
    }
}
