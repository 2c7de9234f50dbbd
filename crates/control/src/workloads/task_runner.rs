//! The task runner of the queue: runs attempts as instances on this machine.

use super::{calls, instances, output, workload};
use crate::egress;
use crate::machine::{Edge, Launch, LaunchFault, Machine, MachineFault, Seen, Work};
use futures_util::future::BoxFuture;
use jobs::logs::{LogWriter, Logs};
use jobs::{Assignment, Order, TaskRunner};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use store::logs::{Printer, Source};
use tokio::sync::mpsc;
use types::instance::{AttemptId, InstanceName, Outcome, Printed, RunsFor, WorkEnd};
use types::{KindName, World};

/// Grace period of a task that is asked to end.
const GRACE: Duration = Duration::from_secs(10);
/// A task times out by itself. If it has not reported its end this long after that, it is killed
/// from outside.
const LATE: Duration = Duration::from_secs(60);
/// How much longer than its grace period a task that is asked to end may take to say that it has.
const SAY_SO: Duration = Duration::from_secs(2);
/// How long an attempt that has ended may stay awake. Usually its outcome is stored, and the attempt
/// removed, long before.
const REST_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Instances {
    machine: Arc<dyn Machine>,
    edge: Option<Arc<dyn Edge>>,
    store: Store,
    logs: Logs,
    world: World,
    /// Attempts that were running when this program started. They are not launched again.
    found: Mutex<HashSet<AttemptId>>,
}

impl Instances {
    pub(super) fn new(
        machine: Arc<dyn Machine>,
        edge: Option<Arc<dyn Edge>>,
        store: Store,
        logs: Logs,
        world: World,
    ) -> Self {
        Self { machine, edge, store, logs, world, found: Mutex::default() }
    }

    async fn run_to_end(&self, id: &AttemptId, attempt: &Assignment) -> WorkEnd {
        if let Some(call) = &attempt.order.plan.call {
            let made = calls::Making { store: &self.store, edge: self.edge.as_deref() };
            return made.make(attempt, &call.0, &self.world).await;
        }
        let instance = InstanceName::of_task(id);
        let found = self.found.lock().remove(id);
        if !found && let Err(outcome) = self.begin(&instance, id, attempt).await {
            return self.nothing(outcome);
        }
        let (pieces, printed) = mpsc::channel(output::PIECES_MAX);
        let writer = self.writer(id, attempt, found).await;
        let ended = self.attend(&instance, attempt, writer.from(), pieces);
        let rules = egress::plain(attempt.order.plan.network.as_ref());
        let told = async {
            if found {
                egress::tell_again(&*self.machine, &instance, rules).await;
            }
        };
        // The outcome is only reported once all output is stored.
        let recorded = self.logs.record(writer, printed);
        let (ended, kept, ()) = tokio::join!(ended, recorded, told);
        if let Err(lost) = kept {
            tracing::error!(%lost, %instance, "the output of a task is not whole");
        }
        match ended {
            Ok(end) => end_of_task(end),
            Err(fault) => {
                // It may still run, and the next attempt must not begin beside it.
                self.abandon(id).await;
                self.nothing(Outcome::Lost(fault.to_string()))
            }
        }
    }

    async fn begin(
        &self,
        instance: &InstanceName,
        id: &AttemptId,
        attempt: &Assignment,
    ) -> Result<(), Outcome> {
        let launch = launch_of(instance, id, attempt).map_err(Outcome::NotStarted)?;
        workload::start(&self.store, &*self.machine, launch).await.map_err(not_launched)
    }

