//! Identities and their credentials: accounts, people, workspaces, keys, grants and codes.
//!
//! One module per table. Policy (who may do what) is up to the callers. Every change to something
//! that servers keep in memory is announced in the feed under one of [`KINDS`].

pub mod accounts;
pub mod api_keys;
pub mod clients;
pub mod codes;
pub mod devices;
pub mod grants;
pub mod invitations;
pub mod members;
pub mod service_accounts;
pub mod sessions;
pub mod signing_keys;
mod subject;
pub mod users;
pub mod workspaces;

pub use subject::{Digest, Subject};
pub use types::wire::Role;

use crate::feed::{self, Act, NewChange};
use crate::{Error, Tx, params};
use types::ids::WorkspaceId;

/// Kinds under which changes of identity are announced in the feed.
pub const KINDS: &[&str] = &[
    "account-admin",
    "api-key",
    "grant",
    "invitation",
    "member",
    "oauth-client",
    "service-account",
    "signing-key",
    "user",
    "workspace",
];

/// Records a change for the followers of the feed. `workspace` is `None` if it belongs to none.
///
/// Codes, sessions and refresh tokens are not announced: no server keeps them in memory.
fn announce(
    tx: &mut Tx<'_>,
    workspace: Option<&WorkspaceId>,
    kind: &str,
    id: &str,
    act: Act,
    actor: &str,
) -> Result<(), Error> {
    let nowhere = WorkspaceId::known("");
    let workspace = workspace.unwrap_or(&nowhere);
    feed::record(
        tx,
        NewChange {
            workspace,
            kind,
            resource_id: id,
            parent: "",
            name: id,
            act,
            version: 0,
            actor,
        },
    )
}

const SPENT_CODES_KEPT_S: i64 = 24 * 3600;

/// Deletes what has expired for good; called from time to time.
pub fn sweep(tx: &mut Tx<'_>) -> Result<u64, Error> {
    let now = tx.world().now();
    let mut gone = grants::delete_expired(tx, now)?;
    // Kept for a while after they expire, because a late second use still reveals a theft.
    let sql = "DELETE FROM authorization_codes WHERE expires_at <= $1";
    gone += tx.execute("authorization_codes", sql, params![now.plus_s(-SPENT_CODES_KEPT_S)])?;
    for (table, sql) in [
        ("device_codes", "DELETE FROM device_codes WHERE expires_at <= $1"),
        ("browser_sessions", "DELETE FROM browser_sessions WHERE expires_at <= $1"),
        ("signing_keys", "DELETE FROM signing_keys WHERE retires_at <= $1"),
    ] {
        gone += tx.execute(table, sql, params![now])?;
    }
    Ok(gone)
}
