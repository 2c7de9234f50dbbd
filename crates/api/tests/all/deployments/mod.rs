//! Agents, MCP servers and applications on a machine: statuses, events, revisions, replicas.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod applications;
mod revisions;
mod turns;

use crate::common::machine::{IMAGE, Pretended, variable};
use crate::common::{Cloud, settings};
use control::machine::{Launch, LaunchFault};
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use types::KindName;
use types::edge::{Fallback, Load, Serving, WorkloadRoute};
use types::ids::ResourceId;
use types::instance::{InstanceName, Outcome, ReplicaId};

async fn cloud() -> (Cloud, Arc<Pretended>) {
    cloud_where(|_| Ok(Outcome::SUCCESS)).await
}

async fn cloud_where(
    script: impl Fn(&Launch) -> Result<Outcome, LaunchFault> + Send + Sync + 'static,
) -> (Cloud, Arc<Pretended>) {
    let machine = Arc::new(Pretended::new(script));
    (Cloud::start_on_machine(machine.clone(), settings()).await, machine)
}

fn agent(envs: &Value) -> Value {
    json!({"metadata": {"name": "a"}, "spec": {"runtime": {"image": IMAGE, "memory": 512, "envs": envs}}})
}

fn env(name: &str, value: &str) -> Value {
    json!([{"name": name, "value": value}])
}

/// Returns the names of the replicas that take requests.
fn replicas(route: &WorkloadRoute) -> Vec<String> {
    let replicas = route.serving.targets().iter().flat_map(|target| &target.replicas);
    replicas.map(|replica| replica.instance.clone()).collect()
}

fn is(status: &'static str) -> impl Fn(&Value) -> bool {
    move |object| object["status"] == status
}

/// Creates an agent, and returns it once it serves.
async fn deployed(cloud: &Cloud, body: Value) -> Value {
    cloud.post("/v0/agents", body).await.ok();
    cloud.until("/v0/agents/a", is("DEPLOYED")).await
}

fn last_message(object: &Value) -> &str {
    object["events"].as_array().unwrap().last().unwrap()["message"].as_str().unwrap()
}

fn active(object: &Value) -> String {
    object["spec"]["revision"]["active"].as_str().unwrap().to_owned()
}

