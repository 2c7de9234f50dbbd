//! People, with their addresses and passwords.

use super::{Subject, announce, api_keys, codes, devices, grants, sessions};
use crate::feed::Act;
use crate::{Error, Row, Tx, params};
use types::Timestamp;
use types::ids::UserId;

/// Whether an email address was shown to belong to the person who gave it. Only a proven address
/// counts as its owner's: invitations and rights that name an address are not for whoever wrote it
/// down first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// Somebody joined with the link of an invitation to this address, which the inviter has as
    /// well.
    Claimed,
    /// A provider vouched for the address, or the operator set it up.
    Proven,
}

#[derive(Debug, Clone)]
pub struct User {
    pub id: UserId,
    /// Address in lower case; see [`normal_email`].
    pub email: String,
    pub given_name: String,
    pub family_name: String,
    pub address: Address,
    pub created_at: Timestamp,
}

const COLUMNS: &str = "id, email, given_name, family_name, email_verified, created_at";

/// Returns the form in which addresses are stored and compared.
pub fn normal_email(email: &str) -> String {
    email.trim().to_lowercase()
}

/// Reads the columns from `at` on, so that joins can use it too.
pub(super) fn read(row: &Row, at: usize) -> Result<User, Error> {
    Ok(User {
        id: UserId::known(row.text(at)?),
        email: row.text(at + 1)?,
        given_name: row.text(at + 2)?,
        family_name: row.text(at + 3)?,
        address: if row.flag(at + 4)? { Address::Proven } else { Address::Claimed },
        created_at: row.time(at + 5)?,
    })
}

impl User {
    pub fn is_proven(&self) -> bool {
        self.address == Address::Proven
    }
}

/// Inserts a person. `password` is a PHC string.
pub fn create(tx: &mut Tx<'_>, user: &User, password: Option<&str>) -> Result<(), Error> {
    let sql = "INSERT INTO users (id, email, given_name, family_name, email_verified, created_at, password)
               VALUES ($1, $2, $3, $4, $5, $6, $7)";
    tx.execute(
        sql,
        params![
            &user.id,
            user.email.as_str(),
            user.given_name.as_str(),
            user.family_name.as_str(),
            user.address == Address::Proven,
            user.created_at,
            password
        ],
    )?;
    announce(tx, None, "user", user.id.as_str(), Act::Created, &user.email)
}

pub fn find(tx: &mut Tx<'_>, id: &UserId) -> Result<Option<User>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM users WHERE id = $1");
    tx.find("users", &sql, params![id])?.map(|row| read(&row, 0)).transpose()
}

pub fn find_by_email(tx: &mut Tx<'_>, email: &str) -> Result<Option<User>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM users WHERE email = $1");
    tx.find("users", &sql, params![normal_email(email)])?.map(|row| read(&row, 0)).transpose()
}

/// Returns the PHC string of a person's password, if one is set.
pub fn password(tx: &mut Tx<'_>, id: &UserId) -> Result<Option<String>, Error> {
    match tx.find("users", "SELECT password FROM users WHERE id = $1", params![id])? {
        Some(row) => row.opt_text(0),
        None => Ok(None),
    }
}

/// Sets a person's password, a PHC string.
pub fn set_password(tx: &mut Tx<'_>, id: &UserId, password: &str, by: &str) -> Result<bool, Error> {
    let done =
        tx.execute("UPDATE users SET password = $2 WHERE id = $1", params![id, password])? == 1;
    if done {
        announce(tx, None, "user", id.as_str(), Act::Updated, by)?;
    }
    Ok(done)
}

/// Hands an account whose address was only claimed to the person who proved to own it. All earlier
/// ways to sign in end, since the address may have been claimed by somebody else.
pub fn prove_address(tx: &mut Tx<'_>, id: &UserId) -> Result<(), Error> {
    let sql = "UPDATE users SET email_verified = 1, password = NULL WHERE id = $1";
    tx.execute(sql, params![id])?;
    end_credentials(tx, id)?;
    announce(tx, None, "user", id.as_str(), Act::Updated, id.as_str())
}

/// Ends a person's sessions and keys, and the access of programs.
pub fn end_credentials(tx: &mut Tx<'_>, id: &UserId) -> Result<(), Error> {
    end_sign_ins(tx, id)?;
    api_keys::delete_of_subject(tx, &Subject::User(id.clone()))
}

/// Ends a person's sessions and the access of programs, also of those that have not fetched theirs
/// yet. Keys stay.
pub fn end_sign_ins(tx: &mut Tx<'_>, id: &UserId) -> Result<(), Error> {
    sessions::delete_of_user(tx, id)?;
    codes::delete_of_user(tx, id)?;
    devices::delete_of_user(tx, id)?;
    grants::delete_of_subject(tx, &Subject::User(id.clone()))
}
