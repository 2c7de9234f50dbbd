//! Sandboxes: conflicts of names, volumes they hold, and what needs the sandbox engine.

use crate::call::{Body, Call, Wish};
use crate::engine::{self, Desk, Draft, Held, Managed};
use crate::error::Error;
use crate::fleet;
use crate::missing::Missing;
use crate::query::Flag;
use crate::reply::Reply;
use auth::Member;
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::kinds::{Sandbox, Volume};
use types::parts::VolumeType;
use types::wire::{ForkTarget, SandboxForkRequest, SandboxForkResponse};
use types::{Kind, KindName};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateQuery {
    /// Answers the sandbox of this name if there is one that lives.
    #[serde(default)]
    pub create_if_not_exist: Flag,
    /// Asks for an address to upload sources to, from which the image is built.
    #[serde(default)]
    pub upload: Flag,
}

pub(crate) async fn create(
    call: Call<Member, CreateQuery, Wish<Sandbox>>,
) -> Result<Reply<Sandbox>, Error> {
    if call.query.upload.0 {
        return Err(Error::Missing(Missing::Build));
    }
    let reuse = call.query.create_if_not_exist.0;
    fleet::create::create(call, reuse).await
}

pub(crate) async fn fork(
    call: Call<Member, crate::query::NoQuery, Body<SandboxForkRequest>>,
) -> Result<Reply<SandboxForkResponse>, Error> {
    let (desk, name, target) = (call.desk(), call.path.name().to_owned(), call.body.0);
    let (kind, wanted) = target.target()?;
    let (to_sandbox, wanted) = (kind == ForkTarget::Sandbox, wanted.to_owned());
    let check = move |tx: &mut Tx<'_>| {
        Held::<Sandbox>::get(&desk, tx, &[], &name)?;
        if to_sandbox && desk.find(tx, KindName::Sandbox, &[], &wanted)?.is_some() {
            return Err(Error::Exists { kind: KindName::Sandbox, name: wanted.clone() });
        }
        Ok(())
    };
    call.app.store.read(check).await?;
    Err(Error::Missing(Missing::Fork))
}

/// Names of the persistent volumes that a sandbox mounts.
fn persistent(sandbox: &Sandbox) -> Vec<String> {
    let volumes = sandbox.spec.volumes.iter().flatten();
    volumes
        .filter(|volume| volume.kind != Some(VolumeType::Ephemeral))
        .filter_map(|volume| volume.name.clone())
        .collect()
}

impl Managed for Sandbox {
    fn url(desk: &Desk, held: &Held<Self>) -> Option<String> {
        Some(format!(
            "{}/{}/sandboxes/{}",
            desk.app.settings.public_url, desk.member.workspace_name, held.row.name
        ))
    }

    fn settle(desk: &Desk, tx: &mut Tx<'_>, draft: &mut Draft<'_, Self>) -> Result<(), Error> {
        super::catalogues::require_region(desk, draft.wish.spec.region.as_deref(), "spec.region")?;
        if let (Some(machine), Some(old)) = (desk.app.fleet.machine(), draft.old)
            && old.image() != draft.wish.image()
        {
            fleet::images::usable(tx, &**machine, &desk.member.workspace, draft.wish.image())?;
        }
        if draft.old.is_none() {
            for volume in persistent(draft.wish) {
                attach(desk, tx, &volume, draft.wish)?;
            }
        }
        Ok(())
    }

    fn release(desk: &Desk, tx: &mut Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        for name in persistent(&held.wish) {
            // It may have been deleted by an administrator's restore; then there is nothing to give
            // back.
            if desk.find(tx, KindName::Volume, &[], &name)?.is_some() {
                let volume = Held::<Volume>::lock(desk, tx, &[], &name)?;
                let free =
                    types::kinds::volume::State { attached_to: None, ..volume.state.clone() };
                engine::change_state(desk, tx, volume, free)?;
            }
        }
        Ok(())
    }
}

/// Takes a volume for a sandbox; one that another holds is refused.
fn attach(desk: &Desk, tx: &mut Tx<'_>, name: &str, sandbox: &Sandbox) -> Result<(), Error> {
    let volume = Held::<Volume>::lock(desk, tx, &[], name)?;
    if let Some(holder) = &volume.state.attached_to {
        return Err(Error::Conflict(format!(
            "the volume `{name}` is attached to {holder}; delete that first"
        )));
    }
    if volume.wish.spec.region != sandbox.spec.region
        && volume.wish.spec.region.is_some()
        && sandbox.spec.region.is_some()
    {
        return Err(Error::Malformed(format!(
            "the volume `{name}` is in another region than the sandbox"
        )));
    }
    let holder = Some(format!("sandbox:{}", sandbox.name()));
    let taken = types::kinds::volume::State { attached_to: holder, ..volume.state.clone() };
    engine::change_state(desk, tx, volume, taken)?;
    Ok(())
}
