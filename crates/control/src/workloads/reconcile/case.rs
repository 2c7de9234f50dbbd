//! What a reconciliation knows of a sandbox, read in one transaction.

use crate::attachments::Holder;
use crate::context::Context;
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::workloads::rows;
use crate::{drives, egress, engine, placement, volumes};
use store::Tx;
use store::identity::workspaces::Workspace;
use types::egress::EgressRules;
use types::ids::ResourceId;
use types::instance::{DriveMount, VolumeMount};
use types::kinds::Sandbox;
use types::parts::Status;

/// A sandbox as its rows describe it to this machine.
pub(super) struct Case {
    pub(super) context: Context,
    pub(super) workspace: Workspace,
    pub(super) held: Held<Sandbox>,
    /// Or why it cannot have them.
    pub(super) volumes: Result<Vec<VolumeMount>, String>,
    pub(super) drives: Vec<DriveMount>,
    /// Or why its traffic cannot leave as its wish says.
    pub(super) rules: Result<EgressRules, String>,
    /// Whether another machine keeps what it begins with or mounts, or has run it so far: its disk
    /// is there, and its callers know that machine's address.
    pub(super) elsewhere: bool,
}

pub(super) async fn read(
    control: &Control,
    machine: &str,
    id: &ResourceId,
) -> Result<Option<Case>, Error> {
    let (of, id, machine) = (control.clone(), id.clone(), machine.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let Some(held) = rows::find::<Sandbox>(tx, &id)? else { return Ok(None) };
        let Some((context, workspace)) = rows::context(&of, tx, &held.row.workspace)? else {
            return Ok(None);
        };
        let (holder, begins) = (Holder::sandbox(&held.wish), held.state.snapshot.as_ref());
        let volumes = volumes::mounts(&context, tx, &holder, &machine)?;
        let drives = drives::mounts(&context, tx, &held, &machine)?;
        let required =
            placement::required(&context, tx, begins, Some(&holder))?.or_else(|| home(&held));
        let rules = egress::of_sandbox(&context, tx, &engine::opened(&context, &held)?)?;
        let elsewhere = required.is_some_and(|required| required != machine);
        Ok::<_, Error>(Some(Case { context, workspace, held, volumes, drives, rules, elsewhere }))
    };
    control.store.read(work).await
}

/// Returns the machine that has run a sandbox so far. One that comes back from its archive has left
/// nothing behind.
fn home(held: &Held<Sandbox>) -> Option<String> {
    let placed = held.state.placed.as_ref();
    let stays = held.row.status != Some(Status::Unarchiving);
    placed.filter(|_| stays).map(|placed| placed.machine.clone())
}
