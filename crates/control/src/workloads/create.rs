//! Creates a sandbox while the caller waits: its instance is started while its row is written.
//!
//! A kill in between leaves an instance or its disk without a row, which the next start removes, or
//! a row without an instance, which the next start launches. No caller was told of either.

use super::images::{self, Usable};
use super::reconcile::{forget_root, outcome};
use super::{instances, launch, routes, rows, soon, taken};
use crate::addresses;
use crate::billing::allow;
use crate::context::Context;
use crate::control::Control;
use crate::egress;
use crate::engine::{self, Checked, Held, Secrets};
use crate::error::Error;
use crate::idempotency::{JsonAnswer, RequestKey, forget, once};
use crate::machine::{Launch, LaunchFault, Machine};
use crate::run_to_end::run_to_end;
use crate::workspace_defaults::note_rival;
use crate::{snapshot_base, snapshots, usage};
use parking_lot::Mutex;
use serde::Serialize;
use std::sync::Arc;
use store::Tx;
use store::identity::workspaces;
use types::Kind;
use types::edge::{RouteChange, Serving};
use types::ids::ResourceId;
use types::instance::InstanceName;
use types::kinds::sandbox::State;
use types::kinds::{Sandbox, Snapshot};
use types::parts::Status;
use types::wire::{ForkTarget, SandboxForkResponse};

/// A request for a new sandbox.
pub struct NewSandbox {
    pub context: Context,
    pub wish: Sandbox,
    /// Whether an existing, living sandbox of this name is returned instead.
    pub reuse: bool,
    pub key: Option<RequestKey>,
    /// The row of the snapshot that it begins with. The image below the snapshot is in the wish.
    pub begins: Option<ResourceId>,
}

/// The answer. For a fork it has only the sandbox's name and the snapshot it began with.
#[derive(Serialize)]
#[serde(untagged)]
enum Made {
    Sandbox(Box<Sandbox>),
    Fork(SandboxForkResponse),
}

/// Creates a sandbox, or returns the existing one if that is asked for. One that begins with a
/// snapshot is answered as a fork.
pub async fn create(new: NewSandbox) -> Result<JsonAnswer, Error> {
    let Some(machine) = new.context.control.machine().cloned() else {
        let (context, name) = (new.context.clone(), new.wish.name().to_owned());
        let JsonAnswer { body, replayed } = written(new, None).await?;
        return Ok(JsonAnswer { body: taken::<Sandbox>(&context, &name, body).await, replayed });
    };
    let checked = checked(&new.context, new.wish.clone(), new.begins.as_ref())?;
    match at_once(&new, machine, &checked).await? {
        // Spawned, because a caller that disconnects must not leave an instance without its row.
        Some(ready) => run_to_end(async move { started(&new, checked, ready).await }).await?,
        None => written(new, Some(checked)).await,
    }
}

/// Completes and checks a wish, which is of a fork if it begins with a snapshot.
fn checked(
    context: &Context,
    wish: Sandbox,
    begins: Option<&ResourceId>,
) -> Result<Checked<Sandbox>, Error> {
    match begins {
        Some(_) => Checked::fork(context, wish),
        None => Checked::new(context, wish),
    }
}

/// Only writes the row: reconciliation starts the instance.
async fn written(new: NewSandbox, checked: Option<Checked<Sandbox>>) -> Result<JsonAnswer, Error> {
    let NewSandbox { context, wish, reuse, key, begins } = new;
    let store = context.control.store.clone();
    let row = Row { wish, checked, reuse, birth: None, begins };
    let (control, told) = (context.control.clone(), Arc::new(Mutex::new(None)));
    let tell = Arc::clone(&told);
    let write = move |tx: &mut Tx<'_>| {
        let (sandbox, created) = row.write(&context, tx)?;
        // Before anybody can read the row, as for a sandbox that is started at once.
        if let Some(Created { id, .. }) = created
            && let Some(route) = routes::of_row(&context.control, tx, &id)?
        {
            context.control.publish(route);
            *tell.lock() = Some(id);
        }
        Ok(row.made(sandbox))
    };
    let written = once(&store, key, write).await;
    if let Err(error) = &written
        && let Some(id) = told.lock().take()
    {
        match rows::is_uncertain(error) {
            true => soon::reconcile(&control, Sandbox::NAME, id),
            false => control.publish(RouteChange::Gone(id)),
        }
    }
    written
}

/// A sandbox that can be started at once.
struct Ready {
    machine: Arc<dyn Machine>,
    launch: Launch,
    id: ResourceId,
}

