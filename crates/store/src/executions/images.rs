//! Machines that were found not to have the image of an execution, so that they leave its tasks to
//! others.

use super::Execution;
use crate::{Error, Tx, params};

/// Notes that a machine does not have the image of an execution. Returns whether another one may
/// have it.
pub fn missing_at(tx: &mut Tx<'_>, execution: &Execution, machine: &str) -> Result<bool, Error> {
    let values = params![&execution.id, machine];
    let sql = "INSERT INTO images_missing (execution_id, machine) VALUES ($1, $2)
               ON CONFLICT (execution_id, machine) DO NOTHING";
    tx.execute(sql, values)?;
    let sql = format!("SELECT 1 FROM executions WHERE id = $1 AND {}", is_elsewhere("$2"));
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
pub(super) fn is_elsewhere(machine: &str) -> String {
    format!(
        "EXISTS (SELECT 1 FROM holders
             WHERE holders.name <> {machine} AND holders.memory_mb >= executions.memory_mb
                 AND NOT {})",
        is_missing_at("holders.name")
    )
}
