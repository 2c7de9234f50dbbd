//! Accounts, as people see and administer them.

use crate::{Denied, Error, Identity, Subject};
use store::Tx;
pub use store::identity::accounts::Account;
use store::identity::users::User;
use store::identity::{accounts, users, workspaces};
use types::ids::{AccountId, UserId};

/// Lists the accounts that the caller can see, each with whether the caller administers it.
pub fn list(tx: &mut Tx<'_>, who: &Identity) -> Result<Vec<(Account, bool)>, Error> {
    let found = match &who.subject {
        Subject::User(user) => accounts::list_of_user(tx, user)?,
        Subject::ServiceAccount(_) => {
            let ids = who.memberships.iter().map(|membership| &membership.account);
            ids.filter_map(|id| accounts::find(tx, id).transpose()).collect::<Result<_, _>>()?
        }
    };
    Ok(found.into_iter().map(|account| (account.clone(), who.administers(&account.id))).collect())
}

/// Returns an account that the caller can see.
pub fn get(tx: &mut Tx<'_>, who: &Identity, id: &AccountId) -> Result<(Account, bool), Error> {
    let mut found = list(tx, who)?.into_iter();
    found
        .find(|(account, _)| account.id == *id)
        .ok_or_else(|| Error::not_found("account", id.as_str()))
}

/// Lists the workspaces of an account, for its admins.
pub fn workspaces(
    tx: &mut Tx<'_>,
    who: &Identity,
    id: &AccountId,
) -> Result<Vec<workspaces::Workspace>, Error> {
    administer(who, id)?;
    Ok(workspaces::list_of_account(tx, id)?)
}

pub fn admins(tx: &mut Tx<'_>, who: &Identity, id: &AccountId) -> Result<Vec<User>, Error> {
    administer(who, id)?;
    let ids = accounts::admins(tx, id)?;
    Ok(ids.iter().filter_map(|id| users::find(tx, id).transpose()).collect::<Result<_, _>>()?)
}

/// Makes somebody an admin of the account. Repeating it is harmless.
pub fn add_admin(
    tx: &mut Tx<'_>,
    who: &Identity,
    id: &AccountId,
    email: &str,
) -> Result<(), Error> {
    administer(who, id)?;
    let user = users::find_by_email(tx, email)?.ok_or_else(|| Error::not_found("user", email))?;
    if !user.is_proven() && !belongs(tx, id, &user.id)? {
        // Somebody else may have claimed the address.
        return Err(Error::not_found("user", email));
    }
    Ok(accounts::add_admin(tx, id, &user.id, &who.name)?)
}

/// Returns true if somebody is a member of a workspace of the account.
fn belongs(tx: &mut Tx<'_>, account: &AccountId, user: &UserId) -> Result<bool, Error> {
    Ok(workspaces::list_of_user(tx, user)?.iter().any(|workspace| workspace.account == *account))
}

/// Removes an admin of the account, but not the last one.
pub fn remove_admin(
    tx: &mut Tx<'_>,
    who: &Identity,
    id: &AccountId,
    user: &UserId,
) -> Result<(), Error> {
    administer(who, id)?;
    accounts::lock(tx, id)?;
    let admins = accounts::admins(tx, id)?;
    if !admins.contains(user) {
        return Err(Error::not_found("account admin", user.as_str()));
    }
    if admins.len() == 1 {
        return Err(Error::LastAccountAdmin);
    }
    accounts::remove_admin(tx, id, user, &who.name)?;
    Ok(())
}

pub(crate) fn administer(who: &Identity, account: &AccountId) -> Result<(), Denied> {
    if who.administers(account) { Ok(()) } else { Err(Denied::NotAccountAdmin) }
}
