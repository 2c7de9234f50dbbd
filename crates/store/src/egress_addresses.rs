//! Addresses of the server's pool, and the egress gateways that use them. In the whole server an
//! address has one holder, which loses it together with the row that names it.

use crate::{Error, Tx, params};
use std::collections::HashMap;
use std::net::IpAddr;
use types::Timestamp;
use types::ids::{ResourceId, WorkspaceId};

const TABLE: &str = "egress_addresses";
/// The holder of an address that was given up.
const NOBODY: &str = "";
/// How long a given-up address is kept from other workspaces. Packets from it may still be on their
/// way, and remote servers may still take its user for the previous holder.
const REST_MS: i64 = 60_000;

/// The outcome of a request for an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Address(IpAddr),
    /// All addresses have holders, or were given up too recently.
    NoneFree,
    /// The workspace already has as many as it may have.
    TooMany,
}

/// Takes the first free address of `pool`, if the workspace has fewer than `max`.
pub fn take(
    tx: &mut Tx<'_>,
    (workspace, resource): (&WorkspaceId, &ResourceId),
    max: usize,
    pool: impl Iterator<Item = IpAddr>,
) -> Result<Taken, Error> {
    let now = tx.world().now();
    // Two requests of a workspace at once must not both count the same addresses.
    tx.hold(&format!("egress_addresses/{workspace}"))?;
    let known = known(tx)?;
    let is_its = |known: &&Known| known.workspace == workspace.as_str() && !known.is_nobodys();
    if known.values().filter(is_its).count() >= max {
        return Ok(Taken::TooMany);
    }
    for address in pool {
        let taken = match known.get(&address.to_string()) {
            None => insert(tx, &address, workspace, resource)?,
            Some(known) if known.is_free_for(workspace, now) => {
                take_over(tx, &address, workspace, resource)?
            }
            Some(_) => false,
        };
        if taken {
            return Ok(Taken::Address(address));
        }
    }
    Ok(Taken::NoneFree)
}

struct Known {
    workspace: String,
    resource: String,
    freed_at: Timestamp,
}

impl Known {
    fn is_nobodys(&self) -> bool {
        self.resource == NOBODY
    }

    fn is_free_for(&self, workspace: &WorkspaceId, now: Timestamp) -> bool {
        let rested = self.freed_at.plus_ms(REST_MS) <= now;
        self.is_nobodys() && (rested || self.workspace == workspace.as_str())
    }
}

/// Returns all addresses that were ever given out; there are no more than the pools contain.
fn known(tx: &mut Tx<'_>) -> Result<HashMap<String, Known>, Error> {
    let sql = "SELECT address, workspace_id, resource_id, freed_at FROM egress_addresses";
    let row = |row: &crate::Row| {
        let known =
            Known { workspace: row.text(1)?, resource: row.text(2)?, freed_at: row.time(3)? };
        Ok((row.text(0)?, known))
    };
    tx.query(TABLE, sql, params![])?.iter().map(row).collect()
}

/// Inserts an address. If two do so at once, one waits for the other's transaction and then tries
/// the next address.
fn insert(
    tx: &mut Tx<'_>,
    address: &IpAddr,
    workspace: &WorkspaceId,
    resource: &ResourceId,
) -> Result<bool, Error> {
    let sql = "INSERT INTO egress_addresses (address, workspace_id, resource_id, freed_at)
               VALUES ($1, $2, $3, 0) ON CONFLICT (address) DO NOTHING";
    Ok(tx.execute(sql, params![address.to_string(), workspace, resource])? == 1)
}

fn take_over(
    tx: &mut Tx<'_>,
    address: &IpAddr,
    workspace: &WorkspaceId,
    resource: &ResourceId,
) -> Result<bool, Error> {
    let sql = "UPDATE egress_addresses SET workspace_id = $2, resource_id = $3
               WHERE address = $1 AND resource_id = ''";
    Ok(tx.execute(sql, params![address.to_string(), workspace, resource])? == 1)
}

/// Gives up the address of a resource.
pub(crate) fn give_back(tx: &mut Tx<'_>, resource: &ResourceId) -> Result<(), Error> {
    let now = tx.world().now();
    let sql = "UPDATE egress_addresses SET resource_id = '', freed_at = $2 WHERE resource_id = $1";
    tx.execute(sql, params![resource, now]).map(drop)
}
