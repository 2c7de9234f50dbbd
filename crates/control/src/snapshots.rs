//! Snapshots of sandboxes: their rows, and the files on a machine that the rows stand for.
//!
//! The row is written first, as `pending`; then the machine takes the snapshot, and the row becomes
//! `ready` or `failed` ([`outcome`]). A row that a kill left pending becomes one of the two when the
//! rows are next followed ([`crate::workloads`]). A deleted snapshot is only hidden as long as
//! something begins with it, because until then its bytes are needed, and paid for.

mod outcome;

pub(crate) use outcome::settle;

use crate::billing::allow;
use crate::context::Context;
use crate::control::Control;
use crate::engine::{self, Checked, Held, Secrets, Shown};
use crate::error::{Absent, Conflict, Error, Forbidden, Unfit, shown_name};
use crate::idempotency::{JsonAnswer, RequestKey, forget, forget_answer, kept_answer, once};
use crate::missing::Missing;
use crate::run_to_end::run_to_end;
use crate::snapshot_store::{NewSnapshot, SnapshotFault};
use crate::usage;
use crate::workloads::{launch, rows, soon};
use parking_lot::Mutex;
use serde::Deserialize;
use std::sync::Arc;
use store::resources::{self, Query, Stored};
use store::{Tx, feed, wishes};
use types::KindName;
use types::ids::ResourceId;
use types::instance::InstanceName;
use types::kinds::snapshot::{Kept, Origin, SnapshotStatus, State};
use types::kinds::{Sandbox, Snapshot};
use types::parts::Status;

/// Longest id or name, in characters; longer ones find nothing.
const NAME_MAX: usize = 64;

/// Which snapshot to take, and why it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) sandbox: String,
    pub(crate) name: Option<String>,
    pub(crate) kept: Kept,
}

/// A snapshot that was taken, and whether an earlier request with the same key took it.
struct Done {
    id: ResourceId,
    replayed: bool,
}

/// Takes a snapshot of a sandbox and returns it when it is ready, with whether an earlier request
/// with the same key took it.
pub async fn create(
    context: Context,
    sandbox: String,
    name: Option<String>,
    key: Option<RequestKey>,
) -> Result<(Shown<Snapshot>, bool), Error> {
    let name = name.filter(|name| !name.is_empty());
    let order = Order { sandbox, name, kept: Kept::Asked };
    let Done { id, replayed } = done(&context, order, key).await?;
    let store = context.control.store.clone();
    let work = move |tx: &mut Tx<'_>| {
        engine::get::<Snapshot>(&context, tx, &[], &Snapshot::id_of(&id), &Secrets::Masked)
    };
    Ok((store.read(work).await?, replayed))
}

/// Takes a snapshot and waits for it. The work continues if the caller goes away.
pub(crate) async fn take(context: &Context, order: Order) -> Result<ResourceId, Error> {
    Ok(done(context, order, None).await?.id)
}

async fn done(context: &Context, order: Order, key: Option<RequestKey>) -> Result<Done, Error> {
    let (of, id) = (context.clone(), ResourceId::new(context.world()));
    let row = id.clone();
    let whole = async move { taken(&of, order, key, row).await };
    match run_to_end(whole).await {
        Ok(Err(error @ Error::Store(_))) => {
            soon::reconcile(&context.control, KindName::Snapshot, id);
            Err(error)
        }
        Ok(done) => done,
        Err(interrupted) => {
            soon::reconcile(&context.control, KindName::Snapshot, id);
            Err(interrupted.into())
        }
    }
}

async fn taken(
    context: &Context,
    order: Order,
    key: Option<RequestKey>,
    id: ResourceId,
) -> Result<Done, Error> {
    let control = &context.control;
    // The row is pending from the start; code that follows the rows must not take it for a
    // leftover.
    let _taking = control.workloads.taking(&id);
    let _lock = control.workloads.lock(&id).await;
    let mut before = None;
    let instance = loop {
        let answer = match begun(context, &order, key.clone(), &id).await? {
            Begun::New(instance) => break instance,
            Begun::Earlier(answer) => answer,
        };
        let earlier = earlier(&answer)?;
        // Whoever takes the snapshot holds the lock until the row has the outcome.
        drop(control.workloads.lock(&earlier).await);
        if before.as_ref() == Some(&earlier)
            || !is_void(context, key.as_ref(), &earlier, answer).await?
        {
            return Ok(Done { id: earlier, replayed: true });
        }
        before = Some(earlier);
    };
    let (snapshots, _) = control.snapshot_store().ok_or(Error::Missing(Missing::Snapshot))?;
    let workspace = context.member.workspace.to_string();
    let how = snapshots.take(NewSnapshot { id: id.clone(), instance, workspace }).await;
    settle(control, &id, how.as_ref()).await?;
    if how.is_err() {
        control.store.write(move |tx| forget(tx, key.as_ref())).await?;
    }
    how?;
    Ok(Done { id, replayed: false })
}

