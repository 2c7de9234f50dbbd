//! Tests what the queue promises, on both databases, with machines that only pretend to run tasks.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod room;
mod speed;
mod stage;

use jobs::{Settings, failure_of_row};
use stage::{Machine, Program, Stage, new, settings};
use std::time::Duration;
use store::Tx;
use store::executions::Phase;
use store::executions::tasks::State;
use types::ids::WorkspaceId;
use types::instance::{AttemptId, Outcome};

/// Runs each test on both databases.
#[macro_export]
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                Box::pin(super::$name($crate::stage::Stage::sqlite().await)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                Box::pin(super::$name($crate::stage::Stage::postgres().await)).await;
            }
        }
    )+};
}

on_both!(
    all_tasks_run_and_no_more_at_once_than_asked_for,
    a_failed_task_is_tried_again_after_a_pause,
    an_execution_fails_when_a_task_stays_failed,
    a_cancelled_execution_lets_run_what_runs,
    a_cancelled_execution_that_never_began_ends_at_once,
    a_few_tasks_do_not_wait_for_very_many,
    tasks_of_a_deleted_workspace_are_ended,
    tasks_of_a_deleted_workspace_do_not_run_until_the_next_heartbeat,
    what_is_old_is_forgotten,
);

async fn all_tasks_run_and_no_more_at_once_than_asked_for(stage: Stage) {
    let machine = Machine::ready("here");
    let program = Program::start(&stage, &machine, settings());
    let mut narrow = new("narrow", 30);
    narrow.parallelism = Some(3);
    let id = stage.start(narrow).await;
    let end = stage.end(&id).await;
    assert_eq!((end.phase, end.counts.succeeded, end.counts.running), (Phase::Succeeded, 30, 0));
    assert!(end.started_at >= Some(end.created_at) && end.ended_at >= end.started_at);
    machine.has_abandoned(30).await;
    program.stop().await;
    assert!(machine.at_once.lock().1 <= settings().slots as usize);
    assert!(machine.begun.borrow().values().all(|times| *times == 1));
    let tasks = stage.tasks(&id).await;
    assert_eq!(tasks.len(), 30);
    assert!(
        tasks.iter().all(|task| task.state == State::Succeeded
            && task.attempt == 1
            && task.failure.is_none())
    );
    assert_eq!(stage.log.claimed.lock().len(), 30);
    assert_eq!(stage.log.attempted.lock().len(), 30);
    assert_eq!(stage.log.ended.lock().as_slice(), [end]);
}

async fn a_failed_task_is_tried_again_after_a_pause(stage: Stage) {
    let machine =
        Machine::new(
            "here",
            |id| if id.number < 3 { Outcome::Exited(7) } else { Outcome::SUCCESS },
        );
    let _program = Program::start(&stage, &machine, settings());
    let mut stubborn = new("stubborn", 2);
    stubborn.retries_max = 2;
    let id = stage.start(stubborn).await;
    let end = stage.end(&id).await;
    assert_eq!((end.phase, end.counts.succeeded, end.counts.retried), (Phase::Succeeded, 2, 4));
    for task in stage.tasks(&id).await {
        assert_eq!((task.state, task.attempt, task.failures), (State::Succeeded, 3, 2));
        // The waits are 20 ms and 40 ms, of which half is jitter.
        assert!(task.claimed_at.since(end.created_at) >= 30, "{task:?} of {end:?}");
    }
}

async fn an_execution_fails_when_a_task_stays_failed(stage: Stage) {
    let script = |id: &AttemptId| match id.task {
        0 => Outcome::TimedOut,
        1 => Outcome::NotStarted("no such program".into()),
        _ => Outcome::SUCCESS,
    };
    let machine = Machine::new("here", script);
    let _program = Program::start(&stage, &machine, settings());
    let mut unlucky = new("unlucky", 5);
    unlucky.retries_max = 1;
    let id = stage.start(unlucky).await;
    let end = stage.end(&id).await;
    assert_eq!((end.phase, end.counts.succeeded, end.counts.failed), (Phase::Failed, 3, 2));
    let tasks = stage.tasks(&id).await;
    let told = |index: usize| failure_of_row(tasks[index].failure.as_ref().unwrap()).unwrap();
    assert_eq!((told(0), tasks[0].attempt), (Outcome::TimedOut, 2));
    assert_eq!((told(1), tasks[1].attempt), (Outcome::NotStarted("no such program".into()), 1));
}

