//! Tests executions that must not wait, and tasks of different sizes.

use super::stage::{Machine, Program, Stage, new, settings};
use jobs::{Caller, Settings, StartError};
use std::sync::Arc;
use std::time::Duration;
use store::executions::{Execution, Phase, holders};
use store::{Error, usage};
use types::ids::WorkspaceId;
use types::instance::Outcome;
use types::{KindName, Timestamp};

crate::on_both!(
    what_must_not_wait_is_refused_when_there_is_no_room,
    a_name_is_taken_once,
    an_execution_has_a_number_of_tasks,
    a_workspace_has_a_number_of_open_executions,
    tasks_share_the_memory_of_a_machine,
    long_tasks_of_one_workspace_leave_a_slot_to_another,
    tasks_that_end_make_room_for_the_next_of_their_workspace,
    what_must_not_wait_has_room_only_within_its_share,
    what_a_workspace_asks_for_in_a_day_is_limited,
    what_was_asked_for_in_vain_does_not_count,
    strangers_leave_a_workspace_room_for_executions_of_its_own,
    calls_and_tasks_have_slots_of_their_own,
    a_call_is_made_by_the_machine_that_runs_its_workload,
    a_call_waits_for_a_machine_without_a_lease_but_not_for_ever,
    tasks_run_on_the_machine_that_has_their_image,
    what_no_machine_has_the_image_of_fails,
    tasks_wait_for_a_machine_that_went_away_with_their_image_but_not_for_ever,
);

fn at_once(name: &str, tasks: usize) -> jobs::NewExecution {
    jobs::NewExecution { may_wait: false, ..new(name, tasks) }
}

async fn what_must_not_wait_is_refused_when_there_is_no_room(stage: Stage) {
    let full = |answer: Result<_, StartError>| matches!(answer, Err(StartError::Full { .. }));
    let never = |answer: Result<_, StartError>| matches!(answer, Err(StartError::NeverFits(_)));
    assert!(
        full(stage.try_start(settings(), at_once("early", 1)).await),
        "no machine is there yet"
    );
    let machine = Machine::ready("here");
    machine.close();
    let _program = Program::start(&stage, &machine, settings());
    let first = stage.start(new("first", 1)).await;
    machine.has_begun(1).await;
    let mut large = at_once("large", 1);
    large.memory_mb = 1_000_000;
    assert!(never(stage.try_start(settings(), large.clone()).await));
    large.may_wait = true;
    let refused = stage.try_start(settings(), large).await;
    let says_for_ever = |why: &String| why.ends_with("can never begin");
    assert!(
        matches!(&refused, Err(StartError::NeverFits(why)) if says_for_ever(why)),
        "it would wait for ever: {refused:?}"
    );
    assert!(never(stage.try_start(settings(), at_once("wide", 5)).await));
    assert!(
        full(stage.try_start(settings(), at_once("four", 4)).await),
        "one of four slots is taken"
    );
    let mut narrow = at_once("narrow", 50);
    narrow.parallelism = Some(2);
    stage.start(narrow).await;
    // This holds whether or not its tasks have been claimed by now.
    assert!(full(stage.try_start(settings(), at_once("two", 2)).await));
    stage.start(at_once("one", 1)).await;
    machine.open();
    stage.end(&first).await;
}

async fn a_name_is_taken_once(stage: Stage) {
    stage.start(new("one", 1)).await;
    assert!(
        matches!(stage.try_start(settings(), new("one", 1)).await, Err(StartError::Taken(name)) if name == "one")
    );
    let mut elsewhere = new("one", 1);
    elsewhere.job = "weekly".into();
    stage.start(elsewhere).await;
}

async fn an_execution_has_a_number_of_tasks(stage: Stage) {
    let few = Settings { tasks_max: 3, ..settings() };
    for count in [0, 4] {
        let refused = stage.try_start(few.clone(), new("one", count)).await.unwrap_err();
        assert!(matches!(refused, StartError::Tasks { count: told, max: 3 } if told == count));
    }
    stage.try_start(few, new("one", 3)).await.unwrap();
}

async fn a_workspace_has_a_number_of_open_executions(stage: Stage) {
    let few = Settings { open_max: 2, open_public_max: 1, ..settings() };
    let first = stage.try_start(few.clone(), new("one", 1)).await.unwrap();
    stage.try_start(few.clone(), new("two", 1)).await.unwrap();
    let refused = stage.try_start(few.clone(), new("three", 1)).await;
    assert!(matches!(refused, Err(StartError::Crowded { max: 2 })), "{refused:?}");
    let elsewhere = jobs::NewExecution {
        workspace: types::ids::WorkspaceId::known("wsp_other"),
        ..new("three", 1)
    };
    stage.try_start(few.clone(), elsewhere).await.unwrap();
    let machine = Machine::ready("here");
    let _program = Program::start(&stage, &machine, few.clone());
    stage.end(&first.id).await;
    stage.try_start(few, new("three", 1)).await.unwrap();
}

