//! One instance and what can be done with it.

use crate::body::Body;
use crate::cgroup::{Membership, Usage};
use crate::error::{Doing, Error, On};
use crate::names::Owner;
use crate::records::End;
use crate::settings::{Firewall, Level};
use crate::shared::Stores;
use crate::shares::{Promise, Stake};
use crate::snapshots::Hold;
use crate::state::{Event, State};
use crate::tunnel::Tunnel;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::process::Signal;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use types::instance::{Exit, Happened, InstanceName};

/// How long the kernel may take to end a killed process. One that waits for a disk may need all of
/// it.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

/// The state of an instance at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub id: InstanceName,
    pub state: State,
    /// The id of the first process, as the machine sees it.
    pub pid: Option<i32>,
    pub memory_mb: u32,
    pub address: std::net::Ipv4Addr,
    pub owner: Option<Owner>,
}

pub(crate) struct Instance {
    pub(crate) id: InstanceName,
    pub(crate) slot: u32,
    pub(crate) memory_mb: u32,
    pub(crate) body: Body,
    pub(crate) owner: Option<Owner>,
    /// What the machine's firewall does with its packets. `None` once its address may be in use by
    /// another.
    firewall: Mutex<Option<Firewall>>,
    pub(crate) tunnel: Mutex<Option<Tunnel>>,
    holdings: Mutex<Option<Holdings>>,
    /// The memory promised to it. Changes with the state, under the state's lock.
    promise: Mutex<Option<Promise>>,
    /// Kept locked while the state is being changed, or must not change.
    state: Mutex<State>,
    /// The same state, for those who only look. Never kept locked.
    shown: Mutex<State>,
    changed: Condvar,
    /// Why this node ended it, if that says more than how its process ended.
    verdict: OnceLock<Exit>,
    stores: Arc<Stores>,
}

/// What an instance takes of its owner's share, until it is gone.
pub(crate) struct Holdings {
    pub(crate) _stake: Stake,
    pub(crate) _membership: Option<Membership>,
    pub(crate) _snapshot: Option<Hold>,
}

/// What an instance is made of, when it is started or adopted.
pub(crate) struct Origin {
    pub(crate) id: InstanceName,
    pub(crate) slot: u32,
    pub(crate) memory_mb: u32,
    pub(crate) body: Body,
    pub(crate) state: State,
    pub(crate) owner: Option<Owner>,
    pub(crate) firewall: Firewall,
    pub(crate) holdings: Holdings,
    pub(crate) promise: Option<Promise>,
}

impl Instance {
    pub(crate) fn new(origin: Origin, stores: Arc<Stores>) -> Self {
        let Origin { id, slot, memory_mb, body, state, owner, firewall, holdings, promise } =
            origin;
        let (shown, state) = (Mutex::new(state), Mutex::new(state));
        let (promise, changed) = (Mutex::new(promise), Condvar::new());
        let holdings = Mutex::new(Some(holdings));
        // An instance without a process has no address either.
        let firewall = Mutex::new(body.process().is_some().then_some(firewall));
        Self {
            id,
            slot,
            memory_mb,
            body,
            owner,
            firewall,
            tunnel: Mutex::new(None),
            holdings,
            promise,
            state,
            shown,
            changed,
            verdict: OnceLock::new(),
            stores,
        }
    }

    pub(crate) fn firewall(&self) -> Option<Firewall> {
        self.firewall.lock().clone()
    }

    /// Changes what the machine's firewall does with the instance's packets. `change` gets the old
    /// and the new rules.
    pub(crate) fn set_firewall(
        &self,
        new: Firewall,
        change: impl FnOnce(&Firewall, &Firewall) -> io::Result<()>,
    ) -> Result<(), Error> {
        let mut firewall = self.firewall.lock();
        let Some(old) = firewall.as_ref() else { return Err(Error::Missing(self.id.clone())) };
        if *old == new {
            return Ok(());
        }
        // Recorded first: should this process die in between, the next node does what was asked
        // for.
        let changed = self.stores.records.put_firewall(&self.id, &new).and_then(|()| {
            change(old, &new).inspect_err(|_| {
                if let Err(error) = self.stores.records.put_firewall(&self.id, old) {
                    tracing::error!(%error, instance = %self.id, "cannot record that a firewall stayed as it was");
                }
            })
        });
        changed.doing("change the firewall of").on(&self.id)?;
        *firewall = Some(new);
        Ok(())
    }

    /// Removes the instance from the machine's firewall. None of its processes may run any more.
    pub(crate) fn clear_firewall(
        &self,
        clear: impl FnOnce(&Firewall) -> io::Result<()>,
    ) -> Result<(), Error> {
        let mut firewall = self.firewall.lock();
        let Some(old) = firewall.as_ref() else { return Ok(()) };
        clear(old).doing("clear the firewall of").on(&self.id)?;
        *firewall = None;
        Ok(())
    }