/// What came of writing the row of a snapshot.
enum Begun {
    /// The row is there; the snapshot is to be taken of this instance.
    New(InstanceName),
    /// An earlier request with the same key wrote its row.
    Earlier(JsonAnswer),
}

async fn begun(
    context: &Context,
    order: &Order,
    key: Option<RequestKey>,
    id: &ResourceId,
) -> Result<Begun, Error> {
    let begun = Arc::new(Mutex::new(None));
    let (of, order, row, mine) = (context.clone(), order.clone(), id.clone(), Arc::clone(&begun));
    let answer = once(&context.control.store, key, move |tx| {
        let (snapshot, instance) = begin(&of, tx, &order, &row)?;
        *mine.lock() = Some(instance);
        Ok::<_, Error>(snapshot)
    })
    .await?;
    match begun.lock().take().filter(|_| !answer.replayed) {
        Some(instance) => Ok(Begun::New(instance)),
        None => Ok(Begun::Earlier(answer)),
    }
}

/// Checks whether nothing came of the snapshot of an earlier request. One that failed because the
/// server was killed makes room for the next here.
async fn is_void(
    context: &Context,
    key: Option<&RequestKey>,
    id: &ResourceId,
    answer: JsonAnswer,
) -> Result<bool, Error> {
    let store = &context.control.store;
    let row = id.clone();
    let Some(held) = store.read(move |tx| rows::find::<Snapshot>(tx, &row)).await? else {
        return Ok(true);
    };
    let Some(key) = key.cloned().filter(|_| held.state.status == SnapshotStatus::Failed) else {
        return Ok(false);
    };
    let (of, keyring) = (context.clone(), store.keyring());
    let work = move |tx: &mut Tx<'_>| {
        if forget_answer(tx, &keyring, &key, &answer)? {
            engine::remove::<Snapshot>(&of, tx, &[], &held.row.name)?;
        }
        Ok::<_, Error>(())
    };
    store.write(work).await?;
    Ok(true)
}

/// Returns the id of the row that an earlier request with the same key was answered with.
fn earlier(answer: &JsonAnswer) -> Result<ResourceId, Error> {
    #[derive(Deserialize)]
    struct Begun {
        id: String,
    }
    let snapshot: Begun = kept_answer(&answer.body)?;
    Ok(Snapshot::row_of(&snapshot.id))
}

/// Writes the row of a snapshot that is about to be taken, and returns the instance to take it of.
fn begin(
    context: &Context,
    tx: &mut Tx<'_>,
    order: &Order,
    id: &ResourceId,
) -> Result<(Snapshot, InstanceName), Error> {
    let sandbox = Held::<Sandbox>::lock(context, tx, &[], &order.sandbox)?;
    let Some((_, machine)) = context.control.snapshot_store() else {
        return Err(Error::Missing(Missing::Snapshot));
    };
    let instance = running(&context.control, &sandbox, &machine)?;
    if let Some(name) = &order.name {
        require_free(context, tx, &sandbox.row.id, name)?;
    }
    // An archive gives back more than it takes, and each sandbox has at most one, so these limits
    // do not apply to it.
    if sandbox.row.status != Some(Status::Archiving) {
        require_few_pending(context, tx)?;
        allow(context, tx)?;
    }
    let spec = engine::opened(context, &sandbox)?.spec;
    let origin = Origin { sandbox: sandbox.row.name.clone(), id: sandbox.row.id.clone(), spec };
    let wish = Snapshot::new(Snapshot::id_of(id), order.name.clone(), origin);
    let kept = order.kept;
    let done = |state: &mut State| {
        state.kept = kept;
        state.machine = Some(machine);
    };
    let checked = Checked::new(context, wish)?;
    let snapshot = engine::create_checked(context, tx, &[], checked, id.clone(), done)?;
    Ok((snapshot, instance))
}

/// Returns the instance that has a sandbox's files.
fn running(
    control: &Control,
    sandbox: &Held<Sandbox>,
    machine: &str,
) -> Result<InstanceName, Error> {
    let status = sandbox.row.status;
    let refused = |status: Status, wants| {
        Err(Error::from(Conflict::SandboxState { status: status.name(), wants }))
    };
    match (status, &sandbox.state.placed) {
        (Some(Status::Deployed | Status::Deactivated | Status::Archiving), Some(placed))
            if placed.launch == sandbox.state.launch =>
        {
            if placed.machine != machine {
                let why = control.runs_elsewhere(&placed.machine);
                return Err(Unfit::SandboxOnOtherMachine { why }.into());
            }
            Ok(launch::instance(&sandbox.row.id, &sandbox.state))
        }
        (Some(status @ (Status::Archived | Status::Unarchiving)), _) => {
            refused(status, "its files are in its archive; unarchive it first")
        }
        (status, _) => {
            refused(status.unwrap_or(Status::Deploying), "it has no files before it is DEPLOYED")
        }
    }
}

