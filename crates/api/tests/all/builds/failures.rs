//! Restarts during builds, failing machines, and limits.

use super::uploads::slow_upload;
use super::{DEPLOYED, address, agent, job, quick, stage, stage_on};
use crate::common::Cloud;
use control::machine::LaunchFault;
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn a_restart_in_the_middle_loses_and_doubles_nothing() {
    let mut stage = stage().await;
    stage.deploy("/v0/agents/a", agent(), "waits").await;
    stage.deploy("/v0/functions/f", json!({"metadata": {"name": "f"}, "spec": {}}), "waits").await;
    stage.builder.until_began(2).await;
    let path = address(&stage.cloud.post("/v0/jobs?upload=true", job()).await);
    stage.cloud.restart_on(stage.machine.clone()).await;
    // Both start again, and the address still works.
    stage.builder.until_began(4).await;
    stage.builder.open();
    for path in ["/v0/agents/a", "/v0/functions/f"] {
        stage.until(path, &["BUILDING"]).await;
        stage.until(path, &DEPLOYED).await;
        let revisions = stage.cloud.get(&format!("{path}/revisions")).await.ok();
        assert_eq!(revisions.as_array().expect("a list").len(), 1, "{path}");
    }
    assert_eq!(stage.upload(&path, "an app").await.status, 200);
    stage.until("/v0/jobs/j", &["DEPLOYED"]).await;
    stage.until_nothing_is_kept().await;
}

#[tokio::test]
async fn an_upload_that_a_restart_cut_off_says_so() {
    let mut stage = stage().await;
    let path = address(&stage.cloud.post("/v0/agents?upload=true", agent()).await);
    let (answer, end) = slow_upload(&stage, &path).await;
    stage.cloud.restart_on(stage.machine.clone()).await;
    let agent = stage.until("/v0/agents/a", &["FAILED"]).await;
    assert!(agent["events"].to_string().contains("the server was stopped"), "{agent}");
    // Uploads that the previous server still receives no longer count.
    end.send(()).expect("it waits");
    assert_eq!(answer.await.expect("an end"), 410);
    assert!(stage.builder.began.borrow().is_empty());
}

#[tokio::test]
async fn an_image_that_was_made_before_a_restart_is_not_made_again() {
    let mut stage = stage().await;
    stage.deploy("/v0/agents/a", agent(), "an app").await;
    stage.builder.until_began(1).await;
    // The build is finished, but nobody has looked at it yet.
    let version = [("blaxel-version", "2026-04-16")];
    let listed = |body: Value| body[0]["status"].as_str().map(str::to_owned);
    let list = async |cloud: &Cloud| {
        listed(cloud.call_with(Method::GET, "/v0/agents", &version, None).await.ok())
    };
    while stage.lines("agents", "a").await.len() < 2 {
        tokio::task::yield_now().await;
    }
    stage.cloud.restart_on(stage.machine.clone()).await;
    assert_eq!(list(&stage.cloud).await.as_deref(), Some("BUILDING"));
    stage.until("/v0/agents/a", &["BUILDING"]).await;
    stage.until("/v0/agents/a", &DEPLOYED).await;
    let revisions = stage.cloud.get("/v0/agents/a/revisions").await.ok();
    assert_eq!(revisions.as_array().expect("a list").len(), 1);
    stage.until_nothing_is_kept().await;
}

#[tokio::test]
async fn an_image_that_nobody_wants_any_more_is_let_go() {
    let mut stage = stage().await;
    for kill in [false, true] {
        stage.deploy("/v0/agents/a", agent(), "an app").await;
        // The build is finished, but nobody has looked at it yet.
        while stage.builder.images.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        if kill {
            stage.cloud.restart_on(stage.machine.clone()).await;
        }
        stage.cloud.delete("/v0/agents/a").await.ok();
        stage.until_nothing_is_kept().await;
        assert_eq!(stage.builder.images.lock().len(), 0);
    }
}

