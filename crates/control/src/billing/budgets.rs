//! Budgets of an account: the rules for what may be wished, and their wire form.

use super::watch::{Found, judge, look};
use super::{alert, seal_context};
use crate::control::Control;
use crate::engine::MASK;
use crate::error::{Absent, Error, Forbidden, Unfit};
use meter::Money;
use store::Tx;
use store::budgets::{self, Webhook};
use store::identity::{accounts, workspaces};
use types::Problems;
use types::ids::{AccountId, BudgetId};
use types::parts::{Sensitive, names};
use types::wire::{Budget, BudgetRequest};

const NAME_MAX: usize = 49;
/// Length of secrets that the server makes; each character has five random bits.
const SECRET_CHARACTERS: usize = 40;

pub fn list(tx: &mut Tx<'_>, account: &AccountId) -> Result<Vec<Budget>, Error> {
    budgets::list(tx, account)?.into_iter().map(|budget| present(tx, budget)).collect()
}

pub fn get(tx: &mut Tx<'_>, account: &AccountId, name: &str) -> Result<Budget, Error> {
    let budget = budgets::find(tx, account, name)?.ok_or_else(|| missing(name))?;
    present(tx, budget)
}

/// Removes a budget, and returns it as it last was.
pub fn remove(tx: &mut Tx<'_>, account: &AccountId, name: &str) -> Result<Budget, Error> {
    let budget = budgets::lock(tx, account, name)?.ok_or_else(|| missing(name))?;
    let id = budget.id.clone();
    let last = present(tx, budget)?;
    budgets::delete(tx, &id)?;
    Ok(last)
}

fn missing(name: &str) -> Error {
    Absent::Budget { name: name.to_owned() }.into()
}

fn present(tx: &mut Tx<'_>, budget: budgets::Budget) -> Result<Budget, Error> {
    let now = tx.world().now();
    let found = look(tx, &budget, now)?;
    Ok(shown(budget, found, None))
}

/// Returns the wire form of a budget. `secret` is one that the server has just made.
fn shown(budget: budgets::Budget, found: Found, secret: Option<String>) -> Budget {
    let exhausted = found.exhausted();
    let masked =
        budget.webhook.as_ref().map(|_| Sensitive(secret.unwrap_or_else(|| MASK.to_owned())));
    Budget {
        name: budget.name,
        amount: budget.amount,
        workspace: budget.workspace,
        thresholds: budget.thresholds,
        hard_limit: budget.hard_limit,
        webhook_url: budget.webhook.map(|webhook| webhook.url),
        webhook_secret: masked,
        period_start: found.window.start,
        period_end: found.window.end,
        spent: found.spent.to_string(),
        exhausted,
        alerts: found.told.iter().map(alert).collect(),
        created_at: budget.created_at,
        created_by: budget.created_by,
        updated_at: budget.updated_at,
        updated_by: budget.updated_by,
    }
}

/// A budget that is being written.
pub struct Draft {
    pub control: Control,
    pub account: AccountId,
    pub name: String,
    pub wish: BudgetRequest,
    /// The name of the person who wishes it.
    pub by: String,
}

impl Draft {
    /// Checks what the schema cannot express.
    pub fn check(&self) -> Result<(), Problems> {
        let (mut problems, wish) = (Problems::default(), &self.wish);
        let named = self.name.len() <= NAME_MAX && names::is_dns_label(&self.name);
        let rule = format!(
            "must have 1 to {NAME_MAX} lower-case letters, digits and hyphens, no hyphen first or last"
        );
        problems.require(named, "budgetName", rule);
        let positive = wish.amount.parse::<Money>().is_ok_and(|amount| amount > Money::ZERO);
        problems.require(
            positive,
            "amount",
            "must be more than 0 US dollars, such as `100` or `99.50`",
        );
        let url = wish.webhook_url.as_deref().filter(|url| !url.is_empty());
        if let Some(Err(rule)) = url.map(names::check_callable) {
            problems.add("webhookUrl", rule);
        }
        if let Some(Sensitive(secret)) = &wish.webhook_secret {
            problems.require(url.is_some(), "webhookSecret", "needs `webhookUrl`");
            let long = secret == MASK || secret.chars().count() >= BudgetRequest::SECRET_MIN;
            let rule = format!(
                "must have at least {} characters, or be absent",
                BudgetRequest::SECRET_MIN
            );
            problems.require(long, "webhookSecret", rule);
        }
        problems.into_result()
    }

