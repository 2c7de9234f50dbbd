//! Reconciliation of a sandbox while its caller waits.

use super::{reconcile, soon};
use crate::control::Control;
use crate::error::Error;
use types::KindName;
use types::ids::ResourceId;

/// Brings a sandbox into its wished state while its caller waits. The work continues if the caller
/// goes away; failures are retried by the task that follows the rows.
pub(crate) async fn reconcile(control: &Control, id: &ResourceId) {
    let (of, id) = (control.clone(), id.clone());
    let whole = async move { reconcile::reconcile(&of, &id).await };
    match tokio::spawn(whole).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "a sandbox is brought into its state later"),
        Err(error) => tracing::error!(%error, "bringing a sandbox into its state was interrupted"),
    }
}

/// Makes the instance of a sandbox follow its row while the caller who changed it waits. After a
/// failure it is retried in the background.
pub(crate) async fn obey(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let (of, row) = (control.clone(), id.clone());
    let whole = tokio::spawn(async move { reconcile::reconcile(&of, &row).await });
    let done = whole.await.unwrap_or_else(|_| Err(Error::Egress("it was interrupted".to_owned())));
    if done.is_err() {
        soon::reconcile(control, KindName::Sandbox, id.clone());
    }
    done
}
