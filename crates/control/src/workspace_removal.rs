//! How a workspace is deleted: in steps, because everybody else who writes waits for each of them.
//!
//! The first step takes the workspace away from everybody. What it does not delete is deleted by
//! [`run`], on whichever server comes first: the row of the workspace says that it is deleted, and
//! goes with the last step. Until then the name stays taken.

use crate::builds;
use crate::context::Context;
use crate::control::Control;
use crate::engine::{Held, Managed};
use crate::error::Error;
use crate::repositories;
use crate::workloads::rows;
use auth::{Identity, Member, Role};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;
use store::identity::workspaces;
use store::{Tx, resources};
use tokio_util::sync::CancellationToken;
use types::ids::{AccountId, WorkspaceId};
use types::{KindName, with_kind};

/// Most objects, or other rows, that one step deletes.
const AT_ONCE: i64 = 500;
/// Objects in memory at once.
const READ_AT_ONCE: i64 = 50;
/// Workspaces that one round looks at for what was left in them.
const OWNERS_AT_ONCE: i64 = 200;
/// How often a server looks for what another one has left.
const EVERY: Duration = Duration::from_secs(60);

/// Deletes a workspace for everybody. When this returns, a small one is gone; the rest of a large
/// one goes in the background.
pub async fn remove(context: &Context) -> Result<workspaces::Workspace, Error> {
    let of = context.clone();
    let first = move |tx: &mut Tx<'_>| {
        of.member.admin()?;
        workspaces::lock(tx, &of.member.workspace)?;
        Ok::<_, Error>(match delete_some(&of, tx)? {
            Progress::Done => auth::workspaces::delete(tx, &of.member)?,
            Progress::More => auth::workspaces::close(tx, &of.member)?,
        })
    };
    let deleted = context.control.auth.change(first).await?;
    context.control.removals.notify_one();
    Ok(deleted)
}

/// Completes deletions until the server ends. What is left then is deleted after the next start.
pub(crate) async fn run(control: Control, ending: CancellationToken) {
    let mut after = None;
    loop {
        if ending.run_until_cancelled(work_through(&control, &mut after)).await.is_none() {
            return;
        }
        let woken = tokio::time::timeout(EVERY, control.removals.notified());
        if ending.run_until_cancelled(woken).await.is_none() {
            return;
        }
    }
}

/// Does one round. Each part is tried again with the next one if it fails.
async fn work_through(control: &Control, after: &mut Option<WorkspaceId>) {
    or_log(complete_all(control).await, "deleted workspaces could not be looked for");
    or_log(
        clear_abandoned(control, after).await,
        "objects without a workspace could not be looked for",
    );
    or_log(
        repositories::clear_deleted(control).await,
        "images of deleted workspaces could not be removed",
    );
    or_log(
        builds::clear_deleted(control).await,
        "what builds keep for deleted workspaces could not be removed",
    );
}

fn or_log(done: Result<(), Error>, failed: &str) {
    if let Err(error) = done {
        tracing::error!(error = &error as &dyn std::error::Error, "{failed}; it is tried again");
    }
}

async fn complete_all(control: &Control) -> Result<(), Error> {
    for workspace in control.store.read(workspaces::deleted).await? {
        complete_or_log(control, &workspace).await;
    }
    Ok(())
}

/// Deletes what belongs to workspaces that do not exist any more: earlier releases let objects in
/// while their workspace was deleted. Looks at some workspaces after those of the round before.
async fn clear_abandoned(control: &Control, after: &mut Option<WorkspaceId>) -> Result<(), Error> {
    let from = after.clone();
    let next = move |tx: &mut Tx<'_>| workspaces::owners(tx, from.as_ref(), OWNERS_AT_ONCE);
    let found = control.store.read(next).await?;
    for workspace in &found.gone {
        complete_or_log(control, workspace).await;
        // The feed told of its deletion long ago.
        control.deleted_workspaces.lock().insert(workspace.clone());
    }
    *after = found.last;
    Ok(())
}

async fn complete_or_log(control: &Control, workspace: &WorkspaceId) {
    if let Err(error) = complete(control, workspace).await {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            %workspace,
            "a deleted workspace could not be cleared; it is tried again"
        );
    }
}

async fn complete(control: &Control, workspace: &WorkspaceId) -> Result<(), Error> {
    loop {
        let (of, id) = (control.clone(), workspace.clone());
        match control.store.write(move |tx| next_step(&of, tx, &id)).await? {
            Progress::Done => return Ok(()),
            Progress::More => {}
        }
    }
}

fn next_step(control: &Control, tx: &mut Tx<'_>, id: &WorkspaceId) -> Result<Progress, Error> {
    // Another server may be at the same, and done by now.
    workspaces::lock(tx, id)?;
    if workspaces::find_open(tx, id)?.is_some() {
        return Ok(Progress::Done);
    }
    let context = match rows::context(control, tx, id)? {
        Some((context, _)) => context,
        None => Context { control: control.clone(), member: of_nobody(id) },
    };
    let progress = delete_some(&context, tx)?;
    if progress == Progress::Done {
        workspaces::delete(tx, id, context.actor())?;
    }
    Ok(progress)
}

/// Returns the server itself in a workspace of which only the id is known. Nothing that is deleted
/// needs more: whatever is billed knows its account itself.
fn of_nobody(id: &WorkspaceId) -> Member {
    Member {
        who: Arc::new(Identity::system()),
        workspace: id.clone(),
        workspace_name: String::new(),
        account: AccountId::known(""),
        plan: String::new(),
        role: Role::Admin,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Nothing is left.
    Done,
    More,
}

/// Deletes the next objects of a workspace, or what is left besides. It does not matter what uses
/// what, because all of it goes.
fn delete_some(context: &Context, tx: &mut Tx<'_>) -> Result<Progress, Error> {
    let mut kinds = KindName::ALL.to_vec();
    // An object may still need what contains it.
    kinds.sort_by_key(|kind| Reverse(kind.parents().len()));
    let mut left = AT_ONCE;
    for kind in kinds {
        left -= with_kind!(kind, delete_some_of(context, tx, left))?;
    }
    left -= resources::clear_workspace(tx, &context.member.workspace, left)?;
    Ok(if left > 0 { Progress::Done } else { Progress::More })
}

/// Deletes objects of one kind. Gives back what they hold first, so that nothing is billed or shared
/// any more.
fn delete_some_of<K: Managed>(
    context: &Context,
    tx: &mut Tx<'_>,
    limit: i64,
) -> Result<i64, Error> {
    let mut deleted = 0;
    while deleted < limit {
        let room = READ_AT_ONCE.min(limit - deleted);
        let rows = resources::lock_some(tx, &context.member.workspace, K::NAME, room)?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            let held = Held::<K>::read(row)?;
            K::release(context, tx, &held)?;
            resources::delete(tx, &held.row, context.actor())?;
            deleted += 1;
        }
    }
    Ok(deleted)
}
