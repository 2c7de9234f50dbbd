//! The loop in which a machine claims tasks and reports their outcomes.
//!
//! ```text
//! runner ─outcomes─▶ ┌───────────────── round: ONE transaction ─────────────────┐ ──claims──▶ runner
//! commits, clock ──▶ │ renew lease · take tasks of the lost · record · claim     │ ──recorded──▶ removal
//!                    └────────────────────────────────────────────────────────┘
//! ```
//!
//! So all tasks that have ended meanwhile share one commit. An attempt is removed from the machine
//! after its outcome is durable, and keeps its slot until then.
//!
//! # The lease
//!
//! A machine holds its tasks by one row, which it renews with each heartbeat. The others watch
//! whether that row changes. If it has not changed for the length of a lease, measured by the
//! watcher's steady clock, they take away the row and the tasks with it; these tasks are lost. A
//! watcher that could not see the rows for half a lease begins to count anew. A machine that cannot renew its lease
//! ends its tasks by its own clock, when three quarters of the lease have passed since it began the
//! last successful renewal. So the clocks of machines need not agree; they must only run at the same
//! speed.
//!
//! A machine whose program was killed cannot end anything: its instances continue to run. If the
//! program is not back within the lease, others begin the same tasks anew. So the work of a task
//! may be done twice, but its result is accepted once.
//!
//! Each heartbeat also compares what runs here with the rows, and so does the deletion of a workspace
//! ([`Queue::note_removal`]). What another machine has taken over ends at once; what is gone with its
//! workspace is asked to end, and has its grace period. Instances whose removal failed are removed
//! then, too.

mod compare;
mod lease;
mod orders;
mod round;
mod slots;

use crate::plan::{Assignment, Order};
use crate::queue::Queue;
use crate::task_runner::TaskRunner;
use lease::Lease;
use orders::Orders;
use round::{Done, Ended, Round};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::executions::SlotKind;
use store::executions::claims::{self, Claimer};
use store::executions::tasks::{self, Task};
use store::{Error, Store, Tx};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::ids::{ExecutionId, WorkspaceId};
use types::instance::{AttemptId, Outcome, WorkEnd};

/// Pause after a failure of the database.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long commits do not trigger another look after tasks seemed ready but none could be claimed.
const QUIET: Duration = Duration::from_millis(50);
/// More tasks than a machine ever holds.
const HELD_MAX: i64 = 1_000_000;

/// Claims and runs tasks until `ending`. Tasks that run then are left running, and found again at
/// the next start.
pub async fn run<C: TaskRunner<Assignment>>(
    store: Store,
    queue: Queue,
    runner: Arc<C>,
    ending: CancellationToken,
) {
    let mut dispatcher = Dispatcher::new(store, queue, runner);
    ending.run_until_cancelled(dispatcher.begin()).await;
    while ending.run_until_cancelled(dispatcher.wait()).await.is_some() {
        dispatcher.work(true).await;
    }
    dispatcher.work(false).await;
}

struct Dispatcher<C> {
    store: Store,
    queue: Queue,
    runner: Arc<C>,
    /// Everything that has a slot of this machine.
    mine: HashMap<AttemptId, Mine>,
    /// Outcomes that are not recorded yet.
    ends: Vec<(AttemptId, WorkEnd)>,
    running: JoinSet<Event>,
    of_running: HashMap<tokio::task::Id, AttemptId>,
    orders: Orders,
    lease: Lease,
    /// The turn of the execution that was claimed from last.
    turn: i64,
    commits: watch::Receiver<i64>,
    /// Whether there may be something to claim.
    ready: bool,
    /// The kinds of slots of which there were fewer than ready tasks or calls, when last claimed.
    short_of: Vec<SlotKind>,
    look_at: Instant,
    quiet_until: Instant,
}

struct Mine {
    /// The task as it was claimed.
    task: Task,
    /// `None` if it does not run, because its execution is gone or could not be read.
    workspace: Option<WorkspaceId>,
    memory_mb: i64,
    slot: SlotKind,
    stage: Stage,
}

enum Stage {
    Running(AbortHandle),
    /// Its outcome has to be recorded; its leftovers are on the machine.
    Ended,
    /// Its outcome has to be recorded; nothing of it is on the machine.
    Gone,
    /// It is recorded, and being removed from the machine.
    Leaving,
}

enum Event {
    Ended(AttemptId, WorkEnd),
    Removed(AttemptId),
}

