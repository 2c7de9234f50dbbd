//! What is told of an execution when it has ended.

use crate::queue::Hooks;
use crate::rules;
use serde_json::{Value, json};
use store::executions::Execution;
use store::{Error, Tx, deliveries};
use types::wire::JobExecutionStatus;

/// Has those told who asked for it, in the transaction in which an execution ends.
pub struct Callbacks;

impl Hooks for Callbacks {
    fn ended(&self, tx: &mut Tx<'_>, execution: &Execution) -> Result<(), Error> {
        if deliveries::is_awaited(tx, &execution.id)? {
            let now = tx.world().now();
            deliveries::release(tx, &execution.id, &body(execution, now.seconds()))?;
        }
        Ok(())
    }
}

/// The status by which an execution is told as an answer: 200 when it succeeded, 500 when it did
/// not.
pub fn status_code(execution: &Execution) -> u16 {
    match rules::status(execution) {
        JobExecutionStatus::Succeeded => 200,
        _ => 500,
    }
}

/// An execution in short.
pub fn report(execution: &Execution) -> Value {
    let counts = &execution.counts;
    json!({
        "id": execution.name,
        "job": execution.job,
        "status": rules::status(execution),
        "stats": {
            "total": execution.total,
            "success": counts.succeeded,
            "failure": counts.failed,
            "running": counts.running,
            "retried": counts.retried,
            "cancelled": counts.cancelled,
        },
    })
}

fn body(execution: &Execution, seconds: i64) -> String {
    let report = report(execution).to_string();
    let body = json!({
        "status_code": status_code(execution),
        "response_length": report.len(),
        "response_body": report,
        "timestamp": seconds,
    });
    body.to_string()
}
