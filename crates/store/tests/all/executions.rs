//! The rows of the durable queue.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, on_both, workspace};
use std::time::Duration;
use store::executions::tasks::{self, State};
use store::executions::{
    self, Counts, Execution, Order, Phase, Query, SlotKind, claims, holders, images,
};
use store::resources::Order as ListOrder;
use store::{Error, Store, Tx, usage};
use types::KindName;
use types::ids::{ExecutionId, ResourceId, WorkspaceId};
use types::{Timestamp, World};

on_both!(
    an_execution_reads_back_as_it_was_stored,
    a_name_is_taken_once_in_a_job,
    a_transaction_ends_with_the_part_whose_statement_failed,
    pages_follow_each_other,
    a_text_filter_finds_names,
    tasks_are_claimed_and_recorded_once,
    many_tasks_are_recorded_together,
    waiting_tasks_come_back_when_they_are_due,
    candidates_take_turns_in_each_workspace,
    tasks_are_left_to_machines_that_may_have_their_image,
    room_is_what_nobody_wants,
    old_executions_are_forgotten_in_bounded_steps,
    plans_are_sealed_anew_with_all_other_secrets,
    a_workspace_takes_its_executions_with_it,
);

fn execution(world: &World, name: &str, total: i64) -> Execution {
    let now = world.now();
    Execution {
        id: ExecutionId::new(world),
        workspace: workspace(),
        kind: KindName::Job,
        job_id: ResourceId::known("res_job"),
        job: "nightly".into(),
        machine: None,
        name: name.into(),
        phase: Phase::Open,
        total,
        next: 0,
        parallelism: 10,
        memory_mb: 512,
        retries_max: 3,
        counts: Counts::default(),
        ready_at: Some(now),
        turn: 0,
        created_at: now,
        updated_at: now,
        started_at: None,
        ended_at: None,
    }
}

fn order() -> Order {
    Order { plan: "{}".into(), arguments: "[]".into() }
}

async fn made(store: &Store, execution: &Execution) {
    let execution = execution.clone();
    store.write(move |tx| executions::insert(tx, &execution, &order())).await.unwrap();
}

async fn an_execution_reads_back_as_it_was_stored(place: Place) {
    let (store, world) = (place.open().await, place.world());
    let mut one = execution(&world, "first", 7);
    made(&store, &one).await;
    one.phase = Phase::Cancelled;
    one.next = 5;
    one.counts =
        Counts { running: 1, waiting: 2, succeeded: 3, failed: 4, cancelled: 5, retried: 6 };
    one.ready_at = None;
    one.turn = 9;
    (one.started_at, one.ended_at) = (Some(world.now()), Some(world.now()));
    let wanted = one.clone();
    let read = store
        .write(move |tx| {
            assert!(executions::lock(tx, &one.id)?.is_some());
            executions::put(tx, &one)?;
            let found = executions::find(tx, &one.workspace, "nightly", "first")?;
            assert_eq!(executions::lock_if_free(tx, &one.id)?, found);
            assert!(
                executions::find(tx, &WorkspaceId::known("wsp_other"), "nightly", "first")?
                    .is_none()
            );
            assert!(executions::open_of(tx, &one.workspace, KindName::Job, "nightly")?.is_empty());
            Ok::<_, Error>(found)
        })
        .await
        .unwrap();
    assert_eq!(read, Some(wanted));
}

async fn a_name_is_taken_once_in_a_job(place: Place) {
    let (store, world) = (place.open().await, place.world());
    made(&store, &execution(&world, "one", 1)).await;
    let (again, mut other) = (execution(&world, "one", 1), execution(&world, "one", 1));
    other.job = "weekly".into();
    let refused =
        store.write(move |tx| executions::insert(tx, &again, &order())).await.unwrap_err();
    assert!(
        matches!(refused, Error::Duplicate { ref table } if table == "executions"),
        "{refused:?}"
    );
    made(&store, &other).await;
}

