//! Follows the rows: publishes routes to the edge, and has workloads reconciled.

use super::followed::{self, Look, Reader, Rows};
use super::instances::Inventory;
use super::lost_facts::Lost;
use super::rows::Workspaces;
use super::{lost_facts, routes, rows, snapshot, soon, volume};
use crate::control::Control;
use crate::error::Error;
use crate::models::route;
use crate::tunnels;
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use store::Tx;
use store::feed::{self, Act, Change};
use store::resources;
use types::KindName;
use types::edge::RouteChange;
use types::ids::{ResourceId, WorkspaceId};

/// Rows read at once.
const PAGE: i64 = 500;
/// Most changed rows that are read at once.
const CHANGED_PAGE: usize = 100;

/// Reads everything once, then follows the feed. Reads everything again after a failure, and when
/// another server is reached elsewhere than before: routes name it.
pub(super) async fn run(control: Control) {
    let mut applied = None;
    // The database may have been restored while no server ran.
    lost_facts::look(&control, Lost::Ends);
    loop {
        let Err(error) = follow(&control, &mut applied).await;
        tracing::error!(%error, "following the rows failed; it begins anew");
        if let Error::Store(store::Error::Gone { .. }) = error {
            // It has fallen behind the feed, so it is not told of some removals.
            applied = None;
            control.queue.note_removal();
            control.removals.notify_one();
            // That may be because a standby took over that did not have the last transactions.
            lost_facts::look(&control, Lost::Any);
        }
        tokio::time::sleep(rows::RETRY_AFTER).await;
    }
}

/// `applied` is the position up to which all changes are applied. It is kept through failures,
/// because reading everything does not tell which workspaces were deleted.
async fn follow(control: &Control, applied: &mut Option<i64>) -> Result<Infallible, Error> {
    let start = match *applied {
        Some(position) => position,
        // Taken first, so changes during the reading are seen again.
        None => *applied.insert(control.store.read(feed::latest).await?),
    };
    read_all(control).await?;
    let mut follower = control.store.follow(start, control.settings.feed_poll);
    loop {
        let position = follower.position();
        *applied = Some(position);
        control.workloads.published.send_if_modified(|published| {
            std::mem::replace(published, position.max(*published)) < position
        });
        tokio::select! {
            changes = follower.next() => apply(control, changes?).await?,
            () = control.servers.changed.notified() => read_all(control).await?,
        }
    }
}

/// Publishes all routes, and reconciles what differs from its row. What runs is listed once, and
/// rows are read in pages.
async fn read_all(control: &Control) -> Result<(), Error> {
    let inventory = control.machine().map(|machine| Inventory::of(&**machine));
    let inventory = Arc::new(inventory.unwrap_or_default());
    control.workloads.deployments.adopt(inventory.replicas());
    let mut rows = HashSet::new();
    for followed in followed::ALL {
        let mut after: Option<ResourceId> = None;
        loop {
            let _telling = control.workloads.telling.all().await;
            let page = read_page(control, followed, &inventory, after.take()).await?;
            let Some((last, ..)) = page.last() else { break };
            after = Some(last.clone());
            for (id, workspace, look) in page {
                act(control, followed, (workspace, &id), look);
                rows.insert(id);
            }
        }
    }
    for id in inventory.sandboxes().filter(|id| !rows.contains(*id)) {
        soon::reconcile(control, KindName::Sandbox, id.clone());
    }
    control.workloads.tasks.spawn(tunnels::restore_all(control.clone()));
    volume::collect(control, &rows);
    snapshot::collect(control, &rows);
    forget_unread(control, &rows).await?;
    let known = control.workloads.deployments.ids();
    reconcile_unread(control, known.into_iter().filter(|id| !rows.contains(id)).collect()).await
}

