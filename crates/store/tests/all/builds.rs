//! Builds from an address to an image: who may take what, and which reports count.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::{Place, agent, on_both, workspace};
use store::builds::{self, Asker, Build, Claiming, NewBuild, State};
use store::identity::Subject;
use store::{Store, Tx, resources, seal};
use types::ids::{BuildId, ResourceId, UserId, WorkspaceId};
use types::{KindName, Timestamp};

on_both!(
    an_address_is_taken_once_and_not_after_its_time,
    a_resource_has_one_build_at_a_time,
    only_the_newest_try_counts,
    what_a_machine_had_begun_is_queued_again,
    no_workspace_waits_behind_another,
    what_is_overdue_is_found_and_what_ended_is_forgotten,
    a_deleted_resource_cancels_its_build,
    the_wish_that_waits_follows_the_keys,
);

const MACHINE: &str = "m1";

fn later(ms: i64) -> Timestamp {
    Timestamp::from_ms(1_800_000_000_000 + ms)
}

fn new(id: &str, workspace: WorkspaceId, resource: &str) -> NewBuild {
    NewBuild {
        id: BuildId::known(id),
        workspace,
        resource: ResourceId::known(resource),
        kind: KindName::Agent,
        repository: "agent/a".into(),
        wish: Some("{}".into()),
        seal_key: None,
        created_by: "me".into(),
        asker: Asker { subject: Subject::User(UserId::known("usr_me")), key: None },
        secret: format!("digest of {id}"),
        until: later(60_000),
    }
}

async fn ask(store: &Store, id: &str, resource: &str) -> BuildId {
    let new = new(id, workspace(), resource);
    store.write(move |tx| builds::replace(tx, &new)).await.unwrap();
    BuildId::known(id)
}

async fn queued(store: &Store, new: NewBuild) -> BuildId {
    let id = new.id.clone();
    let work = move |tx: &mut Tx<'_>| {
        builds::replace(tx, &new)?;
        assert!(builds::arrive(tx, &new.id, MACHINE, 100, later(60_000))?);
        assert!(builds::queue(tx, &new.id, 10, later(3_600_000))?);
        Ok::<_, store::Error>(())
    };
    store.write(work).await.unwrap();
    id
}

async fn claim(store: &Store, limit: i64, share: i64) -> Vec<Build> {
    let (machine, now, until) = (MACHINE.to_owned(), later(30_000), later(600_000));
    let claiming = Claiming { machine, now, until, limit, share };
    store.write(move |tx| builds::claim(tx, &claiming)).await.unwrap()
}

async fn find(store: &Store, id: &BuildId) -> Build {
    let id = id.clone();
    store.read(move |tx| builds::find(tx, &id)).await.unwrap().unwrap()
}

async fn an_address_is_taken_once_and_not_after_its_time(place: Place) {
    let store = place.open().await;
    let id = ask(&store, "bld_1", "res_1").await;
    let take =
        |id: BuildId| store.write(move |tx| builds::arrive(tx, &id, MACHINE, 100, later(90_000)));
    assert!(take(id.clone()).await.unwrap());
    assert!(!take(id.clone()).await.unwrap());
    let by_secret = store.read(|tx| builds::find_by_secret(tx, "digest of bld_1")).await.unwrap();
    let found = by_secret.unwrap();
    assert_eq!((found.state, found.machine.as_deref()), (State::Arriving, Some(MACHINE)));
    assert_eq!(store.read(|tx| builds::find_by_secret(tx, "digest")).await.unwrap(), None);
    let late = ask(&store, "bld_2", "res_2").await;
    place.pass_ms(60_001);
    assert!(!take(late).await.unwrap());
}

