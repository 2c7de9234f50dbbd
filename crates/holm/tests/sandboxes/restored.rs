//! A machine that takes the place of one that is lost.

use crate::setup::{IMAGE, Place, eventually};
use serde_json::json;
use std::process::Command;
use testing::machine;

#[test]
fn a_restored_server_runs_what_the_lost_machine_ran() {
    let mut lost = Place::new("15s");
    let (mut server, client) = lost.start();
    client.create("box", &json!({"runtime": {"image": IMAGE}}));
    client.run("box", "true");
    let file = lost.data().join("backup");
    let holm = |command: &str, flags: &[&str], place: &Place| {
        let mut holm = Command::new(env!("CARGO_BIN_EXE_holm"));
        holm.env_clear().arg(command).arg(&file).args(flags).arg("--data").arg(place.data());
        let done = holm.current_dir(place.data()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    holm("backup", &["--with-keys"], &lost);
    server.kill();
    machine::sweep(lost.data()).unwrap();

    let mut place = Place::new("15s");
    holm("restore", &[], &place);
    place.key.clone_from(&lost.key);
    let (server, client) = place.start();
    eventually("the sandbox runs again", || client.get("box")["status"] == "DEPLOYED");
    assert_eq!(client.run("box", "echo here"), "here\n");
    place.clear(server, &client);
}
