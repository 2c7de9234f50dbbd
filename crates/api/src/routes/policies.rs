//! Policies: the resources that name one.

use crate::http::call::Call;
use crate::http::error::Error;
use crate::http::reply::Reply;
use auth::Member;
use control::engine::Held;
use store::{Tx, references};
use types::KindName;
use types::kinds::Policy;
use types::wire::{PolicyUsages, PolicyUser};

/// Lists the names of the resources under a policy, by kind.
pub(crate) async fn usages(call: Call<Member>) -> Result<Reply<PolicyUsages>, Error> {
    let (context, name) = (call.context(), call.path.name().to_owned());
    let work = move |tx: &mut Tx<'_>| {
        Held::<Policy>::get(&context, tx, &[], &name)?;
        let users = references::users(tx, &context.member.workspace, KindName::Policy, &name)?;
        let named = |wanted: KindName| {
            let names = users.iter().filter(|(kind, _)| *kind == wanted);
            names.map(|(_, name)| PolicyUser { name: name.clone() }).collect()
        };
        Ok::<_, Error>(PolicyUsages {
            agents: named(KindName::Agent),
            functions: named(KindName::Function),
            jobs: named(KindName::Job),
            models: named(KindName::Model),
            sandboxes: named(KindName::Sandbox),
        })
    };
    Ok(Reply::of(&call.app.store.read(work).await?))
}
