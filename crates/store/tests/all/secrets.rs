//! Sealed secrets, and keys that change while they are in use.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, agent, on_both, workspace};
use store::resources::{self, Stored};
use store::{Error, Store, Tx, settings};
use types::KindName;

on_both!(
    rotation_brings_every_secret_under_the_new_key,
    rotation_loses_nothing_that_is_written_meanwhile,
    a_key_is_forgotten_only_when_nothing_needs_it,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_server_sealed_under_a_new_key_opens_at_once() {
    let place = Place::postgres();
    let (store, other) = (place.open().await, place.open().await);
    insert(&store, "a".into()).await;
    other.rotate_keys().await.unwrap();
    all(&store).await.iter().for_each(|stored| check(&store, stored));
}

fn sealed_agent(tx: &Tx<'_>, store: &Store, name: &str) -> Result<Stored, Error> {
    let made = agent(tx.world(), name);
    let (keyring, context) = (store.keyring(), format!("resources/{}", made.id));
    let keyring = keyring.read();
    let secrets = [
        keyring.seal(&context, &format!("secret of {name}"))?,
        keyring.seal(&context, "\"quoted\"\n")?,
    ];
    let looks_sealed = "sealed:v1:none:AAAA, he said";
    let wish = serde_json::json!({"a": secrets[0], "b": [secrets[1], looks_sealed]}).to_string();
    Ok(Stored { wish, seal_key: Some(keyring.active_id().to_owned()), ..made })
}

async fn insert(store: &Store, name: String) {
    let keys = store.clone();
    let work = move |tx: &mut Tx<'_>| {
        let made = sealed_agent(tx, &keys, &name)?;
        resources::insert(tx, made)
    };
    store.write(work).await.unwrap();
}

async fn all(store: &Store) -> Vec<Stored> {
    let work = |tx: &mut Tx<'_>| {
        let workspace = workspace();
        resources::list(tx, &resources::Query::new(&workspace, KindName::Agent, Some("")))
    };
    store.read(work).await.unwrap()
}

fn check(store: &Store, stored: &Stored) {
    let wish: serde_json::Value = serde_json::from_str(&stored.wish).unwrap();
    let (keyring, context) = (store.keyring(), format!("resources/{}", stored.id));
    let open = |value: &serde_json::Value| keyring.read().open(&context, value.as_str().unwrap());
    assert_eq!(open(&wish["a"]).unwrap(), format!("secret of {}", stored.name));
    assert_eq!(open(&wish["b"][0]).unwrap(), "\"quoted\"\n");
    assert_eq!(wish["b"][1], "sealed:v1:none:AAAA, he said");
}

async fn rotation_brings_every_secret_under_the_new_key(place: Place) {
    let store = place.open().await;
    for number in 0..450 {
        insert(&store, format!("a{number}")).await;
    }
    let keyring = store.keyring();
    let cursor_key = keyring.read().seal("settings/cursor-key", "k").unwrap();
    store.write(move |tx| settings::set(tx, "cursor-key", &cursor_key)).await.unwrap();
    let before = keyring.read().active_id().to_owned();
    let rotation = store.rotate_keys().await.unwrap();
    assert_ne!(rotation.active, before);
    assert_eq!(rotation.rows, 451);
    for stored in all(&store).await {
        assert_eq!(stored.seal_key.as_ref(), Some(&rotation.active));
        assert_eq!(stored.version, 1);
        check(&store, &stored);
    }
    let cursor_key = store.read(|tx| settings::get(tx, "cursor-key")).await.unwrap().unwrap();
    assert!(cursor_key.starts_with(&format!("sealed:v1:{}:", rotation.active)));
    assert_eq!(keyring.read().open("settings/cursor-key", &cursor_key).unwrap(), "k");
}

async fn rotation_loses_nothing_that_is_written_meanwhile(place: Place) {
    let store = place.open().await;
    let writer = store.clone();
    let writing = tokio::spawn(async move {
        for number in 0..100 {
            insert(&writer, format!("a{number}")).await;
        }
    });
    for _ in 0..5 {
        store.rotate_keys().await.unwrap();
    }
    writing.await.unwrap();
    store.rotate_keys().await.unwrap();
    let found = all(&store).await;
    assert_eq!(found.len(), 100);
    found.iter().for_each(|stored| check(&store, stored));
}

async fn a_key_is_forgotten_only_when_nothing_needs_it(place: Place) {
    let store = place.open().await;
    insert(&store, "a".into()).await;
    store.rotate_keys().await.unwrap();
    let tidy = async |ms| {
        place.pass_ms(ms);
        store.tidy(store.world().now()).await.unwrap();
        store.keyring().read().ids().count()
    };
    assert_eq!(tidy(1000).await, 2, "another server may still seal with it");
    assert_eq!(tidy(30 * 24 * 3_600_000).await, 1);
    all(&store).await.iter().for_each(|stored| check(&store, stored));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_key_file_is_named_and_not_replaced() {
    let mut place = Place::postgres();
    insert(&place.open().await, "a".into()).await;
    let file = place.folder().join("other");
    place.settings.key_file.clone_from(&file);
    let said = place.open_result().await.err().unwrap().to_string();
    assert!(said.contains(&*file.to_string_lossy()) && said.contains("store.key_file"), "{said}");
    assert!(!file.exists());

    // The key file of another database.
    let elsewhere = Place::sqlite();
    elsewhere.open().await;
    place.settings.key_file.clone_from(&elsewhere.settings.key_file);
    let store = place.open().await;
    let stored = all(&store).await.remove(0);
    let wish: serde_json::Value = serde_json::from_str(&stored.wish).unwrap();
    let context = format!("resources/{}", stored.id);
    let opened = store.keyring().read().open(&context, wish["a"].as_str().unwrap());
    let said = opened.unwrap_err().to_string();
    let file = elsewhere.settings.key_file.to_string_lossy();
    assert!(said.contains(&*file) && said.contains("store.key_file"), "{said}");
}
