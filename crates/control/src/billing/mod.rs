//! What usage costs and what may be spent: price books, budgets, and the refusal of work beyond a
//! hard limit.
//!
//! Budgets are compared with the very numbers that the metrics interface answers ([`spent`]). A
//! look at a budget decides ([`verdict`]) and then writes in one transaction what it decided, with
//! the calls that tell of it; so whatever interrupts it, each threshold is told of once.

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

/// Compares budgets with what was spent and keeps the meter's sums up with time, until the end
/// begins. Several servers on one database may do it at once.
pub async fn run(control: Control, ending: CancellationToken) {
    tokio::join!(watch::run(&control, &ending), upkeep::run(&control, &ending));
}

/// The caller must belong to the account; a stranger's account does not exist.
pub fn account(person: &Identity, id: &str) -> Result<AccountId, Error> {
    let account = AccountId::known(id);
    let within = person.memberships.iter().any(|membership| membership.account == account);
    match within || person.administers(&account) {
        true => Ok(account),
        false => Err(Absent::Account.into()),
    }
}

/// As [`account`], for what only its admins may do.
pub fn administered(person: &Identity, id: &str) -> Result<AccountId, Error> {
    let account = account(person, id)?;
    match person.administers(&account) {
        true => Ok(account),
        false => Err(auth::Denied::NotAccountAdmin.into()),
    }
}

/// Keeps the prices of the settings, if the installation has none yet.
pub fn seed(tx: &mut Tx<'_>, settings: &Bill) -> Result<(), store::Error> {
    if price_rows::seed(tx, &settings.first_prices)? {
        tracing::info!(
            "the prices of the settings are in use; change them with PUT /accounts/{{accountId}}/prices"
        );
    }
    Ok(())
}

/// The prices of an account, ready for the meter.
pub fn book(tx: &mut Tx<'_>, account: &AccountId) -> Result<PriceBook, Error> {
    let mut book = PriceBook::new();
    for version in price_rows::list(tx, account)? {
        for (dimension, price) in &version.prices {
            let parsed = Dimension::parse(dimension).zip(price.parse::<Price>().ok());
            let (dimension, price) = parsed.ok_or_else(|| impossible("price", dimension))?;
            book.set(dimension, version.valid_from, price);
        }
    }
    Ok(book)
}

/// The calendar month of `now`, and what was spent in it so far of what a budget is about.
fn spent(tx: &mut Tx<'_>, budget: &Budget, now: Timestamp) -> Result<(Window, Money), Error> {
    let (start, end) = now.month();
    let (window, book) = (Window { start, end }, book(tx, &budget.account)?);
    let spent = meter::spent(tx, &budget.account, budget.workspace.as_deref(), window, &book, now)?;
    Ok((window, spent))
}

/// Refuses new work in a workspace whose money is spent. To be asked inside the transaction that
/// makes the work.
pub fn allow(
    tx: &mut Tx<'_>,
    account: &AccountId,
    workspace: &str,
    now: Timestamp,
) -> Result<(), Error> {
    match budget_rows::exhausted(tx, account, workspace, now)? {
        None => Ok(()),
        Some(budget) => Err(Error::Spent { budget }),
    }
}

/// A stored amount that this program cannot have written.
pub fn impossible(what: &str, name: &str) -> Error {
    Error::Store(store::Error::Unusable(format!("the stored {what} `{name}` cannot be read")))
}
