//! Accounts, which pay for workspaces, and their administrators.

use super::announce;
use crate::feed::Act;
use crate::{Error, Row, Tx, params};
use types::Timestamp;
use types::ids::{AccountId, UserId};

#[derive(Debug, Clone)]
pub struct Account {
    pub id: AccountId,
    pub name: String,
    pub plan: String,
    pub created_at: Timestamp,
}

fn read(row: &Row) -> Result<Account, Error> {
    Ok(Account {
        id: AccountId::known(row.text(0)?),
        name: row.text(1)?,
        plan: row.text(2)?,
        created_at: row.time(3)?,
    })
}

pub fn create(tx: &mut Tx<'_>, account: &Account) -> Result<(), Error> {
    let sql = "INSERT INTO accounts (id, name, plan, created_at) VALUES ($1, $2, $3, $4)";
    tx.execute(
        sql,
        params![&account.id, account.name.as_str(), account.plan.as_str(), account.created_at],
    )?;
    Ok(())
}

pub fn find(tx: &mut Tx<'_>, id: &AccountId) -> Result<Option<Account>, Error> {
    let sql = "SELECT id, name, plan, created_at FROM accounts WHERE id = $1";
    tx.find("accounts", sql, params![id])?.as_ref().map(read).transpose()
}

/// Returns the account of something stored, such as a workspace; it cannot be missing.
pub fn get(tx: &mut Tx<'_>, id: &AccountId) -> Result<Account, Error> {
    find(tx, id)?.ok_or_else(|| Error::corrupt("accounts", id.as_str(), "the row is missing"))
}

/// Locks the account until the transaction ends, so that two servers cannot both decide on its
/// admins.
pub fn lock(tx: &mut Tx<'_>, id: &AccountId) -> Result<(), Error> {
    let sql = tx.locking("SELECT id FROM accounts WHERE id = $1").into_owned();
    tx.find("accounts", &sql, params![id])?;
    Ok(())
}

/// Returns true if any account exists; false only before the first start has finished.
pub fn any(tx: &mut Tx<'_>) -> Result<bool, Error> {
    Ok(tx.find("accounts", "SELECT id FROM accounts LIMIT 1", params![])?.is_some())
}

/// Returns the account of the server's operator: the one that the first start created.
pub fn first(tx: &mut Tx<'_>) -> Result<Option<Account>, Error> {
    let sql = "SELECT id, name, plan, created_at FROM accounts ORDER BY created_at, id LIMIT 1";
    tx.find("accounts", sql, params![])?.as_ref().map(read).transpose()
}

/// Lists the accounts that a person administers or belongs to through a workspace.
pub fn list_of_user(tx: &mut Tx<'_>, user: &UserId) -> Result<Vec<Account>, Error> {
    let sql = "SELECT id, name, plan, created_at FROM accounts
               WHERE id IN (SELECT account_id FROM account_admins WHERE user_id = $1)
                  OR id IN (SELECT w.account_id FROM workspaces w JOIN members m ON m.workspace_id = w.id
                            WHERE m.user_id = $1)
               ORDER BY created_at, id";
    tx.query("accounts", sql, params![user])?.iter().map(read).collect()
}

/// Makes a person an administrator of the account. Repeating it is harmless.
pub fn add_admin(
    tx: &mut Tx<'_>,
    account: &AccountId,
    user: &UserId,
    by: &str,
) -> Result<(), Error> {
    let sql =
        "INSERT INTO account_admins (account_id, user_id) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    tx.execute(sql, params![account, user])?;
    announce(tx, None, "account-admin", user.as_str(), Act::Created, by)
}

pub fn remove_admin(
    tx: &mut Tx<'_>,
    account: &AccountId,
    user: &UserId,
    by: &str,
) -> Result<bool, Error> {
    let sql = "DELETE FROM account_admins WHERE account_id = $1 AND user_id = $2";
    let gone = tx.execute(sql, params![account, user])? > 0;
    if gone {
        announce(tx, None, "account-admin", user.as_str(), Act::Deleted, by)?;
    }
    Ok(gone)
}

pub fn admins(tx: &mut Tx<'_>, account: &AccountId) -> Result<Vec<UserId>, Error> {
    let sql = "SELECT user_id FROM account_admins WHERE account_id = $1 ORDER BY user_id";
    tx.query("account_admins", sql, params![account])?
        .iter()
        .map(|row| Ok(UserId::known(row.text(0)?)))
        .collect()
}

/// Lists the accounts that a person administers.
pub fn administered_by(tx: &mut Tx<'_>, user: &UserId) -> Result<Vec<AccountId>, Error> {
    let sql = "SELECT account_id FROM account_admins WHERE user_id = $1 ORDER BY account_id";
    tx.query("account_admins", sql, params![user])?
        .iter()
        .map(|row| Ok(AccountId::known(row.text(0)?)))
        .collect()
}
