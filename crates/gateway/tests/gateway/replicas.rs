//! Which replica gets a request, and what happens where there is none.

use crate::stage::{APP_PORT, Reply, Stage, deployment, get, request, settings, to};
use crate::workload::Workload;
use gateway::{Initial, Settings};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use types::KindName;
use types::edge::{Demand, Load, RouteChange, Scale, Serving, Target, WorkloadRoute};
use types::ids::ResourceId;
use types::instance::{GUEST_PORT, InstanceName};

const AT: &str = "/acme/agents/bot/";
const ONE: &str = "replica-bot-r1-1";
const TWO: &str = "replica-bot-r1-2";
const NEW: &str = "replica-bot-r2-3";

fn serving(targets: Vec<Target>) -> WorkloadRoute {
    WorkloadRoute { serving: Serving::To(targets), ..deployment(KindName::Agent, "bot") }
}

fn load(stage: &Stage, instance: &str) -> Option<Load> {
    stage.gateway.load(&InstanceName::new(instance).unwrap())
}

async fn until(stage: &Stage, instance: &str, requests: u32) {
    while load(stage, instance).unwrap().requests != requests {
        tokio::task::yield_now().await;
    }
}

/// Sends a request that is answered only when the gate of its replica opens.
fn hang(stage: &Arc<Stage>) -> tokio::task::JoinHandle<Reply> {
    let stage = Arc::clone(stage);
    tokio::spawn(async move { stage.get(&format!("{AT}gate")).await })
}

fn demand(revision: &str, requests: u32) -> Demand {
    Demand { workload: ResourceId::known("res_bot"), revision: revision.into(), requests }
}

#[tokio::test]
async fn a_request_whose_caller_leaves_is_counted() {
    let stage = Arc::new(Stage::start(settings()).await);
    stage.replica(ONE).await;
    stage.deploy(&serving(vec![to("r1", 100, &[ONE])]));
    let hanging = hang(&stage);
    until(&stage, ONE, 1).await;
    hanging.abort();
    until(&stage, ONE, 0).await;
    let stats = stage.gateway.requests_of(&ResourceId::known("res_bot"), None).unwrap();
    assert_eq!((stats.all.count, stats.all.errors, stats.revisions["r1"].count), (1, 0, 1));
}

