//! Tests with kills, machines that go away, and a slow database.

use super::stage::{Machine, Program, Stage, new, settings};
use jobs::{Settings, TaskRunner as _};
use std::collections::HashSet;
use std::time::Duration;
use store::executions::tasks::{self, State};
use store::executions::{self, Counts, Execution, Order, Phase};
use types::ids::ExecutionId;
use types::instance::{AttemptId, Outcome};

crate::on_both!(
    two_machines_never_run_one_attempt_twice,
    every_task_ends_once_however_often_the_program_is_killed,
    a_program_that_comes_back_goes_on_with_what_runs,
    tasks_of_a_machine_that_went_away_are_run_by_another,
    a_machine_that_cannot_renew_its_lease_ends_its_tasks,
    a_machine_whose_database_stays_silent_ends_its_tasks,
    what_the_machine_lost_is_run_again_but_not_for_ever,
    what_runs_of_an_unreadable_execution_ends_before_its_task_is_given_back,
    what_could_not_be_removed_is_removed_later,
);

async fn two_machines_never_run_one_attempt_twice(stage: Stage) {
    let (one, two) = (Machine::new("one", jitter), Machine::new("two", jitter));
    let _programs =
        [Program::start(&stage, &one, settings()), Program::start(&stage, &two, settings())];
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        let mut execution = new(name, 60);
        execution.retries_max = 3;
        ids.push(stage.start(execution).await);
    }
    for id in &ids {
        let end = stage.end(id).await;
        let counts = end.counts;
        assert_eq!(counts.succeeded + counts.failed, 60, "{end:?}");
        let tries: i64 = stage.tasks(id).await.iter().map(|task| task.attempt).sum();
        assert_eq!(tries, 60 + counts.retried);
    }
    let (one, two) = (one.begun.borrow().clone(), two.begun.borrow().clone());
    assert!(one.values().chain(two.values()).all(|times| *times == 1));
    assert!(one.keys().all(|id| !two.contains_key(id)), "an attempt began on both");
    let accepted = stage.log.attempted.lock().clone();
    let attempts: HashSet<_> = accepted.iter().map(|(id, _)| id).collect();
    assert_eq!(attempts.len(), one.len() + two.len());
}

/// Fails some attempts, always the same ones.
fn jitter(id: &AttemptId) -> Outcome {
    if (id.task * 7 + id.number * 3).is_multiple_of(5) {
        Outcome::Exited(1)
    } else {
        Outcome::SUCCESS
    }
}

async fn every_task_ends_once_however_often_the_program_is_killed(stage: Stage) {
    let machine = Machine::new("here", jitter);
    let mut execution = new("long", 120);
    execution.retries_max = 3;
    let id = stage.start(execution).await;
    // A kill between a claim and its start costs one loss, and there are many kills here.
    let settings = || Settings { lost_attempts_max: 100, ..settings() };
    for round in 1.. {
        let program = Program::start(&stage, &machine, settings());
        let begun = machine.begun.borrow().len();
        let jitter: u8 = stage.store.world().random_bytes::<1>()[0] % 9;
        tokio::select! {
            () = machine.has_begun(begun + usize::from(jitter)) => {}
            _ = stage.end(&id) => {}
        }
        drop(program);
        if stage.execution(&id).await.ended_at.is_some() {
            assert!(round > 3, "it was killed too rarely to tell anything");
            break;
        }
    }
    let end = stage.execution(&id).await;
    let tasks = stage.tasks(&id).await;
    let in_state = |state| tasks.iter().filter(|task| task.state == state).count() as i64;
    assert_eq!((end.counts.running, end.counts.waiting, end.counts.cancelled), (0, 0, 0));
    assert_eq!(
        (in_state(State::Succeeded), in_state(State::Failed)),
        (end.counts.succeeded, end.counts.failed)
    );
    assert_eq!(end.counts.succeeded + end.counts.failed, 120);
    assert_eq!(tasks.iter().map(|task| task.attempt - 1).sum::<i64>(), end.counts.retried);
    assert!(machine.begun.borrow().values().all(|times| *times == 1), "an attempt began twice");
}

async fn a_program_that_comes_back_goes_on_with_what_runs(stage: Stage) {
    let machine = Machine::ready("here");
    machine.close();
    let program = Program::start(&stage, &machine, settings());
    let id = stage.start(new("long", 4)).await;
    machine.has_begun(4).await;
    program.stop().await;
    machine.open();
    let _program = Program::start(&stage, &machine, settings());
    let end = stage.end(&id).await;
    assert_eq!((end.phase, end.counts.retried), (Phase::Succeeded, 0));
    assert_eq!(machine.begun.borrow().len(), 4);
    machine.has_abandoned(4).await;
}

/// A lease that runs out within the test, but not because a slow machine renews it late.
fn short_lease() -> Settings {
    Settings { lease: Duration::from_secs(4), ..settings() }
}

