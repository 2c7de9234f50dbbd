//! Making a sandbox while somebody waits: its instance is started while its row is written.
//!
//! Killed in between, there is an instance without a row, which the next start removes, or a row
//! without an instance, which the next start launches. Nobody was told of either.

use super::images::{self, Usable};
use super::machine::{Launch, Machine};
use super::{launch, routes, rows, settle};
use crate::addresses;
use crate::app::App;
use crate::bill::allow;
use crate::call::{Call, Wish};
use crate::engine::{self, Desk, Held, Secrets};
use crate::error::Error;
use crate::missing::Missing;
use crate::reply::Reply;
use crate::usage;
use auth::Member;
use parking_lot::Mutex;
use std::sync::Arc;
use store::Tx;
use store::identity::workspaces;
use tracing::Instrument;
use types::ids::ResourceId;
use types::instance::InstanceName;
use types::kinds::Sandbox;
use types::parts::Status;
use types::usage::Dimension;
use types::{Kind, Problems};

/// The number of a sandbox's first launch.
const FIRST: u32 = 1;

/// Makes a sandbox, or answers the one that there is when `reuse` allows it.
pub(crate) async fn create<Q>(
    call: Call<Member, Q, Wish<Sandbox>>,
    reuse: bool,
) -> Result<Reply<Sandbox>, Error>
where
    Q: Send + Sync + 'static,
{
    match at_once(&call).await? {
        // A task of its own: a caller that goes away must not leave an instance half made, or one
        // that nobody knows.
        Some(ready) => {
            let whole =
                tokio::spawn(async move { started(&call, reuse, ready).await }.in_current_span());
            whole.await.unwrap_or_else(|_| Err(Error::Launch("it was interrupted".to_owned())))
        }
        None => {
            let (desk, wish) = (call.desk(), call.body.0.clone());
            call.once(move |tx| row(&desk, tx, &wish, reuse, None).map(|(sandbox, _)| sandbox))
                .await
        }
    }
}

/// A sandbox that can be started at once.
struct Ready {
    machine: Arc<dyn Machine>,
    launch: Launch,
    id: ResourceId,
}

/// What to start now; `None` when the name is taken, the image has to be fetched first, or nothing
/// is to run.
async fn at_once<Q>(call: &Call<Member, Q, Wish<Sandbox>>) -> Result<Option<Ready>, Error> {
    let Some(machine) = call.app.fleet.machine().cloned() else { return Ok(None) };
    let desk = call.desk();
    let mut wish = call.body.0.clone();
    wish.complete(None, desk.world());
    let mut problems = Problems::default();
    wish.check(&mut problems);
    problems.into_result()?;
    if wish.spec.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty()) {
        // What would be written there would be lost with the sandbox.
        return Err(Error::Missing(Missing::MountVolume));
    }
    let (name, image, on) = (wish.name().to_owned(), wish.image().to_owned(), Arc::clone(&machine));
    let free = move |tx: &mut Tx<'_>| {
        let Usable::Now(granted) = images::usable(tx, &*on, &desk.member.workspace, &image)? else {
            return Ok(None);
        };
        let taken = desk
            .find(tx, Sandbox::NAME, &[], &name)?
            .is_some_and(|row| row.status != Some(Status::Terminated));
        let workspace = workspaces::find(tx, &desk.member.workspace)?.filter(|_| !taken);
        Ok::<_, Error>(workspace.map(|workspace| (workspace, granted)))
    };
    let Some((workspace, granted)) = call.app.store.read(free).await?.filter(|_| wish.enabled())
    else {
        return Ok(None);
    };
    let id = ResourceId::new(&call.app.world);
    let instance = InstanceName::of_sandbox(&id, FIRST);
    let launch = launch::of_wish(&call.desk(), &workspace, instance, &wish);
    let launch = Launch { granted, ..launch };
    Ok(Some(Ready { machine, launch, id }))
}

