//! Tests recording many attempts into a real store.

use super::{NOW, open, open_with_clock, piece, source};
use crate::logs::find::find;
use crate::logs::{Logs, Lost, Printer, Question, Settings, Severity, Source};
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::Store;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use types::KindName;
use types::ids::WorkspaceId;
use types::instance::{InstanceName, Printed, Stream};

pub(super) fn all() -> Question {
    Question {
        workspace: WorkspaceId::known("wsp_a"),
        kind: KindName::Job,
        name: "nightly".into(),
        execution: None,
        task: None,
        from: NOW,
        to: NOW.plus_s(60),
        search: None,
        trace: None,
        severities: Severity::ALL.to_vec(),
        offset: 0,
        limit: 1000,
    }
}

async fn messages(store: &Store, question: &Question) -> Vec<String> {
    find(store, question).await.unwrap().lines.into_iter().rev().map(|line| line.message).collect()
}

#[tokio::test]
async fn lines_are_there_within_a_second_and_all_of_them_at_the_end() {
    let (store, _folder) = open(false).await;
    let logs = Logs::start(store.clone(), crate::logs::Settings::default());
    let (printed, pieces) = mpsc::channel::<Printed>(1);
    let recording = tokio::spawn({
        let logs = logs.clone();
        async move { logs.record(logs.begin(source(0)), pieces).await }
    });
    printed.send(piece(10, 1, Stream::Stdout, b"first\nsec")).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while messages(&store, &all()).await != ["first"] {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the line was not written while the task ran"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    printed.send(piece(20, 2, Stream::Stdout, b"ond")).await.unwrap();
    drop(printed);
    assert_eq!(recording.await.unwrap(), Ok(()));
    assert_eq!(messages(&store, &all()).await, ["first", "second"]);
}

#[tokio::test]
async fn a_recording_goes_on_where_an_earlier_one_was_killed() {
    let (store, _folder) = open(false).await;
    let settings = crate::logs::Settings::default();
    let (printed, pieces) = mpsc::channel::<Printed>(1);
    let first = Logs::start(store.clone(), settings.clone());
    let recording = tokio::spawn(async move { first.record(first.begin(source(0)), pieces).await });
    printed.send(piece(7, 1, Stream::Stdout, b"a\nb")).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while messages(&store, &all()).await != ["a"] {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the line was not written while the task ran"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    recording.abort();
    drop(printed);

    let second = Logs::start(store.clone(), settings);
    let writer = second.resume(source(0)).await.unwrap();
    assert_eq!(writer.from(), 7);
    let (printed, pieces) = mpsc::channel(1);
    printed.send(piece(9, 2, Stream::Stdout, b"c\n")).await.unwrap();
    drop(printed);
    assert_eq!(second.record(writer, pieces).await, Ok(()));
    assert_eq!(messages(&store, &all()).await, ["a", "bc"]);
    assert_eq!(second.resume(source(1)).await.unwrap().from(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_attempts_share_the_writer_on_both_databases() {
    for postgres in [false, true] {
        let (store, _folder) = open(postgres).await;
        let logs = Logs::start(store.clone(), crate::logs::Settings::default());
        let recordings: Vec<_> = (0..200)
            .map(|task| {
                let logs = logs.clone();
                tokio::spawn(async move {
                    let (printed, pieces) = mpsc::channel(2);
                    let print = async move {
                        for line in 0..3_i64 {
                            let text = format!("{task} {line}\n");
                            printed
                                .send(piece(
                                    line.unsigned_abs() + 1,
                                    line,
                                    Stream::Stdout,
                                    text.as_bytes(),
                                ))
                                .await
                                .unwrap();
                        }
                    };
                    tokio::join!(print, logs.record(logs.begin(source(task)), pieces)).1
                })
            })
            .collect();
        for recording in recordings {
            assert_eq!(recording.await.unwrap(), Ok(()));
        }
        let found = find(&store, &all()).await.unwrap();
        assert_eq!((found.total, found.lines.len()), (600, 600));
        assert_eq!(
            messages(&store, &Question { task: Some(7), ..all() }).await,
            ["7 0", "7 1", "7 2"]
        );

        // Old lines are deleted, and nothing else.
        assert_eq!(logs.tidy(NOW.plus_s(60)).await.unwrap(), 0);
        assert_eq!(logs.tidy(NOW.plus_s(31 * 86_400)).await.unwrap(), 200);
        assert_eq!(find(&store, &all()).await.unwrap().total, 0);
    }
}

/// Prints one line.
async fn print(logs: Logs, source: Source) -> Result<(), Lost> {
    let (printed, pieces) = mpsc::channel(1);
    printed.send(piece(1, 1, Stream::Stdout, b"line\n")).await.unwrap();
    drop(printed);
    logs.record(logs.begin(source), pieces).await
}

#[tokio::test]
async fn what_the_database_never_takes_costs_nobody_else_time_or_a_line() {
    // SQLite takes everything.
    let (store, _folder) = open(true).await;
    let logs = Logs::start(store.clone(), Settings::default());
    // Too long for an index of PostgreSQL, and too mixed to be compressed.
    let long = store.world().random_text(10_000);
    // All but the first wait for the writer at the same time.
    let prints = (0..40).map(|task| match task {
        20 => print(logs.clone(), Source { name: long.clone(), ..source(task) }),
        _ => print(logs.clone(), source(task)),
    });
    let printed = prints.collect::<JoinSet<_>>().join_all();
    let printed = tokio::time::timeout(Duration::from_secs(30), printed).await;
    let mut printed = printed.expect("it is not tried again for a minute");
    printed.retain(Result::is_err);
    assert_eq!(printed, [Err(Lost { chunks: 1 })]);
    assert_eq!(messages(&store, &all()).await, ["line"; 39]);
}

#[tokio::test]
async fn a_log_is_told_each_day_once_that_the_day_is_used_up() {
    let (store, _folder, clock) = open_with_clock(false).await;
    let settings = Settings { workspace_day_bytes_max: 100, ..Settings::default() };
    let logs = Logs::start(store.clone(), settings);
    let replica = Printer::Replica(InstanceName::new("replica-one-a-1").unwrap());
    let replica = Source { printer: replica, ..source(0) };
    let (printed, pieces) = mpsc::channel::<Printed>(1);
    let recording = tokio::spawn({
        let logs = logs.clone();
        async move { logs.record(logs.begin(replica), pieces).await }
    });
    // As much as is written at once.
    let much = format!("{}\n", "x".repeat(1000)).repeat(70);
    printed.send(piece(1, 1, Stream::Stdout, much.as_bytes())).await.unwrap();
    let week = Question { to: NOW.plus_s(7 * 86_400), ..all() };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while messages(&store, &week).await.len() != 1 {
        assert!(tokio::time::Instant::now() < deadline, "the log was not told");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    clock.fetch_add(86_400_000, Ordering::Relaxed);
    for next in 2..5 {
        printed.send(piece(next, 86_400_000, Stream::Stdout, much.as_bytes())).await.unwrap();
    }
    drop(printed);
    assert_eq!(recording.await.unwrap(), Ok(()));
    let told = messages(&store, &week).await;
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|line| line.contains("used up")), "{told:?}");
}

#[tokio::test]
async fn a_workspace_that_prints_without_end_leaves_room_to_others() {
    let (store, _folder) = open(false).await;
    let settings = Settings { workspace_day_bytes_max: 2_000, ..Settings::default() };
    let logs = Logs::start(store.clone(), settings);
    let line = "x".repeat(600);
    let print = async |source: Source| {
        let (printed, pieces) = mpsc::channel(2);
        printed.send(piece(1, 1, Stream::Stdout, format!("{line}\n").as_bytes())).await.unwrap();
        drop(printed);
        assert_eq!(logs.record(logs.begin(source), pieces).await, Ok(()));
    };
    for task in 0..5 {
        print(source(task)).await;
    }
    let neighbour = Source { workspace: WorkspaceId::known("wsp_b"), ..source(9) };
    print(neighbour).await;
    for task in 0..5 {
        let found = messages(&store, &Question { task: Some(task), ..all() }).await;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0] == line, task < 3, "{found:?}");
    }
    let of_neighbour = Question { workspace: WorkspaceId::known("wsp_b"), ..all() };
    assert_eq!(messages(&store, &of_neighbour).await, [line]);
}
