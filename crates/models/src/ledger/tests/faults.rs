//! Tests with kills, power cuts, full disks, and stores that are away.

use super::*;

#[tokio::test]
async fn a_kill_counts_what_was_in_flight_and_loses_nothing() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 1000));
    reserve(&ledger, &money, 100).await.unwrap().settle(&call(40));
    ledger.flush().await;
    reserve(&ledger, &money, 100).await.unwrap().settle(&call(20));
    reserve(&ledger, &money, 100).await.unwrap().give_back();
    let in_flight = reserve(&ledger, &money, 100).await.unwrap();
    let settings = place.kill(ledger, "b");
    std::mem::forget(in_flight);
    for round in 0..3 {
        let again = place.open_with(settings.clone()).await;
        assert_eq!(place.books.used(), 160, "round {round}");
        assert_eq!(place.books.held(), 0, "round {round}");
        assert_eq!(place.books.usage().calls, 3, "round {round}");
        assert_eq!(over(reserve(&again, &money, 841).await).left, 840);
        again.close().await;
    }
}

#[tokio::test]
async fn a_call_without_a_bound_does_not_keep_a_server_from_starting() {
    let place = Place::new();
    let (ledger, tokens) = (place.open().await, limit(LimitMeasure::InputTokens, 1000));
    reserve(&ledger, &tokens, 500).await.unwrap().settle(&call(500));
    let most = hold(&tokens, i64::MAX);
    let _crosses = ledger.reserve(vec![most], call(1)).await.unwrap();
    let again = place.open_with(place.kill(ledger, "again")).await;
    assert!(over(reserve(&again, &tokens, 1).await).left <= 0);
    again.close().await;
    assert!((1000..i64::MAX).contains(&place.books.used()), "{}", place.books.used());
}

#[tokio::test]
async fn a_start_that_is_killed_counts_once() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 1000));
    let in_flight = reserve(&ledger, &money, 100).await.unwrap();
    let settings = place.kill(ledger, "b");
    std::mem::forget(in_flight);
    // The store takes it in, but its answer is lost, and the files stay.
    place.books.is_forgetful.store(true, Ordering::Relaxed);
    let failed = Ledger::open(settings.clone(), place.books.clone(), place.world()).await;
    let Err(failed @ OpenError::Books(_)) = failed else { panic!("it opened") };
    assert_eq!(types::chain(&failed), "limits of models cannot be read: on purpose");
    assert_eq!(place.books.used(), 100);
    place.open_with(settings).await.close().await;
    assert_eq!((place.books.used(), place.books.usage().calls), (100, 1));
}

#[tokio::test]
async fn after_a_power_cut_what_was_granted_counts_as_used() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 1600));
    reserve(&ledger, &money, 10).await.unwrap().settle(&call(10));
    ledger.flush().await;
    let held = place.books.held();
    assert!((1..=200).contains(&held), "{held}");
    let settings = place.kill(ledger, "b");
    let settings = Settings { boot: "another".into(), ..settings };
    place.open_with(settings.clone()).await.close().await;
    assert_eq!((place.books.used(), place.books.held()), (10 + held, 0));
    place.open_with(Settings { boot: "third".into(), ..settings }).await.close().await;
    assert_eq!(place.books.used(), 10 + held);
}

#[tokio::test]
async fn a_batch_whose_answer_is_lost_counts_once() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 1000));
    for _ in 0..10 {
        place.books.is_forgetful.store(true, Ordering::Relaxed);
        reserve(&ledger, &money, 100).await.unwrap().settle(&call(100));
        ledger.flush().await;
    }
    over(reserve(&ledger, &money, 1).await);
    assert_eq!(place.books.used(), 1000);
}

