//! Prices and budgets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, on_both};
use store::budgets::{self, Budget, Crossing, Webhook};
use store::prices::{self, Prices, Version};
use store::{Error, Tx};
use types::Timestamp;
use types::ids::{AccountId, BudgetId};

on_both!(
    what_has_begun_keeps_its_price,
    the_first_prices_are_taken_once,
    a_budget_reads_back_as_written,
    two_owners_cannot_overwrite_each_other,
    a_spent_budget_refuses_its_own_workspace_until_the_month_ends,
    a_crossing_is_noted_once,
    the_secret_of_a_webhook_follows_the_keys,
);

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn account() -> AccountId {
    AccountId::known("acc_test")
}

fn version(from: i64, price: &str) -> Version {
    Version {
        valid_from: at(from),
        prices: Prices::from([("volume_storage_gbs".to_owned(), price.to_owned())]),
    }
}

fn budget(tx: &Tx<'_>, name: &str) -> Budget {
    let now = tx.world().now();
    Budget {
        id: BudgetId::new(tx.world()),
        account: account(),
        name: name.into(),
        workspace: None,
        amount: "100".into(),
        thresholds: vec![80, 100],
        hard_limit: true,
        webhook: None,
        version: 1,
        created_at: now,
        updated_at: now,
        created_by: "a@b.example".into(),
        updated_by: "a@b.example".into(),
        exhausted_until: None,
    }
}

async fn what_has_begun_keeps_its_price(place: Place) {
    let store = place.open().await;
    let put = |now: i64, coming: Vec<Version>| {
        let work = move |tx: &mut Tx<'_>| {
            prices::replace_coming(tx, &account(), &coming, "a@b.example", at(now))?;
            prices::list(tx, &account())
        };
        store.write(work)
    };
    assert_eq!(put(10, vec![version(20, "1"), version(30, "2")]).await.unwrap().len(), 2);
    let kept = put(25, vec![version(40, "3")]).await.unwrap();
    assert_eq!(kept, [version(20, "1"), version(40, "3")]);
    assert!(matches!(put(25, vec![version(20, "9")]).await, Err(Error::Duplicate { .. })));
    assert_eq!(put(25, vec![]).await.unwrap(), [version(20, "1")]);
    let other = store.read(|tx| prices::list(tx, &AccountId::known("acc_other"))).await.unwrap();
    assert_eq!(other, []);
}

async fn the_first_prices_are_taken_once(place: Place) {
    let store = place.open().await;
    for (price, taken) in [("1", true), ("2", false)] {
        let seeded =
            store.write(move |tx| prices::seed(tx, &version(0, price).prices)).await.unwrap();
        assert_eq!(seeded, taken);
    }
    assert_eq!(store.read(|tx| prices::list(tx, &account())).await.unwrap(), [version(0, "1")]);
}

async fn a_budget_reads_back_as_written(place: Place) {
    let store = place.open().await;
    let work = |tx: &mut Tx<'_>| {
        let webhook =
            Some(Webhook { url: "https://a.example/hook".into(), secret: "sealed".into() });
        let made = Budget { webhook, workspace: Some("main".into()), ..budget(tx, "all") };
        budgets::insert(tx, &made)?;
        Ok::<_, Error>((
            made,
            budgets::find(tx, &account(), "all")?,
            budgets::list(tx, &account())?,
        ))
    };
    let (made, found, listed) = store.write(work).await.unwrap();
    assert_eq!((found.as_ref(), listed.as_slice()), (Some(&made), std::slice::from_ref(&made)));
    let again = store.write(|tx| budgets::insert(tx, &budget(tx, "all"))).await;
    assert!(matches!(again, Err(Error::Duplicate { .. })), "{again:?}");
    let stranger = |tx: &mut Tx<'_>| budgets::find(tx, &AccountId::known("acc_other"), "all");
    assert_eq!(store.read(stranger).await.unwrap(), None);
    assert!(store.write(move |tx| budgets::delete(tx, &made.id)).await.unwrap());
    assert_eq!(store.read(|tx| budgets::count(tx, &account())).await.unwrap(), 0);
}

