//! How the server follows the rows of workloads: what changes together, and what cannot be read.

use crate::common::machine::{IMAGE, Pretended};
use crate::common::{Cloud, settings};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use store::resources::{self, Stored};
use types::KindName;
use types::edge::{Serving, WorkloadRoute};
use types::instance::{Fact, Happened, InstanceName, Outcome};
use types::parts::Status;

#[tokio::test]
async fn rows_that_change_in_one_transaction_are_all_followed() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    let [one, _] = one_of_two_unreadable(&cloud, &machine).await;
    let body = json!({"metadata": {"name": "three"}, "spec": {"runtime": {"image": IMAGE}}});
    cloud.post("/v0/sandboxes", body).await.ok();
    cloud.until("/v0/sandboxes/three", |it| it["status"] == "DEPLOYED").await;
    let workspace = cloud.workspace("main").await;
    let work = move |tx: &mut store::Tx<'_>| {
        for name in ["one", "two", "three"] {
            let row = resources::lock(tx, &workspace, KindName::Sandbox, "", name)?;
            resources::update(tx, Stored { status: Some(Status::Deactivated), ..row.unwrap() })?;
        }
        Ok::<_, store::Error>(())
    };
    cloud.store.write(work).await.unwrap();
    let is_off = |route: &WorkloadRoute| matches!(route.serving, Serving::Off { .. });
    for name in ["two", "three"] {
        cloud.routes.until(name, is_off).await;
    }
    assert!(machine.names().contains(&one.to_string()), "what runs for it stays");
}

/// Starts two sandboxes and makes the row of the first one unreadable. Returns their instances.
async fn one_of_two_unreadable(cloud: &Cloud, machine: &Pretended) -> [InstanceName; 2] {
    for name in ["one", "two"] {
        let body = json!({"metadata": {"name": name}, "spec": {"runtime": {"image": IMAGE}}});
        cloud.post("/v0/sandboxes", body).await.ok();
        cloud.until(&format!("/v0/sandboxes/{name}"), |it| it["status"] == "DEPLOYED").await;
    }
    cloud.tell_wish(KindName::Sandbox, "one", json!({"runtime": "?"})).await;
    let launched = machine.until_launched(2).await;
    [launched[0].instance.clone(), launched[1].instance.clone()]
}

#[tokio::test]
async fn an_unreadable_row_keeps_nobody_from_following_the_others() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let mut cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    let [one, two] = one_of_two_unreadable(&cloud, &machine).await;
    cloud.restart_on(machine.clone()).await;
    let ready = control::workloads::ready(&cloud.control);
    tokio::time::timeout(Duration::from_secs(60), ready).await.expect("it becomes ready");
    // It is read again when it changes.
    cloud.tell_wish(KindName::Sandbox, "one", json!({"runtime": "!"})).await;
    cloud.delete("/v0/sandboxes/two").await.ok();
    machine.until_retired(two.as_str()).await;
    assert_eq!(machine.names(), [one.to_string()], "what runs for it stays");
}

#[tokio::test]
async fn a_fact_about_an_unreadable_row_does_not_hold_up_the_others() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    let [one, two] = one_of_two_unreadable(&cloud, &machine).await;
    let at = cloud.control.world.now();
    let paused = |number: u64, instance: &InstanceName| Fact {
        id: format!("pretended-{number}"),
        number,
        instance: instance.clone(),
        at,
        stamp: None,
        happened: Happened::Paused,
    };
    machine.report(vec![paused(1, &one), paused(2, &two)]).await;
    machine.report(vec![paused(3, &two)]).await;
}
