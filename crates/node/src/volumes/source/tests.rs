use super::*;
use crate::remote_store::memory::{DIGEST, Memory};
use crate::volumes::NewVolume;
use admission::Limits;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

const SIZE_MB: u32 = 8;
const ROOM_MB: u64 = 64;

struct Machine {
    folder: TempDir,
    volumes: Volumes,
}

fn owner() -> Owner {
    Owner::new("space").unwrap()
}

fn named(name: &str) -> VolumeName {
    VolumeName::new(name).unwrap()
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let volumes = opened(folder.path());
        Self { folder, volumes }
    }

    /// Makes a machine with a source, which is mostly a hole.
    fn with_source() -> (Self, Arc<Memory>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("volumes/space");
        std::fs::create_dir_all(&path).unwrap();
        let file = std::fs::File::create(path.join("source")).unwrap();
        file.set_len(u64::from(SIZE_MB) * MIB).unwrap();
        file.write_all_at(b"begin", 0).unwrap();
        // Only a file with a file system is copied: this is what ext4 is known by.
        file.write_all_at(&[0x53, 0xEF], 1_080).unwrap();
        file.write_all_at(b"middle", 5 * MIB).unwrap();
        let machine = Self { volumes: opened(folder.path()), folder };
        let store = Arc::new(Memory::default());
        machine.volumes.use_remote(store.clone());
        (machine, store)
    }

    fn make(&self, name: &str) -> Result<(), VolumeError> {
        self.volumes.make(&new(name, SIZE_MB))
    }

    /// Returns the names of everything in the owner's folder.
    fn files(&self) -> Vec<String> {
        let Ok(found) = std::fs::read_dir(self.folder.path().join("volumes/space")) else {
            return Vec::new();
        };
        let mut names: Vec<_> =
            found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[track_caller]
    fn is_copy(&self, name: &str) {
        let path = self.volumes.path(&named(name)).unwrap();
        let content = std::fs::read(&path).unwrap();
        assert_eq!(content.len() as u64, u64::from(SIZE_MB) * MIB);
        let middle = 5 * MIB as usize;
        assert!(content.starts_with(b"begin") && content[middle..].starts_with(b"middle"));
        assert!(std::fs::metadata(&path).unwrap().blocks() < 1_000, "holes stay holes");
    }
}

fn opened(folder: &Path) -> Volumes {
    let pool = crate::pool::Pool::open(folder, ROOM_MB).unwrap();
    Volumes::open(folder, Limits { total: ROOM_MB, share: ROOM_MB }, &pool).unwrap()
}

fn new(name: &str, size_mb: u32) -> NewVolume {
    let copy = Some(VolumeCopy { digest: DIGEST.to_owned(), size_mb: SIZE_MB });
    let from = Some(VolumeSource { name: named("source"), copy });
    NewVolume { name: named(name), owner: owner(), size_mb, from }
}

#[test]
fn one_that_is_gone_here_is_fetched_for_the_next_volume() {
    let (machine, _) = Machine::with_source();
    assert_eq!(machine.volumes.put_copy(&named("source")).unwrap().as_deref(), Some(DIGEST));
    assert!(!machine.volumes.release(&named("source"), 0).unwrap(), "it was just used");
    assert!(machine.volumes.release(&named("source"), i64::MAX).unwrap());
    assert_eq!((machine.files(), machine.volumes.room().held()), (vec![], 0));
    machine.make("one").unwrap();
    machine.is_copy("one");
    machine.is_copy("source");
    assert_eq!(machine.volumes.room().held(), 16, "it counts as it did before");
    // What was copied does not need it.
    machine.volumes.release(&named("source"), i64::MAX).unwrap();
    machine.is_copy("one");
}