    /// Runs `work`, and then ends a tunnel that would bypass a firewall of this level. No tunnel
    /// can be started meanwhile.
    pub(crate) fn without_way_past<T>(&self, level: Level, work: impl FnOnce() -> T) -> T {
        let mut tunnel = self.tunnel.lock();
        let done = work();
        if level == Level::Closed {
            drop(tunnel.take());
        }
        done
    }

    /// Returns the state at this moment. Waits for nothing, not even for a snapshot.
    pub(crate) fn state(&self) -> State {
        *self.shown.lock()
    }

    pub(crate) fn pause(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.step(Event::Paused, self.stores.world.now())?.is_none() {
            return Ok(());
        }
        self.body.freeze().on(&self.id)?;
        self.apply(&mut state, Event::Paused, Some(Happened::Paused))
    }

    pub(crate) fn resume(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.step(Event::Resumed, self.stores.world.now())?.is_none() {
            // It may be frozen all the same, because an earlier thaw failed.
            return self.body.thaw().on(&self.id);
        }
        // Recorded before the thaw: an instance that runs is paid for, even if this process is
        // killed in between.
        self.apply(&mut state, Event::Resumed, Some(Happened::Resumed))?;
        self.body.thaw().on(&self.id)
    }

    /// Freezes the instance while `work` runs, and returns for how long. A sleeping instance stays
    /// asleep. No fact is reported, because this is not a pause and is paid for.
    pub(crate) fn hold<E: From<Error>>(
        &self,
        work: impl FnOnce() -> Result<(), E>,
    ) -> Result<Duration, E> {
        let state = self.state.lock();
        match *state {
            State::Running { .. } => {}
            State::Paused { .. } | State::Exited { .. } => return work().map(|()| Duration::ZERO),
            State::Stopping { .. } => return Err(Error::Missing(self.id.clone()).into()),
        }
        let note = |is_held| {
            let noted = self.stores.records.put_held(&self.id, is_held);
            noted.doing("record the hold of").on(&self.id)
        };
        // Recorded first: should this process die in between, the next node thaws it.
        note(true)?;
        let began = Instant::now();
        if let Err(attempt) = self.body.freeze() {
            // It runs on, and the next node must not take a pause for this hold.
            note(false)?;
            return Err(attempt.on(&self.id).into());
        }
        let worked = work();
        self.body.thaw().on(&self.id)?;
        let held = began.elapsed();
        note(false)?;
        worked.map(|()| held)
    }

    /// Asks the first process to end, and kills it after `grace`.
    pub(crate) fn stop(&self, grace: Duration) -> Result<Exit, Error> {
        let mut state = self.state.lock();
        // A snapshot may have held the lock, which takes nothing of the grace.
        let deadline = Instant::now() + grace;
        let was_paused = matches!(*state, State::Paused { .. });
        self.apply(&mut state, Event::StopRequested, None)?;
        if was_paused {
            self.body.thaw().on(&self.id)?;
        }
        if !grace.is_zero() {
            self.signal(Signal::TERM)?;
            if let Some(exit) = self.wait_for_exit(&mut state, deadline) {
                return Ok(exit);
            }
        }
        self.kill(state)
    }

    /// Kills the first process, and with it all others of its process namespace.
    pub(crate) fn end(&self) -> Result<Exit, Error> {
        self.stop(Duration::ZERO)
    }

    /// Ends the instance, and reports that it ended in this way.
    pub(crate) fn end_as(&self, exit: Exit) -> Result<(), Error> {
        self.verdict.get_or_init(|| exit);
        self.end().map(drop)
    }

