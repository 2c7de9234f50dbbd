//! The status of an execution, as read from the API.

use crate::exit::Exit;
use serde_json::Value;

/// Progress of an execution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::commands) struct Status {
    pub(super) word: String,
    pub(super) total: u64,
    pub(super) running: u64,
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) retried: u64,
}

impl Status {
    pub(in crate::commands) fn read(execution: &Value) -> Self {
        let count = |name: &str| {
            execution.pointer(&format!("/stats/{name}")).and_then(Value::as_u64).unwrap_or(0)
        };
        Self {
            word: execution.get("status").and_then(Value::as_str).unwrap_or("queued").to_owned(),
            total: count("total"),
            running: count("running"),
            succeeded: count("success"),
            failed: count("failure"),
            cancelled: count("cancelled"),
            retried: count("retried"),
        }
    }

    /// Returns the number of tasks that have finally ended.
    pub(super) fn ended(&self) -> u64 {
        self.succeeded + self.failed + self.cancelled
    }

    /// Returns the exit code once the execution has ended.
    pub(in crate::commands) fn exit(&self) -> Option<Exit> {
        match self.word.as_str() {
            "succeeded" | "completed" => Some(Exit::Success),
            "failed" | "timeout" => Some(Exit::Failed),
            "cancelled" => Some(Exit::Cancelled),
            _ => None,
        }
    }

    /// Lists all counts but that of successes, which is shown elsewhere.
    pub(super) fn counts(&self) -> String {
        let counts = [
            (self.running, "running"),
            (self.failed, "failed"),
            (self.cancelled, "cancelled"),
            (self.retried, "retried"),
        ];
        let told: Vec<_> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        told.join(", ")
    }

    /// Returns everything in one line, such as `running: 3 of 20 succeeded, 4 running`.
    pub(super) fn line(&self) -> String {
        let counts = self.counts();
        let comma = if counts.is_empty() { "" } else { ", " };
        format!("{}: {} of {} succeeded{comma}{counts}", self.word, self.succeeded, self.total)
    }
}

pub(super) fn task_has_ended(task: &Value) -> bool {
    let status = task.get("status").and_then(Value::as_str);
    status.is_some_and(|status| ["succeeded", "failed", "cancelled"].contains(&status))
}

/// A failed task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) task: String,
    pub(super) why: String,
}

impl Failure {
    /// Reads the failure of a task; `None` if it did not fail.
    pub(super) fn read(task: &Value) -> Option<Self> {
        if task.get("status")?.as_str()? != "failed" {
            return None;
        }
        let conditions = task.get("conditions").and_then(Value::as_array).into_iter().flatten();
        let told = |condition: &Value| {
            let text = |name: &str| {
                condition.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
            };
            text("message").or_else(|| text("reason")).map(str::to_owned)
        };
        Some(Self {
            task: task.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("?").to_owned(),
            why: conditions.filter_map(told).next_back().unwrap_or_else(|| "failed".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_execution_is_told_in_one_line() {
        let stats = json!({"total": 20, "success": 3, "running": 4, "failure": 1, "retried": 2});
        let status = Status::read(&json!({"status": "running", "stats": stats}));
        assert_eq!(status.line(), "running: 3 of 20 succeeded, 4 running, 1 failed, 2 retried");
        assert_eq!((status.ended(), status.exit()), (4, None));
        assert_eq!(Status::read(&json!({"status": "queued"})).line(), "queued: 0 of 0 succeeded");
    }

    #[test]
    fn an_end_has_an_exit_code() {
        let exit = |word: &str| Status::read(&json!({"status": word})).exit();
        assert_eq!(exit("succeeded"), Some(Exit::Success));
        assert_eq!((exit("failed"), exit("timeout")), (Some(Exit::Failed), Some(Exit::Failed)));
        assert_eq!((exit("cancelled"), exit("cancelling")), (Some(Exit::Cancelled), None));
    }

    #[test]
    fn only_a_task_that_failed_is_a_failure() {
        let conditions =
            json!([{"reason": "Started"}, {"reason": "Exited", "message": "exit code 3"}]);
        let task = json!({"status": "failed", "metadata": {"name": "7"}, "conditions": conditions});
        assert_eq!(
            Failure::read(&task),
            Some(Failure { task: "7".into(), why: "exit code 3".into() })
        );
        assert_eq!(Failure::read(&json!({"status": "running", "metadata": {"name": "7"}})), None);
        assert_eq!(Failure::read(&json!({})), None);
    }
}
