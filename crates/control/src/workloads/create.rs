//! Making a sandbox while somebody waits: its instance is started while its row is written.
//!
//! Killed in between, there is an instance without a row, which the next start removes, or a row
//! without an instance, which the next start launches. Nobody was told of either.

use super::images::{self, Usable};
use super::{launch, reconcile, routes, rows};
use crate::addresses;
use crate::billing::allow;
use crate::context::Context;
use crate::control::Control;
use crate::engine::{self, Held, Secrets};
use crate::error::Error;
use crate::idempotency::{Answer, RequestKey, once};
use crate::machine::{Launch, Machine};
use crate::missing::Missing;
use crate::usage;
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

/// What a caller asks for.
pub struct Asked {
    pub context: Context,
    pub wish: Sandbox,
    /// Whether a sandbox of this name that lives is answered instead.
    pub reuse: bool,
    pub key: Option<RequestKey>,
}

/// Makes a sandbox, or answers the one that there is.
pub async fn create(asked: Asked) -> Result<Answer, Error> {
    match at_once(&asked).await? {
        // A task of its own: a caller that goes away must not leave an instance half made, or one
        // that nobody knows.
        Some(ready) => {
            let whole = tokio::spawn(async move { started(&asked, ready).await }.in_current_span());
            whole.await.unwrap_or_else(|_| Err(Error::Launch("it was interrupted".to_owned())))
        }
        None => {
            let Asked { context, wish, reuse, key } = asked;
            let store = context.control.store.clone();
            once(&store, key, move |tx| {
                row(&context, tx, &wish, reuse, None).map(|(sandbox, _)| sandbox)
            })
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
async fn at_once(asked: &Asked) -> Result<Option<Ready>, Error> {
    let Some(machine) = asked.context.control.machine().cloned() else { return Ok(None) };
    let context = asked.context.clone();
    let mut wish = asked.wish.clone();
    wish.complete(None, context.world());
    let mut problems = Problems::default();
    wish.check(&mut problems);
    problems.into_result()?;
    if wish.spec.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty()) {
        // What would be written there would be lost with the sandbox.
        return Err(Error::Missing(Missing::MountVolume));
    }
    let (name, image, on) = (wish.name().to_owned(), wish.image().to_owned(), Arc::clone(&machine));
    let free = move |tx: &mut Tx<'_>| {
        let Usable::Now(granted) = images::usable(tx, &*on, &context.member.workspace, &image)?
        else {
            return Ok(None);
        };
        let taken = context
            .find(tx, Sandbox::NAME, &[], &name)?
            .is_some_and(|row| row.status != Some(Status::Terminated));
        let workspace = workspaces::find(tx, &context.member.workspace)?.filter(|_| !taken);
        Ok::<_, Error>(workspace.map(|workspace| (workspace, granted)))
    };
    let Some((workspace, granted)) =
        asked.context.control.store.read(free).await?.filter(|_| wish.enabled())
    else {
        return Ok(None);
    };
    let id = ResourceId::new(asked.context.world());
    let instance = InstanceName::of_sandbox(&id, FIRST);
    let launch = launch::of_wish(&asked.context, &workspace, instance, &wish);
    let launch = Launch { granted, ..launch };
    Ok(Some(Ready { machine, launch, id }))
}

/// Starts the instance and writes the row at the same time, and takes back the one if the other
/// fails.
async fn started(asked: &Asked, ready: Ready) -> Result<Answer, Error> {
    let control = &asked.context.control;
    let Ready { machine, launch, id } = ready;
    let _lock = control.workloads.locks.take(&id).await;
    let _starting = control.workloads.starting.begin(&id);
    let (context, wish, made) =
        (asked.context.clone(), asked.wish.clone(), Arc::new(Mutex::new(None)));
    let instance = launch.instance.clone();
    let (birth, mine) = ((id.clone(), machine.name().to_owned()), Arc::clone(&made));
    let (reuse, key) = (asked.reuse, asked.key.clone());
    let write = once(&control.store, key, move |tx| {
        let (sandbox, new) = row(&context, tx, &wish, reuse, Some(&birth))?;
        *mine.lock() = new;
        Ok(sandbox)
    });
    let (launched, written) = tokio::join!(machine.launch(launch), write);
    let made = made.lock().take().filter(|_| written.is_ok());
    match (launched, made) {
        (Ok(()), Some(New { label })) => {
            let named = (asked.wish.name(), label);
            control.publish(routes::of_new(
                &asked.context.member,
                &id,
                named,
                &*machine,
                &instance,
            ));
            reconcile::watch_start(control, machine, (id, FIRST), instance);
        }
        (Ok(()), None) => reconcile::retire(&*machine, &instance).await,
        (Err(fault), Some(_)) => {
            undo(control, id).await?;
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
    context: &Context,
    tx: &mut Tx<'_>,
    wish: &Sandbox,
    reuse: bool,
    birth: Option<&(ResourceId, String)>,
) -> Result<(Sandbox, Option<New>), Error> {
    match Held::<Sandbox>::find(context, tx, &[], wish.name())? {
        Some(held) if reuse && lives(&held) => {
            return engine::present(context, tx, &held, &Secrets::Masked)
                .map(|sandbox| (sandbox, None));
        }
        Some(held) if gone(&held) || reuse => {
            engine::remove::<Sandbox>(context, tx, &[], wish.name())?;
        }
        Some(_) | None => {}
    }
    allow(tx, &context.member.account, &context.member.workspace_name, context.world().now())?;
    let id = birth.map_or_else(|| ResourceId::new(context.world()), |(id, _)| id.clone());
    let made = match birth {
        None => engine::create_as(context, tx, &[], wish.clone(), id.clone(), |_| {}),
        Some((_, machine)) => {
            let (now, generation) = (context.world().now(), reconcile::generation(wish));
            let done = |state: &mut _| reconcile::deployed(state, machine, &id, generation, now);
            let instance = InstanceName::of_sandbox(&id, FIRST);
            usage::own_instance(
                context,
                tx,
                &instance,
                Dimension::SandboxRuntime,
                (wish.name(), &id),
                machine,
            )?;
            engine::create_as(context, tx, &[], wish.clone(), id.clone(), done)
        }
    };
    let sandbox = made?;
    let label = addresses::take_label(context, tx, &id, sandbox.name())?;
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
async fn undo(control: &Control, id: ResourceId) -> Result<(), Error> {
    let of = control.clone();
    let work = move |tx: &mut Tx<'_>| {
        let Some(held) = rows::lock::<Sandbox>(tx, &id)? else { return Ok(()) };
        let Some((context, _)) = rows::context(&of, tx, &held.row.workspace)? else {
            return Ok(());
        };
        engine::remove::<Sandbox>(&context, tx, &[], &held.row.name).map(drop)
    };
    control.store.write(work).await
}
