//! Calls that are kept until they were answered, cron marks, and addresses of triggers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, object, on_both, workspace};
use std::collections::BTreeMap;
use store::cron::{self, Mark};
use store::deliveries::{self, Attempt, Claimed, Claiming, NewDelivery, Next, State};
use store::trigger_addresses::{self, Holder};
use store::{Error, Store, Tx, resources};
use types::ids::{ExecutionId, WorkspaceId};
use types::parts::Sensitive;
use types::{KindName, Timestamp};

on_both!(
    a_delivery_is_claimed_by_one_and_its_outcome_counts_once,
    a_delivery_waits_for_its_execution,
    a_delivery_put_off_by_a_wrong_clock_is_due,
    no_workspace_waits_behind_another,
    a_secret_is_sealed_and_follows_the_keys,
    what_ended_long_ago_is_forgotten,
    a_mark_goes_with_its_job,
    an_address_has_one_holder,
);

fn new(workspace: WorkspaceId) -> NewDelivery {
    NewDelivery {
        workspace,
        kind: "job".into(),
        name: "j".into(),
        execution: Some("e1".into()),
        url: "https://a.example/hook?key=1".into(),
        secret: Some(Sensitive("hunter2".into())),
        attempts_max: None,
    }
}

fn claiming(now: i64) -> Claiming {
    let at = Timestamp::from_ms;
    Claiming {
        now: at(now),
        latest: at(now + 100_000),
        until: at(now + 30_000),
        limit: 10,
        share: 4,
        busy: BTreeMap::new(),
    }
}

async fn claim(store: &Store, claiming: Claiming) -> Vec<Claimed> {
    store.write(move |tx| deliveries::claim(tx, &claiming)).await.unwrap()
}

async fn has_due(store: &Store, now: i64) -> bool {
    let Claiming { now, latest, .. } = claiming(now);
    store.read(move |tx| deliveries::has_due(tx, now, latest)).await.unwrap()
}

async fn enqueue(store: &Store, new: NewDelivery) {
    store.write(move |tx| deliveries::enqueue(tx, &new, "{}")).await.unwrap();
}

async fn record(store: &Store, of: &Claimed, next: Next) -> bool {
    let (id, claim) = (of.id.clone(), of.claim);
    let attempt = Attempt { status: Some(200), error: None, next };
    store.write(move |tx| deliveries::record(tx, &id, claim, &attempt)).await.unwrap()
}

async fn log(store: &Store) -> Vec<deliveries::Delivery> {
    store.read(|tx| deliveries::list(tx, &workspace(), ("job", "j"), None, 100)).await.unwrap()
}

const LATER: i64 = 1_900_000_000_000;

async fn a_delivery_is_claimed_by_one_and_its_outcome_counts_once(place: Place) {
    let store = place.open().await;
    enqueue(&store, new(workspace())).await;
    let [first] = claim(&store, claiming(LATER)).await.try_into().unwrap();
    assert_eq!(first.secret, Some(Sensitive("hunter2".into())));
    assert!(claim(&store, claiming(LATER + 29_999)).await.is_empty());
    // The claim expired without a report, so the delivery is claimed again; what the first claimant
    // reports afterwards no longer counts.
    let [second] = claim(&store, claiming(LATER + 30_000)).await.try_into().unwrap();
    assert!(!record(&store, &first, Next::Failed).await);
    assert!(record(&store, &second, Next::Retry(Timestamp::from_ms(LATER + 60_000))).await);
    assert!(claim(&store, claiming(LATER + 59_999)).await.is_empty());
    let [third] = claim(&store, claiming(LATER + 60_000)).await.try_into().unwrap();
    assert_eq!(third.attempts, 1);
    assert!(record(&store, &third, Next::Delivered).await);
    assert!(!record(&store, &third, Next::Failed).await);
    let [told] = log(&store).await.try_into().unwrap();
    assert_eq!((told.state, told.attempts, told.last_status), (State::Delivered, 2, Some(200)));
    assert!(told.ended_at.is_some() && told.due_at.is_none());
    assert!(!has_due(&store, LATER + 1_000_000).await);
}

async fn a_delivery_waits_for_its_execution(place: Place) {
    let store = place.open().await;
    let (execution, other) = (ExecutionId::known("exe_1"), ExecutionId::known("exe_2"));
    let work = move |tx: &mut Tx<'_>| {
        deliveries::enqueue_at_end(tx, &new(workspace()), &execution)?.unwrap();
        assert!(deliveries::is_awaited(tx, &execution)? && !deliveries::is_awaited(tx, &other)?);
        assert!(deliveries::claim(tx, &claiming(LATER))?.is_empty());
        assert_eq!(deliveries::release(tx, &other, "no")?, 0);
        assert_eq!(deliveries::release(tx, &execution, "done")?, 1);
        assert_eq!(deliveries::release(tx, &execution, "again")?, 0);
        assert!(!deliveries::is_awaited(tx, &execution)?);
        deliveries::claim(tx, &claiming(LATER))
    };
    let [claimed] = store.write::<_, Error>(work).await.unwrap().try_into().unwrap();
    assert_eq!(claimed.body, "done");
}