/// Returns what to start now. `None` if the name is taken, the image has to be fetched first, or
/// nothing is to run.
async fn at_once(
    new: &NewSandbox,
    machine: Arc<dyn Machine>,
    checked: &Checked<Sandbox>,
) -> Result<Option<Ready>, Error> {
    let (context, wish) = (&new.context, checked.wish());
    if launch::waits_for_row(wish) {
        return Ok(None);
    }
    let (name, image, on) = (wish.name().to_owned(), wish.image().to_owned(), Arc::clone(&machine));
    let (of, asks, begins) = (context.clone(), wish.clone(), new.begins.clone());
    let free = move |tx: &mut Tx<'_>| {
        let usable = match snapshot_base::is_kept(&*on, begins.as_ref()) {
            true => Usable::Now(None),
            false => images::usable(tx, &*on, &of.member.workspace, &image)?,
        };
        let Usable::Now(granted) = usable else { return Ok(None) };
        let taken = of.find(tx, Sandbox::NAME, &[], &name)?.is_some_and(|row| !row.is_terminated());
        let workspace = workspaces::find(tx, &of.member.workspace)?.filter(|_| !taken);
        let Some(workspace) = workspace else { return Ok(None) };
        let rules = egress::of_sandbox(&of, tx, &asks)?;
        Ok::<_, Error>(rules.ok().map(|rules| (workspace, granted, rules)))
    };
    let Some((workspace, granted, rules)) =
        context.control.store.read(free).await?.filter(|_| wish.enabled())
    else {
        return Ok(None);
    };
    let id = ResourceId::new(context.world());
    let instance = InstanceName::of_sandbox(&id, launch::FIRST);
    let launch = launch::of_wish(context, &workspace, (&id, instance), wish, rules)?;
    let launch = Launch { granted, snapshot: new.begins.clone(), ..launch };
    Ok(Some(Ready { machine, launch, id }))
}

/// Starts the instance and writes the row at the same time, and undoes one if the other fails.
async fn started(
    new: &NewSandbox,
    checked: Checked<Sandbox>,
    ready: Ready,
) -> Result<JsonAnswer, Error> {
    let control = &new.context.control;
    let Ready { machine, launch, id } = ready;
    let _lock = control.workloads.lock(&id).await;
    let _starting = control.workloads.starting.begin(&id);
    let birth = Some((id.clone(), machine.name().to_owned()));
    let begins = new.begins.clone();
    let row =
        Row { wish: new.wish.clone(), checked: Some(checked), reuse: new.reuse, birth, begins };
    let (context, made) = (new.context.clone(), Arc::new(Mutex::new(None)));
    let (instance, mine) = (launch.instance.clone(), Arc::clone(&made));
    let write = once(&control.store, new.key.clone(), move |tx| {
        let (sandbox, created) = row.write(&context, tx)?;
        // Before anybody can read the row: whoever finds the sandbox in a list may call it.
        if let Some(created) = &created {
            context.control.publish(created.route(&context, Serving::Starting));
        }
        *mine.lock() = created;
        Ok(row.made(sandbox))
    });
    let (launched, written) = tokio::join!(launch_in_turn(control, &*machine, launch), write);
    if written.as_ref().is_err_and(rows::is_uncertain) {
        // Whoever can read next whether there is a row makes the instance and the route follow it.
        soon::reconcile(control, Sandbox::NAME, id);
        return written;
    }
    let is_new = written.as_ref().is_ok_and(|answer| !answer.replayed);
    let made = made.lock().take().filter(|_| is_new);
    match (launched, made) {
        (Ok(()), Some(created)) => {
            if egress::has_rules(&new.wish) {
                // It was launched with its rules, so it need not be told them again.
                control.workloads.told.note(&id, (launch::FIRST, State::default().rules));
            }
            let serving = Serving::by(machine.name(), instance.to_string());
            control.publish(created.route(&new.context, serving));
            outcome::watch_start(control, machine, (id, launch::FIRST), instance);
            return written;
        }
        (Err(fault), Some(_)) => {
            control.publish(RouteChange::Gone(id.clone()));
            undo(control, id, new.key.clone()).await?;
            return Err(fault.into());
        }
        (Ok(()) | Err(_), None) => discard(control, &*machine, &id, &instance).await,
    }
    // There is no such sandbox, even if an attempt to write its row has published a route.
    control.publish(RouteChange::Gone(id));
    written
}

/// Starts an instance when it is its workspace's turn: a hundred that start at once take each a
/// hundred times as long, those of others too. What may wait for other work of the workspace takes
/// no turn.
async fn launch_in_turn(
    control: &Control,
    machine: &dyn Machine,
    launch: Launch,
) -> Result<(), LaunchFault> {
    machine.make_ready(&launch).await?;
    let _turn = control.workloads.creating.take(&launch.workspace).await;
    machine.launch(launch).await
}

/// What is needed to publish the route of a sandbox that was just created.
struct Created {
    id: ResourceId,
    name: String,
    /// The label in its route.
    label: Option<String>,
}

impl Created {
    fn route(&self, context: &Context, serving: Serving) -> RouteChange {
        routes::of_new(&context.member, &self.id, (&self.name, self.label.clone()), serving)
    }
}