#[tokio::test]
async fn without_a_store_grants_are_used_up_and_then_it_is_said() {
    let place = Place::new();
    let settings = Settings { wait_max: Duration::from_millis(50), ..place.settings("a") };
    let (ledger, money) = (place.open_with(settings).await, limit(LimitMeasure::Cost, 1600));
    reserve(&ledger, &money, 10).await.unwrap().settle(&call(10));
    place.books.is_away.store(true, Ordering::Relaxed);
    let mut served = 10;
    while let Ok(reservation) = reserve(&ledger, &money, 10).await {
        reservation.settle(&call(10));
        served += 10;
    }
    assert!((90..=210).contains(&served), "{served}");
    let other = Arc::new(ModelLimit { id: "other".into(), ..(*money).clone() });
    assert!(matches!(reserve(&ledger, &other, 1).await, Err(Refused::Unavailable(_))));
    // A call without limits does not ask the store.
    ledger.reserve(vec![], call(5)).await.unwrap().settle(&call(5));
    place.books.is_away.store(false, Ordering::Relaxed);
    ledger.close().await;
    assert_eq!(place.books.used(), served);
    assert_eq!(place.books.usage().cost, served + 5);
}

#[tokio::test]
async fn what_cannot_be_moved_at_the_end_is_moved_at_the_next_start() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 1600));
    reserve(&ledger, &money, 10).await.unwrap().settle(&call(10));
    ledger.flush().await;
    place.books.is_away.store(true, Ordering::Relaxed);
    reserve(&ledger, &money, 10).await.unwrap().settle(&call(10));
    let waiting = tokio::spawn({
        let (ledger, money) = (ledger.clone(), money.clone());
        async move { reserve(&ledger, &money, 1500).await }
    });
    tokio::task::yield_now().await;
    ledger.close().await;
    assert!(matches!(waiting.await.unwrap(), Err(Refused::Unavailable(_))));
    // A flush of a closed ledger returns.
    ledger.flush().await;
    drop(ledger);
    place.books.is_away.store(false, Ordering::Relaxed);
    assert_eq!(place.books.used(), 10);
    place.open().await.close().await;
    assert_eq!((place.books.used(), place.books.held()), (20, 0));
    assert_eq!(place.books.usage().calls, 2);
}

#[tokio::test]
async fn a_store_that_never_answers_does_not_hold_up_the_end() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 1000));
    reserve(&ledger, &money, 10).await.unwrap().settle(&call(10));
    ledger.flush().await;
    place.books.hangs.store(true, Ordering::Relaxed);
    let asked = place.books.asked.load(Ordering::Relaxed);
    reserve(&ledger, &money, 10).await.unwrap().settle(&call(10));
    while place.books.asked.load(Ordering::Relaxed) == asked {
        tokio::task::yield_now().await;
    }
    // The journal is synced while the ledger waits for the store.
    reserve(&ledger, &money, 10).await.unwrap().settle(&call(10));
    while ledger.0.state.lock().journal.is_unsynced() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ledger.close().await;
    drop(ledger);
    place.books.hangs.store(false, Ordering::Relaxed);
    place.open().await.close().await;
    assert_eq!((place.books.used(), place.books.held()), (30, 0));
    assert_eq!(place.books.usage().calls, 3);
}

#[tokio::test]
async fn a_batch_that_comes_in_late_counts_once() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 1000));
    reserve(&ledger, &money, 100).await.unwrap().settle(&call(40));
    ledger.flush().await;
    reserve(&ledger, &money, 100).await.unwrap().settle(&call(20));
    let late = ledger.0.state.lock().batch(&ledger.0.settings).unwrap();
    let (batch, settings) = (late.clone(), place.kill(ledger, "b"));
    *place.books.late.lock() = Some(batch);
    place.open_with(settings).await.close().await;
    assert_eq!((place.books.used(), place.books.held()), (60, 0));
    assert_eq!(place.books.usage().calls, 2);
}

/// Even if the end of a call could not be written, the newest file has its beginning.
#[tokio::test]
async fn a_full_disk_hides_no_call_that_has_ended() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 1000));
    let first = reserve(&ledger, &money, 100).await.unwrap();
    reserve(&ledger, &money, 10).await.unwrap().settle(&call(10));
    ledger.flush().await;
    if let Some(background) = ledger.0.background.lock().take() {
        background.abort();
    }
    let position = {
        let mut state = ledger.0.state.lock();
        state.journal.fill_disk();
        state.journal.last()
    };
    first.settle(&call(40));
    {
        let mut state = ledger.0.state.lock();
        assert!(state.journal.is_behind());
        state.rotate().unwrap();
        assert!(state.journal.done(position).is_empty(), "the new file is not on the disk");
        let file = state.journal.unsynced().unwrap();
        file.sync_data().unwrap();
        state.journal.synced(&file);
        let done = state.journal.done(position);
        assert_eq!(done.len(), 1);
        done.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        state.journal.catch_up().unwrap();
        state.rotate().unwrap();
        let mut records = 0;
        let files = journal::list(&ledger.0.settings.folder).unwrap();
        journal::read(files.last().unwrap(), |_, _| records += 1).unwrap();
        assert_eq!(records, 0, "what has ended is not begun again");
    }
    place.open_with(place.kill(ledger, "b")).await.close().await;
    assert_eq!((place.books.used(), place.books.held()), (50, 0));
    assert_eq!(place.books.usage().calls, 2);
}