    /// Returns how the first process ended, or `None` if it has not within `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<Exit> {
        self.wait_for_exit(&mut self.state.lock(), Instant::now() + timeout)
    }

    fn kill(&self, mut state: MutexGuard<'_, State>) -> Result<Exit, Error> {
        if !matches!(*state, State::Exited { .. }) {
            // Even to end takes processor time. Thousands of processes that share a small part of a
            // processor would need many minutes.
            if let Err(attempt) = self.body.lift_cpu_limit() {
                let error = attempt.on(&self.id);
                tracing::warn!(%error, "an instance that is killed may take long to end");
            }
            self.signal(Signal::KILL)?;
        }
        self.wait_for_exit(&mut state, Instant::now() + KILL_TIMEOUT)
            .ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))
            .doing("end")
            .on(&self.id)
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        let Some(process) = self.body.process() else { return Ok(()) };
        process.signal(signal).on(&self.id)
    }

    fn wait_for_exit(&self, state: &mut MutexGuard<'_, State>, deadline: Instant) -> Option<Exit> {
        loop {
            if let State::Exited { exit, .. } = **state {
                return Some(exit);
            }
            if self.changed.wait_until(state, deadline).timed_out() {
                return match **state {
                    State::Exited { exit, .. } => Some(exit),
                    _ => None,
                };
            }
        }
    }

    /// Notes that the first process has ended. Called by the watch.
    pub(crate) fn ended(&self) {
        let Some(process) = self.body.process() else { return };
        let exit = process.exit();
        let mut state = self.state.lock();
        let exit = match (exit, *state) {
            (exit, State::Stopping { .. }) => self.verdict.get().copied().unwrap_or(exit),
            (Exit::Signal(9), _) if self.body.oom_kills().is_ok_and(|kills| kills > 0) => {
                Exit::OutOfMemory
            }
            (exit, _) => exit,
        };
        if let Err(error) = self.apply(&mut state, Event::Ended(exit), Some(Happened::Exited(exit)))
        {
            tracing::error!(%error, instance = %self.id, "cannot record the end of an instance");
        }
        if let State::Exited { at, exit } = *state
            && let Err(error) = self.stores.records.put_end(&self.id, End { at, exit })
        {
            tracing::error!(%error, instance = %self.id, "cannot keep how an instance ended");
        }
    }

    /// Changes the state if `event` does, and records the fact that goes with it.
    fn apply(
        &self,
        state: &mut State,
        event: Event,
        happened: Option<Happened>,
    ) -> Result<(), Error> {
        let now = self.stores.world.now();
        let Some(next) = state.step(event, now)? else { return Ok(()) };
        *state = next;
        *self.shown.lock() = next;
        self.keep_promise(next);
        self.changed.notify_all();
        if let Some(happened) = happened {
            self.stores.journal.record(now, &self.id, happened);
        }
        Ok(())
    }

    /// Keeps memory promised to an instance that is awake. One that wakes is never refused.
    fn keep_promise(&self, state: State) {
        let mut promise = self.promise.lock();
        *promise = match state {
            State::Paused { .. } | State::Exited { .. } => None,
            State::Running { .. } | State::Stopping { .. } => {
                Some(promise.take().unwrap_or_else(|| {
                    self.stores.shares.adopt_promise(&self.owner, self.memory_mb)
                }))
            }
        };
    }

    /// Gives back its part of the owner's share, once everything else of it is gone. Others may
    /// hold this instance for a moment longer, which should not keep the share taken.
    pub(crate) fn let_go(&self) {
        drop(self.holdings.lock().take());
    }

    pub(crate) fn usage(&self) -> Result<Usage, Error> {
        self.body.usage().on(&self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::Capacity;
    use crate::cgroup::Group;
    use crate::error::SnapshotError;
    use crate::records::Record;
    use std::path::Path;
    use types::{Timestamp, World};

    fn stores(folder: &Path) -> Arc<Stores> {
        let world = World::new(|| Timestamp::from_ms(5), |bytes| bytes.fill(7));
        let capacity = Capacity::of(&crate::settings::Limits::default(), folder).unwrap();
        let pool = crate::pool::Pool::open(folder, 1_000).unwrap();
        let volumes = crate::volumes::Volumes::open(folder, capacity.volume_mb, &pool).unwrap();
        let volumes = Arc::new(volumes);
        Arc::new(Stores {
            journal: crate::facts::Journal::open(folder, 10, world.clone()).unwrap(),
            records: crate::records::Records::open(folder).unwrap(),
            bundles: crate::oci::Bundles::open(folder).unwrap(),
            scratches: crate::scratch::Scratches::open(folder).unwrap(),
            snapshots: crate::snapshots::Snapshots::open(folder, &volumes).unwrap(),
            volumes,
            drives: crate::drives::Drives::default(),
            shares: crate::shares::Shares::new(&capacity),
            sign: crate::sign::Sign::open(folder).unwrap(),
            world,
        })
    }

    /// An instance without a process, which needs nothing of the kernel.
    fn ended(stores: &Arc<Stores>, exit: Exit) -> Instance {
        let at = stores.world.now();
        let record = Record { memory_mb: 64, end: Some(End { at, exit }), ..Record::default() };
        let id = InstanceName::new("one").unwrap();
        let group = Group::V2 { folder: "/no/such/group".into() };
        let origin = Origin {
            body: Body::adopt(stores, &id, &record, group, None),
            id,
            slot: 0,
            memory_mb: 64,
            state: State::Exited { at, exit },
            owner: None,
            firewall: Firewall::default(),
            holdings: Holdings {
                _stake: stores.shares.adopt(&None, &[]),
                _membership: None,
                _snapshot: None,
            },
            promise: None,
        };
        Instance::new(origin, Arc::clone(stores))
    }

    #[test]
    fn whoever_looks_at_an_instance_does_not_wait_for_its_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let stores = stores(folder.path());
        let instance = ended(&stores, Exit::Code(3));
        let work = || {
            assert!(instance.state.try_lock().is_none(), "nothing changes it meanwhile");
            assert!(instance.shown.try_lock().is_some(), "and everybody can see it");
            assert!(matches!(instance.state(), State::Exited { exit: Exit::Code(3), .. }));
            Ok::<_, Error>(())
        };
        assert_eq!(instance.hold(work).unwrap(), Duration::ZERO);
    }

    #[test]
    fn an_instance_that_is_being_stopped_is_gone_for_a_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let stores = stores(folder.path());
        let instance = ended(&stores, Exit::Code(3));
        *instance.state.lock() = State::Stopping { since: stores.world.now() };
        let refused = instance.hold(|| Ok::<_, SnapshotError>(()));
        assert!(matches!(refused, Err(SnapshotError::Gone(_))), "{refused:?}");
    }
}
