//! Making a sandbox while somebody waits: its instance is started while its row is written.
//!
//! Killed in between, there is an instance without a row, which the next start removes, or a row without an instance,
//! which the next start launches. Nobody was told of either.

use super::machine::{ImageAt, Launch, Machine};
use super::{launch, routes, rows, settle};
use crate::app::App;
use crate::bill::allow;
use crate::call::{Call, Wish};
use crate::engine::{self, Desk, Held, Secrets};
use crate::error::Error;
use crate::missing::Missing;
use crate::reply::Reply;
use crate::usage;
use auth::Member;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use store::Tx;
use store::identity::workspaces;
use tracing::Instrument;
use types::ids::ResourceId;
use types::kinds::Sandbox;
use types::parts::Status;
use types::usage::Dimension;
use types::{Kind, Problems};

/// The number of a sandbox's first launch.
const FIRST: u32 = 1;

/// Makes a sandbox, or answers the one that there is when `reuse` allows it.
pub(crate) async fn create<Q>(call: Call<Member, Q, Wish<Sandbox>>, reuse: bool) -> Result<Reply<Sandbox>, Error>
where
    Q: Send + Sync + 'static,
{
    match at_once(&call).await? {
        // A task of its own: a caller that goes away must not leave an instance half made, or one that nobody knows.
        Some(ready) => {
            let whole = tokio::spawn(async move { started(&call, reuse, ready).await }.in_current_span());
            whole.await.unwrap_or_else(|_| Err(Error::Launch("it was interrupted".to_owned())))
        }
        None => {
            let (desk, wish) = (call.desk(), call.body.0.clone());
            call.once(move |tx| row(&desk, tx, &wish, reuse, None).map(|(sandbox, _)| sandbox)).await
        }
    }
}

/// A sandbox that can be started at once.
struct Ready {
    machine: Arc<dyn Machine>,
    launch: Launch,
    id: ResourceId,
}

/// What to start now; `None` when the name is taken, the image has to be fetched first, or nothing is to run.
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
    if require_image(&*machine, &wish)? == ImageAt::Registry || !wish.enabled() {
        return Ok(None);
    }
    let name = wish.name().to_owned();
    let free = move |tx: &mut Tx<'_>| {
        let taken = desk.find(tx, Sandbox::NAME, &[], &name)?.is_some_and(|row| row.status != Some(Status::Terminated));
        let workspace = workspaces::find(tx, &desk.member.workspace)?.filter(|_| !taken);
        Ok::<_, Error>(workspace)
    };
    let Some(workspace) = call.app.store.read(free).await? else { return Ok(None) };
    let id = ResourceId::new(&call.app.world);
    let launch = launch::of_wish(&call.desk(), &workspace, &id, FIRST, &wish);
    Ok(Some(Ready { machine, launch, id }))
}

/// Refuses an image that no machine could have.
pub(crate) fn require_image(machine: &dyn Machine, wish: &Sandbox) -> Result<ImageAt, Error> {
    machine.find_image(wish.image()).map_err(Error::InvalidImage)
}

/// Starts the instance and writes the row at the same time, and takes back the one if the other fails.
async fn started<Q>(call: &Call<Member, Q, Wish<Sandbox>>, reuse: bool, ready: Ready) -> Result<Reply<Sandbox>, Error> {
    let Ready { machine, launch, id } = ready;
    let _turn = call.app.fleet.0.turns.take(&id).await;
    let _birth = call.app.fleet.0.births.begin(&id);
    let (desk, wish, made) = (call.desk(), call.body.0.clone(), Arc::new(AtomicBool::new(false)));
    let instance = launch.instance.clone();
    let (birth, mine) = ((id.clone(), machine.name().to_owned()), Arc::clone(&made));
    let write = call.once(move |tx| {
        let (sandbox, new) = row(&desk, tx, &wish, reuse, Some(&birth))?;
        mine.store(new, Ordering::Relaxed);
        Ok(sandbox)
    });
    let (launched, written) = tokio::join!(machine.launch(launch), write);
    let made = written.is_ok() && made.load(Ordering::Relaxed);
    match launched {
        Ok(()) if made => {
            call.app.fleet.tell(routes::of_new(&call.who, &id, call.body.0.name(), &*machine, &instance));
            settle::watch_start(&call.app, machine, id, FIRST);
        }
        Ok(()) => settle::retire(&*machine, &instance).await,
        Err(fault) if made => {
            undo(&call.app, id).await?;
            return Err(fault.into());
        }
        Err(_) => {}
    }
    written
}

/// The row of a new sandbox, or of the one that there is. With `birth`, its instance is being started on that machine.
fn row(
    desk: &Desk,
    tx: &mut Tx<'_>,
    wish: &Sandbox,
    reuse: bool,
    birth: Option<&(ResourceId, String)>,
) -> Result<(Sandbox, bool), Error> {
    match Held::<Sandbox>::find(desk, tx, &[], wish.name())? {
        Some(held) if reuse && lives(&held) => {
            return engine::present(desk, tx, &held, &Secrets::Masked).map(|sandbox| (sandbox, false));
        }
        Some(held) if gone(&held) || reuse => {
            engine::remove::<Sandbox>(desk, tx, &[], wish.name())?;
        }
        Some(_) | None => {}
    }
    allow(tx, &desk.member.account, &desk.member.workspace_name, desk.world().now())?;
    let made = match birth {
        None => engine::create(desk, tx, &[], wish.clone()),
        Some((id, machine)) => {
            let (now, generation) = (desk.world().now(), settle::generation(wish));
            let done = |state: &mut _| settle::deployed(state, machine, generation, now);
            let instance = launch::instance(id, FIRST);
            usage::own_instance(desk, tx, &instance, Dimension::SandboxRuntime, (wish.name(), id), machine)?;
            engine::create_as(desk, tx, &[], wish.clone(), id.clone(), done)
        }
    };
    made.map(|sandbox| (sandbox, true))
}

/// Whether a caller that asked for "this one or a new one" gets this one.
fn lives(held: &Held<Sandbox>) -> bool {
    !matches!(held.row.status, Some(Status::Failed | Status::Terminated | Status::Deleting | Status::Deactivating))
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