/// While the disk is full nothing can be noted, but it can be counted what was noted before.
#[tokio::test]
async fn a_ledger_opens_on_a_full_disk_and_counts_once() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 1000));
    reserve(&ledger, &money, 100).await.unwrap().settle(&call(40));
    ledger.flush().await;
    reserve(&ledger, &money, 100).await.unwrap().settle(&call(20));
    let in_flight = reserve(&ledger, &money, 100).await.unwrap();
    let mut settings = place.kill(ledger, "b");
    settings.wait_max = Duration::from_millis(50);
    std::mem::forget(in_flight);
    let full = settings.folder.join(journal::FULL);
    let is_counted = || {
        let counted = (place.books.used(), place.books.held(), place.books.usage().calls);
        assert_eq!(counted, (160, 0, 3));
    };
    std::fs::write(&full, "").unwrap();
    for _ in 0..3 {
        let again = place.open_with(settings.clone()).await;
        is_counted();
        let refused = reserve(&again, &money, 10).await;
        assert!(matches!(refused, Err(Refused::Unavailable(_))));
        again.close().await;
    }
    let again = place.open_with(settings.clone()).await;
    std::fs::remove_file(&full).unwrap();
    // The background task has begun a file, and the earlier ones are still there after a kill.
    assert!(background::sync(&again.0).await);
    let settings = place.kill(again, "c");
    let again = place.open_with(settings).await;
    is_counted();
    reserve(&again, &money, 10).await.unwrap().settle(&call(10));
    again.close().await;
    assert_eq!((place.books.used(), place.books.held()), (170, 0));
    assert_eq!(place.books.usage().calls, 4);
    let files = journal::list(&place.folder.path().join("c")).unwrap();
    assert_eq!(files.len(), 1, "{files:?}");
}

#[tokio::test]
async fn a_torn_file_is_synced_before_another_one_goes_on() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 1000));
    let first = reserve(&ledger, &money, 100).await.unwrap();
    let second = reserve(&ledger, &money, 100).await.unwrap();
    ledger.flush().await;
    if let Some(background) = ledger.0.background.lock().take() {
        background.abort();
    }
    first.settle(&call(10));
    ledger.0.state.lock().journal.fill_disk();
    second.settle(&call(40));
    {
        let state = ledger.0.state.lock();
        assert!(state.journal.is_torn() && state.journal.is_unsynced());
    }
    // What stands for the full disk cannot be synced.
    assert!(!background::sync(&ledger.0).await, "the end of the first call is not on the disk");
    assert!(background::sync(&ledger.0).await);
    place.open_with(place.kill(ledger, "b")).await.close().await;
    assert_eq!((place.books.used(), place.books.held()), (50, 0));
}

#[tokio::test]
async fn a_clean_end_leaves_no_records_but_of_what_is_open() {
    let place = Place::new();
    let (ledger, money) = (place.open().await, limit(LimitMeasure::Cost, 1000));
    let open = reserve(&ledger, &money, 5).await.unwrap();
    for _ in 0..10 {
        reserve(&ledger, &money, 10).await.unwrap().settle(&call(10));
    }
    ledger.close().await;
    let files = journal::list(&place.folder.path().join("a")).unwrap();
    let mut records = 0;
    for file in &files {
        journal::read(file, |_, _| records += 1).unwrap();
    }
    assert_eq!((files.len(), records), (1, 1));
    // It ends after the server, and counts at the next start.
    open.settle(&call(3));
    drop(ledger);
    place.open().await.close().await;
    assert_eq!((place.books.used(), place.books.held()), (103, 0));
}
