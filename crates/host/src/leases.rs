//! Records which instance uses which image and for what, so that no image is removed while
//! something runs on it. On disk, because instances outlive this program.

use control::machine::Launch;
use files::FilePool;
use images::{Digest, Image, Lease, Store};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::{fs, io};
use types::instance::{GUEST_PORT, InstanceName, REPLICA_GUEST_PORT};

/// What an instance is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It answers requests until it is retired.
    Serve,
    /// It does one piece of work.
    Work,
    /// It does work that answers requests, and may sleep.
    Replica,
}

/// Written after the digest in the notes of instances with work, and of replicas.
const WORK: &str = "work";
const REPLICA: &str = "replica";

impl Purpose {
    pub(crate) fn of(launch: &Launch) -> Self {
        match (&launch.work, launch.serves) {
            (None, _) => Self::Serve,
            (Some(_), None) => Self::Work,
            (Some(_), Some(_)) => Self::Replica,
        }
    }

    /// Returns true if it gets requests, between which it may sleep.
    pub(crate) fn is_visited(self) -> bool {
        matches!(self, Self::Serve | Self::Replica)
    }

    /// Returns the port on which the guest of such an instance listens.
    pub(crate) fn guest_port(self) -> u16 {
        match self {
            Self::Serve | Self::Work => GUEST_PORT,
            Self::Replica => REPLICA_GUEST_PORT,
        }
    }
}

pub(crate) struct Leases {
    notes: FilePool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    users: HashMap<InstanceName, (Digest, Purpose)>,
    images: HashMap<Digest, Used>,
}

/// An image that is or was used. Once no instance uses it, it is still known, but not kept.
struct Used {
    image: Image,
    instances: usize,
    lease: Option<Lease>,
}

/// Moves notes from where they were before, among the disks of snapshots.
fn move_notes(from: &Path, into: &Path) -> io::Result<()> {
    if !from.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::rename(entry.path(), into.join(entry.file_name()))?;
        }
    }
    Ok(())
}

impl Leases {
    /// Takes the leases again that an earlier run of this program had.
    pub(crate) fn open(node: &Path, store: &Store) -> io::Result<Self> {
        let folder = node.join("leases");
        fs::create_dir_all(&folder)?;
        move_notes(&node.join("images"), &folder)?;
        let leases = Self { notes: FilePool::new(folder), state: Mutex::default() };
        for entry in fs::read_dir(leases.notes.folder())? {
            let path = entry?.path();
            let id = path
                .file_name()
                .and_then(|name| name.to_str())
                .and_then(|name| InstanceName::new(name).ok());
            // `keep_only` removes what has another name.
            let Some(id) = id else { continue };
            let note = fs::read(&path)?;
            match parse(&String::from_utf8_lossy(&note)) {
                Some(used) => leases.hold_again(id, used, store),
                None => {
                    tracing::warn!(path = %path.display(), "it cannot be read which image an instance runs on")
                }
            }
        }
        Ok(leases)
    }

    /// Keeps the image of an instance that an earlier run of this program has launched. If the image
    /// is lost or damaged, the instance goes on, and all others have nothing to do with it.
    fn hold_again(&self, id: InstanceName, (digest, purpose): (Digest, Purpose), store: &Store) {
        match self.hold(&id, digest, purpose, store) {
            Ok(Some(_)) => return,
            Ok(None) => {
                tracing::warn!(instance = %id, %digest, "an instance runs on an image that is not there any more");
            }
            Err(error) => {
                tracing::error!(%error, instance = %id, %digest, "an instance runs on an image that cannot be read");
            }
        }
        self.state.lock().users.insert(id, (digest, purpose));
    }

    /// Returns the image that an instance runs on.
    pub(crate) fn image_of(&self, id: &InstanceName) -> Option<Digest> {
        self.state.lock().users.get(id).map(|(digest, _)| *digest)
    }

    /// Keeps an image for this instance until [`Leases::give_back`], and returns it. `None` if it
    /// is gone.
    pub(crate) fn take(
        &self,
        id: &InstanceName,
        digest: Digest,
        purpose: Purpose,
        store: &Store,
    ) -> io::Result<Option<Image>> {
        let note = match purpose {
            Purpose::Serve => digest.to_string(),
            Purpose::Work => format!("{digest} {WORK}"),
            Purpose::Replica => format!("{digest} {REPLICA}"),
        };
        // Not flushed to disk: when the machine loses power, the instances are lost too.
        self.notes.put(id.as_str(), note.as_bytes())?;
        let image = self.hold(id, digest, purpose, store)?;
        if image.is_none() {
            self.notes.remove(id.as_str())?;
        }
        Ok(image)
    }

    /// Returns what an instance was launched for.
    pub(crate) fn purpose(&self, id: &InstanceName) -> Purpose {
        self.state.lock().users.get(id).map_or(Purpose::Serve, |(_, purpose)| *purpose)
    }

