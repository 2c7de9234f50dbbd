//! Rows of workflow jobs: which are due when, and which are deleted.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, on_both};
use store::runners::{self, Leaving, Phase, Repository, Runner, WorkflowJob};
use store::{Error, Store, Tx};
use types::Timestamp;
use types::ids::{ExecutionId, ResourceId, WorkspaceId};

on_both!(
    a_workflow_job_reads_back_in_every_phase,
    workspaces_take_turns,
    many_repositories_of_one_workspace_do_not_keep_those_of_others,
    a_workspace_finds_only_its_own,
    a_poll_is_given_to_one,
    what_is_settled_is_forgotten_in_time,
);

const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_000);

fn job(workspace: &str, id: i64) -> WorkflowJob {
    WorkflowJob {
        workspace: WorkspaceId::known(workspace),
        id,
        run_id: 1,
        job: ResourceId::known("res_job"),
        repository: "me/repo".into(),
        phase: Phase::Wanted,
        since: NOW,
        attempts: 0,
        serial: 0,
        due_at: Some(NOW),
        created_at: NOW,
    }
}

fn runner(name: &str) -> Runner {
    Runner { name: name.into(), id: 7, execution: ExecutionId::known("exe_a") }
}

async fn write<T: Send + 'static>(
    store: &Store,
    work: impl FnMut(&mut Tx<'_>) -> Result<T, Error> + Send + 'static,
) -> T {
    store.write(work).await.unwrap()
}

async fn a_workflow_job_reads_back_in_every_phase(place: Place) {
    let store = place.open().await;
    let phases = [
        Phase::Wanted,
        Phase::Starting { name: "a".into() },
        Phase::Waiting(runner("b")),
        Phase::PickedUp(runner("c")),
        Phase::Done,
        Phase::Lost,
    ];
    for (number, phase) in (1..).zip(phases) {
        let settled = matches!(phase, Phase::Done | Phase::Lost);
        let due_at = (!settled).then_some(NOW.plus_s(number));
        let changed = WorkflowJob {
            phase,
            due_at,
            attempts: 2,
            serial: 3,
            since: NOW.plus_s(1),
            ..job("wsp_a", number)
        };
        let expected = changed.clone();
        let (first, second, again) = write(&store, move |tx| {
            let first = runners::insert(tx, &job("wsp_a", number))?;
            let second = runners::insert(tx, &job("wsp_a", number))?;
            runners::put(tx, &changed)?;
            Ok((first, second, runners::lock(tx, &changed.workspace, number)?))
        })
        .await;
        assert!(first && !second);
        assert_eq!(again, Some(expected));
    }
    let (live, open, names) = write(&store, |tx| {
        let workspace = WorkspaceId::known("wsp_a");
        let live = runners::runners_of(tx, &ResourceId::known("res_job"))?;
        Ok((live, runners::count_open(tx, &workspace)?, runners::names(tx, &workspace, "me/repo")?))
    })
    .await;
    assert_eq!((live, open), (3, 4));
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
}

async fn workspaces_take_turns(place: Place) {
    let store = place.open().await;
    let due = write(&store, |tx| {
        for id in 0..50 {
            runners::insert(tx, &job("wsp_a", id))?;
        }
        for id in 0..2 {
            let late = WorkflowJob { due_at: Some(NOW.plus_s(5)), ..job("wsp_b", id) };
            runners::insert(tx, &late)?;
        }
        runners::insert(tx, &WorkflowJob { due_at: Some(NOW.plus_s(60)), ..job("wsp_c", 1) })?;
        runners::due(tx, NOW.plus_s(10), 4)
    })
    .await;
    let due: Vec<_> = due.iter().map(|job| (job.workspace.as_str(), job.id)).collect();
    assert_eq!(due, [("wsp_a", 0), ("wsp_b", 0), ("wsp_a", 1), ("wsp_b", 1)]);
}

