//! Executions that must not wait, and tasks of different sizes.

use super::stage::{Machine, Program, Stage, new, settings};
use jobs::{Settings, StartError};
use store::executions::Phase;

crate::on_both!(
    what_must_not_wait_is_refused_when_there_is_no_room,
    a_name_is_taken_once,
    an_execution_has_a_number_of_tasks,
    a_workspace_has_a_number_of_open_executions,
    tasks_share_the_memory_of_a_machine,
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
    assert!(never(stage.try_start(settings(), large).await));
    assert!(never(stage.try_start(settings(), at_once("wide", 5)).await));
    assert!(
        full(stage.try_start(settings(), at_once("four", 4)).await),
        "one of four slots is taken"
    );
    let mut narrow = at_once("narrow", 50);
    narrow.parallelism = Some(2);
    stage.start(narrow).await;
    // Whether its tasks were claimed by now or not.
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
    let few = Settings { open_max: 2, ..settings() };
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

async fn tasks_share_the_memory_of_a_machine(stage: Stage) {
    let machine = Machine::ready("here");
    let _program = Program::start(&stage, &machine, Settings { memory_mb: 250, ..settings() });
    let mut huge = new("huge", 1);
    huge.memory_mb = 300;
    let huge = stage.start(huge).await;
    let id = stage.start(new("large", 20)).await;
    assert_eq!(stage.end(&id).await.phase, Phase::Succeeded);
    assert_eq!(machine.at_once.lock().1, 2, "two of 100 MB fit into 250 MB");
    assert_eq!(
        stage.execution(&huge).await.next,
        0,
        "and what never fits is left to other machines"
    );
}
