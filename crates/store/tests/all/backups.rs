//! Backups, tested by restoring them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::common::{Place, agent, on_both, workspace};
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::resources::{self, Stored};
use store::{Error, Store, Tx, backup, feed, references, settings};
use types::{KindName, Reference};

async fn fill(store: &Store) {
    let keys = store.keyring();
    let work = move |tx: &mut Tx<'_>| {
        let world = tx.world().clone();
        for number in 0..500 {
            let made = agent(&world, &format!("a{number}"));
            let keyring = keys.read();
            let wish = keyring.seal(&format!("resources/{}", made.id), "ü\0\"secret\"")?;
            let seal_key = Some(keyring.active_id().to_owned());
            drop(keyring);
            let external_id = (number % 2 == 0).then(|| "x".into());
            let made = resources::insert(tx, Stored { wish, seal_key, external_id, ..made })?;
            let field = "spec.policies".into();
            references::replace(
                tx,
                &made,
                &[Reference { kind: KindName::Policy, name: "p".into(), field }],
            )?;
        }
        settings::set(tx, "a", "line\nbreak")
    };
    store.write(work).await.unwrap();
}

async fn all(store: &Store) -> Vec<Stored> {
    let work = |tx: &mut Tx<'_>| {
        let workspace = workspace();
        let query = resources::Query::new(&workspace, KindName::Agent, Some(""));
        assert_eq!(resources::total(tx, &query)?, 500);
        resources::list(tx, &query)
    };
    store.read(work).await.unwrap()
}

/// Waits until everything written so far can be followed, and returns that position.
async fn settled(store: &Store, changes: usize) -> i64 {
    let mut follower = store.follow(0, Duration::from_millis(20));
    let mut seen = 0;
    while seen < changes {
        seen += follower.next().await.unwrap().len();
    }
    follower.position()
}

async fn moves(from: Place, to: Place) {
    let source = from.open().await;
    fill(&source).await;
    let position = settled(&source, 500).await;
    let file = from.folder().join("backup");
    let reports = Arc::new(Mutex::new(Vec::new()));
    let report = reports.clone();
    let rows = source
        .backup(&file, true, move |progress| report.lock().unwrap().push(progress))
        .await
        .unwrap();
    assert_eq!(reports.lock().unwrap().last().unwrap().rows, rows);
    backup::verify(&file).unwrap();
    let (target, restored) =
        Store::restore(to.settings.clone(), to.world(), &file, |_| Ok(()), |_| {}).await.unwrap();
    assert_eq!(restored, rows);
    assert_eq!(format!("{:?}", all(&target).await), format!("{:?}", all(&source).await));
    for stored in all(&target).await {
        let opened = target
            .keyring()
            .read()
            .open(&format!("resources/{}", stored.id), &stored.wish)
            .unwrap();
        assert_eq!(opened, "ü\0\"secret\"");
    }
    let users = |tx: &mut Tx<'_>| references::users(tx, &workspace(), KindName::Policy, "p");
    assert_eq!(target.read(users).await.unwrap().len(), 500);
    assert_eq!(
        target.read(|tx| settings::get(tx, "a")).await.unwrap().as_deref(),
        Some("line\nbreak")
    );
    drop(target);
    let target = to.open().await;
    let old = target.read(move |tx| feed::since(tx, None, position, 1)).await;
    let Err(Error::Gone { oldest }) = old else {
        panic!("a follower of the source is not told: {old:?}")
    };
    let mut follower = target.follow(oldest, Duration::from_millis(20));
    let made = all(&target).await.swap_remove(0);
    target.write(move |tx| resources::update(tx, made.clone())).await.unwrap();
    assert_eq!(follower.next().await.unwrap().len(), 1);
    drop((target, follower));
    let again = Store::restore(to.settings.clone(), to.world(), &file, |_| Ok(()), |_| {});
    assert!(again.await.err().unwrap().to_string().contains("not empty"));
}

macro_rules! moves {
    ($($name:ident: $from:ident => $to:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            Box::pin(moves(Place::$from(), Place::$to())).await;
        }
    )+};
}

moves!(
    a_backup_of_sqlite_restores_into_sqlite: sqlite => sqlite,
    a_backup_of_sqlite_restores_into_postgres: sqlite => postgres,
    a_backup_of_postgres_restores_into_sqlite: postgres => sqlite,
    a_backup_of_postgres_restores_into_postgres: postgres => postgres,
);

#[tokio::test]
async fn a_backup_whose_keys_are_missing_is_refused() {
    let (from, to) = (Place::sqlite(), Place::sqlite());
    let source = from.open().await;
    fill(&source).await;
    let file = from.folder().join("backup");
    source.backup(&file, false, |_| {}).await.unwrap();
    let refused = Store::restore(to.settings.clone(), to.world(), &file, |_| Ok(()), |_| {}).await;
    assert!(refused.err().unwrap().to_string().contains("key file"));
    fs::copy(&from.settings.key_file, &to.settings.key_file).unwrap();
    Store::restore(to.settings.clone(), to.world(), &file, |_| Ok(()), |_| {}).await.unwrap();
}

#[tokio::test]
async fn a_damaged_or_newer_backup_writes_nothing() {
    let (from, to) = (Place::sqlite(), Place::sqlite());
    let source = from.open().await;
    fill(&source).await;
    let file = from.folder().join("backup");
    source.backup(&file, true, |_| {}).await.unwrap();
    let whole = fs::read_to_string(&file).unwrap();
    for damaged in [
        whole.replace("a499", "b499"),
        whole[..whole.len() - 100].to_owned(),
        whole.replace("\"holm_backup\":1", "\"holm_backup\":2"),
        whole.replacen("\"schema\":", "\"schema\":99", 1),
    ] {
        fs::write(&file, damaged).unwrap();
        assert!(
            Store::restore(to.settings.clone(), to.world(), &file, |_| Ok(()), |_| {})
                .await
                .is_err()
        );
    }
    assert!(fs::read_dir(to.folder()).unwrap().next().is_none());
}

#[tokio::test]
async fn rows_that_are_not_accepted_are_not_kept() {
    let (from, to) = (Place::sqlite(), Place::sqlite());
    let source = from.open().await;
    fill(&source).await;
    let file = from.folder().join("backup");
    source.backup(&file, true, |_| {}).await.unwrap();
    let refuse = |tx: &mut Tx<'_>| {
        let value = settings::get(tx, "a")?;
        Err(Error::Unusable(format!("refused with {value:?}")))
    };
    let refused = Store::restore(to.settings.clone(), to.world(), &file, refuse, |_| {}).await;
    assert!(refused.err().unwrap().to_string().contains("line"));
    Store::restore(to.settings.clone(), to.world(), &file, |_| Ok(()), |_| {}).await.unwrap();
}

async fn a_reader_beside_another_release_is_refused_and_changes_nothing(place: Place) {
    place.open().await;
    let mut beside = place.settings.clone();
    beside.reads_beside = true;
    let open = || Store::open(beside.clone(), place.world());
    open().await.unwrap();
    // As the release before this one left it.
    place.sql("DELETE FROM migrations WHERE number = (SELECT MAX(number) FROM migrations)");
    for _ in 0..2 {
        let refused = open().await.err().unwrap().to_string();
        assert!(refused.contains("the release that the server runs"), "{refused}");
    }
}

on_both!(a_reader_beside_another_release_is_refused_and_changes_nothing);
