//! Snapshots as `control` asks for them.

use crate::place::{Place, SHELL, shell};
use control::machine::{Launch, LaunchFault, Machine};
use control::snapshot_store::{Base, NewSnapshot, SnapshotFault};
use types::ids::ResourceId;
use types::instance::InstanceName;

fn wanted(id: &ResourceId, instance: &InstanceName) -> NewSnapshot {
    NewSnapshot { id: id.clone(), instance: instance.clone(), workspace: "wsp_test".into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_begins_with_what_another_wrote() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    let snapshots = machine.control.snapshots().unwrap();
    let id = ResourceId::known("res_first");
    let parent = machine.launch(shell("parent", "echo kept > /a")).await;
    machine.attend(&parent, 0).await.unwrap();
    let taken = snapshots.take(wanted(&id, &parent)).await.unwrap();
    assert!(taken.size_bytes > 0);
    machine.control.retire(&parent).await.unwrap();
    let listed = snapshots.list();
    assert_eq!((listed.len(), &listed[0].id, listed[0].size_bytes), (1, &id, taken.size_bytes));
    let fork = |name: &str| Launch { snapshot: Some(id.clone()), ..shell(name, "cat /a") };
    assert_eq!(machine.outcome(fork("fork")).await.out, b"kept\n");

    let gone = snapshots.take(wanted(&ResourceId::known("res_late"), &parent)).await;
    assert!(matches!(gone, Err(SnapshotFault::Gone)), "{gone:?}");
    snapshots.remove(&id).await.unwrap();
    snapshots.remove(&id).await.unwrap();
    assert!(snapshots.list().is_empty());
    assert_eq!(snapshots.base(&id), Base::Gone);
    let lost = snapshots.fetch("wsp_test", &id).await;
    assert!(matches!(lost, Err(SnapshotFault::Lost)), "{lost:?}");
    let refused = machine.control.launch(fork("late")).await;
    let Err(LaunchFault::Broken(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("snapshot"), "{why}");
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_too_deep_for_a_snapshot_are_no_failure_of_the_machine() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    let snapshots = machine.control.snapshots().unwrap();
    let script = "name=$(printf %080d 0); i=0; while [ $i -lt 60 ]; do mkdir $name; cd $name; i=$((i + 1)); done";
    let deep = machine.launch(shell("deep", script)).await;
    machine.attend(&deep, 0).await.unwrap();
    let refused = snapshots.take(wanted(&ResourceId::known("res_deep"), &deep)).await;
    assert!(matches!(refused, Err(SnapshotFault::Unfit(_))), "{refused:?}");
    assert!(snapshots.list().is_empty());
    machine.clear().await;
}
