//! Outgoing addresses have one holder each, even if several ask at the same time.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, on_both};
use std::collections::BTreeSet;
use std::net::IpAddr;
use store::Store;
use store::egress_addresses::{Taken, take};
use types::ids::{ResourceId, WorkspaceId};

on_both!(
    many_at_once_get_different_addresses,
    a_workspace_has_no_more_than_it_may,
    a_workspace_that_asks_many_times_at_once_has_no_more_than_it_may,
);

const POOL: u8 = 12;

fn pool() -> impl Iterator<Item = IpAddr> {
    (1..=POOL).map(|last| IpAddr::from([192, 0, 2, last]))
}

async fn taken(store: &Store, workspace: &str, resource: &str, max: usize) -> Taken {
    let workspace = WorkspaceId::known(workspace);
    let resource = ResourceId::known(resource);
    store.write(move |tx| take(tx, (&workspace, &resource), max, pool())).await.unwrap()
}

async fn many_at_once_get_different_addresses(place: Place) {
    let store = place.open().await;
    let takes: Vec<_> = (0..POOL)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let (workspace, resource) =
                    (format!("wsp_{}", number % 3), format!("res_{number}"));
                taken(&store, &workspace, &resource, 100).await
            })
        })
        .collect();
    let mut all = BTreeSet::new();
    for take in takes {
        let Taken::Address(address) = take.await.unwrap() else { continue };
        all.insert(address);
    }
    assert_eq!(all, pool().collect());
    assert_eq!(taken(&store, "wsp_9", "res_99", 100).await, Taken::NoneFree);
}

async fn a_workspace_has_no_more_than_it_may(place: Place) {
    let store = place.open().await;
    let first = pool().next().unwrap();
    assert_eq!(taken(&store, "wsp_a", "res_1", 2).await, Taken::Address(first), "the lowest");
    assert!(matches!(taken(&store, "wsp_a", "res_2", 2).await, Taken::Address(_)));
    assert_eq!(taken(&store, "wsp_a", "res_3", 2).await, Taken::TooMany);
    assert!(matches!(taken(&store, "wsp_b", "res_4", 2).await, Taken::Address(_)));
}

async fn a_workspace_that_asks_many_times_at_once_has_no_more_than_it_may(place: Place) {
    let store = place.open().await;
    let takes: Vec<_> = (0..POOL)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { taken(&store, "wsp_a", &format!("res_{number}"), 2).await })
        })
        .collect();
    let mut addresses = 0;
    for take in takes {
        addresses += usize::from(matches!(take.await.unwrap(), Taken::Address(_)));
    }
    assert_eq!(addresses, 2);
}
