//! How a build ends: the resource gets its image, or the reason why there is none.

use super::buildable::Buildable;
use crate::context::{Context, as_admin};
use crate::control::Control;
use crate::engine::{self, Held, Managed};
use crate::error::Error;
use crate::kinds::image::{self, TagContent};
use crate::registry::{Place, RegistryFault};
use crate::volume_templates;
use crate::workloads::rows;
use admission::Refused;
use auth::Identity;
use std::sync::Arc;
use store::Tx;
use store::builds::{self, Build, State};
use store::identity::workspaces;
use types::KindName;
use types::kinds::{Agent, Application, Function, Image, Job, Sandbox};
use types::own_image::BadImageName;
use types::parts::{Lifecycle, Status};

/// How many characters of a digest make a tag.
const TAG_CHARACTERS: usize = 12;
/// How many characters of a reason are kept among the events.
const REASON_CHARACTERS: usize = 1000;

/// Calls a generic function with the type of a kind that runs what was built for it.
macro_rules! of_buildable {
    ($build:expr, $function:ident($($argument:expr),*)) => {
        match $build.kind {
            KindName::Agent => $function::<Agent>($($argument),*),
            KindName::Application => $function::<Application>($($argument),*),
            KindName::Function => $function::<Function>($($argument),*),
            KindName::Job => $function::<Job>($($argument),*),
            KindName::Sandbox => $function::<Sandbox>($($argument),*),
            _ => Err(corrupt($build, "its kind is not built")),
        }
    };
}

/// Records the status of a build on its resource. Returns `false` if the resource no longer wants
/// it.
pub(super) fn record(
    tx: &mut Tx<'_>,
    build: &Build,
    status: Status,
    message: &str,
) -> Result<bool, Error> {
    fn of<K: Managed>(
        tx: &mut Tx<'_>,
        build: &Build,
        status: Status,
        message: &str,
    ) -> Result<bool, Error> {
        let Some(held) = rows::lock::<K>(tx, &build.resource)? else { return Ok(false) };
        let (mut state, now) = (held.state.clone(), tx.world().now());
        let Some(lifecycle) = K::lifecycle(&mut state).filter(|it| waits_for(it, build)) else {
            return Ok(false);
        };
        lifecycle.record_build(&build.id, status, message, now);
        rows::put_state(tx, held, state)?;
        Ok(true)
    }
    match (build.kind, status) {
        (KindName::Image, _) => of::<Image>(tx, build, status, message),
        (KindName::VolumeTemplate, Status::Failed) => volume_templates::fail(tx, build, message),
        (KindName::VolumeTemplate, _) => volume_templates::is_wanted(tx, build),
        _ => of_buildable!(build, of(tx, build, status, message)),
    }
}

fn waits_for(lifecycle: &Lifecycle, build: &Build) -> bool {
    lifecycle.building.as_ref().is_some_and(|building| building.build == build.id)
}

/// Ends a build without an image. What served before keeps serving.
pub(super) async fn fail(control: &Control, build: &Build, why: &str) -> Result<(), Error> {
    let (build, why) = (build.clone(), why.chars().take(REASON_CHARACTERS).collect::<String>());
    let work = move |tx: &mut Tx<'_>| fail_in(tx, &build, &why);
    control.store.write(work).await
}

pub(super) fn fail_in(tx: &mut Tx<'_>, build: &Build, why: &str) -> Result<(), Error> {
    // The resource is locked first, as everywhere that changes both.
    let noted = is_open(tx, build)? && record(tx, build, Status::Failed, why)?;
    let state = if noted { State::Failed } else { State::Cancelled };
    builds::end(tx, &build.id, state)?;
    Ok(())
}

fn is_open(tx: &mut Tx<'_>, build: &Build) -> Result<bool, Error> {
    let over = |state| matches!(state, State::Built | State::Failed | State::Cancelled);
    Ok(builds::find(tx, &build.id)?.is_some_and(|build| !over(build.state)))
}

/// Puts the image of a build into place: tag, right, wish and revision in one transaction.
pub(super) async fn finish(control: &Control, build: &Build) -> Result<(), Error> {
    if build.kind != KindName::VolumeTemplate {
        match hand_over(control, build).await {
            Ok(()) => {}
            // Only the workspace itself can make room.
            Err(fault @ RegistryFault::Full(Refused::Share { .. })) => {
                return Err(Error::OverShare(fault.to_string()));
            }
            Err(why) => {
                tracing::warn!(%why, build = %build.id, "an image that was built is not in the registry yet");
            }
        }
    }
    let (of, build) = (control.clone(), build.clone());
    let work = move |tx: &mut Tx<'_>| {
        let Some(workspace) = workspaces::find_open(tx, &build.workspace)? else {
            builds::end(tx, &build.id, State::Cancelled)?;
            return Ok(());
        };
        // In the name of the person who asked for it.
        let who = Identity { name: build.created_by.clone(), ..Identity::system() };
        let member = as_admin(&Arc::new(who), &workspace);
        let context = Context { control: of.clone(), member };
        let state = match place(&context, tx, &build)? {
            true => State::Built,
            false => State::Cancelled,
        };
        builds::end(tx, &build.id, state)?;
        Ok(())
    };
    control.store.write(work).await
}