fn require_free(
    context: &Context,
    tx: &mut Tx<'_>,
    sandbox: &ResourceId,
    name: &str,
) -> Result<(), Error> {
    match named(context, tx, Some(sandbox), name)? {
        Some(_) => Err(Conflict::SnapshotNamed { name: name.to_owned() }.into()),
        None => Ok(()),
    }
}

fn require_few_pending(context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
    let limit = context.control.settings.snapshots.pending_max;
    let workspace = &context.member.workspace;
    let query =
        Query { statuses: &State::PENDING, ..Query::new(workspace, KindName::Snapshot, Some("")) };
    if resources::total(tx, &query)? >= limit {
        return Err(Forbidden::ManyPendingSnapshots { limit }.into());
    }
    Ok(())
}

/// Tells the meter how many bytes a snapshot has from now on: 0 once it is gone.
pub(crate) fn meter(
    context: &Context,
    tx: &mut Tx<'_>,
    held: &Held<Snapshot>,
    state: &mut State,
    size_bytes: u64,
) -> Result<(), Error> {
    let Some(origin) = &held.wish.origin else { return Ok(()) };
    state.metered += 1;
    let of = (origin.sandbox.as_str(), &origin.id);
    usage::store_snapshot(context, tx, &held.row.id, of, (size_bytes, state.metered))
}

/// Finds a snapshot by its id or name, either of one sandbox or in the whole workspace.
pub(crate) fn find(
    context: &Context,
    tx: &mut Tx<'_>,
    sandbox: Option<&ResourceId>,
    name: &str,
) -> Result<Held<Snapshot>, Error> {
    let absent = || Error::from(Absent::Snapshot { id: shown_name(name) });
    if name.chars().count() > NAME_MAX {
        return Err(absent());
    }
    let by_id = Held::<Snapshot>::find(context, tx, &[], name)?.filter(|held| {
        let origin = held.wish.origin.as_ref();
        let here = sandbox.is_none_or(|id| origin.is_some_and(|origin| origin.id == *id));
        here && held.state.kept != Kept::Deleted
    });
    match by_id {
        Some(held) => Ok(held),
        None => named(context, tx, sandbox, name)?.ok_or_else(absent),
    }
}

/// Finds the snapshot to which somebody gave this name, which is unique within its sandbox. In the
/// whole workspace it may mean several, and none of them is taken for the one that was meant.
fn named(
    context: &Context,
    tx: &mut Tx<'_>,
    sandbox: Option<&ResourceId>,
    name: &str,
) -> Result<Option<Held<Snapshot>>, Error> {
    let text = name.to_lowercase();
    let query = Query {
        hidden_statuses: &State::HIDDEN,
        external_id: sandbox.map(ResourceId::as_str),
        text: Some(&text),
        limit: context.control.settings.bare_list_max,
        ..Query::new(&context.member.workspace, KindName::Snapshot, Some(""))
    };
    let mut found = None;
    for row in resources::list(tx, &query)? {
        let held = Held::<Snapshot>::read(row)?;
        if held.wish.name.as_deref() == Some(name) && found.replace(held).is_some() {
            return Err(Conflict::SnapshotsNamed { name: name.to_owned() }.into());
        }
    }
    Ok(found)
}

/// Returns a snapshot by its id or name, in wire form.
pub fn get(context: &Context, tx: &mut Tx<'_>, name: &str) -> Result<Shown<Snapshot>, Error> {
    let held = find(context, tx, None, name)?;
    let object = engine::present(context, tx, &held, &Secrets::Masked)?;
    Ok(Shown { object, version: held.row.version })
}

/// Returns all snapshots of a sandbox, newest first.
pub fn of_sandbox(
    context: &Context,
    tx: &mut Tx<'_>,
    sandbox: &str,
) -> Result<Vec<Snapshot>, Error> {
    let sandbox = Held::<Sandbox>::get(context, tx, &[], sandbox)?;
    let query = Query {
        hidden_statuses: &State::HIDDEN,
        external_id: Some(sandbox.row.id.as_str()),
        ..Query::new(&context.member.workspace, KindName::Snapshot, Some(""))
    };
    let rows = engine::all(context, tx, query)?;
    let shown = |row| engine::present(context, tx, &Held::read(row)?, &Secrets::Masked);
    rows.into_iter().map(shown).collect()
}

