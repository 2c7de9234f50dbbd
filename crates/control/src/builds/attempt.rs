//! One attempt at one build.

use super::buildable::workload_kind;
use super::end;
use super::log::{self, PIECES_MAX};
use super::own_images;
use crate::control::Control;
use crate::error::Error;
use crate::machine::{BuildFault, BuildOrder, Builder, Built, FillOrder};
use crate::workloads::rows;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use store::Tx;
use store::builds::{self, Build};
use store::identity::workspaces;
use tokio::sync::mpsc;
use types::KindName;
use types::instance::{BadName, Printed, VolumeName};
use types::parts::Status;

/// How long to wait for the last lines of a build to be stored.
const LOG_END_MAX: Duration = Duration::from_secs(90);

/// Builds, and records the outcome. If this is dropped, the build is left to the next start.
pub(super) async fn run(control: Control, builder: Arc<dyn Builder>, build: Build) {
    let built = match begin(&control, &build).await {
        Ok(Some(_)) if build.kind == KindName::VolumeTemplate => {
            fill(&control, &*builder, &build).await
        }
        Ok(Some(order)) => build_and_log(&control, &*builder, &build, &order).await,
        // It is no longer wanted, as its row says.
        Ok(None) => return,
        Err(error) => {
            tracing::error!(%error, build = %build.id, "a build could not begin");
            Err(BuildFault::Broken("its resource could not be read".to_owned()))
        }
    };
    until_done(|| conclude(&control, &build, &built)).await;
}

/// Marks the build as building, and returns what to build.
async fn begin(control: &Control, build: &Build) -> Result<Option<BuildOrder>, Error> {
    control.builds.show(&build.id);
    let of = build.clone();
    let work = move |tx: &mut Tx<'_>| {
        let message = match of.attempt {
            1 => "the image is built".to_owned(),
            attempt => format!("the image is built, try {attempt}"),
        };
        if !end::record(tx, &of, Status::Building, &message)? {
            builds::end(tx, &of.id, builds::State::Cancelled)?;
            return Ok(None);
        }
        let Some(workspace) = workspaces::find(tx, &of.workspace)? else {
            builds::end(tx, &of.id, builds::State::Cancelled)?;
            return Ok(None);
        };
        Ok::<_, Error>(Some(workspace.name))
    };
    let name = control.store.write(work).await?;
    Ok(name.map(|name| BuildOrder {
        build: build.id.clone(),
        workspace: build.workspace.clone(),
        kind: workload_kind(build),
        repository: build.repository.clone(),
        own_images: own_images::of(control, &build.workspace, &name),
    }))
}

/// Unpacks the content of a volume template. The digest of its copy at the object service takes the
/// place of an image's digest, or if there is none, the name of its volume.
async fn fill(
    control: &Control,
    builder: &dyn Builder,
    build: &Build,
) -> Result<Built, BuildFault> {
    let broken = |error: BadName| BuildFault::Broken(error.to_string());
    let volume = VolumeName::new(build.repository.clone()).map_err(broken)?;
    let (id, workspace) = (build.id.clone(), build.workspace.clone());
    let order = FillOrder { build: id, workspace, volume };
    let limit = control.settings.builds.timeout;
    let filled = tokio::time::timeout(limit, builder.fill(&order)).await;
    let filled = filled.unwrap_or(Err(BuildFault::TooSlow(limit)))?;
    let digest = filled.copy.unwrap_or_else(|| build.repository.clone());
    Ok(Built { digest, size_bytes: filled.bytes })
}

async fn build_and_log(
    control: &Control,
    builder: &dyn Builder,
    build: &Build,
    order: &BuildOrder,
) -> Result<Built, BuildFault> {
    let (pieces, printed) = mpsc::channel(PIECES_MAX);
    let writer = control.logs.begin(log::source(build));
    let logs = control.logs.clone();
    let kept = tokio::spawn(async move { logs.record(writer, printed).await });
    let built = in_time(control, builder, order, pieces).await;
    // A program that keeps printing after the end must not hold the slot.
    match tokio::time::timeout(LOG_END_MAX, kept).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(lost))) => {
            tracing::error!(%lost, build = %build.id, "the output of a build is not whole");
        }
        Ok(Err(_)) | Err(_) => {
            tracing::error!(build = %build.id, "the output of a build has no end");
        }
    }
    built
}

async fn in_time(
    control: &Control,
    builder: &dyn Builder,
    order: &BuildOrder,
    pieces: mpsc::Sender<Printed>,
) -> Result<Built, BuildFault> {
    let limit = control.settings.builds.timeout;
    let built = tokio::time::timeout(limit, builder.build(order, pieces.clone())).await;
    let built = built.unwrap_or(Err(BuildFault::TooSlow(limit)));
    // Said here, because the builder cannot say that it had no time left.
    let line = match &built {
        Ok(built) => format!("built {} ({} bytes)", built.digest, built.size_bytes),
        Err(fault) => format!("error: {fault}"),
    };
    log::say(&control.world, &pieces, &line).await;
    built
}

/// Records what follows from the outcome of an attempt.
async fn conclude(
    control: &Control,
    build: &Build,
    built: &Result<Built, BuildFault>,
) -> Result<(), Error> {
    let settings = &control.settings.builds;
    let now = control.world.now();
    let (id, attempt, until) = (build.id.clone(), build.attempt, now.plus(settings.wait_max));
    match built {
        Ok(built) => {
            // An image or template is not deployed, so nobody waits to see it as building.
            let shows = !matches!(build.kind, KindName::Image | KindName::VolumeTemplate);
            let due = if shows { now.plus(settings.shown_for) } else { now };
            let size = i64::try_from(built.size_bytes).unwrap_or(i64::MAX);
            let digest = built.digest.clone();
            let work =
                move |tx: &mut Tx<'_>| builds::made(tx, &id, attempt, (&digest, size), due, until);
            control.store.write(work).await?;
        }
        Err(BuildFault::Broken(why)) if attempt < settings.attempts_max.into() => {
            tracing::warn!(build = %id, why, "a build is tried again");
            let pause = settings.backoff * u32::try_from(attempt).unwrap_or(u32::MAX);
            let due = now.plus(pause);
            let work = move |tx: &mut Tx<'_>| builds::again(tx, &id, attempt, due, until);
            control.store.write(work).await?;
        }
        Err(fault) => end::fail(control, build, &fault.to_string()).await?,
    }
    control.builds.news.notify_one();
    Ok(())
}

/// Retries until the database takes it; otherwise finished work would be repeated. What no database
/// takes is left to the next pass over the queue, which sets such a build aside.
async fn until_done<F: Future<Output = Result<(), Error>>>(mut act: impl FnMut() -> F) {
    while let Err(error) = act().await {
        if !rows::may_pass(&error) {
            tracing::error!(%error, "the outcome of a build cannot be noted");
            return;
        }
        tracing::error!(%error, "the outcome of a build cannot be noted; trying again");
        tokio::time::sleep(rows::RETRY_AFTER).await;
    }
}
