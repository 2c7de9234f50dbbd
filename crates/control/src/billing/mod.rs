//! What usage costs and what may be spent: price books, budgets, and the refusal of new work beyond
//! a hard limit.
//!
//! Budgets are compared with the same numbers that the metrics interface returns ([`spent`]).
//! Checking a budget decides ([`verdict`]), and then writes the decision in one transaction
//! together with the webhook calls that report it. So, whatever interrupts it, each threshold is
//! reported once.

pub mod budgets;
mod notify;
pub mod prices;
mod upkeep;
mod verdict;
mod watch;

pub use notify::{alert, seal_context};
pub use upkeep::count;
pub use watch::look_at_budgets;
pub use watch::{Found, judge, look};

use crate::context::Context;
use crate::control::Control;
use crate::error::{Absent, Error};
use crate::settings::Bill;
use auth::Identity;
use meter::{Money, Price, PriceBook, Window};
use store::budgets::{self as budget_rows, Budget};
use store::{Tx, prices as price_rows};
use tokio_util::sync::CancellationToken;
use types::Timestamp;
use types::ids::AccountId;
use types::usage::Dimension;

/// Compares budgets with spending and keeps the meter's sums up to date, until `ending`. Several
/// servers of one database may do so at the same time.
pub async fn run(control: Control, ending: CancellationToken) {
    tokio::join!(watch::run(&control, &ending), upkeep::run(&control, &ending));
}

/// Checks that the caller belongs to the account. An account of others does not exist for the
/// caller.
pub fn account(person: &Identity, id: &str) -> Result<AccountId, Error> {
    let account = AccountId::known(id);
    let within = person.memberships.iter().any(|membership| membership.account == account);
    match within || person.administers(&account) {
        true => Ok(account),
        false => Err(Absent::Account.into()),
    }
}

/// Like [`account`], for what only admins of the account may do.
pub fn administered(person: &Identity, id: &str) -> Result<AccountId, Error> {
    let account = account(person, id)?;
    match person.administers(&account) {
        true => Ok(account),
        false => Err(auth::Denied::NotAccountAdmin.into()),
    }
}

/// Stores the prices from the settings if the installation has none yet.
pub fn seed(tx: &mut Tx<'_>, settings: &Bill) -> Result<(), store::Error> {
    if price_rows::seed(tx, &settings.first_prices)? {
        tracing::info!(
            "the prices of the settings are in use; change them with PUT /accounts/{{accountId}}/prices"
        );
    }
    Ok(())
}

/// Returns the prices of an account, ready for the meter.
pub fn book(tx: &mut Tx<'_>, account: &AccountId) -> Result<PriceBook, Error> {
    let mut book = PriceBook::new();
    for version in price_rows::list(tx, account)? {
        for (dimension, price) in &version.prices {
            let parsed = Dimension::parse(dimension).zip(price.parse::<Price>().ok());
            let (dimension, price) = parsed.ok_or_else(|| no_amount("prices", dimension))?;
            book.set(dimension, version.valid_from, price);
        }
    }
    Ok(book)
}

/// Returns the calendar month of `now`, and what was spent in it so far within the budget's scope.
fn spent(tx: &mut Tx<'_>, budget: &Budget, now: Timestamp) -> Result<(Window, Money), Error> {
    let (start, end) = now.month();
    let (window, book) = (Window { start, end }, book(tx, &budget.account)?);
    let spent = meter::spent(tx, &budget.account, budget.workspace.as_deref(), window, &book, now)?;
    Ok((window, spent))
}

/// Refuses new work in a workspace whose budget is spent. Must be called inside the transaction
/// that creates the work.
pub(crate) fn allow(context: &Context, tx: &mut Tx<'_>) -> Result<(), Error> {
    let (member, now) = (&context.member, context.world().now());
    match budget_rows::exhausted(tx, &member.account, &member.workspace_name, now)? {
        None => Ok(()),
        Some(budget) => Err(Error::Spent { budget }),
    }
}

/// The error for a stored amount that this program cannot have written.
fn no_amount(table: &'static str, name: &str) -> Error {
    Error::Store(store::Error::corrupt(table, name, "its amount is no number"))
}
