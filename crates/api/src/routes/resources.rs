//! The operations that every kind has.

use super::catalogues::require_region;
use super::triggers;
use crate::call::{Call, Guarded, Wish};
use crate::engine::{self, Desk, Draft, Held, Listing, Managed, Secrets};
use crate::error::Error;
use crate::furnish::DEFAULT_VPC;
use crate::missing::Missing;
use crate::providers;
use crate::query::{Flag, ListQuery, NoQuery, ShowSecrets};
use crate::reply::Reply;
use auth::Member;
use schemars::JsonSchema;
use serde::Deserialize;
use store::resources as rows;
use types::kinds::application::AppRevision;
use types::kinds::{Agent, Application, Function, IntegrationConnection, Job, Model, Vpc};
use types::parts::{RevisionMetadata, Status};
use types::{Kind, KindName, Problems};

impl<Q, B> Call<Member, Q, B> {
    /// What the engine needs, to take into a transaction.
    pub(crate) fn desk(&self) -> Desk {
        Desk { app: self.app.clone(), member: self.who.clone() }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Upload {
    /// Asks for an address to upload sources to, from which the image is built.
    #[serde(default)]
    pub upload: Flag,
}

pub(crate) async fn list<K: Managed>(call: Call<Member, ListQuery>) -> Result<Listing<K>, Error> {
    let (desk, parents, query, version) =
        (call.desk(), call.path.all(), call.query.clone(), call.version);
    call.app.store.read(move |tx| engine::list::<K>(&desk, tx, &parents, &query, version)).await
}

pub(crate) async fn list_bare<K: Managed>(call: Call<Member>) -> Result<Reply<Vec<K>>, Error> {
    let (desk, parents) = (call.desk(), call.path.all());
    let all = call.app.store.read(move |tx| engine::list_all::<K>(&desk, tx, &parents)).await?;
    Ok(Reply::of(&all))
}

pub(crate) async fn get<K: Managed>(call: Call<Member, ShowSecrets>) -> Result<Reply<K>, Error> {
    let secrets = match call.query.show_secrets.0 {
        true => {
            call.who.admin()?;
            Secrets::Shown
        }
        false => Secrets::Masked,
    };
    let (desk, parents, name) = (call.desk(), call.path.parents(), call.path.name().to_owned());
    let object = call
        .app
        .store
        .read(move |tx| engine::get::<K>(&desk, tx, &parents, &name, &secrets))
        .await?;
    Ok(object.into())
}

pub(crate) async fn create<K: Managed>(
    call: Call<Member, NoQuery, Wish<K>>,
) -> Result<Reply<K>, Error> {
    let (desk, parents, wish) = (call.desk(), call.path.all(), call.body.0.clone());
    call.once(move |tx| engine::create(&desk, tx, &parents, wish.clone())).await
}

pub(crate) async fn create_or_build<K: Managed>(
    call: Call<Member, Upload, Wish<K>>,
) -> Result<Reply<K>, Error> {
    refuse_upload(&call.query)?;
    create(call.without_query()).await
}

pub(crate) async fn replace<K: Managed>(
    call: Call<Member, NoQuery, Wish<K>>,
) -> Result<Reply<K>, Error> {
    let (desk, parents, name, wish) =
        (call.desk(), call.path.parents(), call.path.name().to_owned(), call.body.0);
    let seen = call.if_match;
    let work = move |tx: &mut store::Tx<'_>| {
        engine::require_version::<K>(&desk, tx, &parents, &name, seen)?;
        engine::replace(&desk, tx, &parents, &name, wish.clone())
    };
    Ok(call.app.store.write(work).await?.into())
}

pub(crate) async fn replace_or_build<K: Managed>(
    call: Call<Member, Upload, Wish<K>>,
) -> Result<Reply<K>, Error> {
    refuse_upload(&call.query)?;
    replace(call.without_query()).await
}

pub(crate) async fn remove<K: Managed>(
    call: Call<Member, NoQuery, Guarded>,
) -> Result<Reply<K>, Error> {
    let (desk, parents, name) = (call.desk(), call.path.parents(), call.path.name().to_owned());
    let seen = call.if_match;
    let work = move |tx: &mut store::Tx<'_>| {
        engine::require_version::<K>(&desk, tx, &parents, &name, seen)?;
        engine::remove::<K>(&desk, tx, &parents, &name)
    };
    Ok(Reply::of(&call.app.store.write(work).await?))
}

pub(crate) async fn by_external_id<K: Managed>(call: Call<Member>) -> Result<Reply<K>, Error> {
    let (desk, id) = (call.desk(), call.path.name().to_owned());
    let work = move |tx: &mut store::Tx<'_>| {
        let row = rows::find_by_external_id(
            tx,
            &desk.member.workspace,
            K::NAME,
            &id,
            &[Status::Terminated],
        )?;
        let row = row.ok_or_else(|| {
            Error::NotFound(format!("there is no {} with the external id `{id}`", K::NAME))
        })?;
        engine::present(&desk, tx, &Held::<K>::read(row)?, &Secrets::Masked)
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}

pub(crate) async fn revisions<K: Managed>(
    call: Call<Member>,
) -> Result<Reply<Vec<RevisionMetadata>>, Error> {
    let (desk, name) = (call.desk(), call.path.name().to_owned());
    // The name stands before `/revisions`, and is the only value of the path.
    let kept = call.app.store.read(move |tx| engine::revisions::<K>(&desk, tx, &name)).await?;
    Ok(Reply::of(&kept))
}

