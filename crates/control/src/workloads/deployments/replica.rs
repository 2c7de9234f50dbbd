//! One replica from its launch to its end. Each has a task that looks after it.
//!
//! ```text
//! launch ─▶ Starting ── its port takes connections ─▶ Ready ─▶ Draining ─▶ asked to end ─▶ retired
//!               └── too late, or its program ends ──────┴──────▶ retired, and the row says why
//! ```

use super::deployable::Deployable;
use super::launch::GRACE;
use super::live::{Replica, State};
use super::{outcome, soon};
use crate::context::Context;
use crate::control::Control;
use crate::error::Error;
use crate::machine::{Launch, LaunchFault, Machine, MachineFault};
use crate::usage;
use crate::workloads::{images, instances, output};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use store::Tx;
use store::logs::{Printer, Source};
use tokio::sync::mpsc;
use tokio::time::Instant;
use types::ids::ResourceId;
use types::instance::{InstanceName, Outcome, Printed, WorkEnd};

/// Pause between probes whether a program listens. Short at first, for programs that start at once.
const PROBE_FIRST: Duration = Duration::from_millis(1);
const PROBE_LAST: Duration = Duration::from_millis(100);
/// How much longer than its program's grace period an instance may take to be gone.
const LATE: Duration = Duration::from_secs(2);
/// Pause between attempts to get something that an ending instance still holds.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
/// How much of the last output of a failed program is shown.
const TAIL_BYTES: usize = 600;

/// A replica, and what is needed of its deployment to look after it.
pub(super) struct Task<K> {
    pub(super) context: Context,
    pub(super) machine: Arc<dyn Machine>,
    pub(super) name: String,
    pub(super) instance: InstanceName,
    pub(super) replica: Replica,
    pub(super) port: u16,
    pub(super) memory_mb: u32,
    pub(super) of: PhantomData<fn() -> K>,
}

pub(super) enum Begin {
    Launch(Box<Launch>),
    /// An earlier run of this program has launched it.
    Found,
}

/// How a replica ended.
enum End {
    /// By itself. The text says how, or what kept it from starting.
    Failed(String),
    /// It was asked to.
    Asked,
    /// This program ends, and the next run looks after the replica.
    Left,
}

impl<K: Deployable> Task<K> {
    pub(super) fn spawn(self, begin: Begin) {
        tokio::spawn(async move { self.run(begin).await });
    }

    fn control(&self) -> &Control {
        &self.context.control
    }

    fn id(&self) -> &ResourceId {
        &self.replica.id.workload
    }

    async fn run(self, begin: Begin) {
        let began = Instant::now();
        let end = self.live(begin).await;
        if matches!(end, End::Left) {
            return;
        }
        instances::retire(&*self.machine, &self.instance).await;
        let all = &self.control().workloads.deployments;
        let state = all.remove(self.id(), &self.instance);
        if let (End::Failed(why), Some(state)) = (end, state)
            && !matches!(state, State::Ending | State::Draining { .. })
        {
            let longest = self.control().settings.deployments.restart_pause_max;
            let lasting = matches!(state, State::Ready { .. }) && began.elapsed() >= longest;
            let revision = &self.replica.id.revision;
            outcome::ended::<K>(self.control(), self.id(), revision, &why, lasting).await;
        }
        soon::look(self.control(), K::NAME, self.id().clone());
    }

    async fn live(&self, begin: Begin) -> End {
        let found = matches!(begin, Begin::Found);
        if let Begin::Launch(launch) = begin {
            match self.launch(*launch).await {
                Ok(()) if self.replica.end.is_cancelled() => return End::Asked,
                Ok(()) => {}
                Err(why) => return End::Failed(why),
            }
        }
        if found && let Err(error) = self.own().await {
            tracing::error!(%error, instance = %self.instance, "whose usage a replica is could not be noted");
        }
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let mut work = pin!(self.follow(found, Arc::clone(&tail)));
        let ending = &self.control().workloads.deployments.ending;
        let limit = self.control().settings.deployments.start_timeout;
        let listens = tokio::select! {
            ended = &mut work => return End::Failed(self.before_listening(ended, &tail)),
            () = self.replica.end.cancelled() => return self.stop(work).await,
            () = ending.cancelled() => return End::Left,
            listens = tokio::time::timeout(limit, self.listens()) => listens.is_ok(),
        };
        if !listens {
            self.stop(work).await;
            let (port, seconds) = (self.port, limit.as_secs());
            let probe = "STARTUP TCP probe failed: nothing listens on port";
            return End::Failed(format!("{probe} {port} after {seconds} s{}", last_lines(&tail)));
        }
        let all = &self.control().workloads.deployments;
        all.ready(self.id(), &self.instance, Instant::now());
        soon::look(self.control(), K::NAME, self.id().clone());
        tokio::select! {
            ended = &mut work => End::Failed(format!("{}{}", self.how(ended), last_lines(&tail))),
            () = self.replica.end.cancelled() => self.stop(work).await,
            () = ending.cancelled() => End::Left,
        }
    }

    /// Starts the instance while the owner of its usage is registered.
    async fn launch(&self, mut launch: Launch) -> Result<(), String> {
        let control = self.control();
        let start = async {
            images::entitle(&control.store, &*self.machine, &mut launch).await?;
            let until = Instant::now() + control.settings.deployments.start_timeout;
            loop {
                let started = self.launch_in_turn(&launch).await;
                let goes_on = Instant::now() < until && !self.replica.end.is_cancelled();
                match started {
                    Err(LaunchFault::Busy(_)) if goes_on => tokio::time::sleep(BUSY_PAUSE).await,
                    started => return started,
                }
            }
        };
        let (started, owned) = tokio::join!(start, self.own());
        started.map_err(|fault| fault.to_string())?;
        owned.map_err(|error| {
            tracing::error!(%error, instance = %self.instance, "whose usage a replica is could not be noted");
            "its usage could not be noted".to_owned()
        })
    }

