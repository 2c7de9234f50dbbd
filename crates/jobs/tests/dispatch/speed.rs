//! Measures how many tasks that do nothing go through the queue in a second, each made durable
//! before it begins and after it ends. `cargo test --release -p jobs --test dispatch -- --ignored
//! --nocapture speed`

use super::stage::{Stage, new, settings, world};
use futures_util::future::BoxFuture;
use jobs::{Assignment, Settings, TaskRunner};
use std::sync::Arc;
use std::time::Duration;
use store::executions::Phase;
use tokio::time::Instant;
use types::World;
use types::ids::WorkspaceId;
use types::instance::{AttemptId, Outcome, WorkEnd};

struct Nothing(World);

impl TaskRunner<Assignment> for Nothing {
    fn name(&self) -> &str {
        "here"
    }

    fn run<'a>(&'a self, _: &'a AttemptId, _: Assignment) -> BoxFuture<'a, WorkEnd> {
        let now = self.0.now();
        Box::pin(async move {
            WorkEnd { started_at: Some(now), ended_at: now, outcome: Outcome::SUCCESS }
        })
    }

    fn abandon<'a>(&'a self, _: &'a AttemptId) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn present(&self) -> Vec<AttemptId> {
        Vec::new()
    }
}

#[expect(clippy::print_stdout, reason = "this is what it is for")]
async fn measure(of: &str, stage: Stage, slots: u32, tasks: usize, executions: usize) {
    let settings = Settings {
        slots,
        memory_mb: u32::MAX,
        workspace_share_percent: 100,
        workspace_tasks_max: u32::MAX,
        heartbeat: Duration::from_secs(5),
        ..settings()
    };
    let mut ids = Vec::new();
    for index in 0..executions {
        let mut one = new(&format!("one-{index}"), tasks / executions);
        one.workspace = WorkspaceId::known(format!("wsp_{}", index % 10));
        ids.push(stage.start(one).await);
    }
    let begun = Instant::now();
    let ending = tokio_util::sync::CancellationToken::new();
    let run = jobs::run(
        stage.store.clone(),
        stage.queue(settings),
        Arc::new(Nothing(world())),
        ending.clone(),
    );
    let run = tokio::spawn(run);
    for id in &ids {
        assert_eq!(stage.end(id).await.phase, Phase::Succeeded);
    }
    let rate = tasks as f64 / begun.elapsed().as_secs_f64();
    println!("{of}, {slots} slots, {tasks} tasks of {executions} executions: {rate:.0} tasks/s");
    ending.cancel();
    run.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn tasks_per_second() {
    for (slots, tasks, executions) in [(64, 20_000, 1), (1000, 100_000, 1), (1000, 100_000, 100)] {
        measure("SQLite", Stage::sqlite().await, slots, tasks, executions).await;
    }
    measure("PostgreSQL", Stage::postgres().await, 1000, 20_000, 1).await;
}
