//! Whether standbys would survive a loss of the database server, for its administrators.

use super::encoding::require_utf8;
use super::link::{Connector, Link};
use super::pooler;
use crate::db::{Settings, Target};
use crate::{Error, Row};

/// The standbys of the database server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// No standby is connected.
    None,
    /// A commit returns only after a standby has it.
    Synchronous { standbys: i64 },
    /// A commit may return before a standby has it: the latest ones are lost with the server.
    Asynchronous { standbys: i64 },
    /// The server is a standby itself.
    IsStandby,
}

/// Inspects the database server; returns `None` for SQLite. Changes nothing, and does not need our
/// schema. Fails if the database cannot be used as it is.
pub async fn replication(settings: Settings) -> Result<Option<Replication>, Error> {
    let Target::Postgres { url } = settings.target.clone() else { return Ok(None) };
    // The blocking client refuses to run on a thread that serves futures.
    let looked = tokio::task::spawn_blocking(move || look(&url, &settings)).await;
    looked
        .map_err(|error| Error::Unusable(format!("looking at the database ended early: {error}")))?
        .map(Some)
}

fn look(url: &str, settings: &Settings) -> Result<Replication, Error> {
    // Only few users may see which standbys are synchronous; all may see which are connected and
    // how the server is configured.
    let sql = "SELECT count(r.pid), CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END::bigint,
                      current_setting('synchronous_standby_names')
               FROM pg_stat_replication r";
    let mut connector = Connector::new(url, settings)?;
    let mut link = connector.connect()?;
    pooler::refuse(&mut connector, &link)?;
    require_utf8(&mut link)?;
    let found = link.query("pg_stat_replication", sql, &[], usize::MAX)?;
    let row =
        found.rows.first().ok_or_else(|| Error::corrupt("pg_stat_replication", "?", "no row"))?;
    judge(row)
}

/// Refuses a standby, which would refuse the first write with other words.
pub(super) fn require_primary(link: &mut Link) -> Result<(), Error> {
    let sql = "SELECT CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END::bigint";
    let found = link.query("the database", sql, &[], usize::MAX)?;
    let row = found.rows.first();
    match row.ok_or_else(|| Error::corrupt("the database", "?", "no row"))?.int(0)? {
        0 => Ok(()),
        _ => Err(Error::Unusable(
            "store.url leads to a standby, which takes no writes: name the primary, or all servers with target_session_attrs=read-write".into(),
        )),
    }
}

fn judge(row: &Row) -> Result<Replication, Error> {
    let (standbys, in_recovery, names) = (row.int(0)?, row.int(1)? == 1, row.text(2)?);
    Ok(match standbys {
        _ if in_recovery => Replication::IsStandby,
        _ if !names.trim().is_empty() => Replication::Synchronous { standbys },
        0 => Replication::None,
        _ => Replication::Asynchronous { standbys },
    })
}