    /// Pulls, and whatever else may wait for other work of the workspace, take no turn: they would
    /// keep others from starting images that are here.
    async fn launch_in_turn(&self, launch: &Launch) -> Result<(), LaunchFault> {
        self.machine.make_ready(launch).await?;
        let launches = &self.control().workloads.deployments.launches;
        let _turn = launches.take(self.context.member.workspace.as_str()).await;
        self.machine.launch(launch.clone()).await
    }

    async fn own(&self) -> Result<(), Error> {
        let (context, instance) = (self.context.clone(), self.instance.clone());
        let (name, id) = (self.name.clone(), self.id().clone());
        let machine = self.machine.name().to_owned();
        let work = move |tx: &mut Tx<'_>| {
            usage::own_instance::<K>(&context, tx, &instance, (&name, &id), &machine)
        };
        self.control().store.write(work).await
    }

    /// Waits for the end of the program. All its output is kept.
    async fn follow(
        &self,
        found: bool,
        tail: Arc<Mutex<VecDeque<u8>>>,
    ) -> Result<WorkEnd, MachineFault> {
        let source = Source {
            workspace: self.context.member.workspace.clone(),
            kind: K::NAME,
            name: self.name.clone(),
            printer: Printer::Replica(self.instance.clone()),
        };
        let logs = &self.control().logs;
        let writer = output::writer(logs, source, found).await;
        let (pieces, mut printed) = mpsc::channel::<Printed>(output::PIECES_MAX);
        let (kept, keeps) = mpsc::channel(1);
        let attended = self.machine.attend(&self.instance, writer.from(), pieces);
        let copied = async move {
            while let Some(piece) = printed.recv().await {
                remember(&mut tail.lock(), &piece.bytes);
                if kept.send(piece).await.is_err() {
                    return;
                }
            }
        };
        let (ended, (), recorded) = tokio::join!(attended, copied, logs.record(writer, keeps));
        if let Err(lost) = recorded {
            tracing::error!(%lost, instance = %self.instance, "the output of a replica is not whole");
        }
        ended
    }

    /// Waits until its port accepts connections.
    async fn listens(&self) {
        let mut pause = PROBE_FIRST;
        while !self.machine.probe(&self.instance, self.port).await {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PROBE_LAST);
        }
    }

    /// Asks the program to end, and waits for that slightly longer than its grace period.
    async fn stop(&self, work: impl Future<Output = Result<WorkEnd, MachineFault>>) -> End {
        match self.machine.interrupt(&self.instance).await {
            Ok(()) => drop(tokio::time::timeout(GRACE + LATE, work).await),
            Err(fault) => {
                tracing::debug!(%fault, instance = %self.instance, "a replica cannot be asked to end");
            }
        }
        End::Asked
    }

    fn before_listening(
        &self,
        ended: Result<WorkEnd, MachineFault>,
        tail: &Mutex<VecDeque<u8>>,
    ) -> String {
        let how = match ended {
            Ok(WorkEnd { outcome: Outcome::NotStarted(why), .. }) => return why,
            other => self.how(other),
        };
        format!("{how} before it listened on port {}{}", self.port, last_lines(tail))
    }

    fn how(&self, ended: Result<WorkEnd, MachineFault>) -> String {
        let outcome = match ended {
            Ok(end) => end.outcome,
            Err(fault) => return format!("the machine lost it: {fault}"),
        };
        match outcome {
            Outcome::Exited(code) => format!("its program exited with code {code}"),
            Outcome::Killed(signal) => format!("its program was killed by signal {signal}"),
            Outcome::OutOfMemory => format!("it ran out of memory ({} MB)", self.memory_mb),
            Outcome::TimedOut => "its program took too long".to_owned(),
            Outcome::Interrupted => "its program was asked to end".to_owned(),
            Outcome::NotStarted(why) | Outcome::NoImage(why) => why,
            Outcome::Lost(why) => format!("the machine lost it: {why}"),
        }
    }
}

fn remember(tail: &mut VecDeque<u8>, bytes: &[u8]) {
    tail.extend(bytes);
    let excess = tail.len().saturating_sub(TAIL_BYTES);
    tail.drain(..excess);
}

/// Returns the last output of the program, as the end of a message.
fn last_lines(tail: &Mutex<VecDeque<u8>>) -> String {
    let bytes: Vec<u8> = tail.lock().iter().copied().collect();
    let text = String::from_utf8_lossy(&bytes);
    let plain = |character: char| if character.is_control() { ' ' } else { character };
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.chars().map(plain).collect::<String>().trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    if lines.is_empty() {
        String::new()
    } else {
        format!("; its last output: {}", lines.join(" | "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_output_is_one_short_line(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 0..6)) {
            let mut tail = VecDeque::new();
            pieces.iter().for_each(|piece| remember(&mut tail, piece));
            let whole = pieces.concat();
            prop_assert!(whole.ends_with(&tail.iter().copied().collect::<Vec<_>>()));
            let shown = last_lines(&Mutex::new(tail));
            prop_assert!(!shown.chars().any(char::is_control));
            prop_assert!(shown.chars().count() <= 4 * TAIL_BYTES + 20);
        }
    }

    #[test]
    fn the_last_lines_are_shown_with_what_went_wrong() {
        let tail = Mutex::new(b"loading\r\n\n  boom: no such module\n".iter().copied().collect());
        assert_eq!(last_lines(&tail), "; its last output: loading | boom: no such module");
        assert_eq!(last_lines(&Mutex::default()), "");
    }
}
