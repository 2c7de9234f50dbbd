//! Requests are held and do not fail; instances that nobody visits are paused.

use crate::stage::{Stage, by, get, settings};
use gateway::{EnterError, Initial, PauseError, Phase, Settings};
use http::Request;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use types::edge::Serving;

const SOON: Duration = Duration::from_millis(20);

/// The number in `GATEWAY_WAKES`, for long runs, or a smaller one.
fn wakes() -> usize {
    std::env::var("GATEWAY_WAKES").ok().and_then(|count| count.parse().ok()).unwrap_or(2000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_over_thousands_of_wakes() {
    const TOGETHER: usize = 3;
    let stage = Arc::new(Stage::start(settings()).await);
    let workload = stage.sandbox("box", &[8080]).await;
    let standby = stage.gateway.standby().clone();
    let wakes = wakes();
    let mut slept = 0;
    while slept < wakes {
        // A request that is just ending may keep it busy for a moment: then this round only asks.
        match standby.pause("box").await {
            Ok(()) => slept += 1,
            Err(error) => assert!(matches!(error, PauseError::Busy), "{error}"),
        }
        let asked = (0..TOGETHER).map(|_| {
            let stage = Arc::clone(&stage);
            tokio::spawn(async move { stage.get("/acme/sandboxes/box/").await.ok() })
        });
        for reply in asked.collect::<Vec<_>>() {
            reply.await.unwrap();
        }
    }
    assert_eq!(stage.machine.resumes.load(Ordering::Relaxed), wakes);
    assert_eq!(workload.served_while_paused.load(Ordering::Relaxed), 0);
    assert_eq!(standby.look("box").unwrap().visits, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_and_requests_at_any_moment_never_meet() {
    // By itself and by hand: it is paused whenever it is idle for an instant. However busy the
    // machine is, no health check is given up, because the workload may answer it after nobody
    // waits for it any more.
    let health_timeout = Duration::from_secs(60);
    let settings = Settings { standby_delay: Some(Duration::ZERO), health_timeout, ..settings() };
    let stage = Arc::new(Stage::start(settings).await);
    let workload = stage.sandbox("box", &[8080]).await;
    let clients = (0..4).map(|_| {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move {
            for _ in 0..300 {
                stage.get("/acme/sandboxes/box/").await.ok();
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    while !clients.iter().all(tokio::task::JoinHandle::is_finished) {
        let _ = stage.gateway.standby().pause("box").await;
        tokio::task::yield_now().await;
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(workload.served_while_paused.load(Ordering::Relaxed), 0);
    assert!(stage.machine.resumes.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn an_idle_sandbox_rests_and_its_next_request_wakes_it() {
    let stage = Stage::start(Settings { standby_delay: Some(SOON), ..settings() }).await;
    stage.sandbox("box", &[8080]).await;
    stage.machine.until_paused("box").await;
    let reply = stage.get("/acme/sandboxes/box/").await;
    reply.ok();
    let timing = reply.headers["server-timing"].to_str().unwrap();
    for part in ["queue;dur=", "wake;dur=", "connect;dur=", "workload;dur="] {
        assert!(timing.contains(part), "{timing}");
    }
    stage.machine.until_paused("box").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_sleep_wake_at_the_same_time() {
    let stage = Arc::new(Stage::start(settings()).await);
    let names: Vec<String> = (0..100).map(|n| format!("box-{n}")).collect();
    for name in &names {
        stage.sandbox(name, &[8080]).await;
        stage.gateway.standby().pause(name).await.unwrap();
    }
    let asked = names.into_iter().map(|name| {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move {
            assert_eq!(stage.get(&format!("/acme/sandboxes/{name}/")).await.ok()["instance"], name);
        })
    });
    for reply in asked.collect::<Vec<_>>() {
        reply.await.unwrap();
    }
    assert_eq!(stage.machine.resumes.load(Ordering::Relaxed), 100);
}

#[tokio::test]
async fn a_running_answer_holds_its_sandbox_awake() {
    let stage = Arc::new(Stage::start(Settings { standby_delay: Some(SOON), ..settings() }).await);
    let workload = stage.sandbox("box", &[8080]).await;
    let slow = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move { stage.get("/acme/sandboxes/box/gate").await.status }
    });
    while workload.busy.is_empty() {
        tokio::task::yield_now().await;
    }
    // Another instance that nobody visits from now on is paused: so this one would have been.
    stage.sandbox("other", &[8080]).await;
    stage.machine.until_paused("other").await;
    assert!(!stage.machine.is_paused("box"));
    workload.gate.add_permits(1);
    assert_eq!(slow.await.unwrap(), 200);
    stage.machine.until_paused("box").await;
}

#[tokio::test]
async fn processes_that_must_live_hold_it_awake() {
    let stage = Stage::start(Settings { standby_delay: Some(SOON), ..settings() }).await;
    let workload = stage.sandbox("box", &[8080]).await;
    workload.keep_alive.store(1, Ordering::Relaxed);
    while workload.health_asked.load(Ordering::Relaxed) < 3 {
        assert!(
            !stage.machine.is_paused("box") || workload.health_asked.load(Ordering::Relaxed) == 0
        );
        tokio::task::yield_now().await;
    }
    workload.keep_alive.store(0, Ordering::Relaxed);
    stage.machine.until_paused("box").await;
    assert_eq!(workload.served_while_paused.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_pause_by_hand_lets_the_question_of_health_end_first() {
    let health_timeout = Duration::from_secs(60);
    let stage =
        Stage::start(Settings { standby_delay: Some(SOON), health_timeout, ..settings() }).await;
    let standby = stage.gateway.standby().clone();
    let workload = stage.sandbox("box", &[8080]).await;
    let closed = workload.health_door.write().await;
    while workload.health_asked.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let by_hand = tokio::spawn({
        let standby = standby.clone();
        async move { standby.pause("box").await }
    });
    // Until then it is awake for everybody: this request has to wake nothing.
    stage.get("/acme/sandboxes/box/").await.ok();
    assert_eq!(stage.machine.resumes.load(Ordering::Relaxed), 0);
    assert!(!by_hand.is_finished() && !stage.machine.is_paused("box"));
    while standby.look("box").unwrap().visits > 0 {
        tokio::task::yield_now().await;
    }
    drop(closed);
    by_hand.await.unwrap().unwrap();
    assert!(stage.machine.is_paused("box"));
    assert_eq!(workload.served_while_paused.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_request_for_a_starting_sandbox_waits_for_it() {
    let stage = Arc::new(Stage::start(settings()).await);
    stage.route("acme", "new", Serving::Starting);
    let waiting = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move { stage.get("/acme/sandboxes/new/").await.ok() }
    });
    // In any order: a route before its instance is announced, as after a restart.
    stage.route("acme", "new", by("i1"));
    tokio::task::yield_now().await;
    crate::workload::Workload::start(&stage.machine, "i1", &[8080]).await;
    stage.gateway.standby().track("i1", Initial::Starting);
    tokio::task::yield_now().await;
    stage.gateway.standby().track("i1", Initial::Awake);
    assert_eq!(waiting.await.unwrap()["instance"], "i1");
}

#[tokio::test]
async fn a_request_follows_its_sandbox_to_another_instance() {
    let stage = Arc::new(Stage::start(settings()).await);
    stage.route("acme", "new", by("i1"));
    stage.gateway.standby().track("i1", Initial::Starting);
    let waiting = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move { stage.get("/acme/sandboxes/new/").await.ok() }
    });
    while stage.gateway.standby().waiting("i1") == 0 {
        tokio::task::yield_now().await;
    }
    crate::workload::Workload::start(&stage.machine, "i2", &[8080]).await;
    stage.gateway.standby().track("i2", Initial::Paused);
    stage.machine.sleep("i2");
    stage.route("acme", "new", by("i2"));
    stage.gateway.standby().forget("i1");
    assert_eq!(waiting.await.unwrap()["instance"], "i2");
}

#[tokio::test]
async fn waiting_is_bounded_in_number_and_in_time() {
    // All three have to arrive before the first one is given up.
    let patience = Duration::from_secs(2);
    let stage =
        Stage::start(Settings { waiting_max: 2, wait_timeout: patience, ..settings() }).await;
    stage.route("acme", "new", Serving::Starting);
    let asked =
        futures_util::future::join_all((0..3).map(|_| stage.get("/acme/sandboxes/new/"))).await;
    let mut codes: Vec<_> = asked.iter().map(|reply| reply.status.as_u16()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [429, 504, 504]);
    let crowded = asked.iter().find(|reply| reply.status == 429).unwrap();
    crowded.problem(429, "TOO_MANY_REQUESTS");
    asked.iter().find(|reply| reply.status == 504).unwrap().problem(504, "WORKLOAD_TIMEOUT");
}

#[tokio::test]
async fn a_wake_that_fails_is_tried_again_and_then_told() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let standby = stage.gateway.standby();
    standby.pause("box").await.unwrap();
    stage.machine.failing.store(2, Ordering::Relaxed);
    stage.get("/acme/sandboxes/box/").await.ok();
    while standby.pause("box").await.is_err() {
        tokio::task::yield_now().await;
    }
    stage.machine.failing.store(3, Ordering::Relaxed);
    stage.get("/acme/sandboxes/box/").await.problem(404, "WORKLOAD_UNAVAILABLE");
    // It still sleeps, and the next request may wake it.
    stage.get("/acme/sandboxes/box/").await.ok();
}

#[tokio::test]
async fn a_client_that_is_cut_off_lets_go_at_once() {
    let stage = Stage::start(Settings { standby_delay: Some(SOON), ..settings() }).await;
    stage.sandbox("box", &[8080]).await;
    for path in ["/acme/sandboxes/box/endless", "/acme/sandboxes/box/gate"] {
        let answer = tokio::time::timeout(SOON, async {
            let mut body = stage.begin(get(path)).await.into_body();
            body.frame().await.unwrap().unwrap();
            std::future::pending::<()>().await;
        });
        assert!(answer.await.is_err());
        stage.machine.until_paused("box").await;
        stage.get("/acme/sandboxes/box/").await.ok();
    }
}

#[tokio::test]
async fn a_call_of_the_server_wakes_like_any_visit() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let standby = stage.gateway.standby();
    standby.pause("box").await.unwrap();
    assert_eq!(standby.look("box").unwrap().phase, Phase::Paused);
    let request = Request::post("http://any/process?x").body("{}".into()).unwrap();
    let answer =
        standby.call("box", request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let told: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!((told["uri"].as_str(), told["method"].as_str()), (Some("/process?x"), Some("POST")));
    standby.pause("box").await.unwrap();
}

#[tokio::test]
async fn an_instance_that_is_forgotten_is_entered_no_more() {
    let stage = Stage::start(settings()).await;
    let standby = stage.gateway.standby().clone();
    standby.track("i", Initial::Starting);
    let waiting = tokio::spawn({
        let standby = standby.clone();
        async move { standby.enter("i").await.map(drop) }
    });
    while stage.gateway.standby().waiting("i") == 0 {
        tokio::task::yield_now().await;
    }
    standby.forget("i");
    assert_eq!(waiting.await.unwrap(), Err(EnterError::Gone));
    assert!(matches!(standby.pause("i").await, Err(PauseError::Missing)));
}