async fn a_transaction_ends_with_the_part_whose_statement_failed(place: Place) {
    let (store, world) = (place.open().await, place.world());
    made(&store, &execution(&world, "one", 1)).await;
    let again = execution(&world, "one", 1);
    let work = move |tx: &mut Tx<'_>| {
        let refused = tx.attempt(|tx| {
            let inserted = executions::insert(tx, &again, &order());
            inserted.map_err(|_| Error::Busy { limit: 0 })
        })?;
        unreachable!("went on after {refused:?}")
    };
    let ended: Result<(), Error> = store.write(work).await;
    assert!(matches!(ended, Err(Error::Busy { .. })), "{ended:?}");
}

fn query<'a>(workspace: &'a WorkspaceId, order: ListOrder) -> Query<'a> {
    Query { workspace, job: "nightly", text: None, order, after: None, offset: 0, limit: 2 }
}

async fn pages_follow_each_other(place: Place) {
    let (store, world) = (place.open().await, place.world());
    for name in ["b", "d", "a", "c"] {
        made(&store, &execution(&world, name, 1)).await;
    }
    for (order, wanted) in [
        (ListOrder::CreatedDesc, "cadb"),
        (ListOrder::CreatedAsc, "bdac"),
        (ListOrder::NameAsc, "abcd"),
        (ListOrder::NameDesc, "dcba"),
    ] {
        let (keyset, offset) = store
            .read(move |tx| {
                let workspace = workspace();
                let (mut keyset, mut offset) = (String::new(), String::new());
                let mut after = None;
                loop {
                    let page = executions::list(tx, &Query { after, ..query(&workspace, order) })?;
                    let Some(last) = page.last() else { break };
                    after = Some(last.position(order));
                    keyset.extend(page.iter().map(|one| one.name.as_str()));
                }
                for skip in [0, 2] {
                    let page =
                        executions::list(tx, &Query { offset: skip, ..query(&workspace, order) })?;
                    offset.extend(page.iter().map(|one| one.name.as_str()));
                }
                Ok::<_, Error>((keyset, offset))
            })
            .await
            .unwrap();
        assert_eq!((keyset.as_str(), offset.as_str()), (wanted, wanted));
    }
}

async fn a_text_filter_finds_names(place: Place) {
    let (store, world) = (place.open().await, place.world());
    for name in ["Report-1", "report-2", "50%"] {
        made(&store, &execution(&world, name, 1)).await;
    }
    for (text, found) in [("report", 2), ("REPORT-2", 1), ("%", 1), ("nothing", 0)] {
        let counted = store
            .read(move |tx| {
                let workspace = workspace();
                let query =
                    Query { text: Some(text), limit: 9, ..query(&workspace, ListOrder::NameAsc) };
                assert_eq!(
                    executions::list(tx, &query)?.len() as i64,
                    executions::count(tx, &query)?
                );
                executions::count(tx, &query)
            })
            .await
            .unwrap();
        assert_eq!(counted, found, "{text}");
    }
}

fn recorded(tx: &mut store::Tx<'_>, task: &tasks::Task) -> Result<bool, Error> {
    Ok(tasks::record(tx, std::slice::from_ref(task))?.contains(&(task.index, task.attempt)))
}

async fn many_tasks_are_recorded_together(place: Place) {
    let (store, world) = (place.open().await, place.world());
    let one = execution(&world, "first", 200);
    made(&store, &one).await;
    let (accepted, left) = store
        .write(move |tx| {
            let now = tx.world().now();
            tasks::claim_fresh(tx, &one.id, 0, 150, "here", now)?;
            let mut ended = tasks::held(tx, "here", 150)?;
            for task in &mut ended {
                task.state = State::Succeeded;
                // These belong to another attempt.
                if task.index % 10 == 0 {
                    task.attempt = 2;
                }
            }
            let accepted = tasks::record(tx, &ended)?;
            Ok::<_, Error>((accepted, tasks::held(tx, "here", 150)?))
        })
        .await
        .unwrap();
    assert!(
        accepted.into_iter().map(|(index, _)| index).eq((0..150).filter(|index| index % 10 != 0))
    );
    assert!(left.iter().map(|task| task.index).eq((0..150).step_by(10)));
}

