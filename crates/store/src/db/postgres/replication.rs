//! What would be left if the server of the database were lost: for those who look after it.

use super::link::Connector;
use crate::db::{Settings, Target};
use crate::{Error, Row};

/// What stands behind the database's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// No standby is connected.
    None,
    /// Commits wait until a standby has them.
    Synchronous { standbys: i64 },
    /// Commits are answered before a standby has them: the last ones are lost with the server.
    Asynchronous { standbys: i64 },
    /// It is a standby itself.
    IsStandby,
}

/// Looks at the server of the database; `None` where there is none. Changes nothing, and needs no
/// schema of ours.
pub async fn replication(settings: Settings) -> Result<Option<Replication>, Error> {
    let Target::Postgres { url } = settings.target.clone() else { return Ok(None) };
    // The blocking client refuses to run on a thread that serves futures.
    let looked = tokio::task::spawn_blocking(move || look(&url, &settings)).await;
    looked
        .map_err(|error| Error::Unusable(format!("looking at the database ended early: {error}")))?
        .map(Some)
}

fn look(url: &str, settings: &Settings) -> Result<Replication, Error> {
    // Who is synchronous is shown to few users, who is connected and what is configured to all.
    let sql = "SELECT count(r.pid), CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END::bigint,
                      current_setting('synchronous_standby_names')
               FROM pg_stat_replication r";
    let rows = Connector::new(url, settings)?.connect()?.query("pg_stat_replication", sql, &[])?;
    let row = rows.first().ok_or_else(|| Error::corrupt("pg_stat_replication", "?", "no row"))?;
    judge(row)
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
