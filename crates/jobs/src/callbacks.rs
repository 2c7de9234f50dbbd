//! Callbacks: the report of an execution when it has ended.

use crate::plan::CallAnswer;
use crate::queue::Hooks;
use crate::rules;
use serde_json::{Value, json};
use store::executions::Execution;
use store::{Error, Tx, deliveries, executions};
use types::KindName;
use types::wire::JobExecutionStatus;

/// The status reported if a workload never answered.
const NOT_ANSWERED: u16 = 504;

/// Releases the callbacks of an execution, in the transaction in which it ends.
pub struct Callbacks;

impl Hooks for Callbacks {
    fn ended(&self, tx: &mut Tx<'_>, execution: &Execution) -> Result<(), Error> {
        if deliveries::is_awaited(tx, &execution.id)? {
            let now = tx.world().now();
            let body = match execution.kind {
                KindName::Job => body(execution, now.seconds()),
                _ => answer_body(tx, execution, now.seconds())?,
            };
            deliveries::release(tx, &execution.id, &body)?;
        }
        Ok(())
    }
}

/// Returns the HTTP status that reports an execution: 200 if it succeeded, else 500.
pub fn status_code(execution: &Execution) -> u16 {
    match rules::status(execution) {
        JobExecutionStatus::Succeeded => 200,
        _ => 500,
    }
}

/// Returns the short report of an execution.
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

/// Returns the answer of a workload, or that there was none.
fn answer_body(tx: &mut Tx<'_>, execution: &Execution, seconds: i64) -> Result<String, Error> {
    let unread = |error: serde_json::Error| {
        let why = format!("the answer of a workload cannot be read at column {}", error.column());
        Error::corrupt("executions", execution.id.to_string(), why)
    };
    let kept = executions::answer(tx, &execution.id)?;
    let kept = kept.map(|text| serde_json::from_str::<CallAnswer>(&text).map_err(unread));
    let answer = kept.transpose()?.unwrap_or_else(|| CallAnswer {
        status: NOT_ANSWERED,
        body: String::new(),
        length: 0,
    });
    let body = json!({
        "status_code": answer.status,
        "response_length": answer.length,
        "response_body": answer.body,
        "timestamp": seconds,
    });
    Ok(body.to_string())
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