async fn what_a_workspace_asks_for_in_a_day_is_limited(stage: Stage) {
    let none = Settings { asked_day_bytes_max: 1, ..settings() };
    let refused = stage.try_start(none, new("one", 1)).await;
    assert!(matches!(refused, Err(StartError::UsedUp { max: 1 })), "{refused:?}");
    // Half of what one execution takes is not enough for a stranger.
    let large = "x".repeat(10_000);
    let one = |name: &str, caller| jobs::NewExecution {
        tasks: vec![format!("{{\"a\": \"{large}\"}}")],
        caller,
        ..new(name, 1)
    };
    let enough = Settings { asked_day_bytes_max: 15_000, ..settings() };
    let refused = stage.try_start(enough.clone(), one("two", Caller::Stranger)).await;
    assert!(matches!(refused, Err(StartError::UsedUp { max: 7_500 })), "{refused:?}");
    stage.try_start(enough, one("two", Caller::Member)).await.unwrap();
}

async fn what_was_asked_for_in_vain_does_not_count(stage: Stage) {
    let queue = stage.queue(Settings { asked_day_bytes_max: 15_000, ..settings() });
    let large = || jobs::NewExecution {
        tasks: vec![format!("{{\"a\": \"{}\"}}", "x".repeat(10_000))],
        ..new("one", 1)
    };
    let start = async |is_kept: bool| {
        let (queue, keyring, new) = (queue.clone(), stage.store.keyring(), large());
        let work = move |tx: &mut store::Tx<'_>| {
            let started = queue.start(tx, &keyring.read(), &new)?;
            match is_kept {
                true => Ok(started),
                false => Err(StartError::Store(store::Error::Busy { limit: 0 })),
            }
        };
        stage.store.write(work).await
    };
    for _ in 0..3 {
        let undone = start(false).await.unwrap_err();
        assert!(matches!(undone, StartError::Store(_)), "{undone:?}");
    }
    start(true).await.unwrap();
    let mut another = large();
    another.name = "two".into();
    let (queue, keyring) = (queue.clone(), stage.store.keyring());
    let refused = stage.store.write(move |tx| queue.start(tx, &keyring.read(), &another)).await;
    assert!(
        matches!(refused, Err(StartError::UsedUp { .. })),
        "what is stored counts: {refused:?}"
    );
}

async fn tasks_share_the_memory_of_a_machine(stage: Stage) {
    let machine = Machine::ready("here");
    let huge = |name: &str| jobs::NewExecution { memory_mb: 300, ..new(name, 1) };
    // More than one round considers.
    for number in 0..300 {
        stage.start(huge(&format!("huge-{number}"))).await;
    }
    let huge = stage.start(huge("huge")).await;
    let _program = Program::start(&stage, &machine, Settings { memory_mb: 250, ..settings() });
    let id = stage.start(new("large", 20)).await;
    assert_eq!(stage.end(&id).await.phase, Phase::Succeeded);
    assert_eq!(machine.at_once.lock().1, 2, "two of 100 MB fit into 250 MB");
    assert_eq!(
        stage.execution(&huge).await.next,
        0,
        "and what never fits is left to other machines"
    );
}

fn of_neighbour(name: &str) -> jobs::NewExecution {
    jobs::NewExecution { workspace: WorkspaceId::known("wsp_neighbour"), ..new(name, 1) }
}

async fn long_tasks_of_one_workspace_leave_a_slot_to_another(stage: Stage) {
    let own = Settings { workspace_share_percent: 80, ..settings() };
    let machine = Machine::ready("here");
    machine.close();
    let _program = Program::start(&stage, &machine, own);
    let greedy = stage.start(new("greedy", 20)).await;
    machine.has_begun(3).await;
    // Nobody else wants the fourth slot yet, and it stays free for whoever comes.
    let neighbour = stage.start(of_neighbour("neighbour")).await;
    machine.has_begun(4).await;
    assert_eq!(stage.execution(&neighbour).await.next, 1);
    assert_eq!(stage.execution(&greedy).await.next, 3, "80 percent of four slots");
    machine.open();
    assert_eq!(stage.end(&greedy).await.phase, Phase::Succeeded);
}