async fn tasks_of_a_machine_that_went_away_are_run_by_another(stage: Stage) {
    let (dead, living) = (Machine::ready("dead"), Machine::ready("living"));
    dead.close();
    let program = Program::start(&stage, &dead, short_lease());
    let id = stage.start(new("long", 4)).await;
    dead.has_begun(4).await;
    drop(program);
    let _program = Program::start(&stage, &living, short_lease());
    let end = stage.end(&id).await;
    assert_eq!((end.phase, end.counts.succeeded, end.counts.retried), (Phase::Succeeded, 4, 4));
    assert!(stage.tasks(&id).await.iter().all(|task| task.holder == "living" && task.losses == 1));
    // When it comes back, it finds that it owns nothing any more.
    dead.open();
    let _program = Program::start(&stage, &dead, short_lease());
    dead.has_abandoned(4).await;
    assert_eq!(stage.execution(&id).await, end);
    assert!(dead.dismissed.lock().is_empty(), "another machine did not wait for their end");
}

async fn a_machine_that_cannot_renew_its_lease_ends_its_tasks(stage: Stage) {
    let machine = Machine::ready("here");
    machine.close();
    let _program = Program::start(&stage, &machine, short_lease());
    let id = stage.start(new("long", 3)).await;
    machine.has_begun(3).await;
    // Somebody else holds the row of its lease, or all of the database.
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = parking_lot::Mutex::new(held);
    let store = stage.store.clone();
    let hold = move |tx: &mut store::Tx<'_>| {
        store::executions::holders::lock_all(tx)?;
        let _ = held.lock().recv();
        Ok::<_, store::Error>(())
    };
    let blocker = tokio::spawn(async move { store.write(hold).await });
    machine.has_abandoned(3).await;
    release.send(()).unwrap();
    blocker.await.unwrap().unwrap();
    machine.open();
    let end = stage.end(&id).await;
    assert_eq!((end.phase, end.counts.succeeded, end.counts.retried), (Phase::Succeeded, 3, 3));
    assert!(stage.tasks(&id).await.iter().all(|task| task.losses == 1 && task.failures == 0));
}

async fn a_machine_whose_database_stays_silent_ends_its_tasks(stage: Stage) {
    let machine = Machine::ready("here");
    machine.close();
    let _program = Program::start(&stage, &machine, short_lease());
    let id = stage.start(new("long", 3)).await;
    machine.has_begun(3).await;
    // One slot is free, so the program looks for more, and gets no answer.
    let (releases, silent) = stage.occupy_readers();
    machine.has_abandoned(3).await;
    drop(releases);
    assert!(silent.join_all().await.iter().all(Result::is_ok));
    machine.open();
    let end = stage.end(&id).await;
    assert_eq!((end.phase, end.counts.succeeded, end.counts.retried), (Phase::Succeeded, 3, 3));
}

async fn what_the_machine_lost_is_run_again_but_not_for_ever(stage: Stage) {
    let machine = Machine::new("here", |_| Outcome::Lost("the machine is full".into()));
    let _program =
        Program::start(&stage, &machine, Settings { lost_attempts_max: 2, ..settings() });
    let id = stage.start(new("unlucky", 1)).await;
    let end = stage.end(&id).await;
    assert_eq!((end.phase, end.counts.retried), (Phase::Failed, 2));
    let task = stage.tasks(&id).await.remove(0);
    assert_eq!((task.attempt, task.losses, task.failures), (3, 3, 0));
}

async fn what_runs_of_an_unreadable_execution_ends_before_its_task_is_given_back(stage: Stage) {
    let machine = Machine::ready("here");
    let id = unreadable(&stage, &machine).await;
    let attempt = AttemptId { execution: id.clone(), task: 0, number: 1 };
    machine.instances.lock().insert(attempt.clone(), None);
    machine.at_once.lock().0 += 1;
    let _program = Program::start(&stage, &machine, settings());
    let end = stage.end(&id).await;
    assert_eq!((end.phase, end.counts.failed), (Phase::Failed, 1));
    assert!(machine.abandoned.borrow().contains(&attempt), "it still runs");
}

async fn what_could_not_be_removed_is_removed_later(stage: Stage) {
    let machine = Machine::ready("here");
    *machine.stuck.lock() = 3;
    let _program = Program::start(&stage, &machine, settings());
    let id = stage.start(new("stuck", 2)).await;
    assert_eq!(stage.end(&id).await.phase, Phase::Succeeded);
    machine.has_abandoned(2).await;
    assert!(machine.begun.borrow().values().all(|times| *times == 1), "it was run again");
}

/// Starts an execution whose order cannot be read, and whose only task a machine holds.
async fn unreadable(stage: &Stage, machine: &Machine) -> ExecutionId {
    let readable = stage.try_start(settings(), new("readable", 1)).await.unwrap();
    let id = ExecutionId::new(stage.store.world());
    let counts = Counts { running: 1, ..Counts::default() };
    let name = "unreadable".to_owned();
    let broken = Execution { id: id.clone(), name, next: 1, counts, ready_at: None, ..readable };
    let holder = machine.name().to_owned();
    let write = move |tx: &mut store::Tx<'_>| {
        let order = Order { plan: "?".into(), arguments: "{}".into() };
        executions::insert(tx, &broken, &order)?;
        tasks::claim_fresh(tx, &broken.id, 0, 1, &holder, broken.created_at)
    };
    stage.store.write(write).await.unwrap();
    id
}
