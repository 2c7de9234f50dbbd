//! Workspaces: what is added while they are deleted, and what was left behind.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, agent, on_both, workspace};
use std::collections::BTreeMap;
use store::identity::workspaces::{self, Owners, Settings, Workspace};
use store::{Error, Store, Tx, resources};
use types::KindName;
use types::ids::{AccountId, WorkspaceId};
use types::wire::WorkspaceStatus;

on_both!(nothing_is_added_to_a_deleted_workspace, what_a_workspace_left_behind_is_found);

async fn make(store: &Store, id: &str) -> WorkspaceId {
    let now = store.world().now();
    let made = Workspace {
        id: WorkspaceId::known(id),
        account: AccountId::known("acc_test"),
        name: id.to_owned(),
        display_name: id.to_owned(),
        labels: BTreeMap::new(),
        settings: Settings::default(),
        region: None,
        status: WorkspaceStatus::Ready,
        version: 1,
        created_at: now,
        updated_at: now,
        created_by: "usr_test".into(),
        updated_by: "usr_test".into(),
    };
    let id = made.id.clone();
    store.write(move |tx| workspaces::create(tx, &made)).await.unwrap();
    id
}

async fn add(store: &Store, workspace: &WorkspaceId, name: &str) {
    let row = resources::Stored { workspace: workspace.clone(), ..agent(store.world(), name) };
    store.write(move |tx| resources::insert(tx, row.clone())).await.unwrap();
}

async fn nothing_is_added_to_a_deleted_workspace(place: Place) {
    let store = place.open().await;
    let id = make(&store, "wsp_a").await;
    let before = id.clone();
    let deleted = move |tx: &mut Tx<'_>| {
        let undone: Result<(), Error> = tx.attempt(|tx| {
            assert!(workspaces::keep(tx, &before)?);
            Err::<(), _>(Error::Unusable("it is undone".into()))
        })?;
        assert!(undone.is_err());
        workspaces::close(tx, &before, "usr_test")?;
        workspaces::keep(tx, &before)
    };
    assert!(!store.write(deleted).await.unwrap());
    let again = id.clone();
    assert!(!store.write(move |tx| workspaces::keep(tx, &again)).await.unwrap());
    let gone = id.clone();
    store.write(move |tx| workspaces::delete(tx, &gone, "usr_test")).await.unwrap();
    assert!(!store.write(move |tx| workspaces::keep(tx, &id)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_waits_for_what_is_added() {
    let url = testing::postgres();
    let store = Place::postgres_at(url.clone()).open().await;
    let id = make(&store, workspace().as_str()).await;
    let (deletion, to_delete) = tokio::sync::oneshot::channel();
    let (mut deletion, deleter, of) = (Some(deletion), store.clone(), id.clone());
    let deleted = tokio::spawn(async move {
        to_delete.await.unwrap();
        let work = move |tx: &mut Tx<'_>| {
            workspaces::lock(tx, &of)?;
            let found = resources::lock_some(tx, &of, KindName::Agent, 10)?.len();
            workspaces::delete(tx, &of, "usr_test").map(|_| found)
        };
        deleter.write(work).await
    });
    let row = agent(store.world(), "a");
    let addition = move |tx: &mut Tx<'_>| {
        assert!(workspaces::keep(tx, &id)?);
        let place = Place::postgres_at(url.clone());
        // Others may add something at the same time.
        place.sql("SELECT id FROM workspaces FOR KEY SHARE NOWAIT");
        if let Some(deletion) = deletion.take() {
            deletion.send(()).unwrap();
        }
        // The deletion has come as far as it can before this addition is over.
        place.sql(
            "DO $$ BEGIN
                 WHILE NOT EXISTS (SELECT 1 FROM pg_locks
                     JOIN pg_stat_activity USING (pid)
                     WHERE NOT granted AND datname = current_database())
                 LOOP PERFORM pg_sleep(0.01); PERFORM pg_stat_clear_snapshot(); END LOOP; END $$",
        );
        resources::insert(tx, row.clone())
    };
    store.write(addition).await.unwrap();
    assert_eq!(deleted.await.unwrap().unwrap(), 1);
}

async fn what_a_workspace_left_behind_is_found(place: Place) {
    let store = place.open().await;
    for id in ["wsp_a", "wsp_c"] {
        let id = make(&store, id).await;
        add(&store, &id, "one").await;
        add(&store, &id, "two").await;
    }
    let gone = ["wsp_b", "wsp_d"].map(WorkspaceId::known);
    for id in &gone {
        add(&store, id, "left").await;
    }
    let all = store.read(|tx| workspaces::owners(tx, None, 10)).await.unwrap();
    assert_eq!(all, Owners { gone: gone.to_vec(), last: None });
    let (mut found, mut after) = (Vec::new(), None);
    for last in ["wsp_a", "wsp_b", "wsp_c", "wsp_d"] {
        let from: Option<WorkspaceId> = after.clone();
        let next = store.read(move |tx| workspaces::owners(tx, from.as_ref(), 1)).await.unwrap();
        found.extend(next.gone);
        after = next.last;
        assert_eq!(after, Some(WorkspaceId::known(last)));
    }
    assert_eq!(found, gone);
    let end = store.read(move |tx| workspaces::owners(tx, after.as_ref(), 1)).await.unwrap();
    assert_eq!(end, Owners { gone: Vec::new(), last: None });
}
