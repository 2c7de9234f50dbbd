//! Combines the files of some layers into one tree that can collect changes. The tree is mounted at
//! no path: only the holder of its descriptor can reach it, and it disappears with the last
//! descriptor, even after a kill.

use crate::error::Error;
use crate::settings::Overlay;
use crate::unpack::Tree;
use rustix::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen,
};
use std::path::{Path, PathBuf};

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

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
    let mut lower: Vec<PathBuf> = layers.iter().rev().cloned().collect();
    lower.push(empty.to_owned());
    // A read-only overlay must have at least two layers.
    if changes.is_none() && layers.is_empty() {
        lower.push(second(empty)?);
    }
    let lower = lower.iter().map(|layer| open(layer, FOLDER, Mode::empty()));
    let lower = lower.collect::<rustix::io::Result<Vec<OwnedFd>>>()?;
    // By their descriptors, which keeps the names short.
    let names = lower.iter().map(|layer| format!("/dev/fd/{}", layer.as_raw_fd()));
    for (key, value) in lower_options(&names.collect::<Vec<_>>()) {
        fsconfig_set_string(context, key, value)?;
    }
    if let Some(Changes { upper, work }) = changes {
        fsconfig_set_string(context, "upperdir", *upper)?;
        fsconfig_set_string(context, "workdir", *work)?;
        fsconfig_set_flag(context, "volatile")?;
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

/// The most bytes of one option, without the zero at its end.
const OPTION_BYTES_MAX: usize = 255;

/// Returns the options that name these lower layers, topmost first. The names must not contain
/// colons.
///
/// Kernels before 6.7 know only one option for all of them, which is used as long as they fit.
/// Newer kernels take any number, one by one.
fn lower_options(names: &[String]) -> Vec<(&'static str, String)> {
    let all = names.join(":");
    if all.len() <= OPTION_BYTES_MAX {
        return vec![("lowerdir", all)];
    }
    names.iter().map(|name| ("lowerdir+", name.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (100..100 + count).map(|number| number.to_string()).collect()
    }

    #[test]
    fn layers_are_one_option_as_long_as_they_fit() {
        assert_eq!(lower_options(&names(2)), [("lowerdir", "100:101".to_owned())]);
        let most = lower_options(&names(64));
        assert_eq!((most.len(), most[0].1.len()), (1, OPTION_BYTES_MAX));
        let more = lower_options(&names(65));
        assert_eq!((more.len(), more[64].clone()), (65, ("lowerdir+", "164".to_owned())));
    }
}
