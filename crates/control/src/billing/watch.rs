//! The regular check of all budgets.

use super::verdict::{Standing, Verdict, decide};
use super::{no_amount, notify, spent};
use crate::control::Control;
use crate::error::Error;
use crate::workloads::rows;
use meter::{Money, Window};
use store::Tx;
use store::budgets::{self, Budget, Crossing};
use tokio_util::sync::CancellationToken;
use types::Timestamp;
use types::ids::BudgetId;

/// Budgets checked in one transaction.
const BATCH: i64 = 50;

/// What checking a budget found.
pub struct Found {
    pub window: Window,
    pub spent: Money,
    pub told: Vec<Crossing>,
    verdict: Verdict,
}

pub(super) async fn run(control: &Control, ending: &CancellationToken) {
    while ending
        .run_until_cancelled(tokio::time::sleep(control.settings.bill.budget_every))
        .await
        .is_some()
    {
        if let Err(error) = look_at_budgets(control).await {
            tracing::error!(%error, "budgets could not be looked at; they are looked at again");
        }
    }
}

/// Compares all budgets with spending, once.
pub async fn look_at_budgets(control: &Control) -> Result<(), Error> {
    let mut after: Option<BudgetId> = None;
    loop {
        let from = after.take();
        let work = move |tx: &mut Tx<'_>| look_at_some(tx, from.as_ref());
        let (changing, last) = control.store.read(work).await?;
        for budget in changing {
            act(control, budget).await;
        }
        match last {
            Some(last) => after = Some(last),
            None => return Ok(()),
        }
    }
}

/// Returns the budgets of a batch that need a write, and where the next batch begins.
fn look_at_some(
    tx: &mut Tx<'_>,
    after: Option<&BudgetId>,
) -> Result<(Vec<Budget>, Option<BudgetId>), Error> {
    let now = tx.world().now();
    let batch = budgets::all(tx, after, BATCH)?;
    let last = batch.last().filter(|_| batch.len() as i64 == BATCH).map(|budget| budget.id.clone());
    let mut changing = Vec::new();
    for budget in batch {
        match look(tx, &budget, now) {
            Ok(found) if found.is_news(&budget, now) => changing.push(budget),
            Ok(_) => {}
            // A budget that cannot be read must not keep the others from being checked.
            Err(error) if !rows::may_pass(&error) => {
                tracing::error!(budget = budget.id.as_str(), %error, "a budget cannot be looked at");
            }
            Err(error) => return Err(error),
        }
    }
    Ok((changing, last))
}

async fn act(control: &Control, budget: Budget) {
    let (handle, name) = (control.clone(), budget.name.clone());
    let work = move |tx: &mut Tx<'_>| match budgets::lock(tx, &budget.account, &budget.name)? {
        // Its owner may have changed it meanwhile, so it is judged as it is now.
        Some(now) if now.id == budget.id => judge(&handle, tx, &now).map(drop),
        _ => Ok(()),
    };
    if let Err(error) = control.store.write(work).await {
        tracing::error!(%error, budget = name, "a budget could not be judged; it is looked at again");
    }
}

/// Checks a budget, and writes the consequences: whether new work is refused, and webhook calls
/// that report thresholds.
pub fn judge(control: &Control, tx: &mut Tx<'_>, budget: &Budget) -> Result<Found, Error> {
    let now = tx.world().now();
    let mut found = look(tx, budget, now)?;
    for threshold in std::mem::take(&mut found.verdict.void) {
        let void = found.told.iter().position(|crossing| crossing.threshold == threshold);
        if let Some(place) = void {
            budgets::uncross(tx, &budget.id, &found.told.remove(place))?;
        }
    }
    for threshold in std::mem::take(&mut found.verdict.reached) {
        let crossing = Crossing {
            period: found.window.start,
            threshold,
            amount: budget.amount.clone(),
            spent: found.spent.to_string(),
            crossed_at: now,
        };
        if budgets::cross(tx, &budget.id, &crossing)? {
            notify::notify(control, tx, budget, found.window, &crossing)?;
        }
        found.told.push(crossing);
    }
    found.told.sort_by_key(|crossing| crossing.threshold);
    if budget.exhausted_until != found.verdict.exhausted_until {
        budgets::set_exhausted(tx, budget, found.verdict.exhausted_until)?;
    }
    Ok(found)
}

pub fn look(tx: &mut Tx<'_>, budget: &Budget, now: Timestamp) -> Result<Found, Error> {
    let (window, spent) = spent(tx, budget, now)?;
    let told = budgets::crossings(tx, &budget.id, window.start)?;
    let verdict = decide(&Standing {
        amount: budget.amount.parse().map_err(|_| no_amount("budgets", &budget.name))?,
        amount_text: &budget.amount,
        thresholds: &budget.thresholds,
        hard_limit: budget.hard_limit,
        spent,
        period_end: window.end,
        told: &told,
    });
    Ok(Found { window, spent, told, verdict })
}

impl Found {
    pub fn exhausted(&self) -> bool {
        self.verdict.exhausted_until.is_some()
    }

    /// Whether something has to be written.
    fn is_news(&self, budget: &Budget, now: Timestamp) -> bool {
        let refuses = budget.exhausted_until.filter(|until| *until > now);
        !self.verdict.reached.is_empty()
            || !self.verdict.void.is_empty()
            || refuses != self.verdict.exhausted_until
    }
}