async fn a_cancelled_execution_lets_run_what_runs(stage: Stage) {
    let machine = Machine::ready("here");
    machine.close();
    let _program = Program::start(&stage, &machine, settings());
    let id = stage.start(new("long", 50)).await;
    machine.has_begun(4).await;
    let cancelling = stage.cancel(&id).await;
    assert_eq!(
        (cancelling.phase, cancelling.counts.cancelled, cancelling.counts.running),
        (Phase::Cancelling, 46, 4)
    );
    assert_eq!(stage.cancel(&id).await, cancelling, "twice is once");
    machine.open();
    let end = stage.end(&id).await;
    assert_eq!((end.phase, end.counts.succeeded, end.counts.cancelled), (Phase::Cancelled, 4, 46));
    assert_eq!(machine.begun.borrow().len(), 4);
    assert_eq!(stage.cancel(&id).await, end, "what has ended stays as it is");
    assert_eq!(stage.log.ended.lock().len(), 1);
}

async fn a_cancelled_execution_that_never_began_ends_at_once(stage: Stage) {
    let id = stage.start(new("early", 5)).await;
    let end = stage.cancel(&id).await;
    assert_eq!((end.phase, end.counts.cancelled), (Phase::Cancelled, 5));
    assert_eq!(stage.log.ended.lock().as_slice(), [end]);
}

async fn a_few_tasks_do_not_wait_for_very_many(stage: Stage) {
    let machine = Machine::ready("here");
    machine.close();
    let _program = Program::start(&stage, &machine, settings());
    let many = stage.start(new("many", 100_000)).await;
    machine.has_begun(4).await;
    let mut few = new("few", 10);
    few.workspace = WorkspaceId::known("wsp_other");
    let few = stage.start(few).await;
    machine.open();
    stage.end(&few).await;
    let log = stage.log.claimed.lock().clone();
    let last = log.iter().rposition(|id| id.execution == few).unwrap();
    // The four that ran before, and then at most one of the many for each of the few.
    assert!(last < 4 + 10 + 10 + 4, "the last of the few began at place {last}");
    stage.cancel(&many).await;
}

async fn tasks_of_a_deleted_workspace_are_ended(stage: Stage) {
    let machine = Machine::ready("here");
    machine.close();
    let _program = Program::start(&stage, &machine, settings());
    doom(&stage, &machine).await;
    machine.has_abandoned(2).await;
    assert_eq!(machine.dismissed.lock().len(), 2, "they were not asked to end first");
}

async fn tasks_of_a_deleted_workspace_do_not_run_until_the_next_heartbeat(stage: Stage) {
    let machine = Machine::ready("here");
    machine.close();
    let hour = Duration::from_secs(3600);
    let rare = Settings { heartbeat: hour, lease: 3 * hour, ..settings() };
    let program = Program::start(&stage, &machine, rare);
    doom(&stage, &machine).await;
    program.queue.note_removal();
    machine.has_abandoned(2).await;
    assert_eq!(machine.dismissed.lock().len(), 2, "they were not asked to end first");
}

/// Has a machine begin two tasks, and deletes all that their workspace has.
async fn doom(stage: &Stage, machine: &Machine) {
    let id = stage.start(new("doomed", 2)).await;
    machine.has_begun(2).await;
    let workspace = stage.execution(&id).await.workspace;
    let clear = move |tx: &mut Tx<'_>| store::resources::clear_workspace(tx, &workspace, 100);
    stage.store.write(clear).await.unwrap();
}

async fn what_is_old_is_forgotten(stage: Stage) {
    let old = stage.start(new("old", 5)).await;
    stage.cancel(&old).await;
    let open = stage.start(new("open", 5)).await;
    let mut settings = settings();
    assert_eq!(stage.queue(settings.clone()).tidy(&stage.store).await.unwrap(), 0);
    settings.retention = std::time::Duration::ZERO;
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    assert_eq!(stage.queue(settings).tidy(&stage.store).await.unwrap(), 1);
    assert_eq!(stage.execution(&open).await.phase, Phase::Open);
}
