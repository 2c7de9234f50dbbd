//! Waiting for an execution to end, with a bar on a terminal and lines elsewhere.

use super::status::{self, Failure, Status};
use crate::client::Client;
use crate::commands::progress::Tasks;
use crate::error::Error;
use crate::exit::Exit;
use crate::term::{self, Style};
use serde_json::Value;
use std::collections::HashSet;
use std::time::Duration;

const POLL: Duration = Duration::from_millis(500);
/// Most failures that are shown one by one.
const FAILURES_TOLD: usize = 20;
/// Most pages of tasks that are read in one round.
const TASK_PAGES: usize = 10;

/// The execution to follow.
pub(super) struct Execution {
    pub(super) job: String,
    pub(super) id: String,
    pub(super) path: String,
}

pub(super) async fn to_the_end(execution: &Execution, client: &mut Client) -> Result<Exit, Error> {
    let watching = watch(execution, client);
    tokio::select! {
        exit = watching => exit,
        // If signals cannot be listened for, watching goes on; only a real signal ends it.
        Ok(()) = tokio::signal::ctrl_c() => {
            let Execution { job, id, .. } = execution;
            term::note(format!(
                "the execution goes on; see `holm get job {job} executions {id}`, end it with `holm cancel job {job} {id}`"
            ));
            Ok(Exit::Interrupted)
        }
    }
}

async fn watch(execution: &Execution, client: &mut Client) -> Result<Exit, Error> {
    let bar = Tasks::new();
    let mut told = Told::default();
    loop {
        let status = Status::read(&client.get_with_retries(&execution.path).await?);
        if status.failed > told.looked_at
            && tell_failures(execution, &mut told, &bar, client).await.is_ok()
        {
            told.looked_at = status.failed;
        }
        bar.show(status.total, status.ended(), &status.word, &status.counts());
        if let Some(exit) = status.exit() {
            bar.finish();
            finish(&status, &told, exit);
            return Ok(exit);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn finish(status: &Status, told: &Told, exit: Exit) {
    let untold = status.failed.saturating_sub(told.tasks.len() as u64);
    if untold > 0 {
        term::note(format!("{untold} more failed"));
    }
    let style = match exit {
        Exit::Success => Style::Good,
        Exit::Cancelled => Style::Warning,
        _ => Style::Bad,
    };
    let line = term::harmless(&status.line());
    let (word, counts) = line.split_once(':').unwrap_or((&line, ""));
    term::note(format!("{}:{counts}", term::styled_note(style, word)));
}

/// Failures that were shown.
#[derive(Default)]
struct Told {
    tasks: HashSet<String>,
    /// The number of failures when tasks were last read.
    looked_at: u64,
    /// Cursor of the first page with tasks that had not ended.
    from: String,
}

/// Shows new failures. If they cannot be read now, the next round tries again.
async fn tell_failures(
    execution: &Execution,
    told: &mut Told,
    bar: &Tasks,
    client: &mut Client,
) -> Result<(), Error> {
    let path = format!("{}/tasks", execution.path);
    let mut cursor = told.from.clone();
    let mut all_ended = true;
    for _ in 0..TASK_PAGES {
        if told.tasks.len() >= FAILURES_TOLD {
            break;
        }
        let mut query = vec![("limit", "200")];
        if !cursor.is_empty() {
            query.push(("cursor", &cursor));
        }
        let page = client.get(&path, &query).await?;
        let tasks =
            page.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for failure in tasks.iter().filter_map(Failure::read) {
            if told.tasks.len() < FAILURES_TOLD && told.tasks.insert(failure.task.clone()) {
                let (task, why) = (term::harmless(&failure.task), term::harmless(&failure.why));
                bar.note(&format!(
                    "task {task} {}: {why}",
                    term::styled_note(Style::Bad, "failed")
                ));
            }
        }
        let next = page
            .pointer("/meta/nextCursor")
            .and_then(Value::as_str)
            .filter(|next| !next.is_empty());
        let Some(next) = next else { break };
        next.clone_into(&mut cursor);
        all_ended &= tasks.iter().all(status::task_has_ended);
        if all_ended {
            cursor.clone_into(&mut told.from);
        }
    }
    Ok(())
}
