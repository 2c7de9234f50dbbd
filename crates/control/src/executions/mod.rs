//! Starting executions of jobs. Everything that starts one, be it a caller, a clock or an event,
//! does so here.

pub mod calls;
pub mod history;
pub(crate) mod triggered;
pub mod triggers;
mod view;

use crate::billing::allow;
use crate::context::Context;
use crate::engine::{self, Held};
use crate::error::{Error, Unfit};
use crate::json;
use crate::workload_identity::{self, Access};
use crate::workloads::workload::{HOST, Workload, variables};
use jobs::{Caller, NewExecution, Plan};
use store::Tx;
use store::executions::Execution;
use types::Kind;
use types::ids::{ExecutionId, ResourceId};
use types::instance::{Medium, Scratch};
use types::kinds::Job;
use types::kinds::job::{JobRuntime, JobVolume};
use types::parts::{Port, Sensitive, TextMap};
use types::wire::Free;

/// Memory of a task whose job names none. It comes with two cores.
const MEMORY_MB_DEFAULT: i64 = 4096;
/// Names of variables that tasks get, as the published clients read them.
pub const TASK_INDEX: &str = "TASK_INDEX";
const EXECUTION_ID: &str = "BL_EXECUTION_ID";

/// A request to a job.
#[derive(Debug, Clone, Default)]
pub struct ExecutionRequest {
    /// The arguments of each task.
    pub tasks: Vec<Free>,
    /// A name chosen by the caller.
    pub name: Option<String>,
    /// Megabytes for each task, at most as many as the job has.
    pub memory: Option<i64>,
    /// Variables that override the job's.
    pub env: TextMap,
    /// Time limit of each task in seconds, unless the job's is shorter.
    pub timeout_s: Option<i64>,
    /// Attempts of a task beyond the first. If absent, the job's number counts.
    pub retries: Option<i64>,
    /// Whether it must begin without waiting, or be refused.
    pub at_once: bool,
    pub caller: Caller,
}

/// Starts an execution of a job that this transaction has locked, so that the job cannot be deleted
/// meanwhile.
pub fn start(
    context: &Context,
    tx: &mut Tx<'_>,
    job: &Held<Job>,
    asked: &ExecutionRequest,
) -> Result<Execution, Error> {
    if !job.wish.enabled() {
        return Err(Unfit::JobDisabled.into());
    }
    allow(context, tx)?;
    let limit = job_memory(&job.wish);
    if asked.memory.is_some_and(|memory| memory > limit) {
        return Err(Unfit::MemoryAboveJob { limit }.into());
    }
    let id = ExecutionId::new(context.world());
    let name = asked.name.clone().unwrap_or_else(|| id.to_string());
    let wish = engine::opened(context, job)?;
    let access = Access::of(context, &workload_identity::find_or_make(context, tx, &job.row)?);
    let new = NewExecution {
        workspace: context.member.workspace.clone(),
        kind: Job::NAME,
        job_id: job.row.id.clone(),
        job: job.row.name.clone(),
        machine: None,
        memory_mb: asked.memory.unwrap_or(limit),
        retries_max: asked.retries.or(runtime(&wish).max_retries).unwrap_or(0),
        parallelism: runtime(&wish).max_concurrent_tasks,
        plan: plan(context, &wish, (&job.row.id, &access), (&name, asked))?,
        tasks: asked.tasks.iter().map(text).collect(),
        may_wait: !asked.at_once,
        caller: asked.caller,
        id,
        name,
    };
    let keyring = context.control.store.keyring();
    Ok(context.control.queue.start(tx, &keyring.read(), &new)?)
}

fn job_memory(job: &Job) -> i64 {
    runtime(job).memory.unwrap_or(MEMORY_MB_DEFAULT)
}

fn runtime(job: &Job) -> JobRuntime {
    job.spec.runtime.clone().unwrap_or_default()
}

/// Returns a task's arguments as JSON without line breaks.
fn text(task: &Free) -> String {
    json::text(task)
}

/// Returns what is frozen for the execution, even if the job changes. The secrets of `wish` are
/// opened.
fn plan(
    context: &Context,
    wish: &Job,
    (id, access): (&ResourceId, &Access),
    (name, asked): (&str, &ExecutionRequest),
) -> Result<Plan, Error> {
    let runtime = runtime(wish);
    let whole = |number: i64| engine::whole(id, number);
    let timeout = runtime.timeout.into_iter().chain(asked.timeout_s).min();
    let volumes = wish.spec.volumes.iter().flatten();
    Ok(Plan {
        image: runtime.image.clone().unwrap_or_default(),
        registries: runtime.docker_config.clone(),
        storage_mb: runtime.storage_mb.map(whole).transpose()?,
        environment: Sensitive(environment(context, (wish, &runtime), access, (name, &asked.env))),
        scratch: volumes.map(|volume| scratch(id, volume)).collect::<Result<_, _>>()?,
        keeps_logs: true,
        network: wish.spec.network.clone(),
        timeout_s: timeout.map(whole).transpose()?,
        memory_override: asked.memory,
        env_override: asked.env.keys().cloned().collect(),
        call: None,
    })
}

fn scratch(id: &ResourceId, volume: &JobVolume) -> Result<Scratch, Error> {
    Ok(Scratch {
        path: volume.mount_path.clone(),
        size_mb: engine::whole(id, volume.size_mb)?,
        read_only: volume.read_only.unwrap_or(false),
        medium: Medium::Disk,
    })
}

/// Returns all variables that are the same for all tasks. The caller's override the job's, and ours
/// override both.
fn environment(
    context: &Context,
    (wish, runtime): (&Job, &JobRuntime),
    access: &Access,
    (name, over): (&str, &TextMap),
) -> Vec<(String, String)> {
    let theirs = variables(runtime.envs.iter().flatten());
    let region = context.region(wish.spec.region.as_deref());
    let mut ours = wish.common_environment(context, region, runtime.generation);
    ours.extend([
        (EXECUTION_ID, name.to_owned()),
        ("BL_EXECUTION_KEY", EXECUTION_ID.to_owned()),
        ("BL_TASK_KEY", TASK_INDEX.to_owned()),
        access.credentials.clone(),
    ]);
    if let Some(Port { target, .. }) = runtime.ports.iter().flatten().next() {
        ours.extend([("HOST", HOST.to_owned()), ("PORT", target.to_string())]);
    }
    let named = |(name, value): (&str, String)| (name.to_owned(), value);
    let theirs = theirs.filter(|(name, _)| !over.contains_key(name)).chain(over.clone());
    let here = access.addresses.clone().into_iter().map(named);
    here.chain(theirs).chain(ours.into_iter().map(named)).collect()
}