/// Takes back what the edge knows, and the tokens of connections, whose rows are gone. Nothing else
/// does that if the feed does not tell of their removal any more. `rows` are those that were read.
async fn forget_unread(control: &Control, rows: &HashSet<ResourceId>) -> Result<(), Error> {
    let _telling = control.workloads.telling.all().await;
    let mut known = control.edge.as_ref().map_or_else(Vec::new, |edge| edge.routed());
    known.extend(control.models.access.ids());
    // Whoever starts a sandbox may have told of it before there is a row.
    known.retain(|id| !rows.contains(id) && !control.workloads.starting.has(id));
    let gone = move |tx: &mut Tx<'_>| {
        let mut gone = Vec::new();
        for id in &known {
            if resources::find_by_id(tx, id)?.is_none() {
                gone.push(id.clone());
            }
        }
        Ok::<_, Error>(gone)
    };
    for id in control.store.read(gone).await? {
        control.models.access.forget(&id);
        control.publish(RouteChange::Gone(id));
    }
    Ok(())
}

/// Reconciles deployments whose rows were not among those read: they are gone, or were made
/// meanwhile.
async fn reconcile_unread(control: &Control, ids: Vec<ResourceId>) -> Result<(), Error> {
    let work = move |tx: &mut Tx<'_>| {
        let kind_of = |id: &ResourceId| {
            let row = resources::find_by_id(tx, id)?;
            // One that is gone is ended in the same way whatever its kind was.
            Ok::<_, Error>((row.map_or(KindName::Agent, |row| row.kind), id.clone()))
        };
        ids.iter().map(kind_of).collect::<Result<Vec<_>, _>>()
    };
    for (kind, id) in control.store.read(work).await? {
        soon::reconcile(control, kind, id);
    }
    Ok(())
}

/// Returns what the rows of a page ask for, read in one transaction.
async fn read_page(
    control: &Control,
    followed: &'static dyn Rows,
    inventory: &Arc<Inventory>,
    after: Option<ResourceId>,
) -> Result<Vec<(ResourceId, WorkspaceId, Look)>, Error> {
    let (of, inventory) = (control.clone(), Arc::clone(inventory));
    let work = move |tx: &mut Tx<'_>| {
        let workspaces = Workspaces::default();
        let mut reader = Reader { control: &of, workspaces, inventory: Some(&inventory) };
        let mut looks = Vec::new();
        for row in resources::scan(tx, followed.kind(), after.as_ref(), PAGE)? {
            let (id, workspace) = (row.id.clone(), row.workspace.clone());
            let look = match followed.look(&mut reader, tx, row) {
                // What runs for it stays as it is.
                Err(error) if is_set_aside(&error, followed.kind(), &id) => Look::default(),
                look => look?,
            };
            looks.push((id, workspace, look));
        }
        Ok(looks)
    };
    control.store.read(work).await
}

/// Decides whether a row is left as it is until it changes or this program starts again, so that the
/// other rows are followed all the same.
fn is_set_aside(error: &Error, kind: KindName, id: &ResourceId) -> bool {
    let sets_aside = !rows::may_pass(error);
    if sets_aside {
        tracing::error!(%error, %kind, %id, "a row cannot be followed; it is set aside until it changes");
    }
    sets_aside
}

async fn apply(control: &Control, changes: Vec<Change>) -> Result<(), Error> {
    let (mut seen, mut wanted) = (HashSet::new(), Vec::new());
    for change in changes {
        if change.kind == "workspace" && change.act == Act::Deleted {
            control.queue.note_removal();
            control.deleted_workspaces.lock().insert(change.workspace.clone());
            control.removals.notify_one();
        }
        let concerned = match concerned(control, &change).await {
            Err(error) if !rows::may_pass(&error) => {
                tracing::error!(%error, kind = change.kind, id = change.resource_id, "what a change concerns cannot be read; it is left out");
                continue;
            }
            concerned => concerned?,
        };
        // A row is read as it is now, so one look is enough for many changes.
        wanted.extend(concerned.into_iter().filter(|(_, id)| seen.insert(id.clone())));
    }
    for page in wanted.chunks(CHANGED_PAGE) {
        look_at_each(control, page).await?;
    }
    Ok(())
}