/// Starts the instance and writes the row at the same time, and takes back the one if the other
/// fails.
async fn started<Q>(
    call: &Call<Member, Q, Wish<Sandbox>>,
    reuse: bool,
    ready: Ready,
) -> Result<Reply<Sandbox>, Error> {
    let Ready { machine, launch, id } = ready;
    let _turn = call.app.fleet.0.turns.take(&id).await;
    let _birth = call.app.fleet.0.births.begin(&id);
    let (desk, wish, made) = (call.desk(), call.body.0.clone(), Arc::new(Mutex::new(None)));
    let instance = launch.instance.clone();
    let (birth, mine) = ((id.clone(), machine.name().to_owned()), Arc::clone(&made));
    let write = call.once(move |tx| {
        let (sandbox, new) = row(&desk, tx, &wish, reuse, Some(&birth))?;
        *mine.lock() = new;
        Ok(sandbox)
    });
    let (launched, written) = tokio::join!(machine.launch(launch), write);
    let made = made.lock().take().filter(|_| written.is_ok());
    match (launched, made) {
        (Ok(()), Some(New { label })) => {
            let named = (call.body.0.name(), label);
            call.app.fleet.tell(routes::of_new(&call.who, &id, named, &*machine, &instance));
            settle::watch_start(&call.app, machine, (id, FIRST), instance);
        }
        (Ok(()), None) => settle::retire(&*machine, &instance).await,
        (Err(fault), Some(_)) => {
            undo(&call.app, id).await?;
            return Err(fault.into());
        }
        (Err(_), None) => {}
    }
    written
}

/// What only a sandbox has that was made just now.
struct New {
    /// As in its route.
    label: Option<String>,
}

/// The row of a new sandbox, or of the one that there is. With `birth`, its instance is being
/// started on that machine.
fn row(
    desk: &Desk,
    tx: &mut Tx<'_>,
    wish: &Sandbox,
    reuse: bool,
    birth: Option<&(ResourceId, String)>,
) -> Result<(Sandbox, Option<New>), Error> {
    match Held::<Sandbox>::find(desk, tx, &[], wish.name())? {
        Some(held) if reuse && lives(&held) => {
            return engine::present(desk, tx, &held, &Secrets::Masked)
                .map(|sandbox| (sandbox, None));
        }
        Some(held) if gone(&held) || reuse => {
            engine::remove::<Sandbox>(desk, tx, &[], wish.name())?;
        }
        Some(_) | None => {}
    }
    allow(tx, &desk.member.account, &desk.member.workspace_name, desk.world().now())?;
    let id = birth.map_or_else(|| ResourceId::new(desk.world()), |(id, _)| id.clone());
    let made = match birth {
        None => engine::create_as(desk, tx, &[], wish.clone(), id.clone(), |_| {}),
        Some((_, machine)) => {
            let (now, generation) = (desk.world().now(), settle::generation(wish));
            let done = |state: &mut _| settle::deployed(state, machine, &id, generation, now);
            let instance = InstanceName::of_sandbox(&id, FIRST);
            usage::own_instance(
                desk,
                tx,
                &instance,
                Dimension::SandboxRuntime,
                (wish.name(), &id),
                machine,
            )?;
            engine::create_as(desk, tx, &[], wish.clone(), id.clone(), done)
        }
    };
    let sandbox = made?;
    let label = addresses::take_label(desk, tx, &id, sandbox.name())?;
    Ok((sandbox, Some(New { label })))
}

/// Whether a caller that asked for "this one or a new one" gets this one.
fn lives(held: &Held<Sandbox>) -> bool {
    !matches!(
        held.row.status,
        Some(Status::Failed | Status::Terminated | Status::Deleting | Status::Deactivating)
    )
}

/// A terminated sandbox is only a record; its name is free.
fn gone(held: &Held<Sandbox>) -> bool {
    held.row.status == Some(Status::Terminated)
}

/// Removes the row of a sandbox whose instance could not be started.
async fn undo(app: &App, id: ResourceId) -> Result<(), Error> {
    let desk_of = app.clone();
    let work = move |tx: &mut Tx<'_>| {
        let Some(held) = rows::lock::<Sandbox>(tx, &id)? else { return Ok(()) };
        let Some((desk, _)) = rows::desk(&desk_of, tx, &held.row.workspace)? else { return Ok(()) };
        engine::remove::<Sandbox>(&desk, tx, &[], &held.row.name).map(drop)
    };
    app.store.write(work).await
}
