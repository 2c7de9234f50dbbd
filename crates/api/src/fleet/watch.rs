//! Follows the rows: tells the edge of routes, and has sandboxes brought into their wished state.

use super::{clock, routes, settle};
use crate::app::App;
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
pub(super) async fn run(app: App) {
    loop {
        if let Err(error) = follow(&app).await {
            tracing::error!(%error, "following the rows failed; it begins anew");
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
}

async fn follow(app: &App) -> Result<(), Error> {
    // The position first: what changes while all is read comes again.
    let start = app.store.read(feed::latest).await?;
    read_all(app).await?;
    app.fleet.0.told.send_replace(start);
    settle::sweep(app);
    let mut follower = app.store.follow(start, app.settings.feed_poll);
    loop {
        apply(app, &mut follower).await?;
    }
}

/// Tells of every route there is.
async fn read_all(app: &App) -> Result<(), Error> {
    for kind in routes::KINDS.into_iter().chain([KindName::Schedule, KindName::Job]) {
        let mut after: Option<ResourceId> = None;
        loop {
            let from = after.clone();
            let rows =
                app.store.read(move |tx| resources::scan(tx, kind, from.as_ref(), PAGE)).await?;
            let Some(last) = rows.last() else { break };
            after = Some(last.id.clone());
            for id in rows.into_iter().map(|row| row.id) {
                look_at(app, kind, &id).await?;
            }
        }
    }
    Ok(())
}

async fn apply(app: &App, follower: &mut Follower) -> Result<(), Error> {
    let changes = follower.next().await?;
    let mut seen = HashSet::new();
    for change in changes {
        for (kind, id) in concerned(app, &change).await? {
            // The row is read as it is now, so of many changes one look is enough.
            if seen.insert(id.clone()) {
                look_at(app, kind, &id).await?;
            }
        }
    }
    let position = follower.position();
    app.fleet
        .0
        .told
        .send_if_modified(|told| std::mem::replace(told, position.max(*told)) < position);
    Ok(())
}

/// The rows whose routes or instances a change may have changed.
async fn concerned(app: &App, change: &Change) -> Result<Vec<(KindName, ResourceId)>, Error> {
    match KindName::parse(&change.kind) {
        Some(KindName::CustomDomain) => {
            let (workspace, domain) = (change.workspace.clone(), change.name.clone());
            let find = move |tx: &mut Tx<'_>| routes::previews_below(tx, &workspace, &domain);
            let mut rows = itself(app, KindName::CustomDomain, change);
            rows.extend(app.store.read(find).await?.into_iter().map(|id| (KindName::Preview, id)));
            Ok(rows)
        }
        Some(
            kind @ (KindName::Sandbox | KindName::Preview | KindName::Schedule | KindName::Job),
        ) => Ok(itself(app, kind, change)),
        Some(KindName::PreviewToken) => {
            let Some((sandbox, preview)) = change.parent.split_once('/') else {
                return Ok(Vec::new());
            };
            let (workspace, parent, name) =
                (change.workspace.clone(), sandbox.to_owned(), preview.to_owned());
            let find = move |tx: &mut Tx<'_>| {
                resources::find(tx, &workspace, KindName::Preview, &parent, &name)
            };
            Ok(app
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
fn itself(app: &App, kind: KindName, change: &Change) -> Vec<(KindName, ResourceId)> {
    let id = ResourceId::known(change.resource_id.clone());
    if change.act == Act::Deleted {
        forget(app, kind, &id);
        return Vec::new();
    }
    vec![(kind, id)]
}

/// Tells what a row says now, and acts on it.
async fn look_at(app: &App, kind: KindName, id: &ResourceId) -> Result<(), Error> {
    if kind == KindName::Job {
        return look_at_job(app, id).await;
    }
    let (of, wanted) = (app.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| {
        let Some(row) = resources::find_by_id(tx, &wanted)? else { return Ok(None) };
        let due = clock::due(&of, tx, &row)?;
        let route = routes::of_row(&of, tx, row)?;
        Ok::<_, Error>(Some((route, due)))
    };
    match app.store.read(work).await? {
        Some((route, due)) => {
            // Whoever brings a sandbox into being tells its route when the instance stands.
            if let Some(route) = route.filter(|_| !app.fleet.0.births.has(id)) {
                app.fleet.tell(route);
            }
            app.fleet.0.clock.set(id.clone(), kind, due);
        }
        None => forget(app, kind, id),
    }
    if kind == KindName::Sandbox {
        settle::settle_soon(app, kind, id.clone());
    }
    Ok(())
}

/// A job has no route; it waits to hear whether it can be run, and the clock may have to start it.
async fn look_at_job(app: &App, id: &ResourceId) -> Result<(), Error> {
    let (of, wanted) = (app.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| match resources::find_by_id(tx, &wanted)? {
        Some(row) => Ok::<_, Error>((row.status, clock::due(&of, tx, &row)?)),
        None => Ok((None, None)),
    };
    let (status, due) = app.store.read(work).await?;
    app.fleet.0.clock.set(id.clone(), KindName::Job, due);
    if status == Some(Status::Deploying) {
        settle::settle_soon(app, KindName::Job, id.clone());
    }
    Ok(())
}

/// Tells the route of a row as it is now.
pub(super) async fn tell_route(app: &App, id: &ResourceId) -> Result<(), Error> {
    let (of, wanted) = (app.clone(), id.clone());
    let work = move |tx: &mut Tx<'_>| match resources::find_by_id(tx, &wanted)? {
        Some(row) => routes::of_row(&of, tx, row),
        None => Ok(Some(RouteChange::Gone(wanted.clone()))),
    };
    if let Some(route) = app.store.read(work).await? {
        app.fleet.tell(route);
    }
    Ok(())
}

fn forget(app: &App, kind: KindName, id: &ResourceId) {
    app.fleet.0.clock.set(id.clone(), kind, None);
    if kind == KindName::Job {
        return;
    }
    app.fleet.tell(RouteChange::Gone(id.clone()));
    if kind == KindName::Sandbox {
        settle::settle_soon(app, kind, id.clone());
    }
}
