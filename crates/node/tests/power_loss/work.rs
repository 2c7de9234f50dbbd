//! What happens while the disk is recorded.

use crate::Chances;
use crate::machine::{Machine, await_that, owner};
use crate::promises::{IN_TEMPLATE, Place, Promise, TEMPLATE, VOLUME, What};
use crate::recorded::Recorded;
use node::{InstanceName, NewSnapshot, NewVolume, Node, SnapshotName, VolumeName};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How many numbers each program writes at least.
const NUMBERS: u64 = 10;
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Sizes of volumes, which lead to different file systems.
const SIZES_MB: [u32; 2] = [32, 320];

struct Scene<'a> {
    node: &'a Node,
    recorded: &'a Recorded,
    promises: Mutex<Vec<Promise>>,
    writers: [(Place, InstanceName); 2],
}

/// Does everything that is promised to last, while two programs write. Returns the promises in
/// order.
pub(crate) fn done(machine: &Machine, recorded: &Recorded, chances: &mut Chances) -> Vec<Promise> {
    let node = machine.open();
    let mut size_mb = chances.of(&SIZES_MB);
    make(&node, VOLUME, size_mb);
    let writers = [Place::Volume, Place::Kept { mb: chances.of(&SIZES_MB) }].map(|place| {
        let spec = place.spec(machine, &place.writer());
        node.create(&spec).unwrap();
        (place, spec.id)
    });
    let scene = Scene { node: &node, recorded, promises: Mutex::default(), writers };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| scene.watch(&over));
        for round in 0..3 {
            scene.snapshot(&format!("snapshot-{round}"));
            scene.make(&format!("more-{round}"), chances.of(&SIZES_MB));
            size_mb += 16;
            scene.grow(VOLUME, size_mb);
            if round == 0 {
                scene.template();
            }
        }
        await_that("the programs to write", || {
            scene.writers.iter().all(|(_, id)| scene.said(id) >= NUMBERS)
        });
        over.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
    for (_, id) in &scene.writers {
        node.destroy(id).unwrap();
    }
    let mut promises = scene.promises.into_inner().unwrap();
    promises.sort_by_key(|promise| promise.since);
    promises
}

fn make(node: &Node, name: &str, size_mb: u32) {
    let name = VolumeName::new(name).unwrap();
    let new = NewVolume { name, owner: owner("somebody"), size_mb, from: None };
    node.volumes().make(&new).unwrap();
}

impl Scene<'_> {
    fn promise(&self, what: What) {
        let since = self.recorded.now();
        self.promises.lock().unwrap().push(Promise { since, what });
    }

    /// Returns the last number that a program has acknowledged.
    fn said(&self, id: &InstanceName) -> u64 {
        let console = self.node.console(id).unwrap();
        let text = String::from_utf8_lossy(&console);
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let last = whole.lines().last();
        last.map_or(0, |line| line.parse().unwrap_or_else(|_| panic!("not a number: {text}")))
    }

    fn watch(&self, over: &AtomicBool) {
        let mut last = [0; 2];
        while !over.load(Ordering::Relaxed) {
            for ((place, id), last) in self.writers.iter().zip(&mut last) {
                let number = self.said(id);
                if number > *last {
                    *last = number;
                    self.promise(What::Written { place: *place, number });
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn snapshot(&self, name: &str) {
        let (_, id) = &self.writers[1];
        let number = self.said(id);
        let new = NewSnapshot {
            name: SnapshotName::new(name).unwrap(),
            owner: owner("somebody"),
            instance: id.clone(),
            base: None,
        };
        self.node.snapshot(&new).unwrap();
        self.promise(What::Snapshot { name: name.into(), number });
    }

    fn make(&self, name: &str, mb: u32) {
        make(self.node, name, mb);
        self.promise(What::Volume { name: name.into(), mb });
    }

    fn grow(&self, name: &str, mb: u32) {
        self.node.volumes().grow(&VolumeName::new(name).unwrap(), mb).unwrap();
        self.promise(What::Volume { name: name.into(), mb });
    }

    fn template(&self) {
        let filling = self.node.volumes().begin(&owner("somebody"), SIZES_MB[0]).unwrap();
        std::fs::write(filling.folder().join("hello"), IN_TEMPLATE).unwrap();
        self.node.volumes().finish(filling, &VolumeName::new(TEMPLATE).unwrap()).unwrap();
        self.promise(What::Template);
    }
}