async fn many_repositories_of_one_workspace_do_not_keep_those_of_others(place: Place) {
    let store = place.open().await;
    let (polls, leaving) = write(&store, |tx| {
        // Those of the first workspace have been due for longer.
        for (workspace, number, due_at) in
            (0..50).map(|n| ("wsp_a", n, NOW)).chain((0..2).map(|n| ("wsp_b", n, NOW.plus_s(5))))
        {
            let workspace = WorkspaceId::known(workspace);
            let name = format!("me/repo-{number:02}");
            let repository = Repository { workspace: workspace.clone(), name: name.clone() };
            runners::poll_too(tx, &repository, due_at)?;
            let leaving = Leaving {
                workspace,
                job: ResourceId::known("res_job"),
                repository: name,
                runner: runner(&format!("runner-{number:02}")),
                tries: 0,
                due_at,
            };
            runners::leave(tx, &leaving)?;
        }
        let now = NOW.plus_s(10);
        Ok((runners::due_polls(tx, now, 4)?, runners::due_leaving(tx, now, 4)?))
    })
    .await;
    let expected = ["wsp_a 00", "wsp_b 00", "wsp_a 01", "wsp_b 01"];
    let shown = |workspace: &WorkspaceId, name: &str| {
        format!("{} {}", workspace.as_str(), name.rsplit('-').next().unwrap())
    };
    let polls: Vec<_> = polls.iter().map(|one| shown(&one.workspace, &one.name)).collect();
    let leaving: Vec<_> =
        leaving.iter().map(|one| shown(&one.workspace, &one.runner.name)).collect();
    assert_eq!(
        (polls, leaving),
        (expected.map(str::to_owned).into(), expected.map(str::to_owned).into())
    );
}

async fn a_workspace_finds_only_its_own(place: Place) {
    let store = place.open().await;
    let (a, b) = (WorkspaceId::known("wsp_a"), WorkspaceId::known("wsp_b"));
    let found = write(&store, move |tx| {
        let waiting = WorkflowJob { phase: Phase::Waiting(runner("x")), ..job("wsp_a", 1) };
        runners::insert(tx, &waiting)?;
        runners::put(tx, &waiting)?;
        let leaving = Leaving {
            workspace: a.clone(),
            job: ResourceId::known("res_job"),
            repository: "me/repo".into(),
            runner: runner("y"),
            tries: 0,
            due_at: NOW,
        };
        runners::leave(tx, &leaving)?;
        runners::leave(tx, &Leaving { tries: 1, ..leaving.clone() })?;
        let own = (runners::lock_by_runner(tx, &a, "x")?, runners::find_leaving(tx, &a, "y")?);
        assert_eq!(own, (Some(waiting), Some(Leaving { tries: 1, ..leaving })));
        let theirs =
            runners::names(tx, &b, "me/repo")?.len() + runners::open(tx, &b, "me/repo", 9)?.len();
        let gone = runners::forget_leaving(tx, &b, "y")?;
        Ok((runners::lock(tx, &b, 1)?, runners::lock_by_runner(tx, &b, "x")?, theirs, gone))
    })
    .await;
    assert_eq!(found, (None, None, 0, false));
}

async fn a_poll_is_given_to_one(place: Place) {
    let store = place.open().await;
    let repository = Repository { workspace: WorkspaceId::known("wsp_a"), name: "me/repo".into() };
    let of = repository.clone();
    write(&store, move |tx| runners::poll_too(tx, &of, NOW)).await;
    let mut claims = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, of) = (store.clone(), repository.clone());
        claims.spawn(async move {
            write(&store, move |tx| runners::claim_poll(tx, &of, NOW, NOW.plus_s(60))).await
        });
    }
    assert_eq!(claims.join_all().await.into_iter().filter(|claimed| *claimed).count(), 1);
    let (soon, now) = write(&store, move |tx| {
        let soon = runners::due_polls(tx, NOW.plus_s(59), 9)?.len();
        runners::poll_now(tx, &repository, NOW.plus_s(1))?;
        Ok((soon, runners::due_polls(tx, NOW.plus_s(1), 9)?.len()))
    })
    .await;
    assert_eq!((soon, now), (0, 1));
}

async fn what_is_settled_is_forgotten_in_time(place: Place) {
    let store = place.open().await;
    let workspace = WorkspaceId::known("wsp_a");
    let (trimmed, left, deliveries) = write(&store, move |tx| {
        for (id, due_at, since) in [(1, None, NOW), (2, Some(NOW), NOW), (3, None, NOW.plus_s(10))]
        {
            runners::insert(
                tx,
                &WorkflowJob { phase: Phase::Done, due_at, since, ..job("wsp_a", id) },
            )?;
        }
        let twice = [
            runners::note_delivery(tx, &workspace, "d", NOW)?,
            runners::note_delivery(tx, &workspace, "d", NOW)?,
        ];
        assert_eq!(twice, [true, false]);
        let trimmed = runners::trim(tx, NOW.plus_s(5), 10)?;
        let left = [1, 2, 3].map(|id| runners::lock(tx, &workspace, id).map(|job| job.is_some()));
        let left: Result<Vec<bool>, Error> = left.into_iter().collect();
        Ok((trimmed, left?, runners::trim_deliveries(tx, NOW.plus_s(5), 10)?))
    })
    .await;
    assert_eq!((trimmed, left, deliveries), (1, vec![false, true, true], 1));
}
