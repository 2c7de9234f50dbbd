//! What was acknowledged survives a power loss of the machine.
//!
//! A node's folder is on a disk that records each write and each flush in a journal ([`fuse`]).
//! Programs in instances write, `fsync`, and report that; meanwhile volumes are made, grown and
//! filled, and snapshots are taken. Then the power loss is simulated at some moments of that
//! journal ([`cut`]): what was flushed is on the disk, of the rest only some. A node that starts on
//! that disk must have everything that was acknowledged by then.
//!
//! `HOLM_POWER_CUTS` sets the number of cuts; `make test` makes a few. The random seed is printed,
//! and `HOLM_SEED` repeats the cuts, as far as the timing of processes can be repeated.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a failed step is a failed test, and who repeats it reads where it failed"
)]

mod cut;
mod fuse;
#[expect(dead_code, reason = "the machine is that of all tests of instances, which use more of it")]
#[path = "../machine/mod.rs"]
mod machine;
mod promises;
mod recorded;
mod work;

use cut::{Journal, Unflushed};
use machine::{BACKEND, Machine};
use promises::Promise;
use recorded::{DISK_MB, Format, Recorded};

const CUTS: usize = 4;
/// The most cuts of one journal.
const CUTS_OF_ONE: usize = 6;

/// Random numbers from a seed, so that a run can be repeated.
struct Chances(u64);

impl Chances {
    fn new() -> Self {
        let seed = std::env::var("HOLM_SEED").ok().map(|seed| seed.parse().expect("a number"));
        let seed = seed.unwrap_or_else(|| {
            let mut bytes = [0; 8];
            getrandom::fill(&mut bytes).unwrap();
            u64::from_ne_bytes(bytes)
        });
        println!("HOLM_SEED={seed}");
        Self(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

/// Not a test of its own: this is the process that serves as the disk of the test below.
#[test]
#[ignore = "run by another test"]
fn disk() {
    if let Some(folder) = std::env::var_os(recorded::FOLDER) {
        fuse::serve(folder.as_ref()).unwrap();
    }
}

#[test]
fn what_was_acknowledged_survives_the_loss_of_power() {
    if std::env::var(BACKEND).is_ok_and(|backend| backend == "runc") {
        return;
    }
    let cuts = std::env::var("HOLM_POWER_CUTS").ok();
    let cuts = cuts.map_or(CUTS, |cuts| cuts.parse().expect("HOLM_POWER_CUTS is a number"));
    let mut chances = Chances::new();
    let mut left = cuts;
    for format in [Format::Ext4, Format::Xfs].into_iter().cycle() {
        if left == 0 {
            break;
        }
        let share = left.min(CUTS_OF_ONE).min(cuts.div_ceil(2));
        left -= share;
        // A thread of its own, whose mounts nobody else sees.
        std::thread::scope(|scope| scope.spawn(|| lose_power(format, share, &mut chances)).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

/// Records one journal, and tests several cuts of it.
fn lose_power(format: Format, cuts: usize, chances: &mut Chances) {
    let folder = tempfile::tempdir().unwrap();
    // The disk's process must not have the mounts of this thread.
    let mut recorded = Recorded::begin(folder.path(), format);
    let machine = recorded.machine();
    recorded.mount();
    let promises = work::done(&machine, &recorded, chances);
    recorded.end();
    let journal = Journal::read(&folder.path().join(recorded::JOURNAL));
    let end = journal.end();
    println!("{format:?}: {} MB written, {} promises", end >> 20, promises.len());
    for _ in 0..cuts {
        let at = match chances.below(2) {
            // Exactly when something was promised.
            0 => promises[usize::try_from(chances.below(promises.len() as u64)).unwrap()].since,
            _ => promises[0].since + chances.below(end - promises[0].since),
        };
        let unflushed = chances.of(&[Unflushed::None, Unflushed::Some, Unflushed::All]);
        println!("cut at {at} of {end}, of what was not flushed {unflushed:?}");
        journal.replay(at, unflushed, &recorded.copy(), chances);
        let held: Vec<_> = promises.iter().filter(|it| it.since <= at).cloned().collect();
        check(&machine, &recorded, &held);
    }
}

/// Starts the node on a cut disk, and checks it.
fn check(machine: &Machine, recorded: &Recorded, held: &[Promise]) {
    recorded.mount_copy();
    let node = machine.open();
    promises::check(machine, &node, held);
    drop(node);
    recorded.unmount();
}

/// Raises the node's limits, which are not what is tested. The disk is large enough for what is
/// stored on it.
fn limit(machine: &mut Machine) {
    machine.settings.limits.volume_mb = Some(u64::from(DISK_MB));
    machine.settings.limits.share_percent = 100;
}
