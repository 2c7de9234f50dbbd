//! The loop in which a server builds what was uploaded to it.
//!
//! Only the machine that took the sources can build them, so two servers never compete for a build.
//! The lease only decides when a build is given up because its server does not come back. A server
//! that starts again resumes what it had begun.

use super::elsewhere::Elsewhere;
use super::{attempt, end};
use crate::control::Control;
use crate::error::{Conflict, Error};
use crate::machine::{Builder, Machine, MachineFault};
use crate::workloads::rows;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::Tx;
use store::builds::{self, Build, Claiming, State};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::ids::BuildId;
use types::instance::VolumeName;
use types::{KindName, Timestamp};

/// Most builds that one pass gives up or clears away.
const BATCH: i64 = 100;
/// Why a build is given up whose machine is gone.
const LOST: &str = "the machine that had the sources was not heard of any more; upload again";
/// A lease is renewed after this fraction of its time.
const RENEWALS: u32 = 4;

/// Builds until `ending`. Builds interrupted by that start over at the next start.
pub(crate) async fn run(control: Control, ending: CancellationToken) {
    let (Some(builder), Some(machine)) = (control.builder.clone(), control.machine().cloned())
    else {
        return;
    };
    let mut dispatcher = Dispatcher::new(control, builder, &*machine);
    ending.run_until_cancelled(dispatcher.begin()).await;
    while ending.run_until_cancelled(dispatcher.wait()).await.is_some() {
        if let Err(error) = dispatcher.look().await {
            tracing::error!(%error, "the queue of builds cannot be worked on; trying again");
            ending.run_until_cancelled(tokio::time::sleep(dispatcher.poll())).await;
        }
    }
}

struct Dispatcher {
    elsewhere: Elsewhere,
    control: Control,
    builder: Arc<dyn Builder>,
    machine: String,
    tasks: JoinSet<BuildId>,
    running: HashMap<BuildId, AbortHandle>,
    renewed: Instant,
    look_at: Instant,
}

/// Whether trying again may help, because the error is not about what was asked for.
fn may_help(error: &Error) -> bool {
    match error {
        Error::Store(_) | Error::Conflict(Conflict::Stale { .. }) => true,
        // The repository was created at the same time.
        Error::Exists { kind, .. } => *kind == KindName::Image,
        _ => false,
    }
}

/// Sets a build aside that cannot be worked on, so that the others are. The next pass tries it again.
/// If the database is away the error stands, because the others would fail alike.
fn go_on(build: &Build, worked: Result<(), Error>) -> Result<(), Error> {
    match worked {
        Err(error) if !rows::may_pass(&error) => {
            tracing::error!(%error, build = %build.id, "a build cannot be worked on; it is tried again");
            Ok(())
        }
        worked => worked,
    }
}

/// What one pass found in the rows.
struct Found {
    overdue: Vec<Build>,
    elsewhere: Vec<(BuildId, Option<Timestamp>)>,
    building: Vec<Build>,
    made: Vec<Build>,
    left: Vec<Build>,
}

impl Dispatcher {
    fn new(control: Control, builder: Arc<dyn Builder>, machine: &dyn Machine) -> Self {
        let now = Instant::now();
        Self {
            elsewhere: Elsewhere::default(),
            control,
            builder,
            machine: machine.name().to_owned(),
            tasks: JoinSet::new(),
            running: HashMap::new(),
            renewed: now,
            look_at: now,
        }
    }

    fn poll(&self) -> Duration {
        self.control.settings.builds.poll
    }

    /// Takes over what an earlier run of this program has left.
    async fn begin(&mut self) {
        while let Err(error) = self.take_up().await {
            tracing::error!(%error, "the builds of this machine cannot be read; trying again");
            tokio::time::sleep(self.poll()).await;
        }
    }

