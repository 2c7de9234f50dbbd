//! The image below a snapshot stays, whatever happens to its name or the machine.

use crate::place::{Place, Running, SHELL, shell};
use control::machine::{Launch, LaunchFault, Machine};
use control::snapshot_store::{Base, NewSnapshot};
use types::ids::ResourceId;
use types::instance::InstanceName;

/// Prints what is in a snapshot, and whether the image is the later one.
const LOOK: &str = "cat /a; [ ! -e /etc/later ] || echo later";

fn id(name: &str) -> ResourceId {
    ResourceId::known(name)
}

fn over(snapshot: &ResourceId, name: &str, script: &str) -> Launch {
    Launch { snapshot: Some(snapshot.clone()), ..shell(name, script) }
}

impl Running {
    async fn snapshot(&self, id: &ResourceId, instance: &InstanceName) {
        let new = NewSnapshot {
            id: id.clone(),
            instance: instance.clone(),
            workspace: "wsp_test".into(),
        };
        self.control.snapshots().unwrap().take(new).await.unwrap();
    }

    /// Runs something to its end, and takes a snapshot of what it wrote.
    async fn written(&self, id: &ResourceId, launch: Launch) {
        let instance = self.launch(launch).await;
        self.attend(&instance, 0).await.unwrap();
        self.snapshot(id, &instance).await;
        self.control.retire(&instance).await.unwrap();
    }

    fn base(&self, id: &ResourceId) -> Base {
        self.control.snapshots().unwrap().base(id)
    }

    async fn remove(&self, id: &ResourceId) {
        self.control.snapshots().unwrap().remove(id).await.unwrap();
    }

    async fn said(&self, launch: Launch) -> String {
        String::from_utf8(self.outcome(launch).await.out).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_keeps_the_image_below_it_for_as_long_as_it_is_there() {
    let place = Place::new(&[SHELL]);
    let mut machine = place.start();
    let (first, second) = (id("res_first"), id("res_second"));
    let old = place.digest(SHELL);
    machine.written(&first, shell("parent", "echo kept > /a")).await;

    let new = place.replace(SHELL);
    machine.tidy();
    assert!(new != old && place.has(&old));
    assert_eq!(machine.said(over(&first, "moved", LOOK)).await, "kept\n");
    assert_eq!(
        machine.said(shell("fresh", "echo new > /a; cat /a /etc/later")).await,
        "new\nlater\n"
    );

    // The name means nothing any more, and this is another run of the server.
    place.forget(SHELL);
    machine.tidy();
    assert!(place.has(&old) && !place.has(&new));
    assert_eq!(machine.said(over(&first, "nameless", LOOK)).await, "kept\n");
    drop(machine);
    machine = place.start();
    machine.tidy();
    assert_eq!(machine.base(&first), Base::Kept);
    assert_eq!(machine.said(over(&first, "again", LOOK)).await, "kept\n");

    // What stands on a removed snapshot also stands on its image.
    machine.written(&second, over(&first, "child", "echo more >> /a")).await;
    machine.remove(&first).await;
    machine.tidy();
    drop(machine);
    machine = place.start();
    machine.tidy();
    assert_eq!(machine.said(over(&second, "grandchild", LOOK)).await, "kept\nmore\n");

    machine.remove(&second).await;
    machine.tidy();
    assert!(!place.has(&old), "nothing needs it any more");
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_begins_over_an_image_that_is_lost() {
    let place = Place::new(&[SHELL]);
    let mut machine = place.start();
    let first = id("res_first");
    machine.written(&first, shell("parent", "echo kept > /a")).await;
    drop(machine);
    place.replace(SHELL);
    place.collect();
    machine = place.start();
    assert_eq!(machine.base(&first), Base::Lost);
    let refused = machine.control.launch(over(&first, "late", LOOK)).await;
    let Err(LaunchFault::Pull(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("not on this machine any more"), "{why}");
    assert!(machine.control.instances().is_empty());
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_keeps_its_image_when_its_launch_is_repeated() {
    let place = Place::new(&[SHELL]);
    let mut machine = place.start();
    let old = place.digest(SHELL);
    machine.launch(shell("running", "sleep 1000")).await;
    assert_ne!(place.replace(SHELL), old);
    machine.launch(shell("running", "sleep 1000")).await;
    machine.tidy();
    assert!(place.has(&old));
    drop(machine);
    machine = place.start();
    machine.tidy();
    assert!(place.has(&old), "also for the next run of the server");
    machine.clear().await;
}
