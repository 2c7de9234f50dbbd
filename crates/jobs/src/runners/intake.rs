//! Receives webhooks.

use super::webhooks::{Report, Webhook};
use super::{Runners, connections, rows};
use admission::Limits;
use connections::Connection;
use store::identity::workspaces;
use store::{Error, Tx, runners};
use types::ids::WorkspaceId;

/// Most webhooks handled at once, of all workspaces and of one. More are refused; polling finds what
/// they would have told. Anybody can send unsigned ones to the address of a workspace, so these
/// must not take the places of the others.
pub(super) const AT_ONCE: Limits = Limits { total: 32, share: 8 };

/// Why a webhook was refused.
#[derive(Debug, thiserror::Error)]
pub enum WebhookRefused {
    /// Also returned if there is no such workspace, or no secret to check the signature with.
    #[error("the webhook is not signed as it must be")]
    Unsigned,
    #[error("too many webhooks come at once")]
    Busy,
    #[error(transparent)]
    Store(#[from] Error),
}

impl Runners {
    /// Takes a webhook for the workspace of this name. A webhook that brings nothing new about a
    /// workflow job changes nothing.
    pub async fn take(&self, workspace: &str, webhook: Webhook<'_>) -> Result<(), WebhookRefused> {
        let name = workspace.to_owned();
        let _place = self.0.webhooks.take(&name, 1).map_err(|_| WebhookRefused::Busy)?;
        let of = self.clone();
        let (workspace, all) = self.0.store.read(move |tx| of.addressee(tx, &name)).await?;
        let signers = signers(&all, &webhook);
        let Some(workspace) = workspace.filter(|_| !signers.is_empty()) else {
            return Err(WebhookRefused::Unsigned);
        };
        let Some((repository, report)) = webhook.read() else { return Ok(()) };
        if !signers.iter().any(|connection| connection.covers(&repository)) {
            tracing::warn!(%workspace, "a webhook tells of a repository that its connection does not list");
            return Ok(());
        }
        self.note(workspace, webhook.delivery.to_owned(), repository, report).await?;
        self.0.wake.notify_waiters();
        Ok(())
    }

    fn addressee(
        &self,
        tx: &mut Tx<'_>,
        name: &str,
    ) -> Result<(Option<WorkspaceId>, Vec<Connection>), Error> {
        let Some(workspace) = workspaces::find_by_name(tx, name)? else {
            return Ok((None, Vec::new()));
        };
        let all = connections::all(tx, &self.0.store.keyring(), &workspace.id)?;
        Ok((Some(workspace.id), all))
    }

    async fn note(
        &self,
        workspace: WorkspaceId,
        delivery: String,
        repository: String,
        report: Report,
    ) -> Result<(), Error> {
        let of = self.clone();
        let work = move |tx: &mut Tx<'_>| {
            let now = of.now();
            if runners::note_delivery(tx, &workspace, &delivery, now)? {
                rows::take(tx, &of.0.settings, &workspace, &repository, &report, now)?;
            }
            Ok(())
        };
        self.0.store.write(work).await
    }
}

/// Returns the connections whose secret the webhook is signed with. It always tries all of them,
/// and does a dummy check if there are none, so that its timing reveals nothing about them.
fn signers<'c>(all: &'c [Connection], webhook: &Webhook<'_>) -> Vec<&'c Connection> {
    if all.is_empty() {
        webhook.is_signed_with("");
    }
    all.iter().filter(|connection| webhook.is_signed_with(&connection.webhook_secret.0)).collect()
}