impl<C: TaskRunner<Assignment>> Dispatcher<C> {
    fn new(store: Store, queue: Queue, runner: Arc<C>) -> Self {
        let now = Instant::now();
        Self {
            lease: Lease::new(queue.settings()),
            orders: Orders::default(),
            commits: store.commits(),
            store,
            queue,
            runner,
            mine: HashMap::new(),
            ends: Vec::new(),
            running: JoinSet::new(),
            of_running: HashMap::new(),
            turn: 0,
            ready: true,
            short_of: Vec::new(),
            look_at: now,
            quiet_until: now,
        }
    }

    /// Continues with what an earlier run of this program has left, as far as it still belongs to
    /// this machine.
    async fn begin(&mut self) {
        let held = loop {
            match self.held().await {
                Ok(held) => break held,
                Err(error) => {
                    tracing::error!(%error, "the tasks of this machine cannot be read; trying again")
                }
            }
            tokio::time::sleep(RETRY_AFTER).await;
        };
        let present = self.runner.present();
        let strays = present.iter().filter(|id| !held.contains_key(id)).cloned().collect();
        self.end_strays(strays).await;
        for (id, task) in held {
            match present.contains(&id) {
                true => self.assign(id, task).await,
                false => self.lose(id, task, "the machine does not have it any more"),
            }
        }
    }

    /// Returns the tasks that this machine holds according to the rows.
    async fn held(&mut self) -> Result<HashMap<AttemptId, Task>, Error> {
        let (store, holder) = (self.store.clone(), self.runner.name().to_owned());
        let read = async move { store.read(move |tx| tasks::held(tx, &holder, HELD_MAX)).await };
        let held = self.guarded(read).await?;
        Ok(held.into_iter().filter_map(|task| Some((attempt_of(&task)?, task))).collect())
    }

    /// Waits until there is something to do.
    async fn wait(&mut self) {
        loop {
            let now = Instant::now();
            let (free, renew_at) = (!self.rooms().is_empty(), self.lease.renew_at(now));
            if !self.ends.is_empty() || renew_at <= now || (self.ready && free) {
                return;
            }
            let is_quiet = self.quiet_until > now;
            let look_at = if is_quiet { self.quiet_until } else { self.look_at };
            let until = if free { renew_at.min(look_at) } else { renew_at };
            tokio::select! {
                Some(joined) = self.running.join_next_with_id() => {
                    self.note(joined);
                    while let Some(joined) = self.running.try_join_next_with_id() {
                        self.note(joined);
                    }
                    continue;
                }
                // Never fails: we hold the store too.
                _ = self.commits.changed(), if free && !is_quiet => {}
                () = self.queue.removal() => {
                    self.compare_or_warn().await;
                    continue;
                }
                () = tokio::time::sleep_until(until) => {}
            }
            // Whoever was quiet first sees whether anything was committed meanwhile.
            if free && !is_quiet {
                self.look().await;
            }
        }
    }