#[tokio::test]
async fn a_machine_that_fails_tries_again_and_gives_up() {
    let stage = stage().await;
    stage.deploy("/v0/agents/a", agent(), "broken").await;
    for count in 1..=3 {
        stage.builder.until_began(count).await;
        // Each attempt waits for its time.
        while stage.builder.began.borrow().len() == count && count < 3 {
            stage.cloud.clock.advance_s(1);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let agent = stage.until("/v0/agents/a", &["FAILED"]).await;
    assert!(agent["events"].to_string().contains("the disk is full"), "{agent}");
    stage.until_nothing_is_kept().await;
    assert_eq!(stage.builder.began.borrow().len(), 3);
}

#[tokio::test]
async fn a_hundred_builds_of_one_workspace_leave_the_neighbour_a_slot() {
    let stage = stage().await;
    for number in 0..100 {
        let body = json!({"metadata": {"name": format!("a{number}")}, "spec": {}});
        stage.deploy(&format!("/v0/agents/a{number}"), body, "waits").await;
    }
    stage.builder.until_began(2).await;
    let (stranger, _) = stage.cloud.stranger("eve@example.com").await;
    stranger.post("/v0/workspaces", json!({"name": "theirs", "displayName": "t"})).await.ok();
    let bearer = format!("Bearer {}", stranger.key());
    let headers = [("authorization", bearer.as_str()), ("x-blaxel-workspace", "theirs")];
    let asked = stage
        .cloud
        .call_with(Method::POST, "/v0/agents?upload=true", &headers, Some(agent()))
        .await;
    assert_eq!(stage.upload(&address(&asked), "an app").await.status, 200);
    loop {
        let now = stage.cloud.call_with(Method::GET, "/v0/agents/a", &headers, None).await.ok();
        if DEPLOYED.contains(&now["status"].as_str().expect("a status")) {
            break;
        }
        tokio::task::yield_now().await;
    }
    // The first workspace gets two of the four slots.
    assert_eq!(stage.builder.began.borrow().len(), 3);
    let theirs = stage.builder.began.borrow()[2].clone();
    let found = theirs.own_images.find("agent/a0").await;
    assert!(matches!(found, Err(LaunchFault::Image(_))), "{found:?}");
    assert_eq!(stage.cloud.get("/v0/images").await.ok(), json!([]));
}

#[tokio::test]
async fn builds_and_uploads_are_limited() {
    let limited = control::builds::Settings {
        open_workspace_max: 2,
        uploads_workspace_max: 1,
        sources_workspace_bytes_max: 120,
        ..quick()
    };
    let stage = stage_on(limited, false).await;
    let named = |name: &str| json!({"metadata": {"name": name}, "spec": {}});
    let one = address(&stage.cloud.post("/v0/agents?upload=true", named("one")).await);
    let two = address(&stage.cloud.post("/v0/agents?upload=true", named("two")).await);
    let message = stage.cloud.post("/v0/agents?upload=true", named("three")).await.refused(429);
    assert!(message.contains("2 builds that have not ended"), "{message}");
    assert_eq!(stage.cloud.get("/v0/agents/three").await.status, 404);
    // Replacing one of them does not add another.
    let two_again = stage.cloud.put("/v0/agents/two?upload=true", named("two")).await;
    stage.upload(&two, "an app").await.refused(410);
    let waits = format!("waits {}", "x".repeat(60));
    assert_eq!(stage.upload(&one, &waits).await.status, 200);
    // It takes room until it is built, and the address keeps working.
    let two = address(&two_again);
    let message = stage
        .cloud
        .raw(Method::PUT, &two, &[("content-length", "60")], vec![b'x'; 60])
        .await
        .refused(429);
    assert!(message.contains("120 the sources that wait"), "{message}");
    stage.builder.open();
    stage.until("/v0/agents/one", &DEPLOYED).await;
    let asked = stage.cloud.put("/v0/agents/one?upload=true", named("one")).await;
    stage.until_nothing_is_kept().await;
    let (answer, end) = slow_upload(&stage, &address(&asked)).await;
    let message = stage.upload(&two, "an app").await.refused(429);
    assert!(message.contains("uploads for one owner"), "{message}");
    end.send(()).expect("it waits");
    assert_eq!(answer.await.expect("an end"), 200);
    stage.until("/v0/agents/one", &DEPLOYED).await;
    assert_eq!(stage.upload(&two, &"x".repeat(60)).await.status, 200);
    stage.until("/v0/agents/two", &DEPLOYED).await;
}

#[tokio::test]
async fn a_server_that_builds_nothing_says_so_of_an_address_of_another() {
    let mut stage = stage().await;
    let path = address(&stage.cloud.post("/v0/agents?upload=true", agent()).await);
    stage.cloud.restart().await;
    let message = stage.upload(&path, "an app").await.refused(501);
    assert!(message.contains("no machine that builds"), "{message}");
    stage.upload("/v0/uploads/made-up", "an app").await.refused(404);
    // The address is not used up.
    stage.cloud.restart_on(stage.machine.clone()).await;
    assert_eq!(stage.upload(&path, "an app").await.status, 200);
    stage.until("/v0/agents/a", &DEPLOYED).await;
}

#[tokio::test]
async fn a_canary_that_is_not_kept_is_refused_before_anything_is_uploaded() {
    let stage = stage().await;
    let mut wish = agent();
    wish["spec"]["revision"] = json!({"canary": "nope", "canaryPercent": 50});
    let made = stage.cloud.post("/v0/agents?upload=true", wish.clone()).await;
    address(&made);
    assert!(made.body["spec"]["revision"]["canary"].is_null(), "{}", made.body);
    let read = stage.cloud.get("/v0/agents/a").await.ok();
    address(&stage.cloud.put("/v0/agents/a?upload=true", read).await);
    let message = stage.cloud.put("/v0/agents/a?upload=true", wish).await.refused(400);
    assert!(message.contains("names the revision `nope`"), "{message}");
}
