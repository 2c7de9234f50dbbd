//! How the server follows the rows of workloads: what changes together, and what cannot be read.

use crate::common::machine::{IMAGE, Pretended};
use crate::common::{Cloud, settings};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use store::feed;
use store::resources::{self, Stored};
use types::edge::{Serving, WorkloadRoute};
use types::instance::{Fact, Happened, InstanceName, Outcome};
use types::parts::Status;
use types::{KindName, Timestamp};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_deleted_while_the_feed_has_a_gap_has_no_route_any_more() {
    for cloud in
        Cloud::start_on_machines(|| Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)))).await
    {
        let mut ids = Vec::new();
        for name in ["kept", "lost"] {
            let body = json!({"metadata": {"name": name}, "spec": {"runtime": {"image": IMAGE}}});
            cloud.post("/v0/sandboxes", body).await.ok();
            cloud.until(&format!("/v0/sandboxes/{name}"), |it| it["status"] == "DEPLOYED").await;
            ids.push(cloud.routes.sandbox("main", name).id);
        }
        for name in ["kept", "lost"] {
            let preview =
                json!({"metadata": {"name": name}, "spec": {"port": 3000, "public": true}});
            cloud.post("/v0/sandboxes/kept/previews", preview).await.ok();
        }
        let key = json!({"integration": "openai", "secret": {"apiKey": "sk-1"}});
        let connection = json!({"metadata": {"name": "k"}, "spec": key});
        cloud.post("/v0/integrations/connections", connection).await.ok();
        let runtime = json!({"type": "openai", "model": "gpt-x"});
        let spec = json!({"runtime": runtime, "integrationConnections": ["k"]});
        cloud.post("/v0/models", json!({"metadata": {"name": "lost"}, "spec": spec})).await.ok();
        cloud.routes.until_model("lost", |route| route.off.is_none()).await;
        let workspace = cloud.workspace("main").await;
        let lose = move |tx: &mut store::Tx<'_>| {
            let lost =
                [(KindName::Preview, "kept"), (KindName::Sandbox, ""), (KindName::Model, "")];
            for (kind, parent) in lost {
                let row = resources::lock(tx, &workspace, kind, parent, "lost")?.unwrap();
                resources::delete(tx, &row, "somebody")?;
            }
            let kept = resources::find(tx, &workspace, KindName::Preview, "kept", "kept")?;
            // As after a failover, nobody is told of these changes any more.
            feed::trim(tx, Timestamp::from_ms(i64::MAX), 0, i64::MAX)?;
            Ok::<_, store::Error>(kept.unwrap().id)
        };
        let preview = cloud.store.write(lose).await.unwrap();
        cloud.routes.until_routed(&[ids[0].clone(), preview]).await;
    }
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