#[tokio::test]
async fn a_canary_gets_its_share_of_the_requests() {
    let stage = Stage::start(settings()).await;
    stage.replica(ONE).await;
    stage.replica(NEW).await;
    stage.deploy(&serving(vec![to("r1", 90, &[ONE]), to("r2", 10, &[NEW])]));
    let mut counts = BTreeMap::<String, usize>::new();
    for _ in 0..500 {
        let told = stage.get(AT).await.ok();
        *counts.entry(told["instance"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(counts, BTreeMap::from([(ONE.to_owned(), 450), (NEW.to_owned(), 50)]));
    let stats = stage.gateway.requests_of(&ResourceId::known("res_bot"), None).unwrap();
    assert_eq!((stats.all.count, stats.all.errors), (500, 0));
    let of = |revision: &str| stats.revisions[revision].count;
    assert_eq!((of("r1"), of("r2")), (450, 50));
    assert!(stats.all.p50 > Duration::ZERO && stats.all.p50 <= stats.all.p99);
    stage.gateway.routes().apply(RouteChange::Gone(ResourceId::known("res_bot")));
    assert_eq!(stage.gateway.requests_of(&ResourceId::known("res_bot"), None), None);
}

#[tokio::test]
async fn a_sticky_caller_stays_with_a_revision_while_it_serves() {
    let stage = Stage::start(settings()).await;
    stage.replica(ONE).await;
    stage.replica(NEW).await;
    let targets = vec![to("r1", 50, &[ONE]), to("r2", 50, &[NEW])];
    let route = WorkloadRoute { sticky_s: 60, ..serving(targets) };
    stage.deploy(&route);
    let key = ("authorization", "Bearer key-of-acme");
    let ask = async |more: &[(&str, &str)]| {
        stage.send(request("GET", "h", AT, &[&[key], more].concat())).await
    };
    let first = ask(&[]).await;
    let set = first.headers["set-cookie"].to_str().unwrap();
    assert!(set.ends_with("; Path=/acme/agents/bot; Max-Age=60; HttpOnly; SameSite=Lax"), "{set}");
    let kept = set.split(';').next().unwrap().to_owned();
    let instance = first.ok()["instance"].clone();
    for _ in 0..10 {
        let again = ask(&[("cookie", &format!("a=b; {kept}"))]).await;
        assert!(!again.headers.contains_key("set-cookie"));
        let told = again.ok();
        assert_eq!(told["instance"], instance);
        // The cookie is ours and is not passed to the workload.
        assert_eq!(told["headers"]["cookie"], "a=b");
    }
    // A revision with no weight, or one that does not exist, cannot be had by asking for it.
    stage.deploy(&WorkloadRoute {
        serving: Serving::To(vec![to("r1", 100, &[ONE]), to("r2", 0, &[NEW])]),
        ..route.clone()
    });
    for named in ["r2", "r9", "%00", ""] {
        let reply = ask(&[("cookie", &format!("holm_revision={named}"))]).await;
        assert_eq!(
            reply.headers["set-cookie"].to_str().unwrap().split(';').next(),
            Some("holm_revision=r1")
        );
        assert_eq!(reply.ok()["instance"], ONE);
    }
    // A client without cookies stays where it was by its conversation.
    stage.deploy(&route);
    let mut seen = BTreeMap::<String, usize>::new();
    for thread in 0..20 {
        let thread = format!("thread-{thread}");
        let first = ask(&[("x-blaxel-thread-id", &thread)]).await;
        assert!(!first.headers.contains_key("set-cookie"));
        let instance = first.ok()["instance"].clone();
        for _ in 0..3 {
            assert_eq!(ask(&[("x-service-thread-id", &thread)]).await.ok()["instance"], instance);
        }
        *seen.entry(instance.as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[tokio::test]
async fn a_request_from_zero_is_told_of_and_held() {
    let stage = Arc::new(Stage::start(settings()).await);
    stage.deploy(&serving(vec![to("r1", 100, &[])]));
    let asking = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move { stage.get(AT).await }
    });
    assert_eq!(stage.gateway.demands().await, [demand("r1", 1)]);
    // A demand that was not met is made again.
    assert_eq!(stage.gateway.demands().await, [demand("r1", 1)]);
    // The revision changes while the request waits.
    stage.deploy(&serving(vec![to("r2", 100, &[])]));
    assert_eq!(stage.gateway.demands().await, [demand("r2", 1)]);
    stage.replica(NEW).await;
    stage.deploy(&serving(vec![to("r2", 100, &[NEW])]));
    assert_eq!(asking.await.unwrap().ok()["instance"], NEW);
}

#[tokio::test]
async fn who_waits_in_vain_is_told_why() {
    let soon = Duration::from_millis(50);
    let brief = Settings { wait_timeout: soon, waiting_max: 1, ..settings() };
    let stage = Arc::new(Stage::start(brief).await);
    stage.deploy(&serving(vec![to("r1", 100, &[])]));
    stage.get(AT).await.problem(504, "WORKLOAD_TIMEOUT");
    let patient = Settings { waiting_max: 1, ..settings() };
    let stage = Arc::new(Stage::start(patient).await);
    stage.deploy(&serving(vec![to("r1", 100, &[])]));
    let waits = hang(&stage);
    assert_eq!(stage.gateway.demands().await, [demand("r1", 1)]);
    stage.get(AT).await.problem(429, "TOO_MANY_REQUESTS");
    stage.deploy(&WorkloadRoute {
        serving: Serving::Off { why: "failed: it does not start".into() },
        ..serving(vec![])
    });
    let error = waits.await.unwrap().problem(404, "WORKLOAD_UNAVAILABLE");
    assert_eq!(error["message"], "the agent failed: it does not start");
    let mut elsewhere = to("r1", 100, &[ONE]);
    elsewhere.replicas[0].machine = "there".into();
    stage.deploy(&serving(vec![elsewhere]));
    stage.get(AT).await.problem(404, "WORKLOAD_UNAVAILABLE");
    stage.deploy(&serving(vec![to("r1", 100, &[])]));
    let waits = hang(&stage);
    assert_eq!(stage.gateway.demands().await, [demand("r1", 1)]);
    stage.gateway.routes().apply(RouteChange::Gone(ResourceId::known("res_bot")));
    waits.await.unwrap().problem(404, "WORKLOAD_NOT_FOUND");
}

#[tokio::test]
async fn who_waits_for_a_replica_is_told_at_once_that_the_server_stops() {
    let stage = Arc::new(Stage::start(settings()).await);
    stage.deploy(&serving(vec![to("r1", 100, &[])]));
    let waits = hang(&stage);
    assert_eq!(stage.gateway.demands().await, [demand("r1", 1)]);
    stage.gateway.stop_waiting();
    let reply = waits.await.unwrap();
    assert_eq!(reply.headers["retry-after"], "1");
    reply.problem(503, "UNAVAILABLE");
    stage.get(AT).await.problem(503, "UNAVAILABLE");
    // What is ready goes on to answer.
    stage.replica(ONE).await;
    stage.deploy(&serving(vec![to("r1", 100, &[ONE])]));
    assert_eq!(stage.get(AT).await.ok()["instance"], ONE);
}

#[tokio::test]
async fn requests_are_spread_and_more_replicas_are_wanted_when_all_are_full() {
    let stage = Arc::new(Stage::start(settings()).await);
    let one = stage.replica(ONE).await;
    let two = stage.replica(TWO).await;
    let scale = Scale { max: 3, concurrency: 2 };
    stage.deploy(&WorkloadRoute { scale, ..serving(vec![to("r1", 100, &[ONE, TWO])]) });
    let mut hanging = Vec::new();
    for (first, second) in [(1, 0), (1, 1), (2, 1), (2, 2)] {
        hanging.push(hang(&stage));
        until(&stage, ONE, first).await;
        until(&stage, TWO, second).await;
    }
    // All are full: the next request is sent all the same, and another replica is asked for.
    hanging.push(hang(&stage));
    assert_eq!(stage.gateway.demands().await, [demand("r1", 5)]);
    until(&stage, ONE, 3).await;
    assert_eq!(load(&stage, ONE).unwrap().idle, None);
    // With the maximum number of replicas, the least busy one gets it and no other is asked for.
    let scale = Scale { max: 2, concurrency: 2 };
    stage.deploy(&WorkloadRoute { scale, ..serving(vec![to("r1", 100, &[ONE, TWO])]) });
    hanging.push(hang(&stage));
    until(&stage, TWO, 3).await;
    let quiet = tokio::time::timeout(Duration::from_millis(50), stage.gateway.demands());
    assert!(quiet.await.is_err());
    for workload in [&one, &two] {
        workload.gate.add_permits(3);
    }
    for reply in hanging {
        assert_eq!(reply.await.unwrap().status, 200);
    }
    until(&stage, ONE, 0).await;
    assert!(load(&stage, ONE).unwrap().idle.is_some());
    assert_eq!(load(&stage, "replica-bot-r1-9"), None);
}

#[tokio::test]
async fn a_replica_that_is_gone_costs_nobody_an_answer() {
    let stage = Arc::new(Stage::start(settings()).await);
    stage.replica(TWO).await;
    // The first was never announced, or was forgotten before the route changed.
    stage.deploy(&serving(vec![to("r1", 100, &[ONE, TWO])]));
    assert_eq!(stage.get(AT).await.ok()["instance"], TWO);
    // The only one is gone: the request waits for the next.
    stage.gateway.standby().forget(TWO);
    let asking = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move { stage.get(AT).await }
    });
    assert_eq!(stage.gateway.demands().await, [demand("r1", 1)]);
    stage.replica(NEW).await;
    stage.deploy(&serving(vec![to("r2", 100, &[NEW])]));
    assert_eq!(asking.await.unwrap().ok()["instance"], NEW);
}

#[tokio::test]
async fn a_replica_that_takes_no_connection_is_passed_over() {
    let stage = Stage::start(settings()).await;
    stage.gateway.standby().track(ONE, Initial::Awake);
    stage.replica(TWO).await;
    stage.deploy(&serving(vec![to("r1", 100, &[ONE, TWO])]));
    let mut post =
        request("POST", "h", &format!("{AT}echo"), &[("authorization", "Bearer key-of-acme")]);
    *post.body_mut() = http_body_util::Full::from("whole");
    let reply = stage.send(post).await;
    assert_eq!((reply.status.as_u16(), &reply.body[..]), (200, &b"whole"[..]));
    stage.deploy(&serving(vec![to("r1", 100, &[ONE])]));
    stage.get(AT).await.problem(502, "PORT_NOT_LISTENING");
    assert_eq!(load(&stage, ONE).unwrap().requests, 0);
}

/// Starts the program of an instance that answers one request, and ends at the next.
async fn mortal(stage: &Stage, instance: &str) -> tokio::task::JoinHandle<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.machine.listen(instance, APP_PORT, listener.local_addr().unwrap());
    stage.gateway.standby().track(instance, Initial::Awake);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        let _ = stream.read(&mut head).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        let read = stream.read(&mut head).await.unwrap();
        // Before the connection, so that a second one is refused.
        drop(listener);
        String::from_utf8_lossy(&head[..read]).into_owned()
    })
}