async fn tasks_are_claimed_and_recorded_once(place: Place) {
    let (store, world) = (place.open().await, place.world());
    let one = execution(&world, "first", 7);
    made(&store, &one).await;
    let id = one.id.clone();
    let (held, page) = store
        .write(move |tx| {
            let now = tx.world().now();
            tasks::claim_fresh(tx, &id, 0, 3, "here", now)?;
            tasks::claim_fresh(tx, &id, 3, 1, "there", now)?;
            let held = tasks::held(tx, "here", 10)?;
            assert_eq!(held.len(), 3);
            let mut done = held[1].clone();
            done.state = State::Failed;
            done.failures = 1;
            (done.started_at, done.ended_at) = (Some(now), Some(now));
            done.failure = Some(tasks::Failure {
                name: "exited".into(),
                code: Some(3),
                text: Some("it said no".into()),
            });
            let mut stranger = done.clone();
            stranger.holder = "there".into();
            assert!(!recorded(tx, &stranger)?, "from another holder");
            let mut late = done.clone();
            late.attempt = 2;
            assert!(!recorded(tx, &late)?, "from another attempt");
            assert!(recorded(tx, &done)?);
            assert!(!recorded(tx, &done)?, "twice");
            let page = tasks::page(tx, &id, 1, 2)?;
            assert_eq!(page[0], done);
            Ok::<_, Error>((tasks::held(tx, "here", 10)?, page))
        })
        .await
        .unwrap();
    assert_eq!(held.iter().map(|task| task.index).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(page.iter().map(|task| task.index).collect::<Vec<_>>(), [1, 2]);
}

async fn waiting_tasks_come_back_when_they_are_due(place: Place) {
    let (store, world) = (place.open().await, place.world());
    let one = execution(&world, "first", 7);
    made(&store, &one).await;
    let id = one.id;
    store
        .write(move |tx| {
            let now = tx.world().now();
            tasks::claim_fresh(tx, &id, 0, 3, "here", now)?;
            for mut task in tasks::held(tx, "here", 10)? {
                task.state = State::Waiting(now.plus_ms(1000 * (3 - task.index)));
                assert!(recorded(tx, &task)?);
            }
            assert_eq!(tasks::earliest(tx, &id)?, Some(now.plus_ms(1000)));
            assert!(tasks::due(tx, &id, now, 10)?.is_empty());
            let due = tasks::due(tx, &id, now.plus_ms(2000), 10)?;
            assert_eq!(due.iter().map(|task| task.index).collect::<Vec<_>>(), [2, 1]);
            tasks::claim_again(tx, &due[0], "there", now)?;
            assert_eq!(tasks::held(tx, "there", 10)?[0].attempt, 2);
            assert_eq!(tasks::cancel_waiting(tx, &id, now)?, 2);
            assert_eq!(tasks::earliest(tx, &id)?, None);
            assert!(tasks::claim_again(tx, &due[1], "there", now).is_err(), "it is cancelled");
            Ok::<_, Error>(())
        })
        .await
        .unwrap();
}

async fn candidates_take_turns_in_each_workspace(place: Place) {
    let (store, world) = (place.open().await, place.world());
    for (name, turn, running, of) in
        [("a", 3, 0, "wsp_1"), ("b", 1, 4, "wsp_1"), ("c", 2, 9, "wsp_2")]
    {
        let mut one = execution(&world, name, 12);
        (one.turn, one.next, one.counts.running, one.workspace) =
            (turn, running, running, WorkspaceId::known(of));
        made(&store, &one).await;
    }
    let mut later = execution(&world, "later", 12);
    later.ready_at = Some(Timestamp::from_ms(i64::MAX - 1));
    made(&store, &later).await;
    let mut huge = execution(&world, "huge", 12);
    (huge.turn, huge.memory_mb) = (0, 4_097);
    made(&store, &huge).await;
    let now = world.now();
    let (all, first, running) = store
        .read(move |tx| {
            let one = claims::Claimer { name: "one", abandoned: now, memory_mb: 4_096 };
            assert!(claims::next_ready(tx, (None, one))?.is_some_and(|ready| ready < now));
            Ok::<_, Error>((
                claims::candidates(tx, (SlotKind::Task, one), now, 9)?,
                claims::candidates(tx, (SlotKind::Task, one), now, 1)?,
                claims::running(tx, SlotKind::Task)?,
            ))
        })
        .await
        .unwrap();
    assert_eq!(all.iter().map(|one| one.room).collect::<Vec<_>>(), [6, 10, 1]);
    assert_eq!(first.iter().map(|one| one.room).collect::<Vec<_>>(), [6, 1]);
    let counts: Vec<_> =
        running.iter().map(|(workspace, count)| (workspace.as_str(), *count)).collect();
    assert_eq!(counts, [("wsp_1", 4), ("wsp_2", 9)]);
}

async fn tasks_are_left_to_machines_that_may_have_their_image(place: Place) {
    let (store, world) = (place.open().await, place.world());
    let one = execution(&world, "one", 12);
    made(&store, &one).await;
    let now = world.now();
    let abandoned = now.minus(Duration::from_secs(60));
    let there = move |name: &str, memory_mb| holders::Holder {
        name: name.into(),
        slots: 4,
        memory_mb,
        renewed_at: now,
    };
    store
        .write(move |tx| {
            let may_claim = |tx: &mut Tx<'_>, name| {
                let claimer = claims::Claimer { name, abandoned, memory_mb: 4_096 };
                let ready = claims::next_ready(tx, (None, claimer))?.is_some();
                let all = claims::candidates(tx, (SlotKind::Task, claimer), now, 9)?;
                assert_eq!(!all.is_empty(), ready);
                Ok::<_, Error>(ready)
            };
            holders::renew(tx, &there("here", 4_096))?;
            holders::renew(tx, &there("small", one.memory_mb - 1))?;
            let missing_at =
                |tx: &mut Tx<'_>, machine| images::missing_at(tx, &one, machine, abandoned);
            assert!(!missing_at(tx, "here")?, "there is no other");
            assert!(may_claim(tx, "here")?, "so that it ends");
            holders::renew(tx, &there("there", 4_096))?;
            assert!(missing_at(tx, "here")?);
            assert_eq!([may_claim(tx, "here")?, may_claim(tx, "there")?], [false, true]);
            assert!(!missing_at(tx, "there")?);
            assert_eq!([may_claim(tx, "here")?, may_claim(tx, "there")?], [true, true]);

            // What small machines have the image of, they cannot run.
            usage::alive(tx, "small", now, None)?;
            assert!(!missing_at(tx, "here")?);
            usage::alive(tx, "given up", abandoned.minus(Duration::from_millis(1)), None)?;
            assert!(!missing_at(tx, "here")?, "it has been away for too long");
            usage::alive(tx, "away", abandoned, None)?;
            assert!(missing_at(tx, "here")?, "it may come back");
            assert_eq!([may_claim(tx, "here")?, may_claim(tx, "there")?], [false, false]);
            assert!(may_claim(tx, "away")?);
            assert!(!missing_at(tx, "away")?);
            assert!(may_claim(tx, "here")?, "so that it ends");
            Ok::<_, Error>(())
        })
        .await
        .unwrap();
}

