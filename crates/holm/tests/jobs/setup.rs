//! Jobs whose tasks run a shell command.

use crate::place::{Client, TASK, eventually};
use serde_json::{Value, json};

/// Megabytes of memory for a task, unless a test says otherwise.
pub(crate) const MEMORY: i64 = 128;

impl Client {
    /// Creates a job. `runtime` overrides the defaults.
    pub(crate) fn job(&self, name: &str, command: &str, runtime: &Value) {
        let mut all = json!({"image": TASK, "memory": MEMORY, "generation": "mk2", "maxRetries": 0, "timeout": 60,
            "envs": [{"name": "COMMAND", "value": command}, {"name": "PATH", "value": "/bin"}]});
        all.as_object_mut().unwrap().extend(runtime.as_object().cloned().unwrap_or_default());
        let job = json!({"metadata": {"name": name}, "spec": {"runtime": all}});
        self.done("POST", "/v0/jobs", Some(&job));
    }

    /// Starts an execution, and returns its id.
    pub(crate) fn execute(&self, job: &str, tasks: &[Value]) -> String {
        let answer = self.done(
            "POST",
            &format!("/v0/jobs/{job}/executions"),
            Some(&json!({"tasks": tasks})),
        );
        // The answer omits the tasks if one of them is empty.
        let told = tasks.iter().all(|task| *task != json!({})).then_some(tasks.len());
        assert_eq!(answer["tasks"].as_array().map(Vec::len), told, "{answer}");
        answer["executionId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn execution(&self, job: &str, id: &str) -> Value {
        self.done("GET", &format!("/v0/jobs/{job}/executions/{id}"), None)
    }

    /// Returns the execution once it has ended.
    pub(crate) fn ended(&self, job: &str, id: &str) -> Value {
        let mut execution = Value::Null;
        eventually("the execution ends", || {
            execution = self.execution(job, id);
            ["succeeded", "failed", "cancelled"].contains(&status(&execution))
        });
        execution
    }

    /// Returns all tasks of an execution, by index.
    pub(crate) fn tasks(&self, job: &str, id: &str) -> Vec<Value> {
        let page =
            self.done("GET", &format!("/v0/jobs/{job}/executions/{id}/tasks?limit=200"), None);
        assert_eq!(page["meta"]["hasMore"], false, "more than this helper reads");
        let tasks = page["data"].as_array().unwrap().clone();
        for (index, task) in tasks.iter().enumerate() {
            assert_eq!(task["metadata"]["name"], index.to_string(), "{task}");
        }
        tasks
    }

    /// Returns the output of a job's tasks, oldest first. The server's count of lines must match.
    pub(crate) fn lines(&self, job: &str, filter: &str) -> Vec<String> {
        let path = format!(
            "/v0/observability/logs?resourceType=jobs&workloadIds={job}&limit=1000&{filter}"
        );
        let answer = self.done("GET", &path, None);
        let lines = answer[job]["logs"].as_array().unwrap();
        assert_eq!(answer[job]["totalCount"], lines.len(), "{answer}");
        lines.iter().rev().map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }
}

pub(crate) fn status(of: &Value) -> &str {
    of["status"].as_str().unwrap_or_default()
}

/// Returns the text of a task's conditions in lower case.
pub(crate) fn conditions(task: &Value) -> String {
    task["conditions"].to_string().to_lowercase()
}

/// Returns this many tasks, each with its number as `--n`.
pub(crate) fn numbered(count: usize) -> Vec<Value> {
    (0..count).map(|n| json!({"n": n})).collect()
}
