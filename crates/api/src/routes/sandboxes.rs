//! Sandboxes: name conflicts, the volumes that they hold, and everything that needs the sandbox
//! engine.

use crate::http::call::{Body, Call, Wish};
use crate::http::error::Error;
use crate::http::query::{Flag, NoQuery};
use crate::http::reply::Reply;
use crate::routes::{resources, uploads};
use auth::Member;
use control::archives;
use control::builds::{self, Buildable};
use control::egress;
use control::forks::{self, Source};
use control::workloads::create::{self, NewSandbox};
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::kinds::Sandbox;
use types::wire::{ForkTarget, SandboxForkRequest, SandboxForkResponse};
use types::{Kind, KindName, Scope, Verb};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateQuery {
    /// Whether to return the existing sandbox with this name, if it is alive.
    #[serde(default)]
    pub create_if_not_exist: Flag,
    /// Whether to ask for an upload address; the image is then built from the uploaded sources.
    #[serde(default)]
    pub upload: Flag,
}

pub(crate) async fn create(
    call: Call<Member, CreateQuery, Wish<Sandbox>>,
) -> Result<Reply<Sandbox>, Error> {
    if call.query.upload.0 && !call.body.0.skips_build() {
        return create_built(call).await;
    }
    let new = NewSandbox {
        context: call.context(),
        reuse: call.query.create_if_not_exist.0,
        wish: call.body.0,
        key: call.key,
        begins: None,
    };
    Ok(create::create(new).await?.into())
}

/// Replaces a sandbox. When this answers, the new network rules apply to its instance.
pub(crate) async fn replace(
    call: Call<Member, resources::Upload, Wish<Sandbox>>,
) -> Result<Reply<Sandbox>, Error> {
    if call.query.upload.0 && !call.body.0.skips_build() {
        return resources::replace_or_build(call).await;
    }
    let name = call.path.name().to_owned();
    Ok(egress::replace(&call.context(), name, call.body.0, call.if_match).await?.into())
}

/// Like [`create`], but from uploaded sources. A living sandbox that may be reused gets the new
/// image.
async fn create_built(
    call: Call<Member, CreateQuery, Wish<Sandbox>>,
) -> Result<Reply<Sandbox>, Error> {
    let (context, wish) = (call.context(), call.body.0.clone());
    let reuse = call.query.create_if_not_exist.0;
    let ask = move |tx: &mut Tx<'_>| {
        let found = context.find(tx, KindName::Sandbox, &[], wish.name())?;
        match found.is_some_and(|row| reuse && !row.is_terminated()) {
            true => builds::replace(&context, tx, wish.name(), wish.clone()),
            false => builds::create(&context, tx, wish.clone()),
        }
    };
    uploads::asked(&call, ask).await
}

pub(crate) async fn fork(
    call: Call<Member, NoQuery, Body<SandboxForkRequest>>,
) -> Result<Reply<SandboxForkResponse>, Error> {
    // This first takes a snapshot, whose duration depends on how much the sandbox has written.
    call.long.announce();
    let source = Source::Sandbox(call.path.name().to_owned());
    may_deploy(&call)?;
    Ok(forks::fork(call.context(), source, call.body.0, call.key).await?.into())
}

/// Checks that a caller who makes an application out of a sandbox may make applications.
pub(crate) fn may_deploy(
    call: &Call<Member, NoQuery, Body<SandboxForkRequest>>,
) -> Result<(), Error> {
    let asked = &call.body.0;
    if asked.target_type.or(asked.older_target_type) == Some(ForkTarget::Application) {
        call.who.may(&[Scope::Applications(Verb::Create), Scope::Applications(Verb::Update)])?;
    }
    Ok(())
}

pub(crate) async fn archive(call: Call<Member>) -> Result<Reply<Sandbox>, Error> {
    let name = call.path.name().to_owned();
    Ok(archives::archive(call.context(), name, call.key).await?.into())
}

pub(crate) async fn unarchive(call: Call<Member>) -> Result<Reply<Sandbox>, Error> {
    let name = call.path.name().to_owned();
    Ok(archives::unarchive(call.context(), name, call.key).await?.into())
}
