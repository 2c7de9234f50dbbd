use super::*;
use crate::remote_store::memory::Memory;
use crate::remote_store::{ReadStream, WriteStream};
use crate::snapshots::about::About;
use crate::volumes::Volumes;
use parking_lot::Mutex;
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

/// A store that refuses a snapshot, or has others begin with one while it is being put.
#[derive(Debug, Default)]
struct Store {
    memory: Memory,
    /// A snapshot that it does not take.
    refuses: Mutex<Option<SnapshotName>>,
    /// Holds each snapshot in these as soon as its stream was put.
    taken_by: OnceLock<Arc<Snapshots>>,
    holds: Mutex<Vec<Hold>>,
}

impl Store {
    fn has(&self, name: &str) -> bool {
        self.memory.streams.lock().contains_key(&(owner(), name.to_owned()))
    }
}

impl RemoteStore for Store {
    fn put(&self, owner: &Owner, name: &str, write: WriteStream<'_>) -> io::Result<RemoteCopy> {
        if self.refuses.lock().as_ref().is_some_and(|refused| refused.as_str() == name) {
            return Err(io::Error::other("not this one"));
        }
        let copy = self.memory.put(owner, name, write)?;
        if let Some(snapshots) = self.taken_by.get() {
            self.holds.lock().push(snapshots.hold(&named(name)).unwrap());
        }
        Ok(copy)
    }

    fn get(&self, owner: &Owner, name: &str, digest: &str, read: ReadStream<'_>) -> io::Result<()> {
        self.memory.get(owner, name, digest, read)
    }

    fn remove(&self, owner: &Owner, name: &str) -> io::Result<()> {
        self.memory.remove(owner, name)
    }

    fn list(&self) -> io::Result<Vec<(Owner, String)>> {
        self.memory.list()
    }
}

struct Machine {
    folder: TempDir,
    store: Arc<Store>,
    snapshots: Arc<Snapshots>,
}

const SIZE_BYTES: u64 = 5 << 20;
const LONG: Duration = Duration::from_secs(3600);

fn owner() -> Owner {
    Owner::new("space").unwrap()
}

fn named(name: &str) -> SnapshotName {
    SnapshotName::new(name).unwrap()
}

fn opened(folder: &Path) -> Arc<Snapshots> {
    let pool = crate::pool::Pool::open(folder, 1000).unwrap();
    let room = crate::capacity::divided(1000, 100);
    let volumes = Arc::new(Volumes::open(folder, room, &pool).unwrap());
    Snapshots::open(folder, &volumes).unwrap()
}

/// Returns the path of a snapshot's only file.
fn file(folder: &Path, name: &str, sort: Sort) -> PathBuf {
    match sort {
        Sort::Layer => folder.join("snapshots/space").join(name).join("layer/etc/name"),
        Sort::Image => folder.join("images/space").join(name).join("disk"),
    }
}

impl Machine {
    /// Makes a machine with these snapshots, each over the one before it.
    fn new(chain: &[&str]) -> Self {
        Self::of(chain, Sort::Layer)
    }

    fn of(chain: &[&str], sort: Sort) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut parent = None;
        for name in chain {
            let notes = folder.path().join("snapshots/space").join(name);
            let file = file(folder.path(), name, sort);
            fs::create_dir_all(&notes).unwrap();
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, name).unwrap();
            About { sort, parent: parent.replace(named(name)), size_bytes: SIZE_BYTES, base: None }
                .write(&notes)
                .unwrap();
        }
        let snapshots = opened(folder.path());
        let store = Arc::new(Store::default());
        snapshots.use_remote(store.clone());
        Self { folder, store, snapshots }
    }

    /// Opens everything again, as after a kill.
    fn restart(&mut self) {
        self.snapshots = opened(self.folder.path());
        self.snapshots.use_remote(self.store.clone());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("snapshots/space").join(name)
    }

    fn offload(&self, name: &str) {
        self.snapshots.offload(&named(name)).unwrap();
    }

    /// Returns whether its files are here, and checks that they are right; if not, that all of them
    /// are away.
    #[track_caller]
    fn is_here(&self, name: &str) -> bool {
        let (is_here, sort) = {
            let all = self.snapshots.all.lock();
            (all.kept[&named(name)].place.is_here(), all.kept[&named(name)].sort)
        };
        let file = file(self.folder.path(), name, sort);
        match is_here {
            true => assert_eq!(fs::read_to_string(file).unwrap(), name),
            false => assert!(!file.exists() && !self.path(name).join("layer").exists()),
        }
        assert!(is_here || self.store.has(name), "{name} is nowhere");
        assert!(!self.path(name).join(".fetched").exists());
        is_here
    }

    /// Returns how much disk space its owner is counted for.
    fn held_mb(&self) -> u64 {
        self.snapshots.room.held_by(&owner())
    }
}