async fn tasks_that_end_make_room_for_the_next_of_their_workspace(stage: Stage) {
    // The machine does not look by itself in the time of this test.
    let hour = Duration::from_secs(3600);
    let own = Settings { workspace_share_percent: 80, poll: hour, ..settings() };
    let own = Settings { lease: 4 * hour, heartbeat: hour, ..own };
    let machine = Machine::ready("here");
    let _program = Program::start(&stage, &machine, own);
    let many = stage.start(new("many", 40)).await;
    assert_eq!(stage.end(&many).await.phase, Phase::Succeeded);
    assert!(machine.at_once.lock().1 <= 3, "80 percent of four slots");
}

async fn what_must_not_wait_has_room_only_within_its_share(stage: Stage) {
    let own = Settings { workspace_share_percent: 80, ..settings() };
    let machine = Machine::ready("here");
    machine.close();
    let _program = Program::start(&stage, &machine, own.clone());
    have_leases(&stage, 1).await;
    let never = stage.try_start(own.clone(), at_once("four", 4)).await;
    assert!(matches!(never, Err(StartError::NeverFits(_))), "{never:?}");
    stage.try_start(own.clone(), at_once("three", 3)).await.unwrap();
    let full = stage.try_start(own.clone(), at_once("one", 1)).await;
    assert!(matches!(full, Err(StartError::Full { wanted: 1, free: 0 })), "{full:?}");
    let neighbour = jobs::NewExecution { may_wait: false, ..of_neighbour("neighbour") };
    stage.try_start(own, neighbour).await.unwrap();
    machine.open();
}

async fn strangers_leave_a_workspace_room_for_executions_of_its_own(stage: Stage) {
    let few = || Settings { open_max: 3, open_public_max: 2, ..settings() };
    let strange = |name: &str| jobs::NewExecution { caller: Caller::Stranger, ..new(name, 1) };
    stage.try_start(few(), new("own", 1)).await.unwrap();
    stage.try_start(few(), strange("strange")).await.unwrap();
    let refused = stage.try_start(few(), strange("another")).await;
    assert!(matches!(refused, Err(StartError::Crowded { max: 2 })), "{refused:?}");
    stage.try_start(few(), new("more", 1)).await.unwrap();
    let refused = stage.try_start(few(), new("too many", 1)).await;
    assert!(matches!(refused, Err(StartError::Crowded { max: 3 })), "{refused:?}");
}

fn call(name: &str, workspace: &str) -> jobs::NewExecution {
    let workspace = WorkspaceId::known(workspace);
    jobs::NewExecution { kind: KindName::Agent, memory_mb: 0, workspace, ..new(name, 1) }
}

/// Waits until all these machines have a lease.
async fn have_leases(stage: &Stage, machines: usize) {
    let mut commits = stage.store.commits();
    loop {
        commits.mark_unchanged();
        if stage.store.read(holders::list).await.unwrap().len() == machines {
            return;
        }
        commits.changed().await.unwrap();
    }
}

async fn a_call_is_made_by_the_machine_that_runs_its_workload(stage: Stage) {
    let (one, two) = (Machine::ready("one"), Machine::ready("two"));
    let _programs =
        [Program::start(&stage, &one, settings()), Program::start(&stage, &two, settings())];
    have_leases(&stage, 2).await;
    let mut ids = Vec::new();
    for number in 0..20 {
        let machine = Some("two".to_owned());
        let to_two = jobs::NewExecution { machine, ..call(&number.to_string(), "wsp_a") };
        ids.push(stage.try_start(settings(), to_two).await.unwrap().id);
    }
    for id in ids {
        let end = stage.end(&id).await;
        assert_eq!((end.phase, end.counts.retried), (Phase::Succeeded, 0));
    }
    assert_eq!((one.begun.borrow().len(), two.begun.borrow().len()), (0, 20));
}

async fn a_call_waits_for_a_machine_without_a_lease_but_not_for_ever(stage: Stage) {
    let own = Settings { machine_wait: Duration::from_secs(1), ..settings() };
    let here = Machine::ready("here");
    let _program = Program::start(&stage, &here, own.clone());
    have_leases(&stage, 1).await;
    let machine = Some("gone".to_owned());
    let to_gone = jobs::NewExecution { machine, ..call("last", "wsp_a") };
    let started = stage.try_start(own, to_gone).await.unwrap();
    let ended = stage.end(&started.id).await;
    assert_eq!(ended.phase, Phase::Succeeded);
    assert!(ended.started_at.unwrap().since(started.created_at) >= 1_000, "{ended:?}");
}

