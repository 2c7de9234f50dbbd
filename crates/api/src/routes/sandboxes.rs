//! Sandboxes: conflicts of names, volumes they hold, and what needs the sandbox engine.

use crate::http::call::{Body, Call, Wish};
use crate::http::error::Error;
use crate::http::query::Flag;
use crate::http::reply::Reply;
use crate::routes::uploads;
use auth::Member;
use control::Missing;
use control::builds::{self, Buildable};
use control::engine::Held;
use control::workloads::create::{self, NewSandbox};
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::kinds::Sandbox;
use types::parts::Status;
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
    if call.query.upload.0 && !call.body.0.skips_build() {
        return create_built(call).await;
    }
    let new = NewSandbox {
        context: call.context(),
        reuse: call.query.create_if_not_exist.0,
        wish: call.body.0,
        key: call.key,
    };
    Ok(create::create(new).await?.into())
}

/// As [`create`] from uploaded sources. One that lives and may be reused gets the new image.
async fn create_built(
    call: Call<Member, CreateQuery, Wish<Sandbox>>,
) -> Result<Reply<Sandbox>, Error> {
    let (context, wish) = (call.context(), call.body.0.clone());
    let reuse = call.query.create_if_not_exist.0;
    let ask = move |tx: &mut Tx<'_>| {
        let found = context.find(tx, KindName::Sandbox, &[], wish.name())?;
        match found.is_some_and(|row| reuse && row.status != Some(Status::Terminated)) {
            true => builds::replace(&context, tx, wish.name(), wish.clone()),
            false => builds::create(&context, tx, wish.clone()),
        }
    };
    uploads::asked(&call, ask).await
}

pub(crate) async fn fork(
    call: Call<Member, crate::http::query::NoQuery, Body<SandboxForkRequest>>,
) -> Result<Reply<SandboxForkResponse>, Error> {
    let (context, name, target) = (call.context(), call.path.name().to_owned(), call.body.0);
    let (kind, wanted) = target.target()?;
    let (to_sandbox, wanted) = (kind == ForkTarget::Sandbox, wanted.to_owned());
    let check = move |tx: &mut Tx<'_>| {
        Held::<Sandbox>::get(&context, tx, &[], &name)?;
        if to_sandbox && context.find(tx, KindName::Sandbox, &[], &wanted)?.is_some() {
            return Err(control::Error::Exists { kind: KindName::Sandbox, name: wanted.clone() });
        }
        Ok(())
    };
    call.app.store.read(check).await?;
    Err(control::Error::Missing(Missing::Fork).into())
}