/// A receiver failed while the clock was three days ahead.
async fn a_delivery_put_off_by_a_wrong_clock_is_due(place: Place) {
    let (store, ahead) = (place.open().await, LATER + 3 * 86_400_000);
    enqueue(&store, new(workspace())).await;
    let [first] = claim(&store, claiming(ahead)).await.try_into().unwrap();
    assert!(record(&store, &first, Next::Retry(Timestamp::from_ms(ahead + 100_000))).await);
    // A pause as long as it can be is waited for.
    assert!(!has_due(&store, ahead).await && claim(&store, claiming(ahead)).await.is_empty());
    assert!(has_due(&store, LATER).await);
    let [second] = claim(&store, claiming(LATER)).await.try_into().unwrap();
    assert_eq!((second.id, second.attempts), (first.id, 1));
    assert!(!has_due(&store, LATER).await && claim(&store, claiming(LATER)).await.is_empty());
}

async fn no_workspace_waits_behind_another(place: Place) {
    let store = place.open().await;
    let of = |name: &str| WorkspaceId::known(format!("wsp_{name}"));
    for _ in 0..20 {
        enqueue(&store, new(of("loud"))).await;
    }
    enqueue(&store, new(of("quiet"))).await;
    let claimed = claim(&store, claiming(LATER)).await;
    let count = |name: &str| claimed.iter().filter(|one| one.workspace == of(name)).count();
    assert_eq!((count("loud"), count("quiet")), (4, 1));
    enqueue(&store, new(of("quiet"))).await;
    let busy = BTreeMap::from([(of("loud"), 4), (of("quiet"), 1)]);
    let [next] =
        claim(&store, Claiming { limit: 1, busy, ..claiming(LATER) }).await.try_into().unwrap();
    assert_eq!(next.workspace, of("quiet"));
}

async fn a_secret_is_sealed_and_follows_the_keys(place: Place) {
    let store = place.open().await;
    enqueue(&store, new(workspace())).await;
    enqueue(&store, NewDelivery { secret: None, ..new(workspace()) }).await;
    store.rotate_keys().await.unwrap();
    let secrets: Vec<_> =
        claim(&store, claiming(LATER)).await.into_iter().map(|one| one.secret).collect();
    assert!(secrets.contains(&Some(Sensitive("hunter2".into()))) && secrets.contains(&None));
    assert!(!place.sql("SELECT COALESCE(secret, '') FROM deliveries").contains("hunter2"));
}

async fn what_ended_long_ago_is_forgotten(place: Place) {
    let store = place.open().await;
    enqueue(&store, new(workspace())).await;
    let [claimed] = claim(&store, claiming(LATER)).await.try_into().unwrap();
    record(&store, &claimed, Next::Failed).await;
    enqueue(&store, new(workspace())).await;
    let now = store.world().now();
    assert_eq!(store.tidy(now).await.unwrap().deliveries, 0);
    assert_eq!(store.tidy(now.plus_s(31 * 86_400)).await.unwrap().deliveries, 1);
    assert_eq!(log(&store).await.len(), 1);
}

async fn a_mark_goes_with_its_job(place: Place) {
    let store = place.open().await;
    let job = object(store.world(), KindName::Job, "", "j");
    let mark = |line: &str, ms| Mark {
        trigger: "t".into(),
        line: line.into(),
        handled_at: Timestamp::from_ms(ms),
    };
    let work = move |tx: &mut Tx<'_>| {
        let row = resources::insert(tx, job.clone())?;
        cron::put(tx, &row.id, &mark("a", 1))?;
        cron::put(tx, &row.id, &mark("b", 2))?;
        assert_eq!(cron::list(tx, &row.id)?, [mark("b", 2)]);
        cron::remove(tx, &row.id, "t")?;
        assert!(cron::list(tx, &row.id)?.is_empty());
        cron::put(tx, &row.id, &mark("b", 2))?;
        resources::delete(tx, &row, "usr_test")?;
        cron::list(tx, &row.id)
    };
    assert!(store.write::<_, Error>(work).await.unwrap().is_empty());
}

async fn an_address_has_one_holder(place: Place) {
    let store = place.open().await;
    let holder =
        |name: &str| Holder { kind: KindName::Job, name: name.into(), trigger: "t".into() };
    let work = move |tx: &mut Tx<'_>| {
        assert!(trigger_addresses::take(tx, &workspace(), "x", &holder("a"))?);
        assert!(!trigger_addresses::take(tx, &workspace(), "x", &holder("b"))?);
        assert!(trigger_addresses::take(tx, &WorkspaceId::known("wsp_other"), "x", &holder("b"))?);
        assert_eq!(trigger_addresses::find(tx, &workspace(), "x")?, Some(holder("a")));
        trigger_addresses::give_back(tx, &workspace(), KindName::Job, "a")?;
        trigger_addresses::find(tx, &workspace(), "x")
    };
    assert_eq!(store.write::<_, Error>(work).await.unwrap(), None);
}