async fn tasks_run_on_the_machine_that_has_their_image(stage: Stage) {
    let (without, with) = (without_image("without"), Machine::ready("with"));
    with.close();
    let _programs =
        [Program::start(&stage, &without, settings()), Program::start(&stage, &with, settings())];
    have_leases(&stage, 2).await;
    let first = stage.start(new("first", 20)).await;
    without.has_begun(1).await;
    // Whatever it has claimed by now, it gives back once.
    let given_back = |execution: &Execution| execution.next > execution.counts.running;
    stage.until(&first, given_back).await;
    with.open();
    let end = stage.end(&first).await;
    assert_eq!(
        (end.phase, end.counts.succeeded, with.begun.borrow().len()),
        (Phase::Succeeded, 20, 20)
    );
    assert!(without.begun.borrow().len() <= settings().slots as usize, "it has learned of it");
}

async fn what_no_machine_has_the_image_of_fails(stage: Stage) {
    let machines = ["one", "two"].map(without_image);
    let _programs = machines.each_ref().map(|one| Program::start(&stage, one, settings()));
    have_leases(&stage, 2).await;
    let id = stage.start(new("nowhere", 6)).await;
    let end = stage.end(&id).await;
    assert_eq!((end.phase, end.counts.failed), (Phase::Failed, 6));
    for task in stage.tasks(&id).await {
        let failure = jobs::failure_of_row(&task.failure.unwrap()).unwrap();
        assert_eq!(failure, Outcome::NotStarted("no such image".into()));
        assert!(task.attempt <= 2, "each machine tries once: {}", task.attempt);
    }
}

async fn tasks_wait_for_a_machine_that_went_away_with_their_image_but_not_for_ever(stage: Stage) {
    let seen = async |at: Timestamp| {
        stage.store.write(move |tx| usage::alive(tx, "away", at, None)).await.unwrap();
    };
    let own = settings();
    let without = without_image("without");
    let _program = Program::start(&stage, &without, own.clone());
    have_leases(&stage, 1).await;
    let now = stage.store.read(|tx| Ok::<_, Error>(tx.world().now())).await.unwrap();
    seen(now.minus(own.machine_wait)).await;
    let id = stage.start(new("for ever", 2)).await;
    assert_eq!(stage.end(&id).await.phase, Phase::Failed, "it has been away for too long");

    seen(now).await;
    let id = stage.start(new("patient", 2)).await;
    stage.until(&id, |execution| execution.counts.waiting == 2).await;
    let _back = Program::start(&stage, &Machine::ready("away"), own);
    let end = stage.end(&id).await;
    assert_eq!((end.phase, end.counts.succeeded), (Phase::Succeeded, 2));
    assert_eq!(end.counts.retried, 0, "nothing was tried before");
}

fn without_image(name: &str) -> Arc<Machine> {
    Machine::new(name, |_| Outcome::NoImage("no such image".into()))
}

async fn calls_and_tasks_have_slots_of_their_own(stage: Stage) {
    let own = Settings { call_slots: 2, workspace_calls_max: 1, ..settings() };
    let machine = Machine::ready("here");
    let _program = Program::start(&stage, &machine, own);
    let (mut begun, mut all) = (0, Vec::new());
    // Whichever kind takes all its slots first, the other kind finds its own free.
    for first in ["tasks", "calls"] {
        machine.close();
        let many = async || {
            let mut ids = Vec::new();
            for number in 0..5 {
                ids.push(stage.start(call(&format!("{first}-{number}"), "wsp_greedy")).await);
            }
            ids.push(stage.start(call(&format!("{first}-other"), "wsp_other")).await);
            ids
        };
        let tasks = async || stage.start(new(first, 8)).await;
        match first {
            "tasks" => {
                all.push(tasks().await);
                machine.has_begun(begun + 4).await;
                all.extend(many().await);
            }
            _ => {
                all.extend(many().await);
                machine.has_begun(begun + 2).await;
                all.push(tasks().await);
            }
        }
        machine.has_begun(begun + 6).await;
        assert_eq!(machine.begun.borrow().len(), begun + 6, "four tasks, a call of each workspace");
        machine.open();
        for id in &all {
            assert_eq!(stage.end(id).await.phase, Phase::Succeeded);
        }
        begun += 14;
        machine.has_abandoned(begun).await;
    }
    assert_eq!(machine.at_once.lock().1, 6);
}