async fn two_owners_cannot_overwrite_each_other(place: Place) {
    let store = place.open().await;
    let made = store
        .write(|tx| {
            let made = budget(tx, "all");
            budgets::insert(tx, &made).map(|()| made)
        })
        .await
        .unwrap();
    let changed = Budget { amount: "200".into(), ..made.clone() };
    store.write(move |tx| budgets::update(tx, &changed)).await.unwrap();
    // A verdict on the earlier amount must not be applied to the new one.
    let late = store.write(move |tx| budgets::set_exhausted(tx, &made, Some(at(i64::MAX)))).await;
    assert!(matches!(late, Err(Error::Stale { .. })), "{late:?}");
    let now = store.read(|tx| budgets::find(tx, &account(), "all")).await.unwrap().unwrap();
    assert_eq!((now.amount.as_str(), now.version, now.exhausted_until), ("200", 2, None));
}

async fn a_spent_budget_refuses_its_own_workspace_until_the_month_ends(place: Place) {
    let store = place.open().await;
    let work = |tx: &mut Tx<'_>| {
        let made = Budget { workspace: Some("main".into()), ..budget(tx, "of-main") };
        budgets::insert(tx, &made)?;
        budgets::set_exhausted(tx, &made, Some(at(100)))?;
        let mut ask = |workspace, now| budgets::exhausted(tx, &account(), workspace, at(now));
        Ok::<_, Error>([ask("main", 99)?, ask("main", 100)?, ask("other", 99)?])
    };
    assert_eq!(store.write(work).await.unwrap(), [Some("of-main".to_owned()), None, None]);
    let work = |tx: &mut Tx<'_>| {
        let made = budget(tx, "of-all");
        budgets::insert(tx, &made)?;
        budgets::set_exhausted(tx, &made, Some(at(100)))?;
        let anywhere = budgets::exhausted(tx, &account(), "other", at(99))?;
        budgets::set_exhausted(tx, &made, None)?;
        Ok::<_, Error>((anywhere, budgets::exhausted(tx, &account(), "other", at(99))?))
    };
    assert_eq!(store.write(work).await.unwrap(), (Some("of-all".to_owned()), None));
}

async fn a_crossing_is_noted_once(place: Place) {
    let store = place.open().await;
    let made = store
        .write(|tx| {
            let made = budget(tx, "all");
            budgets::insert(tx, &made).map(|()| made)
        })
        .await
        .unwrap();
    let crossing = |period: i64, amount: &str| Crossing {
        period: at(period),
        threshold: 80,
        amount: amount.into(),
        spent: "81.5".into(),
        crossed_at: at(7),
    };
    let noting: Vec<_> = (0..8)
        .map(|_| {
            let (store, id) = (store.clone(), made.id.clone());
            let noted = crossing(1, "100");
            tokio::spawn(async move {
                store.write(move |tx| budgets::cross(tx, &id, &noted)).await.unwrap()
            })
        })
        .collect();
    let mut first = 0;
    for noted in noting {
        first += usize::from(noted.await.unwrap());
    }
    assert_eq!(first, 1, "one of all servers tells");
    let id = made.id.clone();
    let (next, old, same) = (crossing(2, "100"), crossing(1, "50"), crossing(1, "100"));
    let work = move |tx: &mut Tx<'_>| {
        assert!(budgets::cross(tx, &id, &next)?, "another month is another crossing");
        budgets::uncross(tx, &id, &old)?;
        assert_eq!(
            budgets::crossings(tx, &id, at(1))?,
            std::slice::from_ref(&same),
            "of another amount"
        );
        budgets::uncross(tx, &id, &same)?;
        assert!(budgets::crossings(tx, &id, at(1))?.is_empty());
        assert_eq!(budgets::trim(tx, at(2), 10)?, 0);
        assert_eq!(budgets::trim(tx, at(3), 10)?, 1);
        budgets::cross(tx, &id, &next)?;
        budgets::delete(tx, &id)
    };
    assert!(store.write(work).await.unwrap());
}

async fn the_secret_of_a_webhook_follows_the_keys(place: Place) {
    let store = place.open().await;
    let keyring = store.keyring();
    let work = move |tx: &mut Tx<'_>| {
        let mut made = budget(tx, "all");
        let secret = keyring.read().seal(&format!("budgets/{}", made.id), "hunter2")?;
        made.webhook = Some(Webhook { url: "https://a.example".into(), secret });
        budgets::insert(tx, &made).map(|()| made.id)
    };
    let id = store.write(work).await.unwrap();
    let rotation = store.rotate_keys().await.unwrap();
    let now = store.read(|tx| budgets::find(tx, &account(), "all")).await.unwrap().unwrap();
    let sealed = now.webhook.unwrap().secret;
    assert!(sealed.starts_with(&format!("sealed:v1:{}:", rotation.active)), "{sealed}");
    assert_eq!(store.keyring().read().open(&format!("budgets/{id}"), &sealed).unwrap(), "hunter2");
}
