//! Keeping the meter's sums up to date, and metrics about that. These metrics never have a tenant's
//! name.

use crate::control::Control;
use meter::Taken;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Counts facts that were taken in; called after the commit. Facts that contradict a known one are
/// logged, because somebody must look into them.
pub fn count(taken: &Taken) {
    for (outcome, number) in [
        ("new", taken.new),
        ("duplicate", taken.duplicates),
        ("conflict", taken.conflicts.len()),
        ("refused", taken.refused.len()),
    ] {
        metrics::counter!("holm_usage_facts_total", "outcome" => outcome).increment(number as u64);
    }
    for id in &taken.conflicts {
        tracing::error!(
            id,
            "a fact of usage came again with another content; the first one stands"
        );
    }
    for id in &taken.refused {
        tracing::error!(
            id,
            "a fact of usage has an impossible time and was not kept; look at the clock of its machine"
        );
    }
}

/// Moves usage of running things into completed hours, packs these, and removes facts that belong
/// to nobody, until `ending`.
pub(super) async fn run(control: &Control, ending: &CancellationToken) {
    let settings = &control.settings.bill;
    put_in_order(control).await;
    let mut since_packed = Duration::ZERO;
    while ending.run_until_cancelled(tokio::time::sleep(settings.roll_every)).await.is_some() {
        match meter::roll(&control.store, control.world.now()).await {
            Ok(_) => metrics::gauge!("holm_usage_rolled_at_seconds")
                .set(control.world.now().seconds() as f64),
            Err(error) => {
                tracing::error!(%error, "usage could not be moved into its hours; it is tried again")
            }
        }
        since_packed += settings.roll_every;
        if since_packed >= settings.pack_every {
            since_packed = Duration::ZERO;
            if let Err(error) = meter::pack(&control.store, control.world.now()).await {
                tracing::error!(%error, "hours of usage could not be packed; it is tried again");
            }
            if let Err(error) = meter::remove_unowned(&control.store, control.world.now()).await {
                tracing::error!(%error, "facts that belong to nobody could not be removed; it is tried again");
            }
        }
    }
}

/// Ends the usage of what earlier releases went on to bill after a clock was set back. What fails is
/// done at the next start.
async fn put_in_order(control: &Control) {
    match meter::put_in_order(&control.store).await {
        Ok(0) => {}
        Ok(number) => tracing::warn!(
            number,
            "usage of stored things went on after they had changed or were deleted, because a clock was set back; it is corrected"
        ),
        Err(error) => {
            tracing::error!(%error, "usage could not be put in order; it is tried again at the next start")
        }
    }
}