fn refuse_upload(query: &Upload) -> Result<(), Error> {
    if query.upload.0 { Err(Error::Missing(Missing::Build)) } else { Ok(()) }
}

/// The inference address of a workload.
fn inference_url(desk: &Desk, plural: &str, name: &str) -> Option<String> {
    Some(format!("{}/{}/{plural}/{name}", desk.app.settings.public_url, desk.member.workspace_name))
}

macro_rules! with_inference_url {
    ($($kind:ty),+) => {$(
        impl Managed for $kind {
            fn url(desk: &Desk, held: &Held<Self>) -> Option<String> {
                inference_url(desk, Self::NAME.plural(), &held.row.name)
            }

            fn settle(desk: &Desk, _: &mut store::Tx<'_>, draft: &mut Draft<'_, Self>) -> Result<(), Error> {
                require_region(desk, draft.wish.spec.region.as_deref(), "spec.region")
            }
        }
    )+};
}

with_inference_url!(Agent, Function);

impl Managed for Model {
    fn url(desk: &Desk, held: &Held<Self>) -> Option<String> {
        inference_url(desk, Self::NAME.plural(), &held.row.name)
    }
}

impl Managed for Application {
    fn url(desk: &Desk, held: &Held<Self>) -> Option<String> {
        let label = format!("app-{}-{}", held.row.name, desk.member.workspace_name);
        Some(types::hosts::host_url(&desk.app.settings.content_url, &label))
    }

    fn settle(
        desk: &Desk,
        _: &mut store::Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        require_region(desk, draft.wish.spec.region.as_deref(), "spec.region")
    }

    /// Published clients read from the first revision what runs now.
    fn adorn(&mut self, desk: &Desk, tx: &mut store::Tx<'_>) -> Result<(), Error> {
        if let Some(row) = desk.find(tx, Self::NAME, &[], self.name())? {
            self.spec.revisions = Some(app_revisions(tx, &row.id)?).filter(|kept| !kept.is_empty());
        }
        Ok(())
    }
}

/// The revisions of an application, as the interface has them: what each one runs.
pub(crate) async fn application_revisions(
    call: Call<Member>,
) -> Result<Reply<Vec<AppRevision>>, Error> {
    let (desk, name) = (call.desk(), call.path.name().to_owned());
    let work = move |tx: &mut store::Tx<'_>| {
        let held = Held::<Application>::get(&desk, tx, &[], &name)?;
        app_revisions(tx, &held.row.id)
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}

fn app_revisions(
    tx: &mut store::Tx<'_>,
    id: &types::ids::ResourceId,
) -> Result<Vec<AppRevision>, Error> {
    let kept = engine::earlier::<Application>(tx, id)?;
    let revision = |(kept, wish): (store::revisions::Revision, Application)| AppRevision {
        image: wish.spec.image.unwrap_or_default(),
        created_at: Some(kept.created_at),
        created_by: Some(kept.created_by),
        envs: wish.spec.envs,
        id: Some(kept.id),
        memory: wish.spec.memory,
        port: wish.spec.port,
        snapshot: None,
    };
    Ok(kept.into_iter().map(revision).collect())
}

impl Managed for Job {
    fn settle(
        desk: &Desk,
        tx: &mut store::Tx<'_>,
        draft: &mut Draft<'_, Self>,
    ) -> Result<(), Error> {
        require_region(desk, draft.wish.spec.region.as_deref(), "spec.region")?;
        if let Some(machine) = desk.app.fleet.machine() {
            let (job, workspace) = ((&*draft.wish, &mut *draft.state), &desk.member.workspace);
            crate::fleet::jobs::judge(tx, &**machine, workspace, job, desk.world().now())?;
        }
        Ok(())
    }

    fn follow(desk: &Desk, tx: &mut store::Tx<'_>, wish: &Self) -> Result<(), Error> {
        triggers::take_addresses(desk, tx, wish)
    }

    fn release(desk: &Desk, tx: &mut store::Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        triggers::give_back_addresses(desk, tx, held)?;
        Ok(desk.app.queue.cancel_job(tx, &held.row.workspace, &held.row.name)?)
    }
}

impl Managed for IntegrationConnection {
    const PAGING: engine::Paging = engine::Paging::Bare;

    fn settle(_: &Desk, _: &mut store::Tx<'_>, draft: &mut Draft<'_, Self>) -> Result<(), Error> {
        if providers::is_known(draft.wish.spec.integration.as_deref().unwrap_or_default()) {
            return Ok(());
        }
        let mut problems = Problems::default();
        problems
            .add("spec.integration", format!("must be one of {}", providers::names().join(", ")));
        Err(problems.into())
    }

    fn release(desk: &Desk, tx: &mut store::Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        let users = store::references::users(
            tx,
            &desk.member.workspace,
            KindName::IntegrationConnection,
            &held.row.name,
        )?;
        match users.first() {
            Some((kind, name)) => Err(Error::Conflict(format!(
                "the connection is used by the {kind} `{name}`; take it out of its `spec.integrationConnections` first"
            ))),
            None => Ok(()),
        }
    }
}

impl Managed for Vpc {
    const PAGING: engine::Paging = engine::Paging::Bare;

    fn release(_: &Desk, _: &mut store::Tx<'_>, held: &Held<Self>) -> Result<(), Error> {
        match held.row.name.as_str() {
            DEFAULT_VPC => Err(Error::Malformed(format!(
                "the VPC `{DEFAULT_VPC}` belongs to the workspace and stays"
            ))),
            _ => Ok(()),
        }
    }
}
