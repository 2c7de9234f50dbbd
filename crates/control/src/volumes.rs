//! Volumes: their rows, and the file systems on a machine that the rows ask for.
//!
//! A file system is made before its row, so that the caller learns whether there is room. If a kill
//! in between leaves one without a row, it is removed when the rows are next followed
//! ([`crate::workloads`]), and so is the file system of a deleted row. If a commit was not answered,
//! the file system stays until it is known whether there is a row. When a volume grows, its row has
//! the new size before the file system does.

use crate::attachments::Holder;
use crate::context::Context;
use crate::engine::{self, Checked, Held, Shown};
use crate::error::{Conflict, Error, Forbidden, Unfit};
use crate::idempotency::{JsonAnswer, RequestKey, once};
use crate::new_names::NewName;
use crate::run_to_end::run_to_end;
use crate::volume_store::{NewVolume, VolumeFault, VolumeStore};
use crate::volume_templates;
use crate::workloads::{rows, soon};
use crate::{control::Control, usage};
use std::sync::Arc;
use store::{Tx, resources};
use types::ids::ResourceId;
use types::instance::{KeptFor, Medium, Scratch, VolumeMount, VolumeName, VolumeSource};
use types::kinds::{Volume, volume};
use types::parts::{VolumeAttachment, mount_place};
use types::usage::Dimension;
use types::{Kind, KindName};

pub(crate) fn name_of(id: &ResourceId) -> VolumeName {
    VolumeName::of(&KeptFor::Volume(id.clone()))
}

/// Creates a volume: first its file system, then its row.
pub async fn create(
    context: Context,
    wish: Volume,
    key: Option<RequestKey>,
) -> Result<JsonAnswer, Error> {
    let Some(volumes) = context.control.volume_store() else {
        let store = context.control.store.clone();
        return once(&store, key, move |tx| engine::create(&context, tx, &[], wish.clone())).await;
    };
    let checked = Checked::new(&context, wish)?;
    // Spawned, because a caller that disconnects must not leave a file system without its row.
    run_to_end(async move { made(&context, checked, key, volumes).await }).await?
}

async fn made(
    context: &Context,
    checked: Checked<Volume>,
    key: Option<RequestKey>,
    (volumes, machine): (Arc<dyn VolumeStore>, String),
) -> Result<JsonAnswer, Error> {
    let control = &context.control;
    let (id, wish) = (ResourceId::new(context.world()), checked.wish().clone());
    let new = NewName::take(context, KindName::Volume, wish.name(), key.as_ref()).await;
    let _lock = control.workloads.lock(&id).await;
    let name = name_of(&id);
    let file_system = !new.is_decided().await? && {
        let (of, wish, here) = (context.clone(), wish.clone(), machine.clone());
        let (size_mb, from) = control.store.read(move |tx| order(&of, tx, &wish, &here)).await?;
        let workspace = context.member.workspace.to_string();
        let order = NewVolume { name: name.clone(), workspace, size_mb, from };
        new.is_made(volumes.make(order).await).await?
    };
    let (of, row) = (context.clone(), id.clone());
    let answer = once(&control.store, key.clone(), move |tx| {
        resources::hold(tx, &row)?;
        let kept_by = Some(machine.clone()).filter(|_| file_system);
        let done = |state: &mut volume::State| state.machine = kept_by;
        engine::create_checked(&of, tx, &[], checked.clone(), row.clone(), done)
    })
    .await;
    match &answer {
        _ if !file_system => {}
        Ok(answer) if !answer.replayed => {}
        // Whoever can read next whether there is a row decides what becomes of the file system.
        Err(error) if rows::is_uncertain(error) => soon::reconcile(control, KindName::Volume, id),
        Ok(_) | Err(_) => {
            if let Err(fault) = volumes.remove(&name).await {
                tracing::error!(%fault, volume = %name, "a volume without a row could not be removed");
            }
        }
    }
    answer
}

