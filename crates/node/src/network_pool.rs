//! The pool of networks, users, devices and waiting processes: the parts of an instance that take
//! longest to make, made before they are needed.
//!
//! A slot of the pool has a number. Its address and its user ids follow from that number, so no two
//! instances share either. Numbers are given out round-robin, because the kernel takes a moment to
//! release the network of an instance that is gone.

use crate::disk;
use crate::launch::LaunchError;
use crate::launch::starter::{Parts, Starter, Waiting};
use crate::net::Home;
use crate::number::fit;
use crate::settings::{Backend, Settings};
use crate::users::{IDS_PER_INSTANCE, make_users};
use parking_lot::{Condvar, Mutex};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How many numbers to try while the kernel still holds the network of an earlier instance.
const TRIES: usize = 16;
/// As long as at least one part in this many of the pool is left, it is refilled only when nobody
/// has taken a slot for [`QUIET`]: making networks would take the processor, and locks of the
/// kernel, from instances that are just being started.
const LOW_PART: usize = 4;
const QUIET: Duration = Duration::from_millis(20);
/// For how long a new pool keeps no more than these ready: a server that starts needs the processor
/// to read what it has.
const QUIET_AT_START: Duration = Duration::from_secs(1);
const READY_AT_START: usize = 4;

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) number: u32,
    pub(crate) network: OwnedFd,
    pub(crate) users: OwnedFd,
    pub(crate) devices: OwnedFd,
    pub(crate) console: OwnedFd,
    /// The process that becomes the instance. `None` if an external program starts it.
    pub(crate) first: Option<Waiting>,
    /// The user id that the instance's root has outside.
    pub(crate) root: u32,
}

pub(crate) struct NetworkPool {
    shared: Arc<Shared>,
    maker: Option<JoinHandle<()>>,
}

struct Shared {
    home: Arc<Home>,
    /// `None` if an external program starts instances.
    starter: Option<Arc<Starter>>,
    first_uid: u32,
    wanted: usize,
    state: Mutex<Free>,
    changed: Condvar,
}

/// The numbers in use, and the slots that are ready.
struct Free {
    ready: VecDeque<Slot>,
    taken: HashSet<u32>,
    next: u32,
    count: u32,
    /// Until when the pool is new.
    new_until: Instant,
    /// Until when as many slots as are ready will do, if they are not too few.
    quiet_until: Instant,
    open: bool,
}

impl Slot {
    /// Makes the process that waits to become the instance of this slot. There can be one only, to
    /// which the devices are attached.
    fn fork(&self, starter: &Starter) -> Result<Waiting, LaunchError> {
        starter.fork(&Parts {
            network: self.network.as_fd(),
            users: self.users.as_fd(),
            devices: self.devices.as_fd(),
            output: self.console.as_fd(),
        })
    }

    /// Returns false if its process was killed, for example because the machine ran out of memory.
    fn is_usable(&self) -> bool {
        self.first.as_ref().is_none_or(Waiting::is_alive)
    }
}

impl NetworkPool {
    /// Opens the pool. `taken` are the numbers of instances that live on from an earlier node.
    pub(crate) fn open(
        home: Arc<Home>,
        starter: Arc<Starter>,
        settings: &Settings,
        taken: HashSet<u32>,
    ) -> io::Result<Self> {
        let ready = settings.limits.networks_ready;
        let ids = (u32::MAX - settings.first_uid) / IDS_PER_INSTANCE;
        let count = settings
            .subnet
            .slots()
            .min(ids)
            .min(settings.limits.instances.saturating_add(ready).saturating_mul(2));
        // Start after the numbers that an earlier node gave out.
        let next = taken.iter().max().map_or(0, |last| last + 1);
        let new_until = Instant::now() + QUIET_AT_START;
        let free = Free {
            ready: VecDeque::new(),
            taken,
            next,
            count,
            new_until,
            quiet_until: new_until,
            open: true,
        };
        let starter = Some(starter).filter(|_| settings.backend == Backend::Direct);
        let shared = Arc::new(Shared {
            home,
            starter,
            first_uid: settings.first_uid,
            wanted: fit(ready),
            state: Mutex::new(free),
            changed: Condvar::new(),
        });
        let maker = Arc::clone(&shared);
        let maker = std::thread::Builder::new()
            .name("network-pool".into())
            .spawn(move || maker.keep_ready())?;
        Ok(Self { shared, maker: Some(maker) })
    }