#[tokio::test]
async fn a_request_that_ends_one_replica_is_not_given_to_the_next() {
    let stage = Arc::new(Stage::start(settings()).await);
    let ends = mortal(&stage, ONE).await;
    let two = stage.replica(TWO).await;
    stage.deploy(&serving(vec![to("r1", 100, &[ONE])]));
    assert_eq!(stage.get(AT).await.body, "ok");
    // Busy, so that the request goes to the other, over the connection that was kept.
    stage.deploy(&serving(vec![to("r1", 100, &[TWO])]));
    let hanging = hang(&stage);
    until(&stage, TWO, 1).await;
    stage.deploy(&serving(vec![to("r1", 100, &[ONE, TWO])]));
    let key = ("authorization", "Bearer key-of-acme");
    let reply = stage.send(request("DELETE", "h", AT, &[key])).await;
    reply.problem(502, "WORKLOAD_NO_ANSWER");
    assert!(ends.await.unwrap().starts_with("DELETE"));
    assert_eq!(two.served.load(Ordering::SeqCst), 0);
    two.gate.add_permits(1);
    assert_eq!(hanging.await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_roll_out_under_load_loses_no_request() {
    let stage = Arc::new(Stage::start(settings()).await);
    let instance = |number: u32| format!("replica-bot-r{number}-{number}");
    let mut serves = stage.replica(&instance(0)).await;
    stage.deploy(&serving(vec![to("r0", 100, &[&instance(0)])]));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move {
                for _ in 0..200 {
                    stage.get(AT).await.ok();
                }
            })
        })
        .collect();
    let (mut number, mut retired) = (0, Vec::new());
    while !clients.iter().all(tokio::task::JoinHandle::is_finished) {
        let (old, new) = (instance(number), instance(number + 1));
        number += 1;
        // Every other time it goes to zero in between, as if nobody had asked for a while.
        if number % 2 == 0 {
            stage.deploy(&serving(vec![to("r", 100, &[])]));
        }
        let next = stage.replica(&new).await;
        stage.deploy(&serving(vec![to("r", 100, &[&new])]));
        while load(&stage, &old).is_some_and(|load| load.requests > 0) {
            tokio::task::yield_now().await;
        }
        // From here on it would be killed.
        let replaced = std::mem::replace(&mut serves, next);
        let served = replaced.served.load(Ordering::SeqCst);
        retired.push((replaced, served));
        stage.gateway.standby().forget(&old);
    }
    for client in clients {
        client.await.unwrap();
    }
    for (replica, served) in retired {
        assert_eq!(replica.served.load(Ordering::SeqCst), served, "{}", replica.instance);
    }
    assert!(number > 1, "{number}");
}

#[tokio::test]
async fn an_idle_replica_sleeps_without_being_asked_and_wakes_for_a_request() {
    let soon = Duration::from_millis(20);
    let stage = Stage::start(Settings { standby_delay: Some(soon), ..settings() }).await;
    // A program on the guest's port says that the instance must stay awake, but a replica is not
    // even asked.
    let replica = Workload::start(&stage.machine, ONE, &[APP_PORT, GUEST_PORT]).await;
    replica.keep_alive.store(1, Ordering::Relaxed);
    stage.gateway.standby().track(ONE, Initial::Awake);
    stage.deploy(&serving(vec![to("r1", 100, &[ONE])]));
    for _ in 0..3 {
        stage.machine.until_paused(ONE).await;
        let asleep = load(&stage, ONE).unwrap();
        assert_eq!(asleep.requests, 0);
        assert!(asleep.idle.unwrap() >= soon);
        stage.send(get(AT)).await.ok();
    }
    assert_eq!(replica.health_asked.load(Ordering::Relaxed), 0);
}
