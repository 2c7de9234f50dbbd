//! Volume templates and their versions.

use crate::http::call::{Call, Wish};
use crate::http::error::Error;
use crate::http::query::Flag;
use crate::http::reply::Reply;
use auth::Member;
use control::Missing;
use control::engine::{self, Held, Secrets};
use control::error::{Absent, Unfit};
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::KindName;
use types::kinds::VolumeTemplate;
use types::wire::TemplateVersionDeleted;

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
    if query.upload.0 {
        Err(control::Error::Missing(Missing::ReceiveTemplate).into())
    } else {
        Ok(())
    }
}

pub(crate) async fn create(
    call: Call<Member, Version, Wish<VolumeTemplate>>,
) -> Result<Reply<VolumeTemplate>, Error> {
    refuse_upload(&call.query)?;
    let (context, wish) = (call.context(), call.body.0.clone());
    call.once(move |tx| engine::create(&context, tx, &[], wish.clone())).await
}

/// Replaces a template, or makes it when there is none.
pub(crate) async fn upsert(
    call: Call<Member, Version, Wish<VolumeTemplate>>,
) -> Result<Reply<VolumeTemplate>, Error> {
    refuse_upload(&call.query)?;
    let (context, name, wish) = (call.context(), call.path.name().to_owned(), call.body.0);
    let seen = call.if_match;
    let work =
        move |tx: &mut Tx<'_>| match context.find(tx, KindName::VolumeTemplate, &[], &name)? {
            None if wish.metadata.name == name && seen.is_none() => {
                engine::create(&context, tx, &[], wish.clone())
            }
            _ => {
                engine::require_version::<VolumeTemplate>(&context, tx, &[], &name, seen)?;
                engine::replace(&context, tx, &[], &name, wish.clone()).map(|shown| shown.object)
            }
        };
    Ok(Reply::of(&call.app.store.write(work).await?))
}

/// Removes one version; the last one stays.
pub(crate) async fn remove_version(
    call: Call<Member>,
) -> Result<Reply<TemplateVersionDeleted>, Error> {
    let (context, template, version) =
        (call.context(), call.path.at(0).to_owned(), call.path.at(1).to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let held = Held::<VolumeTemplate>::lock(&context, tx, &[], &template)?;
        let mut state = held.state.clone();
        state.versions.retain(|kept| kept.name.as_deref() != Some(version.as_str()));
        if state.versions.len() == held.state.versions.len() {
            return Err(Absent::TemplateVersion { version: version.clone() }.into());
        }
        if state.versions.is_empty() {
            return Err(Unfit::LastTemplateVersion.into());
        }
        let held = engine::change_state(&context, tx, held, state)?;
        let template = engine::present(&context, tx, &held, &Secrets::Masked)?;
        Ok::<_, control::Error>(TemplateVersionDeleted {
            message: "the version is removed".into(),
            template: Some(template),
        })
    };
    Ok(Reply::of(&call.app.store.write(work).await?))
}
