//! Sandboxes, and the volumes that they hold.

use crate::context::Context;
use crate::engine::{self, Draft, Held, Managed};
use crate::error::{Conflict, Error, Unfit};
use crate::missing::Missing;
use crate::volumes;
use crate::workloads::images;
use store::Tx;
use types::kinds::{Sandbox, Volume};
use types::parts::{Lifecycle, Status, VolumeType};
use types::{Kind, KindName};

/// Names of the persistent volumes that a sandbox mounts.
fn persistent(sandbox: &Sandbox) -> Vec<String> {
    let volumes = sandbox.spec.volumes.iter().flatten();
    volumes
        .filter(|volume| volume.kind != Some(VolumeType::Ephemeral))
        .filter_map(|volume| volume.name.clone())
        .collect()
}

impl Managed for Sandbox {
    fn url(context: &Context, held: &Held<Self>) -> Option<String> {
        Some(format!(
            "{}/{}/sandboxes/{}",
            context.control.settings.public_url, context.member.workspace_name, held.row.name
        ))
    }

    fn lifecycle(state: &mut Self::State) -> Option<&mut Lifecycle> {
        Some(&mut state.lifecycle)
    }

    fn prepare(
        context: &Context,
        tx: &mut Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        context.require_region(draft.wish.spec.region.as_deref(), "spec.region")?;
        if let (Some(machine), Some(old)) = (context.control.machine(), draft.old)
            && old.image() != draft.wish.image()
        {
            images::usable(tx, &**machine, &context.member.workspace, draft.wish.image())?;
        }
        if let Some(old) = draft.old
            && draft.state.is_away()
            && (draft.wish.restarts(old) || draft.wish.enabled() != old.enabled())
        {
            let status = draft.state.lifecycle.status().unwrap_or(Status::Archived).name();
            let wants = "unarchive it before you change what it runs with";
            return Err(Conflict::SandboxState { status, wants }.into());
        }
        if draft.old.is_none() {
            require_mounts(context, draft.wish)?;
            for volume in persistent(draft.wish) {
                attach(context, tx, &volume, draft.wish)?;
            }
        }
        Ok(())
    }

    fn release(context: &Context, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        for name in persistent(&held.wish) {
            // A restore may have removed the volume; then there is nothing to give back.
            if context.find(tx, KindName::Volume, &[], &name)?.is_some() {
                let volume = Held::<Volume>::lock(context, tx, &[], &name)?;
                let free =
                    types::kinds::volume::State { attached_to: None, ..volume.state.clone() };
                engine::change_state(context, tx, volume, free)?;
            }
        }
        Ok(())
    }
}

/// Refuses volumes on a machine that keeps none: what would be written there would be lost.
fn require_mounts(context: &Context, sandbox: &Sandbox) -> Result<(), Error> {
    let mounts = sandbox.spec.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty());
    match context.control.machine() {
        Some(machine) if mounts && machine.volumes().is_none() => {
            Err(Error::Missing(Missing::MountVolume))
        }
        _ => Ok(()),
    }
}

/// Attaches a volume to a sandbox, unless another one holds it.
fn attach(context: &Context, tx: &mut Tx<'_>, name: &str, sandbox: &Sandbox) -> Result<(), Error> {
    let volume = Held::<Volume>::lock(context, tx, &[], name)?;
    if let Some(holder) = &volume.state.attached_to {
        return Err(
            Conflict::VolumeAttached { volume: name.to_owned(), holder: holder.clone() }.into()
        );
    }
    if volume.wish.spec.region != sandbox.spec.region
        && volume.wish.spec.region.is_some()
        && sandbox.spec.region.is_some()
    {
        return Err(Unfit::VolumeElsewhere { volume: name.to_owned() }.into());
    }
    let elsewhere = |machine: &String| volume.state.machine.as_ref() != Some(machine);
    if volumes::keeper(&context.control).is_some_and(|(_, machine)| elsewhere(&machine)) {
        return Err(Unfit::VolumeOnOtherMachine { volume: name.to_owned() }.into());
    }
    let holder = Some(volumes::holder(sandbox));
    let taken = types::kinds::volume::State { attached_to: holder, ..volume.state.clone() };
    engine::change_state(context, tx, volume, taken)?;
    Ok(())
}