/// Hides a snapshot. It is removed once nothing begins with it.
pub fn remove(
    context: &Context,
    tx: &mut Tx<'_>,
    sandbox: Option<&str>,
    name: &str,
) -> Result<(), Error> {
    let sandbox = match sandbox {
        Some(sandbox) => Some(Held::<Sandbox>::get(context, tx, &[], sandbox)?.row.id),
        None => None,
    };
    let held = find(context, tx, sandbox.as_ref(), name)?;
    let held = Held::<Snapshot>::lock(context, tx, &[], &held.row.name)?;
    if held.state.status == SnapshotStatus::Failed {
        return engine::remove::<Snapshot>(context, tx, &[], &held.row.name).map(drop);
    }
    let state = State { kept: Kept::Deleted, ..held.state.clone() };
    engine::change_state(context, tx, held, state).map(drop)
}

/// What begins with a snapshot: a sandbox, or a revision of an application.
const BEGINNERS: [KindName; 2] = [KindName::Sandbox, KindName::Application];

/// That nothing began with a snapshot, up to a revision of the feed. It is found out before the
/// transaction that removes the snapshot, because looking through all wishes takes long, and others
/// who write would wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unneeded {
    upto: i64,
}

impl Unneeded {
    /// Returns nothing if something begins with the snapshot, or if it is gone.
    pub(crate) async fn find(control: &Control, id: &ResourceId) -> Result<Option<Self>, Error> {
        let id = id.clone();
        let work = move |tx: &mut Tx<'_>| {
            let Some(held) = rows::find::<Snapshot>(tx, &id)? else { return Ok(None) };
            let (upto, text) = (feed::latest(tx)?, id_text(&id));
            for kind in BEGINNERS {
                if wishes::occurs(tx, &held.row.workspace, kind, text)? {
                    return Ok(None);
                }
            }
            Ok(Some(Self { upto }))
        };
        control.store.read(work).await
    }

    /// Checks whether something that was written since begins with the snapshot.
    pub(crate) fn still_holds(self, tx: &mut Tx<'_>, of: &Stored) -> Result<bool, Error> {
        for kind in BEGINNERS {
            if wishes::occurs_since(tx, &of.workspace, kind, self.upto, id_text(&of.id))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Sandboxes name the row's id, applications the id that callers see. Returns their common ending.
fn id_text(id: &ResourceId) -> &str {
    id.as_str().split_once('_').map_or(id.as_str(), |(_, end)| end)
}

/// Finds a snapshot that something may begin with on this server's machine. It cannot be deleted
/// before the transaction ends.
pub(crate) fn usable(
    context: &Context,
    tx: &mut Tx<'_>,
    sandbox: Option<&ResourceId>,
    name: &str,
) -> Result<Held<Snapshot>, Error> {
    let held = find(context, tx, sandbox, name)?;
    let held = Held::<Snapshot>::lock(context, tx, &[], &held.row.name)?;
    let not_ready = |why: &str| Err(Conflict::SnapshotNotReady { why: why.to_owned() }.into());
    match (held.state.status, held.state.kept) {
        (_, Kept::Deleted) => return not_ready("it was deleted"),
        (SnapshotStatus::Pending, _) => return not_ready("it is being taken"),
        (SnapshotStatus::Failed, _) => {
            return not_ready(held.state.message.as_deref().unwrap_or("it failed"));
        }
        (SnapshotStatus::Ready, _) => {}
    }
    let Some((_, machine)) = context.control.snapshot_store() else {
        return Err(Error::Missing(Missing::Fork));
    };
    if held.state.machine.as_deref() != Some(machine.as_str()) {
        let why = context.control.kept_elsewhere(held.state.machine.as_deref());
        return Err(Unfit::SnapshotOnOtherMachine { why }.into());
    }
    Ok(held)
}

impl From<SnapshotFault> for Error {
    fn from(fault: SnapshotFault) -> Self {
        match fault {
            SnapshotFault::OverShare(why) => Forbidden::SnapshotRoom { why }.into(),
            SnapshotFault::Full(why) => Self::NoRoom(why),
            SnapshotFault::Gone => {
                Conflict::SnapshotNotReady { why: "the instance of the sandbox is gone".to_owned() }
                    .into()
            }
            SnapshotFault::Unfit(why) => Unfit::SnapshotFiles { why }.into(),
            SnapshotFault::Lost => Unfit::SnapshotLost.into(),
            SnapshotFault::Broken(why) => Self::Snapshot(why),
        }
    }
}