/// The row of a new sandbox, or the existing one.
struct Row {
    wish: Sandbox,
    checked: Option<Checked<Sandbox>>,
    reuse: bool,
    /// The id of the sandbox and the machine that starts its instance, if it is started at once.
    birth: Option<(ResourceId, String)>,
    /// The snapshot that it begins with.
    begins: Option<ResourceId>,
}

impl Row {
    fn made(&self, sandbox: Sandbox) -> Made {
        match &self.begins {
            None => Made::Sandbox(Box::new(sandbox)),
            Some(begins) => Made::Fork(SandboxForkResponse {
                name: Some(self.wish.name().to_owned()),
                snapshot_id: Some(Snapshot::id_of(begins)),
                kind: Some(ForkTarget::Sandbox),
            }),
        }
    }

    fn write(
        &self,
        context: &Context,
        tx: &mut Tx<'_>,
    ) -> Result<(Sandbox, Option<Created>), Error> {
        auth::workspaces::keep(tx, &context.member)?;
        match Held::<Sandbox>::find(context, tx, &[], self.wish.name())? {
            Some(held) if self.reuse && lives(&held) => {
                let sandbox = engine::present(context, tx, &held, &Secrets::Masked)?;
                return Ok((sandbox, None));
            }
            Some(held) if held.row.is_terminated() || self.reuse => {
                engine::remove::<Sandbox>(context, tx, &[], self.wish.name())?;
            }
            Some(_) | None => {}
        }
        allow(context, tx)?;
        let mut made = self.insert(context, tx);
        if self.reuse {
            // It gets the one that another caller makes at the same time.
            made = made.inspect_err(|error| note_rival(tx, error));
        }
        let (id, sandbox) = made?;
        let label = addresses::take_label(context, tx, &id, sandbox.name())?;
        let name = sandbox.name().to_owned();
        Ok((sandbox, Some(Created { id, name, label })))
    }

    fn insert(&self, context: &Context, tx: &mut Tx<'_>) -> Result<(ResourceId, Sandbox), Error> {
        let checked = match &self.checked {
            Some(checked) => checked.clone(),
            None => checked(context, self.wish.clone(), self.begins.as_ref())?,
        };
        if let Some(begins) = &self.begins {
            // Locked until the row says that the sandbox begins with it.
            let held = snapshots::usable(context, tx, None, &Snapshot::id_of(begins))?;
            snapshot_base::require_image(context, &held, self.wish.image())?;
        }
        let begins = self.begins.clone();
        let Some((id, machine)) = &self.birth else {
            let id = ResourceId::new(context.world());
            let done = |state: &mut State| state.snapshot = begins;
            let made = engine::create_checked(context, tx, &[], checked, id.clone(), done)?;
            return Ok((id, made));
        };
        let of = (self.wish.name(), id);
        let instance = InstanceName::of_sandbox(id, launch::FIRST);
        usage::own_instance::<Sandbox>(context, tx, &instance, of, machine)?;
        images::note_deployed(tx, &context.member.workspace, self.wish.image())?;
        // What the name means does not matter if the machine has kept the image below the snapshot.
        let is_kept = |on: &Arc<dyn Machine>| snapshot_base::is_kept(&**on, self.begins.as_ref());
        if !context.control.machine().is_some_and(is_kept) {
            images::keep(tx, &context.member.workspace, self.wish.image())?;
        }
        let (now, generation) = (context.world().now(), outcome::generation(checked.wish()));
        let done = |state: &mut State| {
            state.snapshot = begins;
            outcome::deployed(state, machine, id, generation, now);
        };
        let made = engine::create_checked(context, tx, &[], checked, id.clone(), done)?;
        Ok((id.clone(), made))
    }
}

/// Whether a caller that asked for this sandbox or a new one gets this one.
fn lives(held: &Held<Sandbox>) -> bool {
    !matches!(
        held.row.status,
        Some(Status::Failed | Status::Terminated | Status::Deleting | Status::Deactivating)
    )
}

/// Removes what was started of a sandbox that got no row, with its disk: without a row, nothing
/// would remove that before the next start. A launch that failed may have made the disk too.
async fn discard(
    control: &Control,
    machine: &dyn Machine,
    id: &ResourceId,
    instance: &InstanceName,
) {
    instances::retire(machine, instance).await;
    if let Err(error) = forget_root(machine, id).await {
        tracing::error!(%error, %id, "the disk of a sandbox that was refused could not be removed; it is tried again");
        soon::reconcile(control, Sandbox::NAME, id.clone());
    }
}

/// Removes the row of a sandbox whose instance could not be started.
async fn undo(control: &Control, id: ResourceId, key: Option<RequestKey>) -> Result<(), Error> {
    let of = control.clone();
    let work = move |tx: &mut Tx<'_>| {
        let Some((context, held)) = rows::lock_in::<Sandbox>(&of, tx, &id)? else {
            return Ok(());
        };
        engine::remove::<Sandbox>(&context, tx, &[], &held.row.name)?;
        forget(tx, key.as_ref())
    };
    control.store.write(work).await
}