/// Returns what a wish for a new volume asks of the machine: a size, and the volume to copy if any.
fn order(
    context: &Context,
    tx: &mut Tx<'_>,
    wish: &Volume,
    machine: &str,
) -> Result<(u32, Option<VolumeSource>), Error> {
    // Missing references are reported together with everything else that is wrong with the wish.
    engine::require_references(context, tx, &wish.references(), &[])?;
    let size = crate::kinds::volume::size_mb(context, tx, wish)?;
    let size_mb = engine::whole(&ResourceId::known(wish.name()), size)?;
    let Some(origin) = volume_templates::origin(context, tx, wish)? else {
        return Ok((size_mb, None));
    };
    if !origin.is_for(machine) {
        let template = wish.spec.template.clone().unwrap_or_default();
        return Err(Unfit::TemplateOnOtherMachine { template }.into());
    }
    if size_mb < origin.size_mb {
        return Err(Unfit::TemplateLarger { size_mb, needs_mb: origin.size_mb }.into());
    }
    Ok((size_mb, Some(origin.source)))
}

/// Replaces a volume, and grows its file system to the new size.
pub async fn replace(
    context: Context,
    name: String,
    wish: Volume,
    seen: Option<i64>,
) -> Result<Shown<Volume>, Error> {
    // Spawned, because a caller that disconnects must not leave a row that is larger than its file
    // system.
    run_to_end(async move { replaced(&context, name, wish, seen).await }).await?
}

async fn replaced(
    context: &Context,
    name: String,
    wish: Volume,
    seen: Option<i64>,
) -> Result<Shown<Volume>, Error> {
    let control = &context.control;
    let (of, named) = (context.clone(), name.clone());
    let find = move |tx: &mut Tx<'_>| of.find(tx, KindName::Volume, &[], &named);
    let found = control.store.read(find).await?;
    // Another change in between would find a size that may be taken back.
    let _lock = match &found {
        Some(row) => Some(control.workloads.lock(&row.id).await),
        None => None,
    };
    let of = context.clone();
    let work = move |tx: &mut Tx<'_>| {
        engine::require_version::<Volume>(&of, tx, &[], &name, seen)?;
        engine::replace_held(&of, tx, &[], &name, wish.clone())
    };
    let (shown, held) = control.store.write(work).await?;
    let Some((volumes, machine)) = control.volume_store() else { return Ok(shown) };
    if held.state.machine.as_deref() != Some(machine.as_str()) {
        return Ok(shown);
    }
    let (id, size) = (&held.row.id, held.wish.spec.size);
    grow(control, &*volumes, id, size_mb(id, size)?).await?;
    Ok(shown)
}

/// Makes the file system of a row as large as that says. If there is no room, the row gets the size
/// of the file system back.
pub(crate) async fn grow(
    control: &Control,
    volumes: &dyn VolumeStore,
    id: &ResourceId,
    wanted_mb: u32,
) -> Result<(), Error> {
    let name = name_of(id);
    let Some(kept_mb) = volumes.size_mb(&name) else {
        // Making another in its place would hide the loss.
        tracing::error!(volume = %name, "its files are not on this machine any more");
        return Ok(());
    };
    if kept_mb >= wanted_mb {
        return Ok(());
    }
    let Err(fault) = volumes.grow(&name, wanted_mb).await else { return Ok(()) };
    if matches!(fault, VolumeFault::OverShare(_) | VolumeFault::Full(_)) {
        shrink_back(control, id.clone(), (wanted_mb, kept_mb)).await?;
    }
    Err(fault.into())
}