    /// Waits for the end of the work, after which it need not stay awake. The work ends itself in
    /// time; if its program is too busy for that, the wait ends anyway.
    async fn attend(
        &self,
        instance: &InstanceName,
        attempt: &Assignment,
        from: u64,
        pieces: mpsc::Sender<Printed>,
    ) -> Result<WorkEnd, MachineFault> {
        let begun = self.world.now();
        let given_up = |_| {
            let (outcome, ended_at) = (Outcome::TimedOut, self.world.now());
            Ok(WorkEnd { outcome, started_at: Some(begun), ended_at })
        };
        let ended = self.machine.attend(instance, from, pieces);
        let ended = match attempt.order.plan.timeout_s {
            None => ended.await,
            Some(seconds) => {
                let patience = Duration::from_secs(seconds.into()) + GRACE + LATE;
                tokio::time::timeout(patience, ended).await.unwrap_or_else(given_up)
            }
        };
        if ended.is_ok() {
            self.rest_soon(instance.clone());
        }
        ended
    }

    /// Puts an attempt that has ended to sleep if it is not removed soon: its workspace should not
    /// pay for the time in which the database cannot store the outcome.
    fn rest_soon(&self, instance: InstanceName) {
        let machine = Arc::clone(&self.machine);
        tokio::spawn(async move {
            tokio::time::sleep(REST_AFTER).await;
            if machine.runs(&instance)
                && let Err(fault) = machine.rest(&instance).await
                && machine.runs(&instance)
            {
                tracing::warn!(%fault, %instance, "a task that has ended cannot be put to sleep");
            }
        });
    }

    /// Asks a task to end, and waits for that slightly longer than its grace period.
    async fn interrupt(&self, instance: &InstanceName) {
        if !self.machine.runs(instance) {
            return;
        }
        if let Err(fault) = self.machine.interrupt(instance).await {
            tracing::debug!(%fault, %instance, "a task cannot be asked to end");
            return;
        }
        let (pieces, mut printed) = mpsc::channel(output::PIECES_MAX);
        let ended = self.machine.attend(instance, 0, pieces);
        // Nobody keeps its output, but it has to be taken, or the end does not come.
        let unread = async { while printed.recv().await.is_some() {} };
        let both = async { tokio::join!(ended, unread) };
        // However it has ended, it is removed.
        let _ = tokio::time::timeout(GRACE + SAY_SO, both).await;
    }

    /// Returns the log writer of an attempt, which continues what an earlier run of this program
    /// stored.
    async fn writer(&self, id: &AttemptId, attempt: &Assignment, found: bool) -> LogWriter {
        let execution = &attempt.order.execution;
        let source = Source {
            workspace: execution.workspace.clone(),
            kind: KindName::Job,
            name: execution.job.clone(),
            printer: Printer::Task {
                execution: execution.id.clone(),
                execution_name: execution.name.clone(),
                task: id.task,
                attempt: id.number,
            },
        };
        output::writer(&self.logs, source, found).await
    }

    /// Returns the end of an attempt that, as far as is known, never ran.
    fn nothing(&self, outcome: Outcome) -> WorkEnd {
        WorkEnd { outcome, started_at: None, ended_at: self.world.now() }
    }
}

impl TaskRunner<Assignment> for Instances {
    fn name(&self) -> &str {
        self.machine.name()
    }

    fn run<'a>(&'a self, id: &'a AttemptId, attempt: Assignment) -> BoxFuture<'a, WorkEnd> {
        Box::pin(async move { self.run_to_end(id, &attempt).await })
    }

    fn abandon<'a>(&'a self, id: &'a AttemptId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.found.lock().remove(id);
            instances::retire(&*self.machine, &InstanceName::of_task(id)).await;
        })
    }

    fn dismiss<'a>(&'a self, id: &'a AttemptId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.interrupt(&InstanceName::of_task(id)).await;
            self.abandon(id).await;
        })
    }

    fn present(&self) -> Vec<AttemptId> {
        let instances = self.machine.instances();
        let task = |seen: &Seen| match seen.instance.runs_for() {
            Some(RunsFor::Task(attempt)) => Some(attempt),
            _ => None,
        };
        let attempts: Vec<AttemptId> = instances.iter().filter_map(task).collect();
        self.found.lock().extend(attempts.iter().cloned());
        attempts
    }
}

