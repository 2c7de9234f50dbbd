//! Tests of what one workspace leaves for the others, and what the store leaves for all.

use super::super::hold::subject;
use super::*;

#[tokio::test]
async fn who_waits_leaves_places_for_other_workspaces() {
    let place = Place::new();
    let settings = Settings { waiting: Limits { total: 10, share: 1 }, ..place.settings("a") };
    let (ledger, money) = (place.open_with(settings).await, limit(LimitMeasure::Cost, 100));
    let _held = reserve(&ledger, &money, 80).await.unwrap();
    let waits = |workspace: &'static str| {
        let call = ModelCall { workspace: WorkspaceId::known(workspace), ..call(30) };
        ledger.reserve(vec![hold(&money, 30)], call)
    };
    let first = waits("wsp_a");
    tokio::pin!(first);
    assert!(is_waiting(&mut first).await);
    assert_eq!(over(waits("wsp_a").await).left, 20, "there is one place for a workspace");
    assert!(is_waiting(waits("wsp_b")).await);
}

#[tokio::test]
async fn one_workspace_leaves_room_for_the_limits_of_another() {
    let place = Place::new();
    let accounts = Limits { total: 10, share: 6 };
    let ledger = place.open_with(Settings { accounts, ..place.settings("a") }).await;
    let users = limit(LimitMeasure::Requests, 5);
    let mut kept = Vec::new();
    for number in 0..20 {
        let hold = Hold { limit: users.clone(), subject: format!("u{number}"), most: 1 };
        kept.extend(ledger.reserve(vec![hold], call(1)).await.ok());
    }
    assert_eq!(kept.len(), 6);
    let other = ModelCall { workspace: WorkspaceId::known("wsp_b"), ..call(1) };
    assert!(ledger.reserve(vec![hold(&users, 1)], other).await.is_ok());
}

#[tokio::test]
async fn subjects_without_end_do_not_fill_the_memory() {
    let place = Place::new();
    let settings = Settings {
        accounts: Limits { total: 10, share: 10 },
        usage_max: 10,
        idle_after: Duration::from_millis(1),
        ..place.settings("a")
    };
    let ledger = place.open_with(settings).await;
    let users = Arc::new(ModelLimit {
        per: LimitPer::EndUser,
        ..(*limit(LimitMeasure::Requests, 5)).clone()
    });
    let mut served = 0;
    for number in 0..100 {
        let hold = Hold { limit: users.clone(), subject: format!("u{number}"), most: 1 };
        let call = ModelCall { end_user: Some(format!("u{number}\0")), ..call(1) };
        match ledger.reserve(vec![hold], call.clone()).await {
            Ok(reservation) => {
                reservation.settle(&call);
                served += 1;
            }
            Err(error) => {
                assert!(matches!(error, Refused::Unavailable(_)), "{error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        let sizes = ledger.0.state.lock().sizes();
        assert!(sizes.0 <= 10 && sizes.1 <= 11, "{sizes:?}");
    }
    assert!(served > 10, "{served}");
    ledger.close().await;
    assert_eq!(place.books.usage().calls, served);
    assert_eq!(place.books.used(), served);
}

#[tokio::test]
async fn workspaces_take_turns_in_asking_the_store() {
    let place = Place::new();
    let settings = Settings { wants_max: 4, ..place.settings("a") };
    let (ledger, money) = (place.open_with(settings).await, limit(LimitMeasure::Cost, 100));
    place.books.is_away.store(true, Ordering::Relaxed);
    let reserve = |workspace: &'static str, subject: String| {
        let call = ModelCall { workspace: WorkspaceId::known(workspace), ..call(1) };
        let hold = Hold { limit: money.clone(), subject, most: 1 };
        let ledger = ledger.clone();
        tokio::spawn(async move { ledger.reserve(vec![hold], call).await.unwrap().give_back() })
    };
    let mut all: Vec<_> = (0..20).map(|n| reserve("wsp_a", format!("a{n}"))).collect();
    all.push(reserve("wsp_b", "b".into()));
    while ledger.0.state.lock().sizes().0 < all.len() {
        tokio::task::yield_now().await;
    }
    place.books.is_away.store(false, Ordering::Relaxed);
    for one in all {
        one.await.unwrap();
    }
    let asked = std::mem::take(&mut place.books.of.lock().asked_for);
    assert!(asked.iter().all(|batch| batch.len() <= 4), "{asked:?}");
    let of_b = subject(LimitPer::Model, "b");
    let turn = asked.iter().position(|batch| batch.iter().any(|one| one.subject == of_b));
    // The first batch may have been built before the others arrived.
    assert!(turn.is_some_and(|turn| turn <= 1), "{asked:?}");
    ledger.close().await;
}

#[tokio::test]
async fn a_journal_that_the_store_does_not_take_over_has_an_end() {
    let place = Place::new();
    let settings = Settings { journal_max: 4 << 10, ..place.settings("a") };
    let (ledger, money) = (place.open_with(settings).await, limit(LimitMeasure::Cost, 1_000));
    reserve(&ledger, &money, 100).await.unwrap().settle(&call(0));
    place.books.is_away.store(true, Ordering::Relaxed);
    let refused = loop {
        match reserve(&ledger, &money, 1).await {
            Ok(reservation) => reservation.settle(&call(0)),
            Err(refused) => break refused,
        }
        assert!(ledger.0.state.lock().journal.length() < 8 << 10, "it has no end");
    };
    assert_eq!(refused, Refused::Unavailable("the store is away for too long".into()));
    place.books.is_away.store(false, Ordering::Relaxed);
    ledger.flush().await;
    // The journal continues in a new file as soon as the store has the old one.
    while reserve(&ledger, &money, 1).await.map(Reservation::give_back).is_err() {
        ledger.flush().await;
    }
    ledger.close().await;
}
