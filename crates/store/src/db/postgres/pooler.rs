//! Refuses a pooler that gives each transaction whatever connection is free.
//!
//! Settings and prepared statements belong to a connection, so with such a pooler they would be
//! those of others, or missing. And it would go on with another database server after a failover
//! without anybody noticing, although revisions have to leap then (see the module `feed`).

use super::link::{Connector, Link};
use crate::Error;
use crate::db::access::Access;

/// Two connections that are open at the same time are never served by the same process, unless it
/// is lent to one after the other.
pub(super) fn refuse(connector: &mut Connector, first: &mut Link) -> Result<(), Error> {
    let process = process_of(first)?;
    // If there is no second one, for example because there may be no more of them, nothing is known.
    let Ok(mut second) = connector.connect() else { return Ok(()) };
    if process_of(&mut second)? != process {
        return Ok(());
    }
    Err(Error::Unusable(
        "store.url leads to a pooler that gives each transaction another connection: name PostgreSQL itself, or let the pooler give each client a connection of its own (`pool_mode = session` of PgBouncer)".into(),
    ))
}

fn process_of(link: &mut Link) -> Result<i64, Error> {
    link.begin(Access::Read);
    let found = link.query("the database", "SELECT pg_backend_pid()::bigint", &[], usize::MAX);
    link.rollback()?;
    let row = found?.rows.into_iter().next();
    row.ok_or_else(|| Error::corrupt("the database", "pg_backend_pid", "no row"))?.int(0)
}
