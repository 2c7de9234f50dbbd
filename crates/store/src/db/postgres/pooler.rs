//! Refuses a pooler that gives each transaction whatever connection is free.
//!
//! Settings and prepared statements belong to a connection, so with such a pooler they would be
//! those of others, or missing. And it would go on with another database server after a failover
//! without anybody noticing, although revisions have to leap then (see the module `feed`).

use super::link::{Connector, Link};
use crate::Error;

/// Two connections that are open at the same time are never served by the same process, unless it
/// is lent to one after the other.
pub(super) fn refuse(connector: &mut Connector, first: &Link) -> Result<(), Error> {
    let process = first.process()?;
    // If there is no second one, for example because there may be no more of them, nothing is known.
    let Ok(second) = connector.connect() else { return Ok(()) };
    if second.process()? != process {
        return Ok(());
    }
    Err(Error::Unusable(
        "store.url leads to a pooler that gives each transaction another connection: name PostgreSQL itself, or let the pooler give each client a connection of its own (`pool_mode = session` of PgBouncer)".into(),
    ))
}
