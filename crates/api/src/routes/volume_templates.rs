//! Volume templates and their versions.

use super::uploads;
use crate::http::call::{Call, Wish};
use crate::http::error::Error;
use crate::http::query::Flag;
use crate::http::reply::Reply;
use auth::Member;
use control::engine;
use control::volume_templates as templates;
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::KindName;
use types::kinds::VolumeTemplate;
use types::wire::TemplateVersionDeleted;

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Version {
    /// Whether to ask for an upload address for the content.
    #[serde(default)]
    pub upload: Flag,
    /// Name of the uploaded version. Default: a number, one higher than the last.
    pub version: Option<String>,
}

pub(crate) async fn create(
    call: Call<Member, Version, Wish<VolumeTemplate>>,
) -> Result<Reply<VolumeTemplate>, Error> {
    let (context, wish) = (call.context(), call.body.0.clone());
    if !call.query.upload.0 {
        return call.once(move |tx| engine::create(&context, tx, &[], wish.clone())).await;
    }
    let version = call.query.version.clone();
    let ask = move |tx: &mut Tx<'_>| {
        engine::create(&context, tx, &[], wish.clone())?;
        templates::ask(&context, tx, &wish.metadata.name, version.as_deref())
    };
    uploads::asked(&call, ask).await
}

/// Replaces a template, or creates it if it does not exist.
pub(crate) async fn upsert(
    call: Call<Member, Version, Wish<VolumeTemplate>>,
) -> Result<Reply<VolumeTemplate>, Error> {
    let (context, name, wish) = (call.context(), call.path.name().to_owned(), call.body.0.clone());
    let seen = call.if_match;
    let (of, named) = (context.clone(), name.clone());
    let put = move |tx: &mut Tx<'_>| match of.find(tx, KindName::VolumeTemplate, &[], &named)? {
        None if wish.metadata.name == named && seen.is_none() => {
            engine::create(&of, tx, &[], wish.clone())
        }
        _ => {
            engine::require_version::<VolumeTemplate>(&of, tx, &[], &named, seen)?;
            engine::replace(&of, tx, &[], &named, wish.clone()).map(|shown| shown.object)
        }
    };
    if !call.query.upload.0 {
        return Ok(Reply::of(&call.app.store.write(put).await?));
    }
    let version = call.query.version.clone();
    let ask = move |tx: &mut Tx<'_>| {
        put(tx)?;
        templates::ask(&context, tx, &name, version.as_deref())
    };
    uploads::asked(&call, ask).await
}

/// Removes one version; the last one cannot be removed.
pub(crate) async fn remove_version(
    call: Call<Member>,
) -> Result<Reply<TemplateVersionDeleted>, Error> {
    let (context, template, version) =
        (call.context(), call.path.at(0).to_owned(), call.path.at(1).to_owned());
    let work = move |tx: &mut Tx<'_>| templates::remove_version(&context, tx, &template, &version);
    Ok(Reply::of(&call.app.store.write(work).await?))
}