    /// Creates the budget, or replaces its wish, and judges it at once.
    pub fn write(&self, tx: &mut Tx<'_>) -> Result<Budget, Error> {
        // The account is locked, so that two requests cannot both create the last budget that is
        // allowed.
        accounts::lock(tx, &self.account)?;
        self.require_workspace(tx)?;
        let old = budgets::lock(tx, &self.account, &self.name)?;
        let is_new = old.is_none();
        let id = old.as_ref().map_or_else(|| BudgetId::new(tx.world()), |old| old.id.clone());
        let (webhook, secret) =
            self.webhook(tx, &id, old.as_ref().and_then(|old| old.webhook.as_ref()))?;
        let budget = self.budget(tx, id, old, webhook);
        if is_new {
            self.require_room(tx)?;
            budgets::insert(tx, &budget)?;
        } else {
            budgets::update(tx, &budget)?;
        }
        let written =
            budgets::find(tx, &self.account, &self.name)?.ok_or_else(|| missing(&self.name))?;
        let found = judge(&self.control, tx, &written)?;
        Ok(shown(written, found, secret))
    }

    fn budget(
        &self,
        tx: &Tx<'_>,
        id: BudgetId,
        old: Option<budgets::Budget>,
        webhook: Option<Webhook>,
    ) -> budgets::Budget {
        let now = tx.world().now();
        let mut thresholds =
            self.wish.thresholds.clone().unwrap_or_else(|| BudgetRequest::THRESHOLDS.to_vec());
        thresholds.sort_unstable();
        thresholds.dedup();
        let made = old.as_ref().map(|old| (old.created_at, old.created_by.clone()));
        let (created_at, created_by) = made.unwrap_or_else(|| (now, self.by.clone()));
        budgets::Budget {
            id,
            account: self.account.clone(),
            name: self.name.clone(),
            workspace: self.wish.workspace.clone().filter(|name| !name.is_empty()),
            amount: self.wish.amount.clone(),
            thresholds,
            hard_limit: self.wish.hard_limit.unwrap_or(false),
            webhook,
            version: old.as_ref().map_or(0, |old| old.version),
            created_at,
            updated_at: now,
            created_by,
            updated_by: self.by.clone(),
            exhausted_until: old.and_then(|old| old.exhausted_until),
        }
    }

    /// Returns the webhook, and its secret in plain text if it was made just now. The secret stays
    /// as long as the receiver does.
    fn webhook(
        &self,
        tx: &Tx<'_>,
        id: &BudgetId,
        old: Option<&Webhook>,
    ) -> Result<(Option<Webhook>, Option<String>), Error> {
        let Some(url) = self.wish.webhook_url.clone().filter(|url| !url.is_empty()) else {
            return Ok((None, None));
        };
        let given = self.wish.webhook_secret.as_ref().map(|Sensitive(secret)| secret.as_str());
        let kept = old.filter(|old| names::receiver(&old.url) == names::receiver(&url));
        let (plain, made) = match (given, kept) {
            (None | Some(MASK), Some(kept)) => {
                return Ok((Some(Webhook { url, secret: kept.secret.clone() }), None));
            }
            (Some(MASK), None) => {
                let why = "is masked, but no value is stored: send the value itself";
                return Err(Problems::one("webhookSecret", why).into());
            }
            (Some(given), _) => (given.to_owned(), None),
            (None, None) => {
                let made = tx.world().random_text(SECRET_CHARACTERS);
                (made.clone(), Some(made))
            }
        };
        let secret = self.control.store.keyring().read().seal(&seal_context(id), &plain)?;
        Ok((Some(Webhook { url, secret }), made))
    }

    /// Checks that the workspace exists: with a misspelt name the budget would never count
    /// anything.
    fn require_workspace(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let Some(name) = self.wish.workspace.as_deref().filter(|name| !name.is_empty()) else {
            return Ok(());
        };
        let found =
            workspaces::find_by_name(tx, name)?.filter(|found| found.account == self.account);
        match found {
            Some(_) => Ok(()),
            None => Err(Unfit::BudgetWorkspace { name: name.to_owned() }.into()),
        }
    }

    fn require_room(&self, tx: &mut Tx<'_>) -> Result<(), Error> {
        let max = self.control.settings.bill.budgets_max;
        match budgets::count(tx, &self.account)? < max {
            true => Ok(()),
            false => Err(Forbidden::ManyBudgets { max }.into()),
        }
    }
}
