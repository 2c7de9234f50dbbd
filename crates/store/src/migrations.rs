//! Forward-only steps that bring a database to the present schema.

use crate::{Error, Tx, params};

struct Migration {
    number: i64,
    name: &'static str,
    sql: &'static str,
}

/// Steps that only SQLite needs, and those that only PostgreSQL needs. The other database records
/// them without running their statements.
const ONLY_SQLITE: [i64; 2] = [14, 28];
const ONLY_POSTGRES: [i64; 1] = [29];

const ALL: &[Migration] = &[
    Migration {
        number: 1,
        name: "resources",
        sql: include_str!("../migrations/0001_resources.sql"),
    },
    Migration { number: 2, name: "identity", sql: include_str!("../migrations/0002_identity.sql") },
    Migration {
        number: 3,
        name: "references",
        sql: include_str!("../migrations/0003_references.sql"),
    },
    Migration { number: 4, name: "firings", sql: include_str!("../migrations/0004_firings.sql") },
    Migration {
        number: 5,
        name: "executions",
        sql: include_str!("../migrations/0005_executions.sql"),
    },
    Migration { number: 6, name: "logs", sql: include_str!("../migrations/0006_logs.sql") },
    Migration { number: 7, name: "hooks", sql: include_str!("../migrations/0007_hooks.sql") },
    Migration { number: 8, name: "runners", sql: include_str!("../migrations/0008_runners.sql") },
    Migration { number: 9, name: "usage", sql: include_str!("../migrations/0009_usage.sql") },
    Migration { number: 10, name: "bill", sql: include_str!("../migrations/0010_bill.sql") },
    Migration { number: 11, name: "history", sql: include_str!("../migrations/0011_history.sql") },
    Migration {
        number: 12,
        name: "edge names",
        sql: include_str!("../migrations/0012_edge_names.sql"),
    },
    Migration {
        number: 13,
        name: "image rights",
        sql: include_str!("../migrations/0013_image_rights.sql"),
    },
    Migration {
        number: 14,
        name: "changes by number",
        sql: include_str!("../migrations/0014_changes_by_number.sql"),
    },
    Migration {
        number: 15,
        name: "logs of workloads",
        sql: include_str!("../migrations/0015_logs_of_workloads.sql"),
    },
    Migration {
        number: 16,
        name: "workload identities",
        sql: include_str!("../migrations/0016_workload_identities.sql"),
    },
    Migration { number: 17, name: "calls", sql: include_str!("../migrations/0017_calls.sql") },
    Migration { number: 18, name: "builds", sql: include_str!("../migrations/0018_builds.sql") },
    Migration { number: 19, name: "slots", sql: include_str!("../migrations/0019_slots.sql") },
    Migration {
        number: 20,
        name: "api key secrets",
        sql: include_str!("../migrations/0020_api_key_secrets.sql"),
    },
    Migration {
        number: 21,
        name: "egress addresses",
        sql: include_str!("../migrations/0021_egress_addresses.sql"),
    },
    Migration { number: 22, name: "models", sql: include_str!("../migrations/0022_models.sql") },
    Migration {
        number: 23,
        name: "api key models",
        sql: include_str!("../migrations/0023_api_key_models.sql"),
    },
    Migration {
        number: 24,
        name: "held grants",
        sql: include_str!("../migrations/0024_held_grants.sql"),
    },
    Migration {
        number: 25,
        name: "identities by workload",
        sql: include_str!("../migrations/0025_identities_by_workload.sql"),
    },
    Migration {
        number: 26,
        name: "image offers",
        sql: include_str!("../migrations/0026_image_offers.sql"),
    },
    Migration {
        number: 27,
        name: "schedules",
        sql: include_str!("../migrations/0027_schedules.sql"),
    },
    Migration {
        number: 28,
        name: "hour totals",
        sql: include_str!("../migrations/0028_hour_totals.sql"),
    },
    Migration {
        number: 29,
        name: "hour totals added",
        sql: include_str!("../migrations/0029_hour_totals_added.sql"),
    },
    Migration {
        number: 30,
        name: "calls by machine",
        sql: include_str!("../migrations/0030_calls_by_machine.sql"),
    },
    Migration {
        number: 31,
        name: "facts by time",
        sql: include_str!("../migrations/0031_facts_by_time.sql"),
    },
    Migration {
        number: 32,
        name: "deleted workspaces",
        sql: include_str!("../migrations/0032_deleted_workspaces.sql"),
    },
    Migration {
        number: 33,
        name: "object blocks",
        sql: include_str!("../migrations/0033_object_blocks.sql"),
    },
    Migration {
        number: 34,
        name: "images missing",
        sql: include_str!("../migrations/0034_images_missing.sql"),
    },
    Migration {
        number: 35,
        name: "resources by kind",
        sql: include_str!("../migrations/0035_resources_by_kind.sql"),
    },
    Migration {
        number: 36,
        name: "unowned lives",
        sql: include_str!("../migrations/0036_unowned_lives.sql"),
    },
];

/// Returns the number of the newest step.
pub(crate) fn newest() -> i64 {
    ALL.last().map_or(0, |migration| migration.number)
}

/// Returns the number of the newest step that a database has.
pub(crate) fn applied(tx: &mut Tx<'_>) -> Result<i64, Error> {
    let sql = "SELECT COALESCE(MAX(number), 0) FROM migrations";
    tx.find("migrations", sql, params![])?.map_or(Ok(0), |row| row.int(0))
}

/// Refuses a database that another release uses, for those who only read beside its server: they
/// must not change its schema, and would misread another one.
pub(crate) fn require_current(tx: &mut Tx<'_>) -> Result<(), Error> {
    match (applied(tx)?, newest()) {
        (theirs, ours) if theirs == ours => Ok(()),
        (theirs, ours) => Err(Error::Unusable(format!(
            "the database has schema {theirs} and this program {ours}: do this with the release that the server runs"
        ))),
    }
}

/// Applies the missing steps. Refuses a database that a newer program has changed.
pub(crate) fn run(tx: &mut Tx<'_>) -> Result<(), Error> {
    tx.batch("CREATE TABLE IF NOT EXISTS migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL, applied_at BIGINT NOT NULL)")?;
    let applied = applied(tx)?;
    if applied > newest() {
        return Err(Error::Unusable(format!(
            "the database has schema {applied} and this program knows {} at most: start the newer release",
            newest()
        )));
    }
    let of_others: &[i64] = if tx.is_sqlite() { &ONLY_POSTGRES } else { &ONLY_SQLITE };
    for migration in ALL.iter().filter(|migration| migration.number > applied) {
        if !of_others.contains(&migration.number) {
            tx.batch(migration.sql)?;
        }
        let now = tx.world().now();
        tx.execute(
            "INSERT INTO migrations (number, name, applied_at) VALUES ($1, $2, $3)",
            params![migration.number, migration.name, now],
        )?;
    }
    Ok(())
}