async fn a_resource_has_one_build_at_a_time(place: Place) {
    let store = place.open().await;
    let first = queued(&store, new("bld_1", workspace(), "res_1")).await;
    let second = ask(&store, "bld_2", "res_1").await;
    assert_eq!(find(&store, &first).await.state, State::Cancelled);
    assert_eq!(find(&store, &first).await.wish, None, "its secrets go with it");
    let resource = ResourceId::known("res_1");
    let of = resource.clone();
    let open = store.read(move |tx| builds::open_of(tx, &of)).await.unwrap().unwrap();
    assert_eq!((open.id, open.state), (second, State::Awaited));
    let other = queued(&store, new("bld_3", WorkspaceId::known("wsp_2"), "res_3")).await;
    let of = resource.clone();
    let seen = store.read(move |tx| builds::open(tx, &workspace(), &of)).await.unwrap();
    assert_eq!((seen.of_workspace, seen.all, seen.bytes_of_workspace), (0, 1, 0));
    let elsewhere = ResourceId::known("res_9");
    let theirs = WorkspaceId::known("wsp_2");
    let seen = store.read(move |tx| builds::open(tx, &theirs, &elsewhere)).await.unwrap();
    assert_eq!((seen.of_workspace, seen.all, seen.bytes_of_workspace), (1, 2, 10));
    assert!(store.write(move |tx| builds::end(tx, &other, State::Failed)).await.unwrap());
}

async fn only_the_newest_try_counts(place: Place) {
    let store = place.open().await;
    let id = queued(&store, new("bld_1", workspace(), "res_1")).await;
    assert_eq!(claim(&store, 5, 5).await[0].attempt, 1);
    assert!(claim(&store, 5, 5).await.is_empty());
    let of = id.clone();
    let again =
        store.write(move |tx| builds::again(tx, &of, 1, later(10_000), later(90_000))).await;
    assert!(again.unwrap());
    assert_eq!(claim(&store, 5, 5).await[0].attempt, 2);
    let made = |attempt: i64| {
        let of = id.clone();
        let image = ("sha256:1", 5);
        store.write(move |tx| builds::made(tx, &of, attempt, image, later(0), later(90_000)))
    };
    assert!(!made(1).await.unwrap());
    assert!(made(2).await.unwrap());
    assert!(!made(2).await.unwrap());
    let found = find(&store, &id).await;
    assert_eq!((found.state, found.image), (State::Made, Some(("sha256:1".into(), 5))));
    let end = |state| {
        let of = id.clone();
        store.write(move |tx| builds::end(tx, &of, state))
    };
    assert!(end(State::Built).await.unwrap());
    assert!(!end(State::Failed).await.unwrap());
    assert_eq!(find(&store, &id).await.state, State::Built);
}

async fn what_a_machine_had_begun_is_queued_again(place: Place) {
    let store = place.open().await;
    let id = queued(&store, new("bld_1", workspace(), "res_1")).await;
    claim(&store, 5, 5).await;
    let up =
        |machine: &'static str| store.write(move |tx| builds::take_up(tx, machine, later(90_000)));
    assert_eq!(up("m2").await.unwrap(), 0, "it is another machine's");
    assert_eq!(up(MACHINE).await.unwrap(), 1);
    let due = store.read(|tx| builds::next_due(tx, MACHINE)).await.unwrap();
    assert!(due.is_some());
    assert_eq!(claim(&store, 5, 5).await[0].attempt, 2);
    assert_eq!(store.read(|tx| builds::next_due(tx, MACHINE)).await.unwrap(), None);
    let renewed = store.write(|tx| builds::renew(tx, MACHINE, later(700_000))).await.unwrap();
    assert_eq!(renewed, 1);
    assert_eq!(find(&store, &id).await.until, Some(later(700_000)));
}