async fn room_is_what_nobody_wants(place: Place) {
    let (store, world) = (place.open().await, place.world());
    let (wide, mut narrow, mut leaving) = (
        execution(&world, "wide", 100),
        execution(&world, "narrow", 3),
        execution(&world, "leaving", 9),
    );
    (narrow.next, narrow.counts.running) = (1, 1);
    (leaving.phase, leaving.next, leaving.counts.running) = (Phase::Cancelling, 2, 2);
    for one in [&wide, &narrow, &leaving] {
        made(&store, one).await;
    }
    let wanted = async |of: Option<&'static str>| {
        let of = of.map(WorkspaceId::known);
        store.read(move |tx| claims::wanted(tx, of.as_ref())).await.unwrap()
    };
    assert_eq!(wanted(None).await, 10 + 3 + 2);
    assert_eq!(wanted(Some("wsp_nobody")).await, 0);
    let here =
        holders::Holder { name: "here".into(), slots: 4, memory_mb: 4096, renewed_at: world.now() };
    let seen = here.clone();
    store
        .write(move |tx| {
            assert!(!holders::renew(tx, &here)?, "it is new");
            assert!(holders::renew(tx, &here)?);
            assert_eq!(holders::lock_all(tx)?, std::slice::from_ref(&here));
            assert!(!holders::lock_if_stale(tx, "here", here.renewed_at.plus_ms(1))?);
            assert!(holders::lock_if_stale(tx, "here", here.renewed_at)?);
            holders::remove(tx, "here")
        })
        .await
        .unwrap();
    assert!(!store.read(holders::list).await.unwrap().contains(&seen));
}