    fn hold(
        &self,
        id: &InstanceName,
        digest: Digest,
        purpose: Purpose,
        store: &Store,
    ) -> io::Result<Option<Image>> {
        let mut state = self.state.lock();
        if let Some(used) = state.images.get_mut(&digest) {
            used.lease = used.lease.take().or_else(|| store.lease(&digest));
            if used.lease.is_none() {
                state.images.remove(&digest);
                return Ok(None);
            }
            let image = used.image.clone();
            // The same launch may be asked for twice.
            if state.users.insert(id.clone(), (digest, purpose)) != Some((digest, purpose))
                && let Some(used) = state.images.get_mut(&digest)
            {
                used.instances += 1;
            }
            return Ok(Some(image));
        }
        let Some((image, lease)) = store.pin(&digest).map_err(io::Error::other)? else {
            return Ok(None);
        };
        state
            .images
            .insert(digest, Used { image: image.clone(), instances: 1, lease: Some(lease) });
        state.users.insert(id.clone(), (digest, purpose));
        Ok(Some(image))
    }

    pub(crate) fn give_back(&self, id: &InstanceName) {
        let mut state = self.state.lock();
        let Some((digest, _)) = state.users.remove(id) else { return };
        if let Some(used) = state.images.get_mut(&digest) {
            used.instances = used.instances.saturating_sub(1);
            used.lease = used.lease.take().filter(|_| used.instances > 0);
        }
        drop(state);
        if let Err(error) = self.notes.remove(id.as_str()) {
            tracing::warn!(%error, instance = %id, "the note of an image in use could not be removed");
        }
    }

    /// Gives back what instances held that no longer exist, and removes their notes, even those
    /// that cannot be read, and whatever else an earlier run has left.
    pub(crate) fn keep_only(&self, instances: &HashSet<InstanceName>) -> io::Result<()> {
        let gone: Vec<InstanceName> =
            self.state.lock().users.keys().filter(|id| !instances.contains(*id)).cloned().collect();
        for id in gone {
            self.give_back(&id);
        }
        for entry in fs::read_dir(self.notes.folder())? {
            let entry = entry?;
            let id = entry.file_name().to_str().and_then(|name| InstanceName::new(name).ok());
            if !id.is_some_and(|id| instances.contains(&id)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

fn parse(note: &str) -> Option<(Digest, Purpose)> {
    let (digest, purpose) = match note.trim().split_once(' ') {
        Some((digest, WORK)) => (digest, Purpose::Work),
        Some((digest, REPLICA)) => (digest, Purpose::Replica),
        _ => (note.trim(), Purpose::Serve),
    };
    Some((digest.parse().ok()?, purpose))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_note_outlives_its_instance_even_one_that_cannot_be_read() {
        let node = tempfile::tempdir().unwrap();
        let store = Store::open(&node.path().join("store"), images::Settings::default()).unwrap();
        let notes = node.path().join("leases");
        fs::create_dir(&notes).unwrap();
        // A power cut leaves files without their content.
        for note in ["sandbox-gone-1", "sandbox-there-1", "sandbox-gone-2.new"] {
            fs::write(notes.join(note), "").unwrap();
        }
        let leases = Leases::open(node.path(), &store).unwrap();
        let there = InstanceName::new("sandbox-there-1").unwrap();
        leases.keep_only(&[there].into()).unwrap();
        let left = fs::read_dir(&notes).unwrap().map(|note| note.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["sandbox-there-1"]);
    }

    #[test]
    fn a_damaged_image_keeps_nobody_from_starting() {
        let node = tempfile::tempdir().unwrap();
        let folder = node.path().join("store");
        let store = Store::open(&folder, images::Settings::default()).unwrap();
        let archive = testing::small_root(node.path(), &[]).unwrap();
        let named = "team/app".parse().unwrap();
        let config = images::Config::default();
        let digest = store.import_rootfs(archive.as_slice(), &config, &named).unwrap();
        let id = InstanceName::new("replica-a-1").unwrap();
        let leases = Leases::open(node.path(), &store).unwrap();
        leases.take(&id, digest, Purpose::Replica, &store).unwrap().unwrap();
        drop(leases);
        fs::write(folder.join("blobs/sha256").join(digest.hex()), "{").unwrap();
        let leases = Leases::open(node.path(), &store).unwrap();
        assert_eq!(leases.purpose(&id), Purpose::Replica);
        leases.keep_only(&[id.clone()].into()).unwrap();
        assert_eq!(leases.image_of(&id), Some(digest));
    }

    #[test]
    fn notes_are_moved_from_among_the_disks_of_snapshots() {
        let node = tempfile::tempdir().unwrap();
        let store = Store::open(&node.path().join("store"), images::Settings::default()).unwrap();
        let disks = node.path().join("images");
        fs::create_dir_all(disks.join("wsp_owner/snapshot")).unwrap();
        fs::write(disks.join("sandbox-a-1"), "an older note").unwrap();
        // The image that the note names is gone, which is no reason not to start.
        Leases::open(node.path(), &store).unwrap();
        assert!(disks.join("wsp_owner/snapshot").exists());
        assert!(!disks.join("sandbox-a-1").exists());
        assert!(node.path().join("leases/sandbox-a-1").exists());
    }
}
