//! Sandboxes: conflicts of names, volumes they hold, and what needs the sandbox engine.

use crate::http::call::{Body, Call, Wish};
use crate::http::error::Error;
use crate::http::query::Flag;
use crate::http::reply::Reply;
use auth::Member;
use control::Missing;
use control::engine::Held;
use control::workloads::create::{self, NewSandbox};
use schemars::JsonSchema;
use serde::Deserialize;
use store::Tx;
use types::KindName;
use types::kinds::Sandbox;
use types::wire::{ForkTarget, SandboxForkRequest, SandboxForkResponse};

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
        return Err(control::Error::Missing(Missing::Build).into());
    }
    let new = NewSandbox {
        context: call.context(),
        reuse: call.query.create_if_not_exist.0,
        wish: call.body.0,
        key: call.key,
    };
    Ok(create::create(new).await?.into())
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