    /// Returns a ready slot, or makes one. `None` if all are taken.
    pub(crate) fn take(&self) -> io::Result<Option<Slot>> {
        self.shared.state.lock().expect_more();
        let mut ready = self.next_ready();
        while let Some(slot) = ready.take_if(|slot| !slot.is_usable()) {
            let number = slot.number;
            drop(slot);
            self.give_back(number);
            ready = self.next_ready();
        }
        self.shared.changed.notify_all();
        ready.map_or_else(|| self.shared.make(), |slot| Ok(Some(slot)))
    }

    fn next_ready(&self) -> Option<Slot> {
        self.shared.state.lock().ready.pop_front()
    }

    /// Releases the number of a slot whose instance is gone.
    pub(crate) fn give_back(&self, number: u32) {
        self.shared.state.lock().taken.remove(&number);
    }
}

impl Drop for NetworkPool {
    fn drop(&mut self) {
        self.shared.state.lock().open = false;
        self.shared.changed.notify_all();
        if let Some(maker) = self.maker.take() {
            let _ = maker.join();
        }
        // All of them before the first is waited for: each takes the kernel milliseconds.
        let ready = std::mem::take(&mut self.shared.state.lock().ready);
        ready.iter().filter_map(|slot| slot.first.as_ref()).for_each(Waiting::end);
    }
}

impl Shared {
    fn keep_ready(&self) {
        while self.wait_until_due() {
            match self.make() {
                Ok(Some(slot)) => self.state.lock().ready.push_back(slot),
                Ok(None) => self.wait_for_a_caller(),
                Err(error) => {
                    tracing::warn!(%error, "cannot make a network ahead");
                    self.wait_for_a_caller();
                }
            }
        }
    }

    /// Waits for the next caller that takes a slot. It makes the slot itself and sees what is wrong;
    /// then the pool tries again.
    fn wait_for_a_caller(&self) {
        let mut state = self.state.lock();
        if state.open {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until one more slot should be made. Returns `false` when the pool closes.
    fn wait_until_due(&self) -> bool {
        let mut state = self.state.lock();
        while state.open {
            let (ready, quiet_until) = (state.ready.len(), state.quiet_until);
            let least = state.least(self.wanted, Instant::now());
            if ready >= self.wanted {
                self.changed.wait(&mut state);
            } else if ready >= least && Instant::now() < quiet_until {
                self.changed.wait_until(&mut state, quiet_until);
            } else {
                return true;
            }
        }
        false
    }

    /// Makes a slot. `None` if no number is left for one.
    fn make(&self) -> io::Result<Option<Slot>> {
        let mut failure = None;
        for _ in 0..TRIES {
            let Some(number) = self.state.lock().draw() else { break };
            match self.fill(number) {
                Ok(slot) => return Ok(Some(slot)),
                Err(error) => {
                    self.state.lock().taken.remove(&number);
                    let busy = error.kind() == io::ErrorKind::AlreadyExists;
                    failure = Some(error);
                    if !busy {
                        break;
                    }
                }
            }
        }
        failure.map_or(Ok(None), Err)
    }

    fn fill(&self, number: u32) -> io::Result<Slot> {
        let root = self.first_uid + number * IDS_PER_INSTANCE;
        let mut slot = Slot {
            number,
            network: self.home.make(number)?,
            users: make_users(root)?,
            devices: disk::make_devices()?,
            console: disk::make_console(root)?,
            first: None,
            root,
        };
        let fork = |starter: &Arc<Starter>| slot.fork(starter);
        slot.first = self.starter.as_ref().map(fork).transpose().map_err(io::Error::other)?;
        Ok(slot)
    }
}

impl Free {
    /// Leaves the processor to whoever takes slots now, as long as there are enough.
    fn expect_more(&mut self) {
        self.quiet_until = self.quiet_until.max(Instant::now() + QUIET);
    }

    /// Returns how many slots must be ready even while others are being taken.
    fn least(&self, wanted: usize, now: Instant) -> usize {
        let part = wanted.div_ceil(LOW_PART);
        if now < self.new_until { part.min(READY_AT_START) } else { part }
    }

    fn draw(&mut self) -> Option<u32> {
        for offset in 0..self.count {
            let number = (self.next + offset) % self.count;
            if self.taken.insert(number) {
                self.next = (number + 1) % self.count;
                return Some(number);
            }
        }
        None
    }
}
