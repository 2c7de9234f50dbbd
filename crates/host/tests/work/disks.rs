//! The disk of a sandbox stays over the image that its files were written over.

use crate::place::{Place, Running, SHELL, shell};
use control::machine::{Launch, LaunchFault, Machine};
use types::ids::ResourceId;
use types::instance::{KeptFor, VolumeName};

/// Prints what is on the disk, and whether the image is the later one.
const LOOK: &str = "cat /a; [ ! -e /etc/later ] || echo later";

fn disk() -> VolumeName {
    VolumeName::of(&KeptFor::Root(ResourceId::known("res_disk")))
}

fn on_disk(name: &str, script: &str) -> Launch {
    Launch { storage_mb: Some(64), root: Some(disk()), ..shell(name, script) }
}

impl Running {
    async fn printed(&self, launch: Launch) -> String {
        String::from_utf8(self.outcome(launch).await.out).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_keeps_its_files_and_their_image_whatever_the_name_comes_to_mean() {
    let place = Place::new(&[SHELL]);
    let mut machine = place.start();
    let old = place.digest(SHELL);
    assert_eq!(machine.printed(on_disk("first", "echo mine > /a; cat /a")).await, "mine\n");
    let new = place.replace(SHELL);
    machine.tidy();
    assert!(new != old && place.has(&old));
    assert_eq!(machine.printed(on_disk("moved", LOOK)).await, "mine\n");

    // The name means nothing any more, and this is another run of the server.
    place.forget(SHELL);
    drop(machine);
    machine = place.start();
    machine.tidy();
    assert!(place.has(&old) && !place.has(&new));
    assert!(machine.control.volumes().unwrap().has_image_below(&disk()));
    assert_eq!(machine.printed(on_disk("nameless", LOOK)).await, "mine\n");

    // An earlier release has noted nothing.
    drop(machine);
    place.forget_images_below_disks();
    machine = place.start();
    machine.tidy();
    assert_eq!(machine.printed(on_disk("unnoted", LOOK)).await, "mine\n");

    machine.control.volumes().unwrap().remove(&disk()).await.unwrap();
    machine.tidy();
    assert!(!place.has(&old), "nothing needs it any more");
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_whose_image_is_lost_keeps_its_files() {
    let place = Place::new(&[SHELL]);
    let mut machine = place.start();
    assert_eq!(machine.printed(on_disk("first", "echo mine > /a; cat /a")).await, "mine\n");
    drop(machine);
    place.replace(SHELL);
    place.collect();
    machine = place.start();
    assert!(!machine.control.volumes().unwrap().has_image_below(&disk()));
    let refused = machine.control.launch(on_disk("late", LOOK)).await;
    let Err(LaunchFault::Pull(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("its files are kept"), "{why}");
    let kept = machine.control.volumes().unwrap();
    assert!(kept.size_mb(&disk()).is_some());
    // Over the new image only once somebody has said that the files may go.
    kept.remove(&disk()).await.unwrap();
    let fresh = machine.printed(on_disk("fresh", "cat /a /etc/later 2> /dev/null")).await;
    assert_eq!(fresh, "later\n");
    machine.clear().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_inodes_is_full() {
    let place = Place::new(&[SHELL]);
    let machine = place.start();
    let full = place.without_inodes();
    let refused = machine.control.launch(shell("late", "true")).await;
    drop(full);
    assert!(matches!(refused, Err(LaunchFault::Full(_))), "{refused:?}");
    assert!(machine.control.instances().is_empty());
    machine.clear().await;
}
