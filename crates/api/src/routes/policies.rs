//! Policies: how many resources name one, and which.

use crate::call::Call;
use crate::engine::{Desk, Held, Managed};
use crate::error::Error;
use crate::reply::Reply;
use auth::Member;
use store::{Tx, references};
use types::kinds::Policy;
use types::kinds::policy::PolicyUsageCounts;
use types::wire::{PolicyUsages, PolicyUser};
use types::{Kind, KindName};

impl Managed for Policy {
    fn adorn(&mut self, desk: &Desk, tx: &mut Tx<'_>) -> Result<(), Error> {
        let users = references::users(tx, &desk.member.workspace, KindName::Policy, self.name())?;
        let count =
            |wanted| i64::try_from(users.iter().filter(|(kind, _)| *kind == wanted).count()).ok();
        self.usage = Some(PolicyUsageCounts {
            agents: count(KindName::Agent),
            functions: count(KindName::Function),
            jobs: count(KindName::Job),
            models: count(KindName::Model),
            sandboxes: count(KindName::Sandbox),
        });
        Ok(())
    }
}

/// The names of the resources under a policy, by kind.
pub(crate) async fn usages(call: Call<Member>) -> Result<Reply<PolicyUsages>, Error> {
    let (desk, name) = (call.desk(), call.path.name().to_owned());
    let work = move |tx: &mut Tx<'_>| {
        Held::<Policy>::get(&desk, tx, &[], &name)?;
        let users = references::users(tx, &desk.member.workspace, KindName::Policy, &name)?;
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
