//! Volume templates and their versions.

use crate::call::{Call, Wish};
use crate::engine::{self, Held, Managed, Paging, Secrets};
use crate::error::Error;
use crate::missing::Missing;
use crate::query::Flag;
use crate::reply::Reply;
use auth::Member;
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::KindName;
use types::kinds::VolumeTemplate;
use types::wire::TemplateVersionDeleted;

impl Managed for VolumeTemplate {
    const PAGING: Paging = Paging::Bare;
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Version {
    /// Asks for an address to upload the content to.
    #[serde(default)]
    pub upload: Flag,
    #[expect(dead_code, reason = "declared by the interface; read when contents are received")]
    /// Name of the uploaded version; counted up when absent.
    pub version: Option<String>,
}

fn refuse_upload(query: &Version) -> Result<(), Error> {
    if query.upload.0 { Err(Error::Missing(Missing::ReceiveTemplate)) } else { Ok(()) }
}

pub(crate) async fn create(
    call: Call<Member, Version, Wish<VolumeTemplate>>,
) -> Result<Reply<VolumeTemplate>, Error> {
    refuse_upload(&call.query)?;
    let (desk, wish) = (call.desk(), call.body.0.clone());
    call.once(move |tx| engine::create(&desk, tx, &[], wish.clone())).await
}

/// Replaces a template, or makes it when there is none.
pub(crate) async fn upsert(
    call: Call<Member, Version, Wish<VolumeTemplate>>,
) -> Result<Reply<VolumeTemplate>, Error> {
    refuse_upload(&call.query)?;
    let (desk, name, wish) = (call.desk(), call.path.name().to_owned(), call.body.0);
    let seen = call.if_match;
    let work = move |tx: &mut Tx<'_>| match desk.find(tx, KindName::VolumeTemplate, &[], &name)? {
        None if wish.metadata.name == name && seen.is_none() => {
            engine::create(&desk, tx, &[], wish.clone())
        }
        _ => {
            engine::require_version::<VolumeTemplate>(&desk, tx, &[], &name, seen)?;
            engine::replace(&desk, tx, &[], &name, wish.clone()).map(|shown| shown.object)
        }
    };
    Ok(Reply::of(&call.app.store.write(work).await?))
}

/// Removes one version; the last one stays.
pub(crate) async fn remove_version(
    call: Call<Member>,
) -> Result<Reply<TemplateVersionDeleted>, Error> {
    let (desk, template, version) =
        (call.desk(), call.path.at(0).to_owned(), call.path.at(1).to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let held = Held::<VolumeTemplate>::lock(&desk, tx, &[], &template)?;
        let mut state = held.state.clone();
        state.versions.retain(|kept| kept.name.as_deref() != Some(version.as_str()));
        if state.versions.len() == held.state.versions.len() {
            return Err(Error::NotFound(format!("the template has no version `{version}`")));
        }
        if state.versions.is_empty() {
            return Err(Error::Malformed(
                "the only version of a template cannot be removed; remove the template".into(),
            ));
        }
        let held = engine::change_state(&desk, tx, held, state)?;
        let template = engine::present(&desk, tx, &held, &Secrets::Masked)?;
        Ok(TemplateVersionDeleted {
            message: "the version is removed".into(),
            template: Some(template),
        })
    };
    Ok(Reply::of(&call.app.store.write(work).await?))
}
