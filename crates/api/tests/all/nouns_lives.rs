//! The life of a sandbox: it is disabled and archived.

use crate::common::machine::{IMAGE, Pretended};
use crate::common::snapshots::PretendedSnapshots;
use crate::common::{Cloud, settings};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use types::instance::Outcome;

const AT: &str = "/v0/sandboxes/box";

fn sandbox() -> Value {
    json!({"metadata": {"name": "box"}, "spec": {"runtime": {"image": IMAGE, "memory": 512}}})
}

fn willing() -> Pretended {
    Pretended::new(|_| Ok(Outcome::SUCCESS))
}

/// Waits until the machine was asked as wanted to put instances to sleep.
async fn until_rested(machine: &Pretended, wanted: impl Fn(&[(String, bool)]) -> bool) {
    let mut rested = machine.rested.subscribe();
    let asked = rested.wait_for(|rested| wanted(rested));
    let asked = tokio::time::timeout(Duration::from_secs(60), asked).await;
    drop(asked.expect("in time").expect("a machine"));
}

/// Waits until the machine was asked twice in vain.
async fn until_tried_again(machine: &Pretended) {
    until_rested(machine, |rested| rested.len() >= 2).await;
    assert!(machine.rested.borrow().iter().all(|(_, sleeps)| !sleeps));
}

#[tokio::test]
async fn a_disabled_sandbox_sleeps_as_soon_as_its_requests_have_ended() {
    let machine = Arc::new(willing());
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    cloud.post("/v0/sandboxes", sandbox()).await.ok();
    let instance = machine.until_launched(1).await.remove(0).instance.to_string();
    machine.busy.send_replace(true);
    let mut wish = sandbox();
    wish["spec"]["enabled"] = json!(false);
    assert_eq!(cloud.put(AT, wish).await.ok()["status"], "DEACTIVATED");
    until_tried_again(&machine).await;
    machine.busy.send_replace(false);
    until_rested(&machine, |rested| rested.last() == Some(&(instance.clone(), true))).await;
}

#[tokio::test]
async fn a_sandbox_is_archived_when_nothing_is_written_to_it_any_more() {
    let snapshots = PretendedSnapshots::new(1);
    let machine = Arc::new(willing().with_snapshots(&snapshots));
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    cloud.post("/v0/sandboxes", sandbox()).await.ok();
    machine.busy.send_replace(true);
    cloud.post(&format!("{AT}/archive"), Value::Null).await.ok();
    until_tried_again(&machine).await;
    assert!(snapshots.ids().is_empty());
    assert_eq!(cloud.get(AT).await.ok()["status"], "ARCHIVING");
    machine.busy.send_replace(false);
    cloud.until(AT, |it| it["status"] == "ARCHIVED").await;
}