/// Returns what to start for an attempt, or why its rows do not allow a launch.
fn launch_of(
    instance: &InstanceName,
    id: &AttemptId,
    attempt: &Assignment,
) -> Result<Launch, String> {
    let Order { execution, plan, data, .. } = &*attempt.order;
    let mut environment = plan.environment.0.clone();
    environment.push((crate::executions::TASK_INDEX.to_owned(), id.task.to_string()));
    let timeout = plan.timeout_s.map(|seconds| Duration::from_secs(seconds.into()));
    let arguments = arguments(attempt.arguments())
        .map_err(|error| format!("its arguments cannot be read: {error}"))?;
    let memory_mb = u32::try_from(execution.memory_mb)
        .map_err(|_| format!("{} MB is no size of a memory", execution.memory_mb))?;
    Ok(Launch {
        instance: instance.clone(),
        workspace: execution.workspace.to_string(),
        again: false,
        hostname: execution.job.clone(),
        image: plan.image.clone(),
        granted: None,
        registries: plan.registries.clone().map(|registries| registries.0),
        memory_mb,
        storage_mb: plan.storage_mb,
        root: None,
        environment,
        keeps_logs: plan.keeps_logs,
        grace: GRACE,
        work: Some(Work { arguments, data: data.clone(), timeout }),
        serves: None,
        scratch: plan.scratch.clone(),
        volumes: Vec::new(),
        drives: Vec::new(),
        egress: egress::plain(plan.network.as_ref()),
        snapshot: None,
    })
}

/// Returns `--key value` for each member of a task. Values other than text are written as JSON.
fn arguments(task: &str) -> Result<Vec<String>, serde_json::Error> {
    let task: Map<String, Value> = serde_json::from_str(task)?;
    let pair = |(key, value): (String, Value)| {
        let value = match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        [format!("--{key}"), value]
    };
    Ok(task.into_iter().flat_map(pair).collect())
}

fn not_launched(fault: LaunchFault) -> Outcome {
    match fault {
        // Another attempt on this machine would not find it either.
        LaunchFault::Image(unknown) => Outcome::NoImage(unknown.to_string()),
        LaunchFault::Pull(_)
        | LaunchFault::Full(_)
        | LaunchFault::OverShare(_)
        | LaunchFault::Busy(_)
        | LaunchFault::Broken(_) => Outcome::Lost(fault.to_string()),
    }
}

/// Returns the end of a task as the queue stores it: a program that was not started has no start
/// time.
fn end_of_task(end: WorkEnd) -> WorkEnd {
    let started_at = end.started_at.filter(|_| !matches!(end.outcome, Outcome::NotStarted(_)));
    WorkEnd { started_at, ..end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use types::Timestamp;

    #[test]
    fn a_task_becomes_pairs_of_arguments() {
        let arguments = arguments(
            r#"{"name": "a b", "count": 3, "deep": {"list": [1, null]}, "none": null, "": ""}"#,
        )
        .unwrap();
        let wanted = [
            "--name",
            "a b",
            "--count",
            "3",
            "--deep",
            r#"{"list":[1,null]}"#,
            "--none",
            "null",
            "--",
            "",
        ];
        assert_eq!(arguments, wanted);
    }

    proptest! {
        #[test]
        fn no_member_of_a_task_gets_lost(task in prop::collection::btree_map(".{0,9}", ".{0,9}", 0..6)) {
            let text = serde_json::to_string(&task).unwrap();
            let wanted: Vec<String> = task.into_iter().flat_map(|(key, value)| [format!("--{key}"), value]).collect();
            prop_assert_eq!(arguments(&text).unwrap(), wanted);
        }
    }

    #[test]
    fn what_was_not_started_has_not_begun() {
        let at = Timestamp::from_ms(5);
        let begun = |outcome| end_of_task(WorkEnd { outcome, started_at: Some(at), ended_at: at });
        assert_eq!(begun(Outcome::Exited(3)).started_at, Some(at));
        assert_eq!(begun(Outcome::NotStarted("no such program".into())).started_at, None);
    }
}