    /// Finds out whether there is something to claim, or when there will be.
    async fn look(&mut self) {
        let poll = self.queue.settings().poll;
        // Tasks for which there is no room are no reason to claim.
        let of = match self.rooms().as_slice() {
            [(slots, _)] => Some(*slots),
            _ => None,
        };
        let (store, name) = (self.store.clone(), self.runner.name().to_owned());
        let abandoned = self.queue.settings().abandoned(store.world().now());
        let memory_mb = self.queue.settings().memory_mb.into();
        let next = move |tx: &mut Tx<'_>| {
            claims::next_ready(tx, (of, Claimer { name: &name, abandoned, memory_mb }))
        };
        let read = async move { store.read(next).await };
        let ready_at = self.guarded(read).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the queue cannot be read");
            None
        });
        let wait_ms = ready_at.map(|ready_at| ready_at.since(self.store.world().now()));
        self.ready = wait_ms.is_some_and(|ms| ms <= 0);
        let wait =
            wait_ms.and_then(|ms| u64::try_from(ms).ok()).map_or(poll, Duration::from_millis);
        self.look_at = Instant::now() + wait.min(poll);
    }

    /// Notes what ended or was removed.
    fn note(&mut self, joined: Result<(tokio::task::Id, Event), JoinError>) {
        let task = joined.as_ref().map_or_else(JoinError::id, |(task, _)| *task);
        let Some(of) = self.of_running.remove(&task) else { return };
        match joined {
            Ok((_, Event::Ended(id, end))) => self.ended(id, end),
            Ok((_, Event::Removed(id))) => self.give_back(&id),
            Err(error) if error.is_cancelled() => {}
            Err(error) => {
                tracing::error!(%error, attempt = %of, "running an attempt failed inside the server");
                match self.mine.get(&of).map(|mine| &mine.stage) {
                    Some(Stage::Running(_)) => self.ended(of, self.lost("the server failed")),
                    _ => self.give_back(&of),
                }
            }
        }
    }

    fn ended(&mut self, id: AttemptId, end: WorkEnd) {
        let Some(mine) =
            self.mine.get_mut(&id).filter(|mine| matches!(mine.stage, Stage::Running(_)))
        else {
            return;
        };
        mine.stage = Stage::Ended;
        self.ends.push((id, end));
    }

    fn lost(&self, why: &str) -> WorkEnd {
        let ended_at = self.store.world().now();
        WorkEnd { started_at: None, ended_at, outcome: Outcome::Lost(why.to_owned()) }
    }

    /// Gives back a task that is not on this machine.
    fn lose(&mut self, id: AttemptId, task: Task, why: &str) {
        self.ends.push((id.clone(), self.lost(why)));
        // Only until the next round.
        let slot = SlotKind::Task;
        let stage = Stage::Gone;
        self.mine.insert(id, Mine { task, workspace: None, memory_mb: 0, slot, stage });
    }

    /// Does one round, and everything that follows from it.
    async fn work(&mut self, claims: bool) {
        let begun = Instant::now();
        let round = self.round(begun, claims);
        let renews = round.renews;
        let wanted = round.slots.iter().map(|(kind, _)| *kind).collect();
        let recorded: Vec<AttemptId> = self.ends.iter().map(|(id, _)| id.clone()).collect();
        let store = self.store.clone();
        let commit = async move { store.write(move |tx| round.run(tx)).await };
        match self.guarded(commit).await {
            Ok(done) => {
                if renews {
                    self.lease.renewed(begun);
                    let others = done.others.clone().unwrap_or_default();
                    self.lease.watch(others, (begun, Instant::now()));
                }
                self.ends.drain(..recorded.len());
                recorded.into_iter().for_each(|id| self.recorded(id));
                self.follow(done, wanted).await;
                if renews {
                    self.compare_or_warn().await;
                }
            }
            Err(error) => {
                tracing::error!(%error, "the queue cannot be written; trying again");
                tokio::time::sleep(RETRY_AFTER).await;
                if !self.lease.is_safe(Instant::now()) {
                    self.abandon_all().await;
                }
            }
        }
    }

    fn round(&self, now: Instant, claims: bool) -> Round {
        let ended = |(id, end): &(AttemptId, WorkEnd)| {
            Some(Ended { task: self.mine.get(id)?.task.clone(), end: end.clone() })
        };
        let renews = claims && (self.lease.renew_at(now) <= now || !self.lease.is_safe(now));
        Round {
            queue: self.queue.clone(),
            holder: self.runner.name().to_owned(),
            renews,
            run_out: if renews { self.lease.run_out(now) } else { Vec::new() },
            ended: Arc::new(self.ends.iter().filter_map(ended).collect()),
            slots: if claims && self.ready { self.slots() } else { Vec::new() },
            turn: self.turn,
        }
    }

    /// Waits for the database. If that takes so long that the lease is in danger, ends the running
    /// tasks meanwhile. Whatever this loop asks the database goes through here, because nothing else
    /// watches the lease while it waits.
    async fn guarded<T>(
        &mut self,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut asked = Box::pin(asked);
        match tokio::time::timeout_at(self.lease.safe_until(Instant::now()), &mut asked).await {
            Ok(answer) => answer,
            Err(_) => {
                self.abandon_all().await;
                asked.await
            }
        }
    }

    /// Called when the outcome of an attempt is durable.
    fn recorded(&mut self, id: AttemptId) {
        match self.mine.get_mut(&id) {
            Some(mine) if matches!(mine.stage, Stage::Ended) => {
                mine.stage = Stage::Leaving;
                self.remove(id);
            }
            _ => self.give_back(&id),
        }
    }

    /// Frees the slot of an attempt, for whoever waits for it.
    fn give_back(&mut self, id: &AttemptId) {
        let rooms = self.rooms();
        let Some(Mine { slot, .. }) = self.mine.remove(id) else { return };
        // While there is no room of a kind, nobody looks for what waits for it.
        let was_full = rooms.iter().all(|(kind, _)| *kind != slot);
        self.ready |= was_full || self.short_of.contains(&slot);
    }

    /// Starts the tasks that were claimed.
    async fn follow(&mut self, done: Done, wanted: Vec<SlotKind>) {
        self.turn = done.turn;
        self.short_of.retain(|kind| !wanted.contains(kind));
        self.short_of.extend(done.short_of);
        if !wanted.is_empty() {
            self.ready = false;
            if done.claimed.is_empty() {
                self.quiet_until = Instant::now() + QUIET;
                self.look_at = self.look_at.max(self.quiet_until);
            }
        }
        for task in done.claimed {
            let Some(id) = attempt_of(&task) else { continue };
            match self.lease.is_safe(Instant::now()) {
                true => self.assign(id, task).await,
                false => self.lose(id, task, "the machine was too slow"),
            }
        }
    }

    /// Hands an attempt to the runner.
    async fn assign(&mut self, id: AttemptId, task: Task) {
        let order = match self.order(&id.execution).await {
            Ok(_) if self.lease.has_run_out(Instant::now()) => {
                return self.give_up(id, task, "the machine was too slow");
            }
            Ok(Some(order)) => order,
            Ok(None) => return self.give_up(id, task, "the execution is gone"),
            Err(error) => {
                tracing::error!(%error, attempt = %id, "an execution cannot be read");
                return self.give_up(id, task, "the server could not read the execution");
            }
        };
        let (memory_mb, slot) = (order.execution.memory_mb, order.execution.slot_kind());
        let workspace = Some(order.execution.workspace.clone());
        let (runner, attempt, assignment) =
            (self.runner.clone(), id.clone(), Assignment { order, index: id.task });
        let run = self.running.spawn(async move {
            let end = runner.run(&attempt, assignment).await;
            Event::Ended(attempt, end)
        });
        self.of_running.insert(run.id(), id.clone());
        let stage = Stage::Running(run);
        self.mine.insert(id, Mine { task, workspace, memory_mb, slot, stage });
    }

    /// Returns the order of an execution, or `None` if the execution is gone.
    async fn order(&mut self, id: &ExecutionId) -> Result<Option<Arc<Order>>, Error> {
        if let Some(known) = self.orders.known(id) {
            return Ok(Some(known));
        }
        let (store, id) = (self.store.clone(), id.clone());
        let read = self.guarded(async move { orders::read(&store, id).await }).await?;
        Ok(read.map(|order| self.orders.keep(order)))
    }

    /// Gives back a task that cannot be run, although an earlier run of this program may have begun
    /// it. What runs of it ends first, because the task may be tried again once it is recorded.
    fn give_up(&mut self, id: AttemptId, task: Task, why: &str) {
        let (runner, attempt, end) = (self.runner.clone(), id.clone(), self.lost(why));
        let removal = self.running.spawn(async move {
            runner.abandon(&attempt).await;
            Event::Ended(attempt, end)
        });
        self.of_running.insert(removal.id(), id.clone());
        let (slot, stage) = (SlotKind::Task, Stage::Running(removal));
        self.mine.insert(id, Mine { task, workspace: None, memory_mb: 0, slot, stage });
    }

    /// Starts to remove the leftovers of an attempt.
    fn remove(&mut self, id: AttemptId) {
        let (runner, attempt) = (self.runner.clone(), id.clone());
        let removal = self.running.spawn(async move {
            runner.abandon(&attempt).await;
            Event::Removed(attempt)
        });
        self.of_running.insert(removal.id(), id);
    }

    /// Ends everything that runs, before others may take it.
    async fn abandon_all(&mut self) {
        let mut ends = JoinSet::new();
        for (id, mine) in &mut self.mine {
            let Stage::Running(run) = &mine.stage else { continue };
            run.abort();
            mine.stage = Stage::Gone;
            let (runner, attempt) = (self.runner.clone(), id.clone());
            ends.spawn(async move {
                runner.abandon(&attempt).await;
                attempt
            });
        }
        if !ends.is_empty() {
            tracing::error!(
                tasks = ends.len(),
                "the lease of this machine runs out; its tasks are ended"
            );
        }
        for id in ends.join_all().await {
            self.ends.push((id, self.lost("the machine could not renew its lease")));
        }
    }
}

/// Returns the attempt in a row. Rows are written by us, so the numbers fit.
fn attempt_of(task: &Task) -> Option<AttemptId> {
    let (index, number) = (u32::try_from(task.index).ok()?, u32::try_from(task.attempt).ok()?);
    Some(AttemptId { execution: task.execution.clone(), task: index, number })
}
