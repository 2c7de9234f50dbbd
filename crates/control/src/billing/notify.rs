//! Reporting a reached threshold to a webhook.

use crate::control::Control;
use crate::error::Error;
use crate::json;
use meter::Window;
use store::Tx;
use store::budgets::{Budget, Crossing};
use store::deliveries::{self, NewDelivery};
use types::ids::{BudgetId, WorkspaceId};
use types::parts::Sensitive;
use types::wire::{BudgetAlert, BudgetCall};

/// The kind that deliveries of budgets have in their log.
const KIND: &str = "budget";

/// Enqueues a call of the webhook, which is made if the transaction commits. Calls of an account
/// take turns with those of workspaces.
pub(super) fn notify(
    control: &Control,
    tx: &mut Tx<'_>,
    budget: &Budget,
    window: Window,
    crossing: &Crossing,
) -> Result<(), Error> {
    tracing::info!(
        budget = budget.id.as_str(),
        threshold = crossing.threshold,
        "a threshold of a budget was reached"
    );
    let Some(webhook) = &budget.webhook else { return Ok(()) };
    let secret = control.store.keyring().read().open(&seal_context(&budget.id), &webhook.secret)?;
    let call = BudgetCall {
        account: budget.account.to_string(),
        budget: budget.name.clone(),
        workspace: budget.workspace.clone(),
        period_start: window.start,
        period_end: window.end,
        alert: alert(crossing),
        hard_limit: budget.hard_limit,
    };
    let new = NewDelivery {
        workspace: WorkspaceId::known(budget.account.as_str()),
        kind: KIND.into(),
        name: budget.name.clone(),
        execution: None,
        url: webhook.url.clone(),
        secret: Some(Sensitive(secret)),
        attempts_max: None,
    };
    deliveries::enqueue(tx, &new, &json::text(&call))?;
    Ok(())
}

/// Returns the context that the sealed secret of a budget is bound to.
pub fn seal_context(budget: &BudgetId) -> String {
    format!("budgets/{budget}")
}

pub fn alert(crossing: &Crossing) -> BudgetAlert {
    BudgetAlert {
        threshold: crossing.threshold,
        amount: crossing.amount.clone(),
        spent: crossing.spent.clone(),
        reached_at: crossing.crossed_at,
    }
}
