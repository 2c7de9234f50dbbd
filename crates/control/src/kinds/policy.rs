//! Policies.

use crate::context::Context;
use crate::engine::Managed;
use crate::error::Error;
use store::{Tx, references};
use types::kinds::Policy;
use types::kinds::policy::PolicyUsageCounts;
use types::{Kind, KindName};

impl Managed for Policy {
    fn adorn(&mut self, context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
        let users =
            references::users(tx, &context.member.workspace, KindName::Policy, self.name())?;
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