#[test]
fn files_go_and_come_back() {
    go_and_come_back(Machine::new(&["one"]));
}

#[test]
fn clones_of_disks_go_and_come_back() {
    go_and_come_back(Machine::of(&["one"], Sort::Image));
}

fn go_and_come_back(mut machine: Machine) {
    assert_eq!(machine.held_mb(), 5);
    machine.offload("one");
    for _ in 0..2 {
        assert!(!machine.is_here("one"));
        assert_eq!(machine.held_mb(), 1, "its room is free");
        assert_eq!(machine.snapshots.list()[0].size_bytes, SIZE_BYTES, "it is billed as before");
        let refused = machine.snapshots.hold(&named("one"));
        assert!(matches!(refused, Err(SnapshotError::Away(_))), "{refused:?}");
        machine.restart();
    }
    let here = machine.snapshots.fetch(&named("one")).unwrap();
    assert!(machine.is_here("one"));
    assert_eq!(machine.held_mb(), 5);
    assert!(!machine.store.has("one"), "what is here is not paid for twice");
    machine.offload("one");
    assert!(machine.is_here("one"), "somebody uses it");
    drop(here);
    machine.offload("one");
    assert!(!machine.is_here("one"));
}

#[test]
fn a_chain_leaves_from_its_top_and_comes_back_whole() {
    let machine = Machine::new(&["base", "middle", "top"]);
    machine.offload("middle");
    assert!(machine.is_here("middle"), "one that is here lies over it");
    let (now_s, later_s) = (0, i64::MAX / 2);
    machine.snapshots.offload_idle(now_s, LONG).unwrap();
    assert!(machine.is_here("top"), "it was used lately");
    machine.snapshots.remove(&named("base")).unwrap();
    machine.offload("top");
    machine.snapshots.offload_idle(now_s, LONG).unwrap();
    assert!(!machine.is_here("top") && machine.is_here("middle") && machine.is_here("base"));
    machine.offload("middle");
    machine.snapshots.offload_idle(now_s, LONG).unwrap();
    assert!(!machine.is_here("base"), "only what is away needs it");
    let here = machine.snapshots.fetch(&named("top")).unwrap();
    let files = ["base", "middle", "top"].map(|name| machine.is_here(name));
    assert_eq!(files, [true; 3]);
    machine.snapshots.offload_idle(later_s, LONG).unwrap();
    assert!(machine.is_here("base"), "what stands on the top needs all");
    drop(here);
    machine.snapshots.offload_idle(later_s, LONG).unwrap();
    assert!(machine.is_here("top"), "it was used just now");
    machine.snapshots.offload_idle(i64::MAX, LONG).unwrap();
    let files = ["base", "middle", "top"].map(|name| machine.is_here(name));
    assert_eq!(files, [false; 3]);
}

#[test]
fn one_that_cannot_leave_does_not_keep_the_others() {
    let chain = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh"];
    let machine = Machine::new(&chain);
    machine.store.refuses.lock().replace(named("fourth"));
    for _again in 0..2 {
        let failed = machine.snapshots.offload_idle(i64::MAX, LONG);
        assert!(matches!(failed, Err(SnapshotError::Remote(_))), "{failed:?}");
        let here = chain.map(|name| machine.is_here(name));
        assert_eq!(here, [true, true, true, true, false, false, false]);
    }
    machine.store.refuses.lock().take();
    machine.snapshots.offload_idle(i64::MAX, LONG).unwrap();
    machine.snapshots.offload_idle(i64::MAX, LONG).unwrap();
    assert_eq!(chain.map(|name| machine.is_here(name)), [false; 7]);
}

#[test]
fn a_store_that_is_away_is_not_asked_for_every_snapshot() {
    let machine = Machine::new(&["one"]);
    let more = ["two", "three", "four", "five", "six", "seven"];
    for name in more {
        // They lie over nothing.
        fs::create_dir_all(machine.path(name).join("layer")).unwrap();
        let about = About { sort: Sort::Layer, parent: None, size_bytes: SIZE_BYTES, base: None };
        about.write(&machine.path(name)).unwrap();
    }
    let snapshots = opened(machine.folder.path());
    snapshots.use_remote(machine.store.clone());
    machine.store.memory.is_away.store(true, Ordering::Relaxed);
    snapshots.offload_idle(i64::MAX, LONG).unwrap_err();
    let failed = snapshots.all.lock().kept.values().filter(|kept| kept.failed_to_leave).count();
    assert_eq!(failed, FAILURES_MAX as usize);
    // The ones that were not tried come first the next time.
    snapshots.offload_idle(i64::MAX, LONG).unwrap_err();
    let failed = snapshots.all.lock().kept.values().filter(|kept| kept.failed_to_leave).count();
    assert_eq!(failed, 7);
    assert!(more.iter().all(|name| snapshots.is_here(&named(name))));
}

