//! The operations that all kinds have.

use crate::http::call::{Call, Guarded, Wish};
use crate::http::error::Error;
use crate::http::pages::WrittenList;
use crate::http::query::{Flag, ListQuery, NoQuery, ShowSecrets};
use crate::http::reply::Reply;
use crate::routes::uploads;
use auth::Member;
use control::builds::{self, Buildable};
use control::engine::{self, Held, Managed, Secrets};
use control::error::Absent;
use control::kinds::application;
use control::workloads;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use store::{Tx, resources as rows};
use types::kinds::Application;
use types::kinds::application::AppRevision;
use types::parts::{RevisionMetadata, Status};

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Upload {
    /// Whether to ask for an upload address; the image is then built from the uploaded sources.
    #[serde(default)]
    pub upload: Flag,
}

pub(crate) async fn list<K: Managed>(
    call: Call<Member, ListQuery>,
) -> Result<WrittenList<K>, Error> {
    let (context, parents, query, version) =
        (call.context(), call.path.all(), call.query.clone(), call.version);
    let room = Arc::clone(&call.room);
    let work = move |tx: &mut Tx<'_>| {
        let list = engine::list::<K>(&context, tx, &parents, &query, version)?;
        Ok::<_, control::Error>(WrittenList::write(&list, &room)?)
    };
    Ok(call.app.lists.read(call.who.workspace.as_str(), work).await?)
}

pub(crate) async fn list_bare<K: Managed>(call: Call<Member>) -> Result<Reply<Vec<K>>, Error> {
    let (context, parents) = (call.context(), call.path.all());
    let work = move |tx: &mut Tx<'_>| engine::list_all::<K>(&context, tx, &parents);
    let all = call.app.lists.read(call.who.workspace.as_str(), work).await?;
    Ok(Reply::of(&all))
}

/// Lists every object of a nested kind, whatever contains it.
pub(crate) async fn everywhere<K: Managed>(call: Call<Member>) -> Result<Reply<Vec<K>>, Error> {
    let context = call.context();
    let work = move |tx: &mut Tx<'_>| engine::everywhere::<K>(&context, tx);
    let found = call.app.lists.read(call.who.workspace.as_str(), work).await?;
    Ok(Reply::of(&found))
}

pub(crate) async fn get<K: Managed>(call: Call<Member, ShowSecrets>) -> Result<Reply<K>, Error> {
    let secrets = match call.query.show_secrets.0 {
        true => {
            call.who.admin()?;
            Secrets::Shown
        }
        false => Secrets::Masked,
    };
    let (context, parents, name) =
        (call.context(), call.path.parents(), call.path.name().to_owned());
    let object = call
        .app
        .store
        .read(move |tx| engine::get::<K>(&context, tx, &parents, &name, &secrets))
        .await?;
    Ok(object.into())
}

pub(crate) async fn create<K: Managed>(
    call: Call<Member, NoQuery, Wish<K>>,
) -> Result<Reply<K>, Error> {
    let (context, parents, wish) = (call.context(), call.path.all(), call.body.0.clone());
    let (control, workspace) = (call.app.control().clone(), context.member.workspace.clone());
    let name = wish.name().to_owned();
    let made = call.once(move |tx| engine::create(&context, tx, &parents, wish.clone())).await?;
    workloads::changed(&control, &workspace, K::NAME, &name).await;
    Ok(made)
}

pub(crate) async fn create_or_build<K: Buildable>(
    call: Call<Member, Upload, Wish<K>>,
) -> Result<Reply<K>, Error> {
    let (context, wish) = (call.context(), call.body.0.clone());
    if !call.query.upload.0 || wish.skips_build() {
        let mut made = create(call.without_query()).await?;
        made.body = workloads::taken::<K>(&context, wish.name(), made.body.clone()).await;
        return Ok(made);
    }
    uploads::asked(&call, move |tx| builds::create(&context, tx, wish.clone())).await
}

pub(crate) async fn replace<K: Managed>(
    call: Call<Member, NoQuery, Wish<K>>,
) -> Result<Reply<K>, Error> {
    let (context, parents, name, wish) =
        (call.context(), call.path.parents(), call.path.name().to_owned(), call.body.0);
    let seen = call.if_match;
    let (workspace, changed) = (context.member.workspace.clone(), name.clone());
    let work = move |tx: &mut Tx<'_>| {
        engine::require_version::<K>(&context, tx, &parents, &name, seen)?;
        engine::replace(&context, tx, &parents, &name, wish.clone())
    };
    let shown = call.app.store.write(work).await?;
    workloads::changed(call.app.control(), &workspace, K::NAME, &changed).await;
    Ok(shown.into())
}

pub(crate) async fn replace_or_build<K: Buildable>(
    call: Call<Member, Upload, Wish<K>>,
) -> Result<Reply<K>, Error> {
    if !call.query.upload.0 || call.body.0.skips_build() {
        return replace(call.without_query()).await;
    }
    let (context, name, wish) = (call.context(), call.path.name().to_owned(), call.body.0.clone());
    let seen = call.if_match;
    let ask = move |tx: &mut Tx<'_>| {
        engine::require_version::<K>(&context, tx, &[], &name, seen)?;
        builds::replace(&context, tx, &name, wish.clone())
    };
    uploads::asked(&call, ask).await
}

pub(crate) async fn remove<K: Managed>(
    call: Call<Member, NoQuery, Guarded>,
) -> Result<Reply<K>, Error> {
    let (context, parents, name) =
        (call.context(), call.path.parents(), call.path.name().to_owned());
    let seen = call.if_match;
    let (workspace, changed) = (context.member.workspace.clone(), name.clone());
    let work = move |tx: &mut Tx<'_>| {
        engine::require_version::<K>(&context, tx, &parents, &name, seen)?;
        let id = Held::<K>::lock(&context, tx, &parents, &name)?.row.id;
        Ok::<_, control::Error>((engine::remove::<K>(&context, tx, &parents, &name)?, id))
    };
    let (last, id) = call.app.store.write(work).await?;
    workloads::removed(call.app.control(), K::NAME, &id).await;
    workloads::changed(call.app.control(), &workspace, K::NAME, &changed).await;
    Ok(Reply::of(&last))
}

pub(crate) async fn by_external_id<K: Managed>(call: Call<Member>) -> Result<Reply<K>, Error> {
    let (context, id) = (call.context(), call.path.name().to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let row = rows::find_by_external_id(
            tx,
            &context.member.workspace,
            K::NAME,
            &id,
            &[Status::Terminated],
        )?;
        let row = row.ok_or_else(|| {
            control::Error::from(Absent::ExternalId { kind: K::NAME, id: id.clone() })
        })?;
        engine::present(&context, tx, &Held::<K>::read(row)?, &Secrets::Masked)
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}

pub(crate) async fn revisions<K: Managed>(
    call: Call<Member>,
) -> Result<Reply<Vec<RevisionMetadata>>, Error> {
    let (context, name) = (call.context(), call.path.name().to_owned());
    // The name comes before `/revisions`, and is the only value in the path.
    let kept = call.app.store.read(move |tx| engine::revisions::<K>(&context, tx, &name)).await?;
    Ok(Reply::of(&kept))
}

/// Lists the revisions of an application in the form of the interface: what each of them runs.
pub(crate) async fn application_revisions(
    call: Call<Member>,
) -> Result<Reply<Vec<AppRevision>>, Error> {
    let (context, name) = (call.context(), call.path.name().to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let held = Held::<Application>::get(&context, tx, &[], &name)?;
        application::revisions(tx, &held.row.id)
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}