async fn no_workspace_waits_behind_another(place: Place) {
    let store = place.open().await;
    for number in 0..9 {
        let id = format!("bld_a{number}");
        queued(&store, new(&id, WorkspaceId::known("wsp_a"), &format!("res_a{number}"))).await;
    }
    let claimed = claim(&store, 3, 2).await;
    assert_eq!(claimed.len(), 2, "its share");
    queued(&store, new("bld_b", WorkspaceId::known("wsp_b"), "res_b")).await;
    let claimed = claim(&store, 1, 2).await;
    assert_eq!(claimed[0].id.as_str(), "bld_b");
    assert!(claim(&store, 5, 2).await.is_empty());
    let claimed = claim(&store, 5, 4).await;
    assert_eq!(claimed.len(), 2);
}

async fn what_is_overdue_is_found_and_what_ended_is_forgotten(place: Place) {
    let store = place.open().await;
    let id = ask(&store, "bld_1", "res_1").await;
    let overdue = |at| store.read(move |tx| builds::overdue(tx, later(at), 10));
    assert!(overdue(59_999).await.unwrap().is_empty());
    assert_eq!(overdue(60_000).await.unwrap()[0].id, id);
    let taken = queued(&store, new("bld_2", workspace(), "res_2")).await;
    assert_eq!(claim(&store, 1, 1).await.len(), 1);
    let elsewhere = |machine| store.read(move |tx| builds::leases_elsewhere(tx, machine));
    assert!(elsewhere(MACHINE).await.unwrap().is_empty());
    assert_eq!(elsewhere("another").await.unwrap()[0].0, taken);
    let late = overdue(900_000_000).await.unwrap();
    assert!(late.iter().all(|build| build.id != taken), "clocks differ: {late:?}");
    for id in [id, taken.clone()] {
        store.write(move |tx| builds::end(tx, &id, State::Failed)).await.unwrap();
    }
    let left = || store.read(|tx| builds::left(tx, MACHINE, 10));
    let found = left().await.unwrap();
    assert_eq!(found.len(), 1, "the other has nothing: {found:?}");
    assert_eq!(found[0].id, taken);
    store.write(move |tx| builds::forgotten(tx, &taken)).await.unwrap();
    assert!(left().await.unwrap().is_empty());
    assert_eq!(store.write(|tx| builds::trim(tx, later(0), 10)).await.unwrap(), 0);
    assert_eq!(store.write(|tx| builds::trim(tx, later(900_000), 10)).await.unwrap(), 2);
}

async fn a_deleted_resource_cancels_its_build(place: Place) {
    let store = place.open().await;
    let object = agent(store.world(), "a");
    let resource = object.id.clone();
    let id = BuildId::known("bld_1");
    let work = move |tx: &mut Tx<'_>| {
        let object = resources::insert(tx, object.clone())?;
        let mut asked = new("bld_1", workspace(), "");
        asked.resource = resource.clone();
        builds::replace(tx, &asked)?;
        resources::delete(tx, &object, "me")
    };
    store.write(work).await.unwrap();
    assert_eq!(find(&store, &id).await.state, State::Cancelled);
}

async fn the_wish_that_waits_follows_the_keys(place: Place) {
    let store = place.open().await;
    let sealed = store.keyring().read().seal("resources/res_1", "s3cret").unwrap();
    let key = seal::key_of(&sealed).unwrap().to_owned();
    let mut asked = new("bld_1", workspace(), "res_1");
    asked.wish = Some(format!("{{\"token\":\"{sealed}\"}}"));
    asked.seal_key = Some(key.clone());
    store.write(move |tx| builds::replace(tx, &asked)).await.unwrap();
    let rotation = store.rotate_keys().await.unwrap();
    let wish = find(&store, &BuildId::known("bld_1")).await.wish.unwrap();
    let sealed = wish.strip_prefix("{\"token\":\"").unwrap().strip_suffix("\"}").unwrap();
    assert_eq!(seal::key_of(sealed), Some(rotation.active.as_str()));
    assert_ne!(rotation.active, key);
    let opened = store.keyring().read().open("resources/res_1", sealed).unwrap();
    assert_eq!(opened, "s3cret");
}
