//! The life of a sandbox: it is disabled, archived, its time is over, and the machine knows more
//! launches than its row.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common::machine::{IMAGE, Pretended, variable};
use crate::common::snapshots::PretendedSnapshots;
use crate::common::{Cloud, settings};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use store::feed::{self, Act, NewChange};
use types::instance::{Exit, Fact, Happened, InstanceName, Outcome, RunsFor};
use types::{KindName, Timestamp};

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
    drop(asked.unwrap().unwrap());
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
async fn a_new_sandbox_finds_whether_the_output_of_its_processes_is_kept() {
    let machine = Arc::new(willing());
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    let said = async |launches: usize| {
        let launched = machine.until_launched(launches).await;
        variable(&launched[launches - 1], "SANDBOX_DISABLE_PROCESS_LOGGING")
    };
    cloud.post("/v0/sandboxes", sandbox()).await.ok();
    assert_eq!(said(1).await, None);
    let runtime = json!({"sandbox": {"disableProcessLogging": true}});
    cloud.put("/v0/workspaces/main", json!({"runtime": runtime})).await.ok();
    let mut second = sandbox();
    second["metadata"]["name"] = json!("second");
    second["spec"]["runtime"]["envs"] =
        json!([{"name": "SANDBOX_DISABLE_PROCESS_LOGGING", "value": "false"}]);
    cloud.post("/v0/sandboxes", second).await.ok();
    assert_eq!(said(2).await.as_deref(), Some("true"));
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

#[tokio::test]
async fn a_sandbox_whose_time_was_over_does_not_come_back() {
    for cloud in Cloud::on_both().await {
        cloud.post("/v0/sandboxes", sandbox()).await.ok();
        let ended =
            json!({"type": "expiration", "status": "TERMINATED", "time": "2026-04-16T00:00:00Z"});
        cloud.tell(KindName::Sandbox, "", "box", json!({"events": [ended]})).await;
        let envs = json!([{"name": "A", "value": "1"}]);
        let changes = [
            ("/spec/runtime/memory", json!(1024)),
            ("/spec/runtime/envs", envs),
            ("/spec/enabled", json!(false)),
        ];
        for (at, value) in changes {
            let mut wish = cloud.get(AT).await.ok();
            wish["spec"]["runtime"]["envs"] = json!([]);
            *wish.pointer_mut(at).unwrap() = value;
            let why = cloud.put(AT, wish).await.refused(409);
            assert!(why.contains("TERMINATED; its files are gone; create it again"), "{why}");
        }
        let mut wish = cloud.get(AT).await.ok();
        wish["metadata"]["labels"] = json!({"a": "b"});
        wish["spec"]["runtime"]["ttl"] = json!("1h");
        let changed = cloud.put(AT, wish).await.ok();
        assert_eq!(changed["status"], "TERMINATED");
        assert_eq!(changed["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(cloud.post("/v0/sandboxes", sandbox()).await.ok()["status"], "DEPLOYING");
    }
}

/// As after a restore of an older backup on the same machine.
#[tokio::test]
async fn a_row_that_knows_fewer_launches_than_the_machine_gets_an_instance_of_its_own() {
    for (cloud, machine) in on_both_machines().await {
        cloud.post("/v0/sandboxes", sandbox()).await.ok();
        let first = machine.until_launched(1).await.remove(0).instance;
        let Some(RunsFor::Sandbox { id, .. }) = first.runs_for() else { panic!("{first}") };
        let of = |launch: u32| InstanceName::of_sandbox(&id, launch);
        machine.add(&of(2));
        machine.lose(&of(1));
        cloud.tell(KindName::Sandbox, "", "box", json!({})).await;
        machine.until_retired(of(2).as_str()).await;
        assert_eq!(machine.until_launched(2).await[1].instance, of(3));
        machine.report(vec![killed(&cloud, of(2))]).await;
        let found = cloud.until(AT, |it| it["status"] != "DEPLOYING").await;
        assert_eq!(found["status"], "DEPLOYED", "{found}");
    }
}

async fn on_both_machines() -> Vec<(Cloud, Arc<Pretended>)> {
    let machines = RefCell::new(Vec::new());
    // The machine for PostgreSQL is asked for first.
    let clouds = Cloud::start_on_machines(|| {
        let machine = Arc::new(willing());
        machines.borrow_mut().push(machine.clone());
        machine
    });
    clouds.await.into_iter().zip(machines.into_inner().into_iter().rev()).collect()
}

fn killed(cloud: &Cloud, instance: InstanceName) -> Fact {
    ended(cloud, instance, Exit::Signal(9))
}

fn ended(cloud: &Cloud, instance: InstanceName, exit: Exit) -> Fact {
    let (at, happened) = (cloud.control.world.now(), Happened::Exited(exit));
    Fact { id: "pretended-1".into(), number: 1, at, stamp: None, instance, happened }
}

#[tokio::test]
async fn a_sandbox_that_its_machine_ended_because_its_disk_had_stopped_starts_anew() {
    for (cloud, machine) in on_both_machines().await {
        cloud.post("/v0/sandboxes", sandbox()).await.ok();
        let first = machine.until_launched(1).await.remove(0).instance;
        cloud.until(AT, |it| it["status"] == "DEPLOYED").await;
        machine.lose(&first);
        machine.report(vec![ended(&cloud, first.clone(), Exit::DiskStopped)]).await;
        assert_ne!(machine.until_launched(2).await[1].instance, first);
        cloud.until(AT, |it| it["status"] == "DEPLOYED").await;
    }
}

/// As after a restore of an older backup, or a failover to a standby that lagged behind: the machine
/// has forgotten facts that the database does not have.
#[tokio::test]
async fn a_machine_tells_again_what_the_database_has_lost() {
    let machine = Arc::new(willing());
    let mut cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    let mut started = Vec::new();
    for (number, name) in [(1, "box"), (2, "second")] {
        let mut wish = sandbox();
        wish["metadata"]["name"] = json!(name);
        cloud.post("/v0/sandboxes", wish).await.ok();
        let launched = machine.until_launched(started.len() + 1).await;
        let instance = launched[started.len()].instance.clone();
        let happened = Happened::Started { memory_mb: 512 };
        let fact = killed(&cloud, instance.clone());
        machine.report(vec![Fact { id: name.into(), number, happened, ..fact }]).await;
        started.push(instance);
    }
    machine.lose(&started[0]);
    cloud.restart_on(machine.clone()).await;
    // At a start a machine tells of whatever lives on by itself.
    assert_eq!(asked_again(&machine, &started[0]).await, started[..1]);
    let workspace = cloud.workspace("main").await;
    let fall_behind = move |tx: &mut store::Tx<'_>| {
        let change = NewChange {
            workspace: &workspace,
            kind: "policy",
            resource_id: "res_lost",
            parent: "",
            name: "lost",
            act: Act::Deleted,
            version: 1,
            actor: "somebody",
        };
        feed::record(tx, change)?;
        feed::trim(tx, Timestamp::from_ms(i64::MAX), 0, i64::MAX)
    };
    cloud.store.write(fall_behind).await.unwrap();
    let asked = asked_again(&machine, &started[1]).await;
    assert!(asked[1..].contains(&started[0]), "{asked:?}");
}

#[tokio::test]
async fn a_start_of_the_server_is_no_use_of_a_sandbox() {
    let machine = Arc::new(willing());
    let cloud = Cloud::start_on_machine(machine.clone(), settings()).await;
    cloud.post("/v0/sandboxes", sandbox()).await.ok();
    let instance = machine.until_launched(1).await.remove(0).instance;
    let slept = |number: u64| {
        let fact = killed(&cloud, instance.clone());
        let (id, at) = (format!("pretended-{number}"), fact.at.plus_s(60 * number as i64));
        Fact { id, number, at, happened: Happened::Paused, ..fact }
    };
    machine.report(vec![slept(1)]).await;
    let before = cloud.get(AT).await.ok();
    assert_eq!(before["state"], "STANDBY");
    machine.report(vec![slept(2)]).await;
    assert_eq!(cloud.get(AT).await.ok()["lastUsedAt"], before["lastUsedAt"]);
}

/// Waits until the machine was asked to tell again of an instance. Returns all that it was asked.
async fn asked_again(machine: &Pretended, instance: &InstanceName) -> Vec<InstanceName> {
    let mut asked = machine.asked_again.subscribe();
    let asked = asked.wait_for(|asked| asked.contains(instance));
    let asked = tokio::time::timeout(Duration::from_secs(60), asked).await;
    asked.unwrap().unwrap().clone()
}