#[test]
fn a_store_that_is_away_leaves_all_as_it_is() {
    let machine = Machine::new(&["one"]);
    machine.store.memory.is_away.store(true, Ordering::Relaxed);
    let refused = machine.snapshots.offload(&named("one"));
    assert!(matches!(refused, Err(SnapshotError::Remote(_))), "{refused:?}");
    assert!(machine.is_here("one"));
    machine.store.memory.is_away.store(false, Ordering::Relaxed);
    machine.offload("one");
    machine.store.memory.is_away.store(true, Ordering::Relaxed);
    let refused = machine.snapshots.fetch(&named("one"));
    assert!(matches!(refused, Err(SnapshotError::Remote(_))), "{refused:?}");
    machine.store.memory.is_away.store(false, Ordering::Relaxed);
    assert!(!machine.is_here("one"));
    assert_eq!(machine.held_mb(), 1);
    machine.snapshots.fetch(&named("one")).unwrap();
    assert!(machine.is_here("one"));
}

#[test]
fn a_stream_that_breaks_leaves_nothing_here() {
    let machine = Machine::new(&["one"]);
    machine.offload("one");
    machine.store.memory.cuts.store(true, Ordering::Relaxed);
    let refused = machine.snapshots.fetch(&named("one"));
    assert!(matches!(refused, Err(SnapshotError::Remote(_))), "{refused:?}");
    assert!(!machine.is_here("one"));
    machine.store.memory.cuts.store(false, Ordering::Relaxed);
    machine.snapshots.fetch(&named("one")).unwrap();
    assert!(machine.is_here("one"));
}

#[test]
fn what_is_begun_with_while_it_leaves_stays() {
    let machine = Machine::new(&["one"]);
    machine.store.taken_by.set(machine.snapshots.clone()).unwrap();
    machine.offload("one");
    assert!(machine.is_here("one"));
    assert!(!machine.store.has("one"));
    machine.store.holds.lock().clear();
}

#[test]
fn what_a_kill_leaves_is_found() {
    let mut machine = Machine::new(&["stored", "noted"]);
    // The stream is stored, but not noted.
    let mut stream = Vec::new();
    pack_into(&machine.path("stored"), &mut stream).unwrap();
    machine.store.memory.streams.lock().insert((owner(), "stored".to_owned()), stream);
    // It is noted, but its files are still here, or here again before the note is removed.
    machine.offload("noted");
    fs::create_dir_all(machine.path("noted").join("layer/etc")).unwrap();
    fs::create_dir_all(machine.path("noted").join(".fetched/layer")).unwrap();
    machine.restart();
    assert!(machine.is_here("stored") && !machine.is_here("noted"));
    machine.snapshots.sweep_remote().unwrap();
    assert!(!machine.store.has("stored") && machine.store.has("noted"));
    machine.snapshots.fetch(&named("noted")).unwrap();
    assert!(machine.is_here("noted"));
}

#[test]
fn what_is_removed_goes_from_the_store_too() {
    let machine = Machine::new(&["base", "top"]);
    machine.offload("top");
    machine.offload("base");
    machine.snapshots.remove(&named("base")).unwrap();
    assert!(machine.store.has("base"), "the other stands on it");
    machine.store.memory.is_away.store(true, Ordering::Relaxed);
    machine.snapshots.remove(&named("top")).unwrap();
    assert!(machine.snapshots.list().is_empty());
    assert!(machine.snapshots.sweep_remote().is_err());
    machine.store.memory.is_away.store(false, Ordering::Relaxed);
    machine.snapshots.sweep_remote().unwrap();
    assert!(machine.store.memory.streams.lock().is_empty());
}

#[test]
fn without_a_store_nothing_leaves_and_nothing_comes() {
    let mut machine = Machine::new(&["one", "two"]);
    machine.offload("two");
    machine.snapshots = opened(machine.folder.path());
    machine.snapshots.offload(&named("one")).unwrap();
    assert!(machine.is_here("one"));
    let refused = machine.snapshots.fetch(&named("two"));
    assert!(matches!(refused, Err(SnapshotError::NoRemote)), "{refused:?}");
}
