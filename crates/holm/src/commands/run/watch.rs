//! Following an execution to its end: a bar on a terminal, lines elsewhere.

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
/// Failures that are told one by one.
const FAILURES_TOLD: usize = 20;
/// Pages of tasks that one look for new failures reads.
const TASK_PAGES: usize = 10;

/// What is followed.
pub(super) struct Execution {
    pub(super) job: String,
    pub(super) id: String,
    pub(super) path: String,
}

pub(super) async fn to_the_end(execution: &Execution, client: &mut Client) -> Result<Exit, Error> {
    let watching = watch(execution, client);
    tokio::select! {
        exit = watching => exit,
        // A failure to hear of signals is no reason to stop watching, so only a signal ends it.
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
        let status = Status::read(&client.get_patiently(&execution.path).await?);
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

/// Failures that were told.
#[derive(Default)]
struct Told {
    tasks: HashSet<String>,
    /// Of how many failures there was a look.
    looked_at: u64,
    /// The first page on which not all tasks had ended.
    from: String,
}

/// What cannot be told now is told at the next look.
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
