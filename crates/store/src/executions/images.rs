//! Machines that were found not to have the image of an execution, so that they leave its tasks to
//! others.

use super::Execution;
use crate::usage::ANY_BOOT;
use crate::{Error, Tx, params};
use types::Timestamp;

/// Notes that a machine does not have the image of an execution. Returns whether another one may
/// have it, also one without a lease that was up at `abandoned` or later.
pub fn missing_at(
    tx: &mut Tx<'_>,
    execution: &Execution,
    machine: &str,
    abandoned: Timestamp,
) -> Result<bool, Error> {
    let sql = "INSERT INTO images_missing (execution_id, machine) VALUES ($1, $2)
               ON CONFLICT (execution_id, machine) DO NOTHING";
    tx.execute(sql, params![&execution.id, machine])?;
    let elsewhere = is_elsewhere("$2", "$3");
    let sql = format!("SELECT 1 FROM executions WHERE id = $1 AND {elsewhere}");
    let values = params![&execution.id, machine, abandoned];
    Ok(tx.find("images_missing", &sql, values)?.is_some())
}

/// Returns the SQL condition that a machine was found not to have the image of an execution.
pub(super) fn is_missing_at(machine: &str) -> String {
    format!(
        "EXISTS (SELECT 1 FROM images_missing AS missing
             WHERE missing.execution_id = executions.id AND missing.machine = {machine})"
    )
}

/// Returns the SQL condition that some other machine could run an execution and may have its image.
/// One that was up at `abandoned` or later is waited for: it may come back, and nobody knows how
/// much memory it has.
pub(super) fn is_elsewhere(machine: &str, abandoned: &str) -> String {
    format!(
        "(EXISTS (SELECT 1 FROM holders
             WHERE holders.name <> {machine} AND holders.memory_mb >= executions.memory_mb
                 AND NOT {})
          OR EXISTS (SELECT 1 FROM usage_proofs AS seen
             WHERE seen.boot = {ANY_BOOT} AND seen.at >= {abandoned} AND seen.machine <> {machine}
                 AND NOT EXISTS (SELECT 1 FROM holders WHERE holders.name = seen.machine)
                 AND NOT {}))",
        is_missing_at("holders.name"),
        is_missing_at("seen.machine")
    )
}