/// Looks at rows that have changed. Several are read in one transaction, because under load waiting
/// for a reader costs more than the reading.
async fn look_at_each(control: &Control, wanted: &[(KindName, ResourceId)]) -> Result<(), Error> {
    if let [(kind, id)] = wanted {
        return match look_at(control, *kind, id).await {
            Err(error) if is_set_aside(&error, *kind, id) => Ok(()),
            looked => looked,
        };
    }
    let _telling = control.workloads.telling.all().await;
    let (of, wanted) = (control.clone(), wanted.to_vec());
    let work = move |tx: &mut Tx<'_>| {
        let mut reader =
            Reader { control: &of, workspaces: Workspaces::default(), inventory: None };
        let mut looks = Vec::new();
        for (kind, id) in &wanted {
            let Some(followed) = followed::find(*kind) else { continue };
            match look(&mut reader, tx, followed, id) {
                Err(error) if is_set_aside(&error, *kind, id) => {}
                look => looks.push((followed, id.clone(), look?)),
            }
        }
        Ok::<_, Error>(looks)
    };
    for (followed, id, look) in control.store.read(work).await? {
        act_on(control, followed, &id, look);
    }
    Ok(())
}

/// Returns the rows whose routes or instances may be affected by a change.
async fn concerned(
    control: &Control,
    change: &Change,
) -> Result<Vec<(KindName, ResourceId)>, Error> {
    match KindName::parse(&change.kind) {
        Some(KindName::CustomDomain) => {
            let (workspace, domain) = (change.workspace.clone(), change.name.clone());
            let find = move |tx: &mut Tx<'_>| {
                let previews = routes::previews_below(tx, &workspace, &domain)?;
                let applications = routes::applications_below(tx, &workspace, &domain)?;
                Ok::<_, Error>((previews, applications))
            };
            let mut rows = itself(control, KindName::CustomDomain, change).await;
            let (previews, applications) = control.store.read(find).await?;
            rows.extend(previews.into_iter().map(|id| (KindName::Preview, id)));
            rows.extend(applications.into_iter().map(|id| (KindName::Application, id)));
            Ok(rows)
        }
        Some(KindName::PreviewToken) => preview_of_token(control, change).await,
        Some(kind @ (KindName::IntegrationConnection | KindName::Policy)) => {
            let (of, workspace, name) =
                (control.clone(), change.workspace.clone(), change.name.clone());
            let find =
                move |tx: &mut Tx<'_>| route::models_with(&of, tx, &workspace, (kind, &name));
            if change.act == Act::Deleted {
                let id = ResourceId::known(change.resource_id.clone());
                control.models.access.forget(&id);
            }
            let mut rows = itself(control, kind, change).await;
            let models = control.store.read(find).await?;
            rows.extend(models.into_iter().map(|id| (KindName::Model, id)));
            Ok(rows)
        }
        Some(kind) => Ok(itself(control, kind, change).await),
        None => Ok(Vec::new()),
    }
}

async fn preview_of_token(
    control: &Control,
    change: &Change,
) -> Result<Vec<(KindName, ResourceId)>, Error> {
    let Some((sandbox, preview)) = change.parent.split_once('/') else { return Ok(Vec::new()) };
    let (workspace, parent, name) =
        (change.workspace.clone(), sandbox.to_owned(), preview.to_owned());
    let find =
        move |tx: &mut Tx<'_>| resources::find(tx, &workspace, KindName::Preview, &parent, &name);
    let row = control.store.read(find).await?;
    Ok(row.map(|row| (KindName::Preview, row.id)).into_iter().collect())
}

/// Returns the row that changed. A row that is gone is handled here instead.
async fn itself(control: &Control, kind: KindName, change: &Change) -> Vec<(KindName, ResourceId)> {
    if followed::find(kind).is_none() {
        return Vec::new();
    }
    let id = ResourceId::known(change.resource_id.clone());
    if change.act == Act::Deleted {
        removed(control, kind, &id).await;
        return Vec::new();
    }
    vec![(kind, id)]
}

