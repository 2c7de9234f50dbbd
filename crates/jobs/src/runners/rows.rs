//! Transactions that several parts of this module share.

use super::names;
use super::rules::{self, Changes, Holder, Sighting};
use super::settings::Settings;
use super::webhooks::Report;
use store::runners::{self, Leaving, Phase, WorkflowJob};
use store::{Error, Tx, identity, resources};
use types::ids::{ResourceId, WorkspaceId};
use types::kinds::Job;
use types::{Kind, KindName, Timestamp};

/// How long a runner that has done its work has to end by itself.
const PARTING_S: i64 = 30;

/// A job that provides runners for a repository.
#[derive(Debug, Clone)]
pub(super) struct Serving {
    pub(super) job: ResourceId,
    pub(super) name: String,
    pub(super) labels: Vec<String>,
    pub(super) runners_max: i64,
}

/// Returns the repositories, in lower case, that a stored job provides runners for.
pub(super) fn repositories(row: &resources::Stored) -> Result<Vec<String>, Error> {
    Ok(wish(row)?.map(|job| served(&job)).unwrap_or_default())
}

/// Returns what a job is to be, if it may provide runners. Most provide none, and are not parsed.
fn wish(row: &resources::Stored) -> Result<Option<Job>, Error> {
    if !row.wish.contains("githubRunner") {
        return Ok(None);
    }
    let job = serde_json::from_str(&row.wish);
    job.map_err(|error| Error::corrupt("resources", row.id.to_string(), error))
}

fn served(job: &Job) -> Vec<String> {
    let names = job.spec.github_runner.as_ref().and_then(|runner| runner.repositories.as_deref());
    let enabled = names.filter(|_| job.enabled()).unwrap_or_default();
    enabled.iter().map(|name| name.to_ascii_lowercase()).collect()
}

/// Returns the job as a provider of runners for a repository, if it is one now.
pub(super) fn serving(
    tx: &mut Tx<'_>,
    settings: &Settings,
    job: &ResourceId,
    repository: &str,
) -> Result<Option<Serving>, Error> {
    match resources::find_by_id(tx, job)?.filter(|row| row.kind == KindName::Job) {
        Some(row) => read(tx, settings, row, repository),
        None => Ok(None),
    }
}

/// Returns the job that the labels of a workflow job name, if it provides runners for its
/// repository.
fn named(
    tx: &mut Tx<'_>,
    settings: &Settings,
    workspace: &WorkspaceId,
    repository: &str,
    asked: &[String],
) -> Result<Option<Serving>, Error> {
    for label in asked {
        let name = label.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        let Some(row) = resources::find(tx, workspace, KindName::Job, "", &name)? else { continue };
        let found = read(tx, settings, row, repository)?
            .filter(|serving| names::serves(&serving.labels, asked));
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn read(
    tx: &mut Tx<'_>,
    settings: &Settings,
    row: resources::Stored,
    repository: &str,
) -> Result<Option<Serving>, Error> {
    let serves = |job: &Job| served(job).iter().any(|served| served == repository);
    let Some(job) = wish(&row)?.filter(serves) else { return Ok(None) };
    let Some(workspace) = identity::workspaces::find(tx, &row.workspace)? else { return Ok(None) };
    let at_once = job.spec.runtime.and_then(|runtime| runtime.max_concurrent_tasks);
    Ok(Some(Serving {
        labels: names::labels(&workspace.name, &row.name, &settings.labels),
        runners_max: at_once.unwrap_or(settings.runners_max),
        job: row.id,
        name: row.name,
    }))
}

/// Takes in what the code host says about one workflow job. Returns whether that changed anything.
pub(super) fn take(
    tx: &mut Tx<'_>,
    settings: &Settings,
    workspace: &WorkspaceId,
    repository: &str,
    report: &Report,
    now: Timestamp,
) -> Result<bool, Error> {
    let Some(sighting) = &report.sighting else { return Ok(false) };
    let known = runners::lock(tx, workspace, report.id)?;
    if *sighting == Sighting::Queued && known.is_some() {
        return Ok(false);
    }
    let mut job = match known {
        Some(known) if known.repository == repository => known,
        Some(_) => return Ok(false),
        None => match add(tx, settings, workspace, repository, report, now)? {
            Some(added) => added,
            None => return Ok(false),
        },
    };
    let before = job.clone();
    let holder = holder(tx, &job, sighting)?;
    let changes = rules::sight(&mut job, holder, sighting, now);
    save(tx, &job, changes, now)?;
    Ok(before != job || *sighting == Sighting::Queued)
}

/// Adds a row for a workflow job that was not known, if it is for one of our jobs.
fn add(
    tx: &mut Tx<'_>,
    settings: &Settings,
    workspace: &WorkspaceId,
    repository: &str,
    report: &Report,
    now: Timestamp,
) -> Result<Option<WorkflowJob>, Error> {
    let Some(serving) = named(tx, settings, workspace, repository, &report.labels)? else {
        return Ok(None);
    };
    if runners::count_open(tx, workspace)? >= settings.open_max {
        tracing::warn!(%workspace, "too many workflow jobs are open; more are taken when some have ended");
        return Ok(None);
    }
    let job = WorkflowJob {
        workspace: workspace.clone(),
        id: report.id,
        run_id: report.run_id,
        job: serving.job,
        repository: repository.to_owned(),
        phase: Phase::Wanted,
        since: now,
        attempts: 0,
        serial: 0,
        due_at: Some(now),
        created_at: now,
    };
    // Another server may have added it just now; the next sighting will find that row.
    Ok(runners::insert(tx, &job)?.then_some(job))
}

fn holder(tx: &mut Tx<'_>, job: &WorkflowJob, sighting: &Sighting) -> Result<Holder, Error> {
    let Some(name) = sighting.runner() else { return Ok(Holder::NoOther) };
    if let Some(other) = runners::lock_by_runner(tx, &job.workspace, name)? {
        return Ok(if other.id == job.id { Holder::NoOther } else { Holder::Other(other) });
    }
    let leaving = runners::find_leaving(tx, &job.workspace, name)?;
    Ok(leaving.map_or(Holder::NoOther, |leaving| Holder::Leaving(leaving.runner)))
}

/// Writes the changes that were decided.
pub(super) fn save(
    tx: &mut Tx<'_>,
    job: &WorkflowJob,
    changes: Changes,
    now: Timestamp,
) -> Result<(), Error> {
    let Changes { other, stays, leave, part } = changes;
    if let Some(name) = stays {
        runners::forget_leaving(tx, &job.workspace, &name)?;
    }
    let leave = leave.into_iter().map(|runner| (runner, now));
    let part = part.into_iter().map(|runner| (runner, now.plus_s(PARTING_S)));
    for (runner, due_at) in leave.chain(part) {
        let (workspace, repository) = (job.workspace.clone(), job.repository.clone());
        let leaving =
            Leaving { workspace, job: job.job.clone(), repository, runner, tries: 0, due_at };
        runners::leave(tx, &leaving)?;
    }
    runners::put(tx, job)?;
    if let Some(other) = other {
        runners::put(tx, &other)?;
    }
    if job.due_at.is_none() {
        runners::wake_wanted(tx, &job.job, now)?;
    }
    Ok(())
}
