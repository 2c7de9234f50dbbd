//! Access to the data plane. It accepts the same users and keys as the management API, and shares
//! its cache of them.

use auth::{Auth, Blame, Denied};
use futures_util::future::BoxFuture;
use gateway::{Caller, Guard, Refused};
use tokio::sync::watch;
use types::{KindName, Scope, Verb};

/// Returns the scope needed to use a workload of this kind.
fn scope(kind: KindName) -> Scope {
    match kind {
        // Whoever reaches a sandbox can do everything in it.
        KindName::Sandbox => Scope::Sandboxes(Verb::Control),
        kind => kind.scope(Verb::Get),
    }
}

pub(super) struct DataPlaneGuard(pub(super) Auth);

impl Guard for DataPlaneGuard {
    fn admit<'a>(
        &'a self,
        token: &'a str,
        workspace: &'a str,
        kind: KindName,
    ) -> BoxFuture<'a, Result<Caller, Refused>> {
        Box::pin(async move { self.identify(token, workspace, kind).await.map_err(refused) })
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.0.changes()
    }
}

impl DataPlaneGuard {
    async fn identify(
        &self,
        token: &str,
        workspace: &str,
        kind: KindName,
    ) -> Result<Caller, Denied> {
        let who = match kind {
            KindName::Model => self.0.identify_for_models(token).await?,
            _ => self.0.identify(token).await?,
        };
        let member = self.0.enter(&who, Some(workspace))?;
        member.may(&[scope(kind)])?;
        Ok(Caller {
            holder: who.holder().to_owned(),
            subject_id: who.subject.as_str().to_owned(),
            subject_type: who.subject.type_name(),
            auth_method: if who.key.is_some() { "apikey" } else { "oauth" },
            models: who.models.clone(),
        })
    }
}

fn refused(denied: Denied) -> Refused {
    match (&denied, denied.blame()) {
        (Denied::Expired, _) => Refused::Expired,
        (_, Blame::Credentials) => Refused::Unknown,
        (_, Blame::Rights | Blame::Request) => Refused::Forbidden { why: denied.to_string() },
        (Denied::Store(error), _) if error.is_away() => Refused::Away,
        (_, Blame::Server) => {
            tracing::error!(%denied, "credentials could not be checked");
            Refused::Broken
        }
    }
}
