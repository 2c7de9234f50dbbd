//! Forward-only steps that bring a database to the present schema.

use crate::{Error, Tx, params};

struct Migration {
    number: i64,
    name: &'static str,
    sql: &'static str,
}

const ALL: &[Migration] = &[
    Migration { number: 1, name: "resources", sql: include_str!("../migrations/0001_resources.sql") },
    Migration { number: 2, name: "identity", sql: include_str!("../migrations/0002_identity.sql") },
    Migration { number: 3, name: "references", sql: include_str!("../migrations/0003_references.sql") },
];

/// Applies what is missing.
pub(crate) fn run(tx: &mut Tx<'_>) -> Result<(), Error> {
    tx.batch("CREATE TABLE IF NOT EXISTS migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)")?;
    for migration in ALL {
        let applied =
            tx.find("migrations", "SELECT number FROM migrations WHERE number = $1", params![migration.number])?;
        if applied.is_some() {
            continue;
        }
        tx.batch(migration.sql)?;
        let now = tx.world().now();
        tx.execute(
            "migrations",
            "INSERT INTO migrations (number, name, applied_at) VALUES ($1, $2, $3)",
            params![migration.number, migration.name, now],
        )?;
    }
    Ok(())
}
