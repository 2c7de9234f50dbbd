//! Turns what a step wrote into a layer of the store.

use super::Fault;
use super::cache::CachedLayer;
use crate::error::{BYTES_OF_LAYER, Error};
use crate::leases::{Held, Lease};
use crate::settings::Settings;
use crate::store::{Parts, Store};
use crate::tar::{Difference, write_difference};
use crate::unpack::{Tree, is_folder};
use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid};
use std::path::Path;

/// Files that an instance gets in its `/etc`; they are not part of what the step wrote.
const OF_INSTANCE: [&str; 3] = ["hostname", "hosts", "resolv.conf"];
/// Folders that an instance creates as mount points.
const STUBS: [&str; 4] = ["proc", "dev", "sys", "tmp"];
const ETC: &str = "etc";
const ETC_MODE: u32 = 0o755;
/// What settings count in.
const MB: u64 = 1 << 20;

/// The files that a step wrote over some layers.
pub(super) struct Written<'a> {
    pub(super) upper: &'a Path,
    /// The id on this machine that was root inside.
    pub(super) root: u32,
}

/// Packs what was written and unpacks it as the next layer. Returns `None` if nothing was written.
///
/// Its files have at most `bytes_max`, holes included. The disk of the step bounds only what is not
/// a hole, and here nothing may depend on holes: an archive has zeros in their place.
pub(super) fn store(
    store: &Store,
    written: &Written<'_>,
    bytes_max: u64,
    lease: &Lease,
) -> Result<Option<CachedLayer>, Fault> {
    let settings = within(&store.0.settings, bytes_max);
    pack(&store.0, written, &settings, lease).map_err(|error| match error {
        Error::Limit { what: BYTES_OF_LAYER, max } => Fault::Sources(format!(
            "the files that this step has written are larger than a step's disk of {} MB, with \
             the holes of sparse files",
            max / MB
        )),
        other => other.into(),
    })
}

/// Returns the settings of the store for layers of at most `bytes_max`.
fn within(settings: &Settings, bytes_max: u64) -> Settings {
    let mut settings = settings.clone();
    settings.limits.layer_bytes_max = settings.limits.layer_bytes_max.min(bytes_max);
    settings
}

fn pack(
    parts: &Parts,
    written: &Written<'_>,
    settings: &Settings,
    lease: &Lease,
) -> Result<Option<CachedLayer>, Error> {
    let difference = Difference {
        upper: written.upper,
        overlay: settings.overlay,
        root: written.root,
        with_capabilities: true,
        limits: &settings.limits,
    };
    let mut something = false;
    let layer = parts.pack_layer(lease, |archive| {
        something = write_difference(&difference, archive)?;
        Ok(())
    })?;
    if !something {
        return Ok(None);
    }
    lease.hold(Held::Layer(layer.unpacked));
    let open = || parts.blobs.open_blob(&layer.packed.digest);
    let bytes = parts.layers.ensure(&layer.unpacked, open, true, &parts.scratch(), settings)?;
    Ok(Some(CachedLayer { packed: layer.packed, unpacked: layer.unpacked, bytes }))
}

/// Removes what the instance itself needed: its own files, and empty mount points that the image
/// does not have.
pub(super) fn tidy(lower: &Tree, written: &Written<'_>, mounts: &[&str]) -> Result<(), Fault> {
    let upper = Tree::open(written.upper)?;
    for name in OF_INSTANCE {
        remove_file(&upper, &Path::new(ETC).join(name))?;
    }
    let etc = Path::new(ETC);
    // If the folder was not made anew, what lower layers have in it shows again.
    if !remove_if_empty(&upper, etc)? {
        keep_attributes(lower, &upper, etc, written.root)?;
    }
    let places = mounts.iter().map(|path| path.trim_start_matches('/'));
    for place in STUBS.into_iter().chain(places) {
        for path in Path::new(place).ancestors().filter(|path| !path.as_os_str().is_empty()) {
            if lower.look(path, false).is_ok() {
                break;
            }
            remove_stub(&upper, path)?;
            remove_if_empty(&upper, path)?;
        }
    }
    Ok(())
}

/// Removes `path` if it is an empty folder, and returns whether it did.
fn remove_if_empty(upper: &Tree, path: &Path) -> Result<bool, Fault> {
    let Ok(place) = upper.place(path) else { return Ok(false) };
    if !place.stat()?.as_ref().is_some_and(is_folder) || !upper.is_empty_folder(path)? {
        return Ok(false);
    }
    let (folder, name) = place.at();
    rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?;
    Ok(true)
}

fn remove_file(upper: &Tree, path: &Path) -> Result<(), Fault> {
    let Ok(place) = upper.place(path) else { return Ok(()) };
    match place.stat()? {
        Some(stat) if !is_folder(&stat) => Ok(place.remove()?),
        _ => Ok(()),
    }
}

/// Removes an empty file that served as a mount point.
fn remove_stub(upper: &Tree, path: &Path) -> Result<(), Fault> {
    let Ok(place) = upper.place(path) else { return Ok(()) };
    match place.stat()? {
        Some(stat)
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                && stat.st_size == 0 =>
        {
            Ok(place.remove()?)
        }
        _ => Ok(()),
    }
}

/// Restores the attributes that the image has for a folder, unless the step has set others. The
/// folder was created along with the instance.
fn keep_attributes(lower: &Tree, upper: &Tree, path: &Path, root: u32) -> Result<(), Fault> {
    let (Ok(below), Ok(above)) = (lower.look(path, false), upper.look(path, false)) else {
        return Ok(());
    };
    let untouched =
        above.st_mode & 0o7777 == ETC_MODE && (above.st_uid, above.st_gid) == (root, root);
    if !untouched || !is_folder(&above) || !is_folder(&below) {
        return Ok(());
    }
    let folder = upper.folder(path)?;
    let (uid, gid) = (Uid::from_raw(below.st_uid + root), Gid::from_raw(below.st_gid + root));
    rustix::fs::fchown(&folder, Some(uid), Some(gid))?;
    Ok(rustix::fs::fchmod(&folder, Mode::from_raw_mode(below.st_mode & 0o7777))?)
}
