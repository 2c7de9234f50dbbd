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
mod sweep;
pub mod users;
pub mod workspaces;

pub use subject::{Digest, Subject};
pub use sweep::sweep;
pub use types::wire::Role;

use crate::feed::{self, Act, NewChange};
use crate::{Error, Tx};
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
