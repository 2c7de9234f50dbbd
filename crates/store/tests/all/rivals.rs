//! Transactions that run at the same time: each is answered as if they had come one after another.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, agent, on_both, workspace};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use store::identity::workspaces::{self, Settings, Workspace};
use store::{Error, Tx, resources};
use types::KindName;
use types::ids::{AccountId, WorkspaceId};
use types::wire::WorkspaceStatus;

on_both!(
    a_duplicate_that_was_undone_alone_does_not_repeat_the_rest,
    a_limit_holds_for_callers_at_once,
);

/// Has the first attempts of two transactions wait for each other.
fn meeting() -> [impl FnMut() + Send + 'static; 2] {
    let both = Arc::new(Barrier::new(2));
    [both.clone(), both].map(|both| {
        let mut both = Some(both);
        move || {
            if let Some(both) = both.take() {
                both.wait();
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_who_add_an_object_that_neither_found_one_finds_it() {
    let place = Place::postgres();
    let store = place.open().await;
    let look_or_add = meeting().map(|mut meet| {
        store.write(move |tx| {
            if let Some(found) = resources::find(tx, &workspace(), KindName::Agent, "", "one")? {
                return Ok((found.id, true));
            }
            meet();
            let made = resources::insert(tx, agent(&tx.world().clone(), "one"))?;
            Ok::<_, Error>((made.id, false))
        })
    });
    let done = join_all(look_or_add).await.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(done[0].0, done[1].0);
    assert_ne!(done[0].1, done[1].1, "one of them has made it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_who_take_a_free_name_one_learns_that_it_is_taken() {
    let place = Place::postgres();
    let store = place.open().await;
    let take = meeting().map(|mut meet| {
        store.write(move |tx| {
            if workspaces::is_taken(tx, "team")? {
                return Ok(false);
            }
            meet();
            let made = team(tx);
            workspaces::create(tx, &made)?;
            Ok::<_, Error>(true)
        })
    });
    let done = join_all(take).await.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    assert_ne!(done[0], done[1]);
}

fn team(tx: &Tx<'_>) -> Workspace {
    let now = tx.world().now();
    Workspace {
        id: WorkspaceId::new(tx.world()),
        account: AccountId::known("acc_test"),
        name: "team".into(),
        display_name: "team".into(),
        labels: BTreeMap::new(),
        settings: Settings::default(),
        region: None,
        status: WorkspaceStatus::Ready,
        version: 1,
        created_at: now,
        updated_at: now,
        created_by: "usr_test".into(),
        updated_by: "usr_test".into(),
    }
}

async fn a_duplicate_that_was_undone_alone_does_not_repeat_the_rest(place: Place) {
    let store = place.open().await;
    let mut runs = 0;
    let work = move |tx: &mut Tx<'_>| {
        runs += 1;
        let one = agent(&tx.world().clone(), "one");
        resources::insert(tx, one.clone())?;
        let again: Result<_, Error> = tx.attempt(|tx| resources::insert(tx, one.clone()))?;
        assert!(matches!(again, Err(Error::Duplicate { .. })), "{again:?}");
        Ok::<_, Error>(runs)
    };
    assert_eq!(store.write(work).await.unwrap(), 1);
}

async fn a_limit_holds_for_callers_at_once(place: Place) {
    let store = place.open().await;
    for (round, limit) in [1, 3, 4].into_iter().enumerate() {
        let add = |number: usize| {
            store.write(move |tx| {
                let id = WorkspaceId::known(format!("wsp_{round}"));
                let counted = resources::count_towards(tx, &id, KindName::Agent, limit)?;
                if counted < limit {
                    let row = agent(&tx.world().clone(), &number.to_string());
                    resources::insert(tx, resources::Stored { workspace: id, ..row })?;
                }
                Ok::<_, Error>(counted < limit)
            })
        };
        let added = join_all((0..12).map(add)).await;
        let added = added.into_iter().filter(|added| *added.as_ref().unwrap()).count();
        assert_eq!(added, limit as usize);
    }
}
