//! Follows the rows: tells the edge of routes, and has sandboxes brought into their wished state.

use super::{expiry, reconcile, routes};
use crate::control::Control;
use crate::error::Error;
use std::collections::HashSet;
use std::time::Duration;
use store::Tx;
use store::feed::{self, Act, Change, Follower};
use store::resources;
use types::KindName;
use types::edge::RouteChange;
use types::ids::ResourceId;
use types::parts::Status;

/// Rows that are read at once.
const PAGE: i64 = 500;
/// After a failure of the database, wait before the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Reads everything once, then follows. Starts over when it fell behind what the feed keeps.
pub(super) async fn run(control: Control) {
    loop {
        if let Err(error) = follow(&control).await {
            tracing::error!(%error, "following the rows failed; it begins anew");
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
}

async fn follow(control: &Control) -> Result<(), Error> {
    // The position first: what changes while all is read comes again.
    let start = control.store.read(feed::latest).await?;
    read_all(control).await?;
    control.workloads.published.send_replace(start);
    reconcile::sweep(control);
    let mut follower = control.store.follow(start, control.settings.feed_poll);
    loop {
        apply(control, &mut follower).await?;
    }
}

/// Tells of every route there is.
async fn read_all(control: &Control) -> Result<(), Error> {
    for kind in routes::KINDS.into_iter().chain([KindName::Schedule, KindName::Job]) {
        let mut after: Option<ResourceId> = None;
        loop {
            let from = after.clone();
            let rows = control
                .store
                .read(move |tx| resources::scan(tx, kind, from.as_ref(), PAGE))
                .await?;
            let Some(last) = rows.last() else { break };
            after = Some(last.id.clone());
            for id in rows.into_iter().map(|row| row.id) {
                look_at(control, kind, &id).await?;
            }
        }
    }
    Ok(())
}

async fn apply(control: &Control, follower: &mut Follower) -> Result<(), Error> {
    let changes = follower.next().await?;
    let mut seen = HashSet::new();
    for change in changes {
        for (kind, id) in concerned(control, &change).await? {
            // The row is read as it is now, so of many changes one look is enough.
            if seen.insert(id.clone()) {
                look_at(control, kind, &id).await?;
            }
        }
    }
    let position = follower.position();
    control
        .workloads
        .published
        .send_if_modified(|told| std::mem::replace(told, position.max(*told)) < position);
    Ok(())
}

/// The rows whose routes or instances a change may have changed.
async fn concerned(
    control: &Control,
    change: &Change,
) -> Result<Vec<(KindName, ResourceId)>, Error> {
    match KindName::parse(&change.kind) {
        Some(KindName::CustomDomain) => {
            let (workspace, domain) = (change.workspace.clone(), change.name.clone());
            let find = move |tx: &mut Tx<'_>| routes::previews_below(tx, &workspace, &domain);
            let mut rows = itself(control, KindName::CustomDomain, change);
            rows.extend(
                control.store.read(find).await?.into_iter().map(|id| (KindName::Preview, id)),
            );
            Ok(rows)
        }
        Some(
            kind @ (KindName::Sandbox | KindName::Preview | KindName::Schedule | KindName::Job),
        ) => Ok(itself(control, kind, change)),
        Some(KindName::PreviewToken) => {
            let Some((sandbox, preview)) = change.parent.split_once('/') else {
                return Ok(Vec::new());
            };
            let (workspace, parent, name) =
                (change.workspace.clone(), sandbox.to_owned(), preview.to_owned());
            let find = move |tx: &mut Tx<'_>| {
                resources::find(tx, &workspace, KindName::Preview, &parent, &name)
            };
            Ok(control
                .store
                .read(find)
                .await?
                .map(|row| (KindName::Preview, row.id))
                .into_iter()
                .collect())
        }
        _ => Ok(Vec::new()),
    }
}

/// The row that changed, unless it is gone, which is acted upon here.
fn itself(control: &Control, kind: KindName, change: &Change) -> Vec<(KindName, ResourceId)> {
    let id = ResourceId::known(change.resource_id.clone());
    if change.act == Act::Deleted {
        forget(control, kind, &id);
        return Vec::new();
    }
    vec![(kind, id)]
}

/// Tells what a row says now, and acts on it.
async fn look_at(control: &Control, kind: KindName, id: &ResourceId) -> Result<(), Error> {
    if kind == KindName::Job {
        return look_at_job(control, id).await;
    }
    let (of, wanted) = (control.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| {
        let Some(row) = resources::find_by_id(tx, &wanted)? else { return Ok(None) };
        let due = expiry::due(&of, tx, &row)?;
        let route = routes::of_row(&of, tx, row)?;
        Ok::<_, Error>(Some((route, due)))
    };
    match control.store.read(work).await? {
        Some((route, due)) => {
            // Whoever brings a sandbox into being tells its route when the instance stands.
            if let Some(route) = route.filter(|_| !control.workloads.starting.has(id)) {
                control.publish(route);
            }
            control.workloads.alarm.set(id.clone(), kind, due);
        }
        None => forget(control, kind, id),
    }
    if kind == KindName::Sandbox {
        reconcile::reconcile_soon(control, kind, id.clone());
    }
    Ok(())
}

/// A job has no route; it waits to hear whether it can be run, and the clock may have to start it.
async fn look_at_job(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let (of, wanted) = (control.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| match resources::find_by_id(tx, &wanted)? {
        Some(row) => Ok::<_, Error>((row.status, expiry::due(&of, tx, &row)?)),
        None => Ok((None, None)),
    };
    let (status, due) = control.store.read(work).await?;
    control.workloads.alarm.set(id.clone(), KindName::Job, due);
    if status == Some(Status::Deploying) {
        reconcile::reconcile_soon(control, KindName::Job, id.clone());
    }
    Ok(())
}

/// Tells the route of a row as it is now.
pub(super) async fn tell_route(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let (of, wanted) = (control.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| match resources::find_by_id(tx, &wanted)? {
        Some(row) => routes::of_row(&of, tx, row),
        None => Ok(Some(RouteChange::Gone(wanted.clone()))),
    };
    if let Some(route) = control.store.read(work).await? {
        control.publish(route);
    }
    Ok(())
}

fn forget(control: &Control, kind: KindName, id: &ResourceId) {
    control.workloads.alarm.set(id.clone(), kind, None);
    if kind == KindName::Job {
        return;
    }
    control.publish(RouteChange::Gone(id.clone()));
    if kind == KindName::Sandbox {
        reconcile::reconcile_soon(control, kind, id.clone());
    }
}