/// Makes the image part of the workspace's registry, which keeps it while it has a tag. If this
/// fails the image still runs, and is handed over when it is first pulled.
async fn hand_over(control: &Control, build: &Build) -> Result<(), RegistryFault> {
    let (Some(machine), Some(builder), Some((digest, _))) =
        (control.machine(), &control.builder, &build.image)
    else {
        return Ok(());
    };
    let Some(registry) = machine.registry() else { return Ok(()) };
    let bad_name = |error: BadImageName| RegistryFault::Malformed(error.to_string());
    let repository = build.repository.parse().map_err(bad_name)?;
    let place = Place { workspace: build.workspace.clone(), repository };
    registry.adopt(place, digest.clone()).await?;
    let released = builder.release(&build.id, &build.workspace, &build.repository).await;
    released.map_err(|fault| RegistryFault::Broken(fault.to_string()))
}

/// Puts the result of a build into place. Returns `false` if nobody wants it any more.
fn place(context: &Context, tx: &mut Tx<'_>, build: &Build) -> Result<bool, Error> {
    match build.kind {
        KindName::Image => keep_image(context, tx, build),
        KindName::VolumeTemplate => place_content(context, tx, build),
        _ => of_buildable!(build, deploy(context, tx, build)),
    }
}

/// Locks the object that waits for this build, and the build. `None` if it no longer waits.
fn waiting<K: Managed>(tx: &mut Tx<'_>, build: &Build) -> Result<Option<(Held<K>, Build)>, Error> {
    let Some(mut held) = rows::lock::<K>(tx, &build.resource)? else { return Ok(None) };
    let wanted = K::lifecycle(&mut held.state).is_some_and(|it| waits_for(it, build));
    let made = builds::lock(tx, &build.id)?.filter(|build| build.state == State::Made);
    Ok(made.filter(|_| wanted).map(|build| (held, build)))
}

fn deploy<K: Buildable>(context: &Context, tx: &mut Tx<'_>, build: &Build) -> Result<bool, Error> {
    let Some((held, build)) = waiting::<K>(tx, build)? else { return Ok(false) };
    let reference = tag(context, tx, &build)?;
    let wish = build.wish.as_deref().ok_or_else(|| corrupt(&build, "it has no wish"))?;
    engine::apply_built::<K>(context, tx, held, wish, |wish| wish.set_image(reference))?;
    Ok(true)
}

/// Keeps an image that nothing runs yet.
fn keep_image(context: &Context, tx: &mut Tx<'_>, build: &Build) -> Result<bool, Error> {
    let Some((_, build)) = waiting::<Image>(tx, build)? else { return Ok(false) };
    let reference = tag(context, tx, &build)?;
    // Setting the tag has changed the row.
    let Some(held) = rows::lock::<Image>(tx, &build.resource)? else { return Ok(false) };
    let mut state = held.state.clone();
    state.lifecycle.end_build();
    let message = format!("built as `{reference}`");
    state.lifecycle.record("build", Status::Built, message, context.world().now());
    rows::put_state(tx, held, state)?;
    Ok(true)
}

/// Places the content that volumes begin with.
fn place_content(context: &Context, tx: &mut Tx<'_>, build: &Build) -> Result<bool, Error> {
    // The resource is locked first, as everywhere that changes both.
    if !volume_templates::is_wanted(tx, build)? {
        return Ok(false);
    }
    let made = builds::lock(tx, &build.id)?.filter(|build| build.state == State::Made);
    let Some(build) = made else { return Ok(false) };
    volume_templates::place(context, tx, &build)
}

/// Tags the image of a build with the beginning of its digest. Returns the reference.
fn tag(context: &Context, tx: &mut Tx<'_>, build: &Build) -> Result<String, Error> {
    let (digest, size) = build.image.clone().ok_or_else(|| corrupt(build, "it has no image"))?;
    let size_bytes = u64::try_from(size).map_err(|_| corrupt(build, "the size is negative"))?;
    let named = build.repository.split_once('/');
    let (resource_type, name) = named.ok_or_else(|| corrupt(build, "it has no repository"))?;
    let hex = digest.rsplit(':').next().unwrap_or(&digest);
    let tag: String = hex.chars().take(TAG_CHARACTERS).collect();
    let content = TagContent { digest, size_bytes };
    image::put_tag(context, tx, resource_type, name, &tag, &content)
}

fn corrupt(build: &Build, why: &str) -> Error {
    Error::Store(store::Error::corrupt("builds", build.id.to_string(), why))
}