/// Otherwise a request that follows right away would be told that there is no such agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_edge_knows_of_an_agent_and_of_its_change_before_the_caller_is_answered() {
    let (cloud, _machine) = cloud().await;
    for n in 0..20 {
        let name = format!("a{n}");
        let mut body = agent(&json!([]));
        body["metadata"]["name"] = json!(name);
        cloud.post("/v0/agents", body.clone()).await.ok();
        assert_eq!(cloud.routes.sandbox("main", &name).name, name);
        body["spec"]["enabled"] = json!(false);
        cloud.put(&format!("/v0/agents/{name}"), body).await.ok();
        let route = cloud.routes.sandbox("main", &name);
        assert!(matches!(route.serving, Serving::Off { .. }), "{route:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_runs_with_its_environment_and_an_identity_of_its_own() {
    let (cloud, machine) = cloud().await;
    let secret = json!([{"name": "KEY", "value": "s3cret", "secret": true}]);
    let object = deployed(&cloud, agent(&secret)).await;
    let event = object["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(event["revision"], object["spec"]["revision"]["active"]);
    let route = cloud.routes.until("a", |route| replicas(route).len() == 1).await;
    assert_eq!(
        (route.port, route.public, route.serving.targets()[0].weight),
        (Some(8080), false, 100)
    );
    let [launch] = &machine.until_launched(1).await[..] else { panic!("one is enough") };
    assert_eq!(launch.serves, Some(8080));
    assert!(launch.work.as_ref().unwrap().timeout.is_none());
    for (name, value) in [
        ("KEY", "s3cret"),
        ("PORT", "8080"),
        ("HOST", "0.0.0.0"),
        ("BL_SERVER_PORT", "8080"),
        ("BL_NAME", "a"),
        ("BL_TYPE", "agent"),
        ("BL_WORKSPACE", "main"),
        ("BL_API_URL", "http://localhost:8080/v0"),
        ("BL_DISABLE_H2", "1"),
    ] {
        assert_eq!(variable(launch, name).as_deref(), Some(value), "{name}");
    }
    assert!(!format!("{launch:?}").contains("s3cret"));

    let credentials = variable(launch, "BL_CLIENT_CREDENTIALS").unwrap();
    let basic = format!("Basic {credentials}");
    let ask = || async {
        let headers = [("authorization", basic.as_str()), ("content-type", "application/json")];
        let body = json!({"grant_type": "client_credentials"}).to_string().into_bytes();
        cloud.raw(http::Method::POST, "/v0/oauth/token", &headers, body).await
    };
    let token = ask().await.ok()["access_token"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {token}");
    let with = [("authorization", bearer.as_str())];
    cloud.call_with(http::Method::GET, "/v0/agents/a", &with, None).await.ok();
    let policy = json!({"metadata": {"name": "p"}, "spec": {"type": "maxToken"}});
    let refused = cloud.call_with(http::Method::POST, "/v0/policies", &with, Some(policy)).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "a member does not administer");
    assert_eq!(cloud.get("/v0/service_accounts").await.ok(), json!([]), "nobody manages it");

    cloud.delete("/v0/agents/a").await.ok();
    machine.until_retired(launch.instance.as_str()).await;
    assert!(cloud.routes.is_gone(&route.id));
    assert!(!ask().await.status.is_success(), "its identity has gone with it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_become_ready_leaves_the_old_revision_serving() {
    let (cloud, machine) = cloud().await;
    let first = deployed(&cloud, agent(&env("V", "1"))).await;
    let served = cloud.routes.until("a", |route| replicas(route).len() == 1).await;
    cloud.put("/v0/agents/a", agent(&env("SILENT", "yes"))).await.ok();
    let failed = cloud.until("/v0/agents/a", is("FAILED")).await;
    let wanted = "STARTUP TCP probe failed: nothing listens on port 8080 after 1 s";
    assert_eq!(last_message(&failed), wanted);
    assert_ne!(active(&failed), active(&first));
    let launched = machine.until_launched(2).await;
    machine.until_retired(launched[1].instance.as_str()).await;
    assert_eq!(replicas(&cloud.routes.until("a", |_| true).await), replicas(&served));
    let revisions = cloud.get("/v0/agents/a/revisions").await.ok();
    let status = |id: &str| {
        let all = revisions.as_array().unwrap();
        all.iter().find(|one| one["id"] == id).unwrap()["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (status(&active(&first)), status(&active(&failed))),
        ("DEPLOYED".into(), "FAILED".into())
    );

    // Back to the serving revision, for which nothing has to start.
    let mut back = failed.clone();
    back["spec"]["revision"]["active"] = json!(active(&first));
    cloud.put("/v0/agents/a", back).await.ok();
    let again = cloud.until("/v0/agents/a", is("DEPLOYED")).await;
    assert_eq!(active(&again), active(&first));
    assert_eq!(machine.until_launched(2).await.len(), 2);

    // A deployment while an older revision serves takes no requests until told to.
    cloud.put("/v0/agents/a", agent(&env("V", "3"))).await.ok();
    let mut third = cloud.until("/v0/agents/a", is("DEPLOYED")).await;
    assert_eq!(active(&third), active(&first));
    let newest = cloud.get("/v0/agents/a/revisions").await.ok()[0]["id"].clone();
    third["spec"]["revision"]["active"] = newest;
    cloud.put("/v0/agents/a", third).await.ok();
    // It takes over once it is ready, and the old replica ends.
    let old = replicas(&served);
    let moved = |route: &WorkloadRoute| replicas(route).len() == 1 && replicas(route) != old;
    cloud.routes.until("a", moved).await;
    machine.until_retired(&old[0]).await;
    let third = machine.until_launched(3).await;
    assert_eq!(variable(&third[2], "V").as_deref(), Some("3"));
    assert_eq!(machine.names().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_say_why_something_failed() {
    let (cloud, _) = cloud_where(|launch| match variable(launch, "HOW").as_deref() {
        Some("exits") => Ok(Outcome::Exited(1)),
        Some("memory") => Ok(Outcome::OutOfMemory),
        Some("full") => Err(LaunchFault::Full("no memory is left".into())),
        _ => Ok(Outcome::SUCCESS),
    })
    .await;
    let exits =
        json!([{"name": "HOW", "value": "exits"}, {"name": "SAYS", "value": "boom\nno key\n"}]);
    let of =
        |image: &str| json!({"metadata": {"name": "a"}, "spec": {"runtime": {"image": image}}});
    for (body, why) in [
        (
            agent(&exits),
            "its program exited with code 1 before it listened on port 8080; its last output: boom | no key",
        ),
        (
            agent(&env("HOW", "memory")),
            "it ran out of memory (512 MB) before it listened on port 8080",
        ),
        (agent(&env("HOW", "full")), "the machine is full: no memory is left"),
        (of("nobody/knows"), "there is no image `nobody/knows`; there are: holm/python:latest"),
        (
            of("agent/a"),
            "there is no image `agent/a`; this workspace has none yet: push it, or build it with `holm deploy`",
        ),
        (of(""), "it has no image: deploy a folder, or name one in its spec"),
    ] {
        cloud.post("/v0/agents", body).await.ok();
        let failed = cloud.until("/v0/agents/a", is("FAILED")).await;
        assert_eq!(last_message(&failed), why);
        let route =
            cloud.routes.until("a", |route| matches!(route.serving, Serving::Off { .. })).await;
        assert_eq!(route.serving, Serving::Off { why: format!("failed: {why}") });
        cloud.delete("/v0/agents/a").await.ok();
    }
    // The same wish is tried again.
    cloud.post("/v0/agents", agent(&env("HOW", "full"))).await.ok();
    let failed = cloud.until("/v0/agents/a", is("FAILED")).await;
    let again = cloud.put("/v0/agents/a", failed).await.ok();
    assert_eq!(again["status"], "DEPLOYING");
    cloud.until("/v0/agents/a", is("FAILED")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_gets_its_share_once_it_is_ready() {
    let (cloud, machine) = cloud().await;
    let first = deployed(&cloud, agent(&env("V", "1"))).await;
    cloud.put("/v0/agents/a", agent(&env("V", "2"))).await.ok();
    let second = cloud
        .until("/v0/agents/a", |object| {
            object["status"] == "DEPLOYED" && active(object) != active(&first)
        })
        .await;
    let mut split = second.clone();
    split["spec"]["revision"] = json!({"active": active(&second), "canary": active(&first),
        "canaryPercent": 20, "stickySessionTtl": 60});
    cloud.put("/v0/agents/a", split.clone()).await.ok();
    let route = cloud.routes.until("a", |route| replicas(route).len() == 2).await;
    let shares: Vec<_> = route
        .serving
        .targets()
        .iter()
        .map(|target| (target.revision.clone(), target.weight))
        .collect();
    assert_eq!(shares, [(active(&second), 80), (active(&first), 20)]);
    assert_eq!(route.sticky_s, 60);
    let launched = machine.until_launched(3).await;
    assert_eq!(variable(&launched[2], "V").as_deref(), Some("1"), "with its own wish");
    let canary = |event: &Value| event["canaryRevision"] == json!(active(&first));
    let told = |object: &Value| object["events"].as_array().unwrap().iter().any(canary);
    cloud.until("/v0/agents/a", |object| object["status"] == "DEPLOYED" && told(object)).await;

    split["spec"]["revision"]["canary"] = Value::Null;
    split["spec"]["revision"]["canaryPercent"] = Value::Null;
    cloud.put("/v0/agents/a", split).await.ok();
    cloud.routes.until("a", |route| route.serving.targets().len() == 1).await;
    machine.until_retired(launched[2].instance.as_str()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_that_fails_gets_nothing() {
    let (cloud, machine) = cloud().await;
    let first = deployed(&cloud, agent(&env("V", "1"))).await;
    cloud.put("/v0/agents/a", agent(&env("SILENT", "yes"))).await.ok();
    let mut split = cloud.until("/v0/agents/a", is("FAILED")).await;
    let silent = active(&split);
    split["spec"]["revision"] =
        json!({"active": active(&first), "canary": silent, "canaryPercent": 30});
    cloud.put("/v0/agents/a", split).await.ok();
    let failed =
        |event: &Value| event["canaryRevision"] == json!(silent) && event["status"] == "DEPLOYED";
    let object = cloud
        .until("/v0/agents/a", |object| object["events"].as_array().unwrap().iter().any(failed));
    let object = object.await;
    let wanted = "the canary gets no requests: STARTUP TCP probe failed";
    assert!(last_message(&object).starts_with(wanted), "{object}");
    let route = cloud.routes.until("a", |_| true).await;
    assert_eq!((route.serving.targets().len(), route.serving.targets()[0].weight), (1, 100));
    assert_eq!(replicas(&route).len(), 1);
    let revisions = cloud.get("/v0/agents/a/revisions").await.ok();
    let shares = [&revisions[0]["trafficPercent"], &revisions[1]["trafficPercent"]];
    assert_eq!(shares, [0, 100], "{revisions}");
    let launched = machine.until_launched(3).await;
    machine.until_retired(launched[2].instance.as_str()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_disabled_ends_and_comes_back() {
    let (cloud, machine) = cloud().await;
    let object = deployed(&cloud, agent(&json!([]))).await;
    let mut off = object.clone();
    off["spec"]["enabled"] = json!(false);
    let answer = cloud.put("/v0/agents/a", off.clone()).await.ok();
    assert_eq!(answer["status"], "DEACTIVATING");
    let route = cloud.routes.until("a", |route| route.serving.targets().is_empty()).await;
    assert_eq!(route.serving, Serving::Off { why: "is disabled".into() });
    cloud.until("/v0/agents/a", is("DEACTIVATED")).await;
    assert_eq!(machine.names(), [""; 0]);
    off["spec"]["enabled"] = json!(true);
    cloud.put("/v0/agents/a", off).await.ok();
    cloud.until("/v0/agents/a", is("DEPLOYED")).await;
    cloud.routes.until("a", |route| replicas(route).len() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_ends_by_itself_is_replaced_and_the_events_say_so() {
    let (cloud, machine) = cloud().await;
    let mut body = agent(&json!([]));
    body["spec"]["runtime"]["minScale"] = json!(1);
    deployed(&cloud, body).await;
    for ended in 1..=3_usize {
        let launched = machine.until_launched(ended).await;
        let name = launched[ended - 1].instance.clone();
        cloud.routes.until("a", |route| replicas(route) == [name.to_string()]).await;
        machine.end(&name, Outcome::Exited(3));
    }
    let launched = machine.until_launched(4).await;
    let name = launched[3].instance.to_string();
    cloud.routes.until("a", |route| replicas(route) == [name.clone()]).await;
    let object = cloud.get("/v0/agents/a").await.ok();
    assert_eq!(object["status"], "DEPLOYED");
    assert!(last_message(&object).starts_with("a replica has ended"), "{object}");
    assert!(last_message(&object).contains("its program exited with code 3"), "{object}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_follow_requests_down_to_none_and_back() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let mut settings = settings();
    settings.deployments.concurrency = 10;
    settings.deployments.extra_idle = Duration::from_millis(200);
    settings.deployments.last_idle = Duration::from_millis(400);
    let cloud = Cloud::start_on_machine(machine.clone(), settings).await;
    cloud.routes.set_load(Load { requests: 10, idle: None });
    let mut body = agent(&json!([]));
    body["spec"]["runtime"]["maxScale"] = json!(3);
    let revision = active(&deployed(&cloud, body).await);
    let route = cloud.routes.until("a", |route| replicas(route).len() == 1).await;
    assert_eq!((route.scale.max, route.scale.concurrency), (3, 10));
    cloud.routes.demand(&route, &revision, 25);
    cloud.routes.until("a", |route| replicas(route).len() == 3).await;
    cloud.routes.demand(&route, &revision, 1000);
    // Nothing more may start: a later demand is seen after this one.
    cloud.routes.set_load(Load { requests: 0, idle: Some(Duration::from_secs(60)) });
    cloud.routes.until("a", |route| replicas(route).is_empty()).await;
    assert_eq!(machine.until_launched(3).await.len(), 3);
    let target = cloud.routes.until("a", |_| true).await;
    assert_eq!(target.serving.targets()[0].weight, 100, "it is asked for when it is wanted");
    cloud.routes.set_load(Load { requests: 1, idle: None });
    cloud.routes.demand(&route, &revision, 1);
    cloud.routes.until("a", |route| replicas(route).len() == 1).await;
    assert_eq!(cloud.get("/v0/agents/a").await.ok()["status"], "DEPLOYED");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_says_that_there_are_fewer_replicas_than_were_asked_for() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let mut settings = settings();
    (settings.deployments.replicas, settings.deployments.replicas_max) = (2, 5);
    let cloud = Cloud::start_on_machine(machine, settings).await;
    let mut body = agent(&json!([]));
    body["spec"]["runtime"]["minScale"] = json!(3);
    let said = "serves in containers; 2 replicas run at most, not the 3 of `minScale`: \
                set `maxScale`, of which this server allows 5";
    let mut object = deployed(&cloud, body).await;
    assert_eq!(last_message(&object), said);
    object["spec"]["runtime"]["maxScale"] = json!(3);
    cloud.put("/v0/agents/a", object).await.ok();
    let object = cloud.until("/v0/agents/a", is("DEPLOYED")).await;
    assert_eq!(last_message(&object), "serves in containers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_run_finds_the_replicas_again() {
    let (mut cloud, machine) = cloud().await;
    deployed(&cloud, agent(&json!([]))).await;
    let before = replicas(&cloud.routes.until("a", |route| replicas(route).len() == 1).await);
    let stranger = ResourceId::known("res_nobody");
    let stranger = ReplicaId { workload: stranger, revision: "r".into(), number: 1 };
    let stranger = InstanceName::of_replica(&stranger);
    machine.add(&stranger);
    let told = cloud.routes.count();
    cloud.restart_on(machine.clone()).await;
    machine.until_retired(stranger.as_str()).await;
    cloud.routes.until_since(told, "a", |route| replicas(route) == before).await;
    assert_eq!(machine.names(), before);
    assert_eq!(machine.until_launched(1).await.len(), 1, "nothing was launched again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_replica_prints_is_found_under_its_workload() {
    let (cloud, machine) = cloud().await;
    deployed(&cloud, agent(&env("SAYS", "hello\n"))).await;
    let launch = machine.until_launched(1).await.remove(0);
    machine.end(&launch.instance, Outcome::Exited(0));
    machine.until_retired(launch.instance.as_str()).await;
    let logs = |kind: &str| {
        format!(
            "/v0/observability/logs?resourceType={kind}&workloadIds=a&start=2026-04-16T00:00:00&end=2026-04-17T00:00:00"
        )
    };
    let found = cloud.get(&logs("agents")).await.ok();
    assert_eq!(found["a"]["logs"][0]["message"], "hello");
    assert_eq!(cloud.get(&logs("functions")).await.ok()["a"]["totalCount"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_a_request_is_told_to_the_edge() {
    let (cloud, _) = cloud().await;
    let mut agent = agent(&json!([]));
    agent["spec"]["runtime"]["timeout"] = json!(30);
    let mut made = deployed(&cloud, agent).await;
    cloud.routes.until("a", |route| route.timeout_s == Some(30)).await;
    made["spec"]["runtime"]["timeout"] = Value::Null;
    cloud.put("/v0/agents/a", made).await.ok();
    cloud.routes.until("a", |route| route.timeout_s.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_that_cannot_be_read_takes_no_look_from_the_others() {
    let machine = Arc::new(Pretended::new(|_| Ok(Outcome::SUCCESS)));
    let mut settings = settings();
    settings.deployments.looks_max = 1;
    let cloud = Cloud::start_on_machine(machine, settings).await;
    let object = deployed(&cloud, agent(&json!([]))).await;
    let route = cloud.routes.until("a", |route| replicas(route).len() == 1).await;
    cloud.tell_wish(KindName::Agent, "a", json!({"runtime": "?"})).await;
    // A request asks for a look at it, which fails from now on.
    cloud.routes.demand(&route, &active(&object), 1);
    let mut other = agent(&json!([]));
    other["metadata"]["name"] = json!("b");
    cloud.post("/v0/agents", other).await.ok();
    cloud.until("/v0/agents/b", is("DEPLOYED")).await;
}
