//! A job on a Holm, as its users start and follow it.

use crate::cloud::Client;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use types::Timestamp;

const MEMORY_MB: u32 = 128;
/// Tasks that run at once, if the machine has that many slots.
const PARALLEL: u32 = 100;
/// Far more than ten thousand tasks take.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Seldom enough that answering does not take the processor from the tasks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(crate) struct Job {
    path: String,
}

/// How long an execution of one task took.
pub(crate) struct Times {
    pub(crate) until_started: Duration,
    pub(crate) until_ended: Duration,
}

impl Job {
    pub(crate) async fn make(client: &mut Client, name: &str, image: &str) -> anyhow::Result<Self> {
        let runtime = json!({"image": image, "memory": MEMORY_MB, "maxRetries": 0, "maxConcurrentTasks": PARALLEL});
        let wish = json!({"metadata": {"name": name}, "spec": {"runtime": runtime}});
        client.ask("POST", "/v0/jobs", &wish).await?;
        Ok(Self { path: format!("/v0/jobs/{name}/executions") })
    }

    /// Starts an execution and returns its id.
    pub(crate) async fn start(
        &self,
        client: &mut Client,
        tasks: &[Value],
    ) -> anyhow::Result<String> {
        let started = client.ask("POST", &self.path, &json!({"tasks": tasks})).await?;
        Ok(started["executionId"].as_str().context("an execution has an id")?.to_owned())
    }

    /// Runs `tasks` tasks to their end. Each of them must succeed at its first try.
    pub(crate) async fn run(&self, client: &mut Client, tasks: usize) -> anyhow::Result<()> {
        let id = self.start(client, &vec![json!({}); tasks]).await?;
        let ended = self.ended(client, &id).await?;
        let stats = &ended["stats"];
        ensure!(
            ended["status"] == "succeeded" && stats["success"] == tasks,
            "{}: {stats}",
            ended["status"]
        );
        ensure!(
            stats["retried"].as_i64().unwrap_or_default() == 0,
            "some were tried again: {stats}"
        );
        Ok(())
    }

    pub(crate) async fn times(&self, client: &mut Client, id: &str) -> anyhow::Result<Times> {
        let ended = self.ended(client, id).await?;
        ensure!(ended["status"] == "succeeded", "{ended}");
        let page = client.ask("GET", &format!("{}/{id}/tasks", self.path), &Value::Null).await?;
        let accepted = time(&ended["metadata"]["createdAt"])?;
        let started = time(&page["data"][0]["metadata"]["startedAt"])?;
        let over = time(&ended["metadata"]["completedAt"])?;
        let span =
            |until: Timestamp| u64::try_from(until.since(accepted)).map(Duration::from_millis);
        Ok(Times { until_started: span(started)?, until_ended: span(over)? })
    }

    async fn ended(&self, client: &mut Client, id: &str) -> anyhow::Result<Value> {
        let (path, deadline) = (format!("{}/{id}", self.path), Instant::now() + TIMEOUT);
        loop {
            let seen = client.ask("GET", &path, &Value::Null).await?;
            if ["succeeded", "failed", "cancelled"].iter().any(|over| seen["status"] == *over) {
                return Ok(seen);
            }
            ensure!(Instant::now() < deadline, "the execution goes on: {}", seen["stats"]);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn time(value: &Value) -> anyhow::Result<Timestamp> {
    Ok(value.as_str().context("a time is missing")?.parse()?)
}