async fn old_executions_are_forgotten_in_bounded_steps(place: Place) {
    let (store, world) = (place.open().await, place.world());
    for (name, ended) in [("old", Some(1000)), ("recent", Some(5000)), ("open", None)] {
        let mut one = execution(&world, name, 10);
        made(&store, &one).await;
        one.ended_at = ended.map(Timestamp::from_ms);
        store
            .write(move |tx| {
                tasks::claim_fresh(tx, &one.id, 0, 10, "here", Timestamp::from_ms(1))?;
                executions::put(tx, &one)
            })
            .await
            .unwrap();
    }
    let mut steps = Vec::new();
    loop {
        let step =
            store.write(|tx| executions::trim(tx, Timestamp::from_ms(5000), 4)).await.unwrap();
        if step == 0 {
            break;
        }
        steps.push(step);
    }
    assert_eq!(steps, [4, 4, 3]);
    let left = store
        .read(|tx| executions::open_of(tx, &workspace(), KindName::Job, "nightly"))
        .await
        .unwrap();
    assert_eq!(left.len(), 1);
}

async fn plans_are_sealed_anew_with_all_other_secrets(place: Place) {
    let (store, world) = (place.open().await, place.world());
    let one = execution(&world, "first", 1);
    let context = executions::context(&one.id);
    let sealed = store.keyring().read().seal(&context, "the plan").unwrap();
    let (id, order) = (one.id.clone(), Order { plan: sealed.clone(), arguments: "[]".into() });
    store.write(move |tx| executions::insert(tx, &one, &order)).await.unwrap();
    assert_eq!(store.rotate_keys().await.unwrap().rows, 1);
    let now = store.read(move |tx| executions::order(tx, &id)).await.unwrap().unwrap().plan;
    assert_ne!(now, sealed);
    assert_eq!(store.keyring().read().open(&context, &now).unwrap(), "the plan");
}

async fn a_workspace_takes_its_executions_with_it(place: Place) {
    let (store, world) = (place.open().await, place.world());
    let one = execution(&world, "first", 2);
    made(&store, &one).await;
    let left = store
        .write(move |tx| {
            tasks::claim_fresh(tx, &one.id, 0, 2, "here", one.created_at)?;
            assert_eq!(store::resources::clear_workspace(tx, &workspace(), 1)?, 1);
            assert_eq!(store::resources::clear_workspace(tx, &workspace(), 9)?, 2);
            assert!(executions::order(tx, &one.id)?.is_none());
            tasks::held(tx, "here", 9)
        })
        .await
        .unwrap();
    assert!(left.is_empty());
}