#[test]
fn a_machine_that_never_had_it_fetches_it_once() {
    let (first, store) = Machine::with_source();
    first.volumes.put_copy(&named("source")).unwrap();
    let other = Machine::new();
    other.volumes.use_remote(store.clone());
    std::thread::scope(|scope| {
        for name in ["one", "two", "three"] {
            let other = &other;
            scope.spawn(move || other.make(name).unwrap());
        }
    });
    assert_eq!(store.reads.load(Ordering::Relaxed), 1);
    for name in ["one", "two", "three", "source"] {
        other.is_copy(name);
    }
}

#[test]
fn what_cannot_be_fetched_leaves_nothing() {
    let (machine, store) = Machine::with_source();
    machine.volumes.put_copy(&named("source")).unwrap();
    machine.volumes.release(&named("source"), i64::MAX).unwrap();
    let refused = |is_it: fn(&VolumeError) -> bool| {
        let refused = machine.make("one").unwrap_err();
        assert!(is_it(&refused), "{refused:?}");
        assert_eq!((machine.files(), machine.volumes.room().held()), (vec![], 0));
    };
    store.cuts.store(true, Ordering::Relaxed);
    refused(|error| matches!(error, VolumeError::Remote(_)));
    store.cuts.store(false, Ordering::Relaxed);
    store.is_away.store(true, Ordering::Relaxed);
    refused(|error| matches!(error, VolumeError::Remote(_)));
    store.is_away.store(false, Ordering::Relaxed);
    let key = (owner(), "source".to_owned());
    let mut longer = Vec::new();
    compress(&mut longer, |into| {
        into.write_all(MAGIC)?;
        write_number(into, u64::from(SIZE_MB + 1) * MIB)
    })
    .unwrap();
    let right = store.streams.lock().insert(key.clone(), longer).unwrap();
    refused(|error| matches!(error, VolumeError::Remote(_)));
    store.streams.lock().insert(key, right);
    machine.make("one").unwrap();
    machine.is_copy("one");
}

#[test]
fn it_says_what_is_missing() {
    let (machine, _) = Machine::with_source();
    machine.volumes.remove(&named("source")).unwrap();
    let mut uncopied = new("one", SIZE_MB);
    uncopied.from = Some(VolumeSource { name: named("source"), copy: None });
    let refused = machine.volumes.make(&uncopied);
    assert!(matches!(refused, Err(VolumeError::SourceGone(_))), "{refused:?}");
    let alone = Machine::new();
    let refused = alone.make("one");
    assert!(matches!(refused, Err(VolumeError::NoRemote)), "{refused:?}");
    assert_eq!(alone.volumes.put_copy(&named("source")).unwrap(), None);
    assert_eq!(alone.volumes.copies().unwrap(), None);
}

#[test]
fn without_room_nothing_is_fetched() {
    let (first, store) = Machine::with_source();
    first.volumes.put_copy(&named("source")).unwrap();
    let other = Machine::new();
    other.volumes.use_remote(store.clone());
    let _rest = other.volumes.room().take(&owner(), ROOM_MB - 1).unwrap();
    let refused = other.make("one");
    assert!(matches!(refused, Err(VolumeError::Refused(_))), "{refused:?}");
    assert_eq!(store.reads.load(Ordering::Relaxed), 0);
}

#[test]
fn a_copy_is_put_anew_and_removed() {
    let (machine, store) = Machine::with_source();
    let name = named("source");
    machine.volumes.put_copy(&name).unwrap();
    machine.volumes.put_copy(&name).unwrap();
    assert_eq!(store.removals.load(Ordering::Relaxed), 2, "parts of an earlier try go first");
    assert_eq!(machine.volumes.copies().unwrap(), Some(vec![(owner(), name.clone())]));
    machine.volumes.remove_copy(&owner(), &name).unwrap();
    assert_eq!(machine.volumes.copies().unwrap(), Some(vec![]));
    store.is_away.store(true, Ordering::Relaxed);
    let refused = machine.volumes.put_copy(&name);
    assert!(matches!(refused, Err(VolumeError::Remote(_))), "{refused:?}");
}
