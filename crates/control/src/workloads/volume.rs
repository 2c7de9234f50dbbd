//! Volumes as the background follows them: every row gets a file system, and a file system without
//! a row is removed.

use super::followed::{Followed, Look, Reader};
use super::{rows, soon};
use crate::control::Control;
use crate::engine::Held;
use crate::error::Error;
use crate::volume_store::{NewVolume, VolumeStore};
use crate::volume_templates;
use crate::volumes::{self, name_of};
use std::collections::HashSet;
use store::Tx;
use types::KindName;
use types::ids::ResourceId;
use types::instance::{KeptFor, VolumeSource};
use types::kinds::Volume;

impl Followed for Volume {
    const ROUTED: bool = false;
    const RUNS: bool = true;

    fn look(reader: &mut Reader<'_>, _: &mut Tx<'_>, held: Held<Self>) -> Result<Look, Error> {
        let Some((volumes, machine)) = reader.control.volume_store() else {
            return Ok(Look::default());
        };
        let wanted = wanted(&held, &machine)?;
        let differs = wanted.is_some_and(|size_mb| {
            volumes.size_mb(&name_of(&held.row.id)).is_none_or(|size| size < size_mb)
        });
        Ok(Look { differs, ..Look::default() })
    }

    async fn reconcile(control: &Control, id: &ResourceId) -> Result<(), Error> {
        let Some((volumes, machine)) = control.volume_store() else { return Ok(()) };
        let _lock = control.workloads.lock(id).await;
        match rows::find_held::<Self>(control, id).await? {
            None => Ok(volumes.remove(&name_of(id)).await?),
            Some(held) => fit(control, &*volumes, held, &machine).await,
        }
    }
}

/// Returns the megabytes that this machine is to keep for a row. `None` if another machine keeps
/// it.
fn wanted(held: &Held<Volume>, machine: &str) -> Result<Option<u32>, Error> {
    if held.state.machine.as_deref().is_some_and(|keeps| keeps != machine) {
        return Ok(None);
    }
    volumes::size_mb(&held.row.id, held.wish.spec.size).map(Some)
}

/// Makes the file system of a row that no machine keeps yet, or grows it.
async fn fit(
    control: &Control,
    volumes: &dyn VolumeStore,
    held: Held<Volume>,
    machine: &str,
) -> Result<(), Error> {
    let Some(size_mb) = wanted(&held, machine)? else { return Ok(()) };
    let name = name_of(&held.row.id);
    if held.state.machine.is_some() {
        return volumes::grow(control, volumes, &held.row.id, size_mb).await;
    }
    let workspace = held.row.workspace.to_string();
    let from = origin(control, &held, machine).await?;
    volumes.make(NewVolume { name, workspace, size_mb, from }).await?;
    claim(control, held.row.id, machine.to_owned()).await
}

/// Notes that a machine keeps a volume, which is metered from then on.
async fn claim(control: &Control, id: ResourceId, machine: String) -> Result<(), Error> {
    let of = control.clone();
    let claim = move |tx: &mut Tx<'_>| {
        let Some((context, held)) = rows::lock_in::<Volume>(&of, tx, &id)? else {
            return Ok::<_, Error>(());
        };
        let mut state = held.state.clone();
        if state.machine.is_none() {
            state.machine = Some(machine.clone());
            volumes::meter(&context, tx, (&held.row.name, &id), &mut state, held.wish.spec.size)?;
        }
        rows::put_state(tx, held, state).map(drop)
    };
    control.store.write(claim).await
}

/// Returns the content of a volume whose row was written before any machine kept volumes. If its
/// template has nothing that fits, the volume stays empty, as its creator was told.
async fn origin(
    control: &Control,
    held: &Held<Volume>,
    machine: &str,
) -> Result<Option<VolumeSource>, Error> {
    let (of, row, wish) = (control.clone(), held.row.clone(), held.wish.clone());
    let find = move |tx: &mut Tx<'_>| match rows::context(&of, tx, &row.workspace)? {
        Some((context, _)) => volume_templates::origin(&context, tx, &wish),
        None => Ok(None),
    };
    let found = match control.store.read(find).await {
        Err(Error::Unfit(_) | Error::NoResource { .. }) => None,
        found => found?,
    };
    let size = held.wish.spec.size;
    let fits = |origin: &volume_templates::Origin| {
        origin.is_for(machine) && size.is_some_and(|size| size >= origin.size_mb.into())
    };
    Ok(found.filter(fits).map(|origin| origin.source))
}

/// Removes file systems kept here whose rows are gone. `rows` are the existing ones.
pub(super) fn collect(control: &Control, rows: &HashSet<ResourceId>) {
    let Some((volumes, _)) = control.volume_store() else { return };
    for kept in volumes.list() {
        let (kind, id) = match kept.name.kept_for() {
            Some(KeptFor::Volume(id)) => (KindName::Volume, id),
            Some(KeptFor::Root(id)) => (KindName::Sandbox, id),
            Some(KeptFor::Template { id, .. }) => (KindName::VolumeTemplate, id),
            Some(KeptFor::Drive(id)) => (KindName::Drive, id),
            None => continue,
        };
        if !rows.contains(&id) {
            soon::reconcile(control, kind, id);
        }
    }
}