    async fn take_up(&self) -> Result<(), Error> {
        let (machine, now) = (self.machine.clone(), self.control.world.now());
        let until = now.plus(self.control.settings.builds.wait_max);
        let here = self.control.clone();
        let work = move |tx: &mut Tx<'_>| {
            // An upload that has arrived during this run is no leftover of an earlier one.
            let left = builds::of_machine(tx, &machine, State::Arriving)?.into_iter();
            for build in left.filter(|build| !here.builds.is_arriving(&build.id)) {
                end::fail_in(tx, &build, "the server was stopped during the upload; upload again")?;
            }
            let begun = builds::take_up(tx, &machine, until)?;
            Ok::<_, Error>((begun, builds::of_machine(tx, &machine, State::Made)?))
        };
        let (begun, made) = self.control.store.write(work).await?;
        made.iter().for_each(|build| self.control.builds.show(&build.id));
        if begun > 0 {
            tracing::info!(begun, "builds that were interrupted begin anew");
        }
        Ok(())
    }

    /// Waits until there may be something to do.
    async fn wait(&mut self) {
        tokio::select! {
            () = self.control.builds.news.notified() => {}
            Some(_) = self.tasks.join_next() => {}
            () = tokio::time::sleep_until(self.look_at) => {}
        }
    }

    async fn look(&mut self) -> Result<(), Error> {
        while self.tasks.try_join_next().is_some() {}
        self.running.retain(|_, task| !task.is_finished());
        self.renew().await?;
        let begun = Instant::now();
        let found = self.find().await?;
        for build in &found.overdue {
            go_on(build, self.give_up(build).await)?;
        }
        let lease = self.control.settings.builds.lease;
        for (id, until) in self.elsewhere.run_out(found.elsewhere.clone(), begun, lease) {
            self.give_up_lost(id, until).await?;
        }
        self.stop_unwanted(&found);
        for build in found.building.iter().filter(|build| !self.running.contains_key(&build.id)) {
            go_on(build, self.orphaned(build).await)?;
        }
        for build in &found.made {
            go_on(build, self.finish(build).await)?;
        }
        self.claim().await?;
        for build in &found.left {
            go_on(build, self.forget(build).await)?;
        }
        self.look_at = self.next_look().await?;
        Ok(())
    }

    /// Returns when to look next: when the next step is due, or after `poll`, since others may have
    /// changed rows.
    async fn next_look(&self) -> Result<Instant, Error> {
        let machine = self.machine.clone();
        let due = self.control.store.read(move |tx| builds::next_due(tx, &machine)).await?;
        // A queued build that is due waits for a slot; the end of another build wakes this loop.
        let ms = due.map(|due| due.since(self.control.world.now())).filter(|ms| *ms > 0);
        let wait = ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        Ok(Instant::now() + wait.unwrap_or_else(|| self.poll()).min(self.poll()))
    }

    async fn renew(&mut self) -> Result<(), Error> {
        let lease = self.control.settings.builds.lease;
        if self.running.is_empty() || self.renewed.elapsed() < lease / RENEWALS {
            return Ok(());
        }
        let (machine, until) = (self.machine.clone(), self.control.world.now().plus(lease));
        self.control.store.write(move |tx| builds::renew(tx, &machine, until)).await?;
        self.renewed = Instant::now();
        Ok(())
    }

    async fn find(&self) -> Result<Found, Error> {
        let (machine, now) = (self.machine.clone(), self.control.world.now());
        let work = move |tx: &mut Tx<'_>| {
            Ok::<_, store::Error>(Found {
                overdue: builds::overdue(tx, now, BATCH)?,
                elsewhere: builds::leases_elsewhere(tx, &machine)?,
                building: builds::of_machine(tx, &machine, State::Building)?,
                made: builds::of_machine(tx, &machine, State::Made)?,
                left: builds::left(tx, &machine, BATCH)?,
            })
        };
        Ok(self.control.store.read(work).await?)
    }

    async fn give_up(&self, build: &Build) -> Result<(), Error> {
        let why = match build.state {
            State::Awaited => "nothing was uploaded in time; apply again with `upload=true`",
            State::Arriving => "the upload took too long; apply again with `upload=true`",
            State::Queued => "no builder was free in time; upload again",
            _ => LOST,
        };
        let (of, now) = (build.clone(), self.control.world.now());
        let work = move |tx: &mut Tx<'_>| {
            // It may have moved on since it was read.
            let still = builds::find(tx, &of.id)?.filter(|it| it.state == of.state);
            match still.is_some_and(|it| it.until.is_some_and(|until| until <= now)) {
                true => end::fail_in(tx, &of, why),
                false => Ok(()),
            }
        };
        self.control.store.write(work).await
    }

    /// Gives up a build whose machine has not renewed its lease, unless it has done so since it was
    /// read.
    async fn give_up_lost(&self, id: BuildId, until: Option<Timestamp>) -> Result<(), Error> {
        let work = move |tx: &mut Tx<'_>| {
            let build = builds::find(tx, &id)?;
            match build.filter(|it| it.state == State::Building && it.until == until) {
                Some(build) => end::fail_in(tx, &build, LOST),
                None => Ok(()),
            }
        };
        self.control.store.write(work).await
    }

    /// Handles a build that nobody works on because this server failed at it.
    async fn orphaned(&self, build: &Build) -> Result<(), Error> {
        let settings = &self.control.settings.builds;
        if build.attempt >= settings.attempts_max.into() {
            return end::fail(&self.control, build, "the server failed at it").await;
        }
        let now = self.control.world.now();
        let (due, until) = (now.plus(settings.backoff), now.plus(settings.wait_max));
        let (id, attempt) = (build.id.clone(), build.attempt);
        let work = move |tx: &mut Tx<'_>| builds::again(tx, &id, attempt, due, until);
        Ok(self.control.store.write(work).await.map(drop)?)
    }

    /// Stops builds that run but are no longer wanted. They count as running until they have ended,
    /// because what they leave must not be removed before.
    fn stop_unwanted(&self, found: &Found) {
        // A build whose image was just made has only to end.
        let rows = found.building.iter().chain(&found.made);
        let wanted = |id: &BuildId| rows.clone().any(|build| build.id == *id);
        self.running.iter().filter(|(id, _)| !wanted(id)).for_each(|(_, task)| task.abort());
        self.control.builds.show_only(|id| wanted(id) || self.running.contains_key(id));
    }

    /// Puts an image into place once its build has been seen, or shown for long enough.
    async fn finish(&self, build: &Build) -> Result<(), Error> {
        let due = build.due_at.is_none_or(|due| due <= self.control.world.now());
        if !due && !self.control.builds.was_seen(&build.id) {
            return Ok(());
        }
        match end::finish(&self.control, build).await {
            Ok(()) => {}
            Err(error) if may_help(&error) => {
                tracing::error!(%error, build = %build.id, "an image could not be put into its place; trying again");
                let (id, due) = (build.id.clone(), self.control.world.now().plus(self.poll()));
                self.control.store.write(move |tx| builds::put_off(tx, &id, due)).await?;
                return Ok(());
            }
            Err(error) => end::fail(&self.control, build, &error.to_string()).await?,
        }
        // Leftovers are removed in the next pass, which starts at once.
        self.control.builds.news.notify_one();
        Ok(())
    }

    async fn claim(&mut self) -> Result<(), Error> {
        let settings = &self.control.settings.builds;
        let slots = usize::try_from(settings.slots).unwrap_or(usize::MAX);
        let free = slots.saturating_sub(self.running.len());
        if free == 0 {
            return Ok(());
        }
        let now = self.control.world.now();
        let claiming = Claiming {
            machine: self.machine.clone(),
            now,
            until: now.plus(settings.lease),
            limit: i64::try_from(free).unwrap_or(i64::MAX),
            share: settings.workspace_slots.into(),
        };
        if self.is_idle(now).await? {
            return Ok(());
        }
        for build in self.control.store.write(move |tx| builds::claim(tx, &claiming)).await? {
            let (control, builder) = (self.control.clone(), Arc::clone(&self.builder));
            let id = build.id.clone();
            let task = self.tasks.spawn(async move {
                let id = build.id.clone();
                attempt::run(control, builder, build).await;
                id
            });
            self.running.insert(id, task);
        }
        Ok(())
    }

    /// Checks by a read alone that nothing is queued, which saves a write.
    async fn is_idle(&self, now: Timestamp) -> Result<bool, Error> {
        let machine = self.machine.clone();
        let due = self.control.store.read(move |tx| builds::next_due(tx, &machine)).await?;
        Ok(due.is_none_or(|due| due > now))
    }

    /// Clears away what a build has left on this machine.
    async fn forget(&self, build: &Build) -> Result<(), Error> {
        let id = build.id.clone();
        if self.running.contains_key(&id) || self.control.builds.is_arriving(&id) {
            return Ok(());
        }
        if let Err(fault) = self.clear_away(build).await {
            tracing::warn!(%fault, build = %id, "what is left of a build could not be removed; trying again");
            return Ok(());
        }
        Ok(self.control.store.write(move |tx| builds::forgotten(tx, &id)).await?)
    }

    /// Removes content unpacked for a volume template that does not want it.
    async fn remove_content(&self, build: &Build) -> Result<(), MachineFault> {
        if build.kind != KindName::VolumeTemplate {
            return Ok(());
        }
        let name = VolumeName::new(build.repository.clone());
        let name = name.map_err(|error| MachineFault(error.to_string()))?;
        match self.control.volume_store() {
            Some((volumes, _)) => volumes.remove(&name).await,
            None => Ok(()),
        }
    }

    async fn clear_away(&self, build: &Build) -> Result<(), MachineFault> {
        // The image of a finished build was released when it was put into place, as soon as the
        // registry had it.
        if build.state != State::Built {
            self.builder.release(&build.id, &build.workspace, &build.repository).await?;
            self.remove_content(build).await?;
        }
        self.builder.forget(&build.id).await
    }
}