/// Gives a row back the size that its file system has, unless it was changed meanwhile.
async fn shrink_back(
    control: &Control,
    id: ResourceId,
    (refused_mb, kept_mb): (u32, u32),
) -> Result<(), Error> {
    let of = control.clone();
    let work = move |tx: &mut Tx<'_>| {
        let Some((context, mut held)) = rows::lock_in::<Volume>(&of, tx, &id)? else {
            return Ok(());
        };
        if held.wish.spec.size != Some(refused_mb.into()) {
            return Ok(());
        }
        held.wish.spec.size = Some(kept_mb.into());
        let mut state = held.state.clone();
        meter(&context, tx, (&held.row.name, &held.row.id), &mut state, held.wish.spec.size)?;
        let wish = held.wish.clone();
        engine::write_over(&context, tx, held, (wish, state), None)?;
        Ok::<_, Error>(())
    };
    control.store.write(work).await
}

/// Returns the size of a volume in megabytes. Every row has one.
pub(crate) fn size_mb(id: &ResourceId, size: Option<i64>) -> Result<u32, Error> {
    engine::whole(id, size.ok_or_else(|| engine::corrupt(id, "it has no size"))?)
}

/// Tells the meter how many bytes a volume has from now on: 0 once it is gone.
pub(crate) fn meter(
    context: &Context,
    tx: &mut Tx<'_>,
    of: (&str, &ResourceId),
    state: &mut volume::State,
    size: Option<i64>,
) -> Result<(), Error> {
    state.metered += 1;
    let mb = size.map_or(Ok(0), |_| size_mb(of.1, size))?;
    usage::store(context, tx, Dimension::VolumeStorage, of, (u64::from(mb) << 20, state.metered))
}

/// Returns the attached volumes that a holder mounts, or why it cannot have them.
pub(crate) fn mounts(
    context: &Context,
    tx: &mut Tx<'_>,
    holder: &Holder<'_>,
    machine: &str,
) -> Result<Result<Vec<VolumeMount>, String>, Error> {
    let mut mounts = Vec::new();
    for wished in holder.persistent() {
        let name = wished.name.as_deref().unwrap_or_default();
        let Some(held) = Held::<Volume>::find(context, tx, &[], name)? else {
            return Ok(Err(format!("the volume `{name}` is gone")));
        };
        if held.state.attached_to.as_deref() != Some(&*holder.to_string()) {
            return Ok(Err(format!("the volume `{name}` is not attached to it any more")));
        }
        if held.state.machine.as_deref() != Some(machine) {
            return Ok(Err(format!("the volume `{name}` is not kept by this machine")));
        }
        let id = &held.row.id;
        mounts.push(VolumeMount {
            volume: name_of(id),
            size_mb: size_mb(id, held.wish.spec.size)?,
            path: mount_place(wished.mount_path.as_deref().unwrap_or_default()),
            read_only: wished.read_only.unwrap_or(false),
        });
    }
    Ok(Ok(mounts))
}

/// Returns the empty folders of a sandbox or an agent that go with its instance.
pub(crate) fn ephemeral(
    id: &ResourceId,
    wished: &[VolumeAttachment],
) -> Result<Vec<Scratch>, Error> {
    let ephemeral = wished.iter().filter(|wished| !wished.is_persistent());
    let folder = |wished: &VolumeAttachment| {
        Ok(Scratch {
            path: mount_place(wished.mount_path.as_deref().unwrap_or_default()),
            size_mb: engine::whole(id, wished.size_mb.unwrap_or_default())?,
            read_only: wished.read_only.unwrap_or(false),
            medium: Medium::Disk,
        })
    };
    ephemeral.map(folder).collect()
}

impl From<VolumeFault> for Error {
    fn from(fault: VolumeFault) -> Self {
        match fault {
            VolumeFault::OverShare(why) => Forbidden::VolumeRoom { why }.into(),
            VolumeFault::Full(why) => Self::NoRoom(why),
            VolumeFault::TooSmall { size_mb, needs_mb } => {
                Unfit::TemplateLarger { size_mb, needs_mb }.into()
            }
            VolumeFault::SourceGone => {
                Conflict::Stale { what: "the volume template".to_owned() }.into()
            }
            VolumeFault::Broken(why) => Self::Volume(why),
        }
    }
}