/// Publishes what a row says now, and acts on it.
async fn look_at(control: &Control, kind: KindName, id: &ResourceId) -> Result<(), Error> {
    let Some(followed) = followed::find(kind) else { return Ok(()) };
    let _telling = control.workloads.telling.one(id).await;
    let (of, wanted) = (control.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| {
        let mut reader =
            Reader { control: &of, workspaces: Workspaces::default(), inventory: None };
        look(&mut reader, tx, followed, &wanted)
    };
    let look = control.store.read(work).await?;
    act_on(control, followed, id, look);
    Ok(())
}

/// Returns what a row asks for, with its workspace, or `None` if it is gone.
fn look(
    reader: &mut Reader<'_>,
    tx: &mut Tx<'_>,
    followed: &dyn Rows,
    id: &ResourceId,
) -> Result<Option<(WorkspaceId, Look)>, Error> {
    let Some(row) = resources::find_by_id(tx, id)? else { return Ok(None) };
    let workspace = row.workspace.clone();
    Ok(Some((workspace, followed.look(reader, tx, row)?)))
}

fn act_on(
    control: &Control,
    followed: &dyn Rows,
    id: &ResourceId,
    look: Option<(WorkspaceId, Look)>,
) {
    match look {
        Some((workspace, look)) => act(control, followed, (workspace, id), look),
        None => forget(control, followed, id),
    }
}

fn act(
    control: &Control,
    followed: &dyn Rows,
    (workspace, id): (WorkspaceId, &ResourceId),
    look: Look,
) {
    // While a sandbox is being started, its creator publishes the route once the instance is up.
    if let Some(route) = look.route.filter(|_| !control.workloads.starting.has(id)) {
        control.publish(route);
    }
    control.workloads.alarm.set(id.clone(), followed.kind(), look.due);
    if look.differs {
        soon::reconcile_in(control, Some(workspace), followed.kind(), id.clone());
    }
}

/// Acts on the removal of a row before the caller is answered, so that nothing can be reached any
/// more at an address that a caller was told is gone.
pub async fn removed(control: &Control, kind: KindName, id: &ResourceId) {
    if let Some(followed) = followed::find(kind) {
        let _telling = control.workloads.telling.one(id).await;
        forget(control, followed, id);
    }
}

/// Acts on a change before the caller is answered, for kinds that are called as soon as they are
/// made: models, which follow their connections and policies as those are now, and deployments,
/// whose requests wait for a replica if the edge knows of them.
pub async fn changed(control: &Control, workspace: &WorkspaceId, kind: KindName, name: &str) {
    use KindName::{Agent, Application, Function, IntegrationConnection, Model, Policy};
    let is_called = matches!(kind, Model | Agent | Application | Function);
    if !is_called && !matches!(kind, IntegrationConnection | Policy) {
        return;
    }
    let (of, within, named) = (control.clone(), workspace.clone(), name.to_owned());
    let find = move |tx: &mut Tx<'_>| {
        if is_called {
            let row = resources::find(tx, &within, kind, "", &named)?;
            return Ok::<_, Error>(row.into_iter().map(|row| (kind, row.id)).collect());
        }
        let models = route::models_with(&of, tx, &within, (kind, &named))?;
        Ok(models.into_iter().map(|id| (Model, id)).collect::<Vec<_>>())
    };
    let told = async {
        for (kind, id) in control.store.read(find).await? {
            look_at(control, kind, &id).await?;
        }
        Ok::<_, Error>(())
    };
    if let Err(error) = told.await {
        // The task that follows the rows does it soon.
        tracing::warn!(%error, %kind, name, "the edge is not told of a change at once");
    }
}

/// Publishes anew the routes of models that use a connection, and sets when the connection is due.
pub(crate) async fn tell_connection(
    control: &Control,
    workspace: &WorkspaceId,
    (id, name): (&ResourceId, &str),
) -> Result<(), Error> {
    let (of, within, connection) = (control.clone(), workspace.clone(), name.to_owned());
    let find = move |tx: &mut Tx<'_>| {
        let connection = (KindName::IntegrationConnection, connection.as_str());
        route::models_with(&of, tx, &within, connection)
    };
    for model in control.store.read(find).await? {
        look_at(control, KindName::Model, &model).await?;
    }
    look_at(control, KindName::IntegrationConnection, id).await
}

fn forget(control: &Control, followed: &dyn Rows, id: &ResourceId) {
    control.workloads.alarm.set(id.clone(), followed.kind(), None);
    if followed.is_routed() {
        control.publish(RouteChange::Gone(id.clone()));
    }
    if followed.runs() {
        soon::reconcile(control, followed.kind(), id.clone());
    }
}
