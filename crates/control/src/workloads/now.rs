//! Reconciliation of a sandbox while its caller waits.

use super::{reconcile, soon};
use crate::control::Control;
use crate::error::Error;
use crate::run_to_end::run_to_end;
use types::KindName;
use types::ids::ResourceId;

/// Brings a sandbox into its wished state while its caller waits. The work continues if the caller
/// goes away; failures are retried by the task that follows the rows.
pub(crate) async fn reconcile(control: &Control, id: &ResourceId) {
    let (of, id) = (control.clone(), id.clone());
    let whole = async move { reconcile::reconcile(&of, &id).await };
    match run_to_end(whole).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "a sandbox is brought into its state later"),
        Err(error) => tracing::error!(%error, "bringing a sandbox into its state was interrupted"),
    }
}

/// Makes the instance of a sandbox follow its row while the caller who changed it waits. After a
/// failure it is retried in the background.
pub(crate) async fn obey(control: &Control, id: &ResourceId) -> Result<(), Error> {
    let (of, row) = (control.clone(), id.clone());
    let done = run_to_end(async move { reconcile::reconcile(&of, &row).await }).await;
    let done = done.unwrap_or_else(|interrupted| Err(Error::Egress(interrupted.to_string())));
    if done.is_err() {
        soon::reconcile(control, KindName::Sandbox, id.clone());
    }
    done
}
