//! The change stream: nothing is missed, and nothing is sent to callers who may not know it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed step is a failed test")]

use crate::common::{Cloud, settings};
use axum::body::{Body, BodyDataStream};
use control::{Settings, StreamLimits};
use futures_util::StreamExt;
use http::{Method, Request};
use serde_json::{Value, json};
use std::time::Duration;
use tower::ServiceExt;

/// Longer than any test machine needs; it only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// An open stream, read line by line.
struct Watch {
    body: BodyDataStream,
    text: String,
    /// Id of the last event.
    last: String,
}

impl Watch {
    async fn open(cloud: &Cloud, query: &str, last_event_id: Option<&str>) -> Self {
        Self::open_with(cloud, &cloud.first.api_key, query, last_event_id).await
    }

    async fn open_with(cloud: &Cloud, key: &str, query: &str, last_event_id: Option<&str>) -> Self {
        let mut request = Request::builder().uri(format!("/v0/changes{query}"));
        request = request.header("authorization", format!("Bearer {key}"));
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response =
            cloud.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut watch = Self {
            body: response.into_body().into_data_stream(),
            text: String::new(),
            last: String::new(),
        };
        assert_eq!(watch.event().await, None, "the first tells only where the stream begins");
        watch
    }

    async fn end(mut self) {
        let end = async { while self.body.next().await.is_some() {} };
        tokio::time::timeout(PATIENCE, end).await.expect("the stream ends");
    }

    /// Returns the data of the next event; `None` if it has none.
    async fn event(&mut self) -> Option<Value> {
        while !self.text.contains("\n\n") {
            let chunk =
                tokio::time::timeout(PATIENCE, self.body.next()).await.expect("an event in time");
            self.text.push_str(
                std::str::from_utf8(&chunk.expect("the stream goes on").unwrap()).unwrap(),
            );
        }
        let (event, rest) = self
            .text
            .split_once("\n\n")
            .map(|(event, rest)| (event.to_owned(), rest.to_owned()))
            .unwrap();
        self.text = rest;
        let field =
            |name: &str| event.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
        self.last = field("id: ").unwrap_or_default();
        field("data: ").map(|data| serde_json::from_str(&data).unwrap())
    }

    /// Returns what happened to which object in the next event that has data.
    async fn change(&mut self) -> String {
        loop {
            if let Some(event) = self.event().await {
                let word = |name: &str| event[name].as_str().unwrap().to_owned();
                return format!("{} {} {}", word("act"), word("kind"), word("name"));
            }
        }
    }
}

async fn make(cloud: &Cloud, name: &str) {
    cloud
        .post("/v0/agents?workspace=main", json!({"metadata": {"name": name}, "spec": {}}))
        .await
        .ok();
}

#[tokio::test]
async fn a_watcher_that_comes_back_misses_nothing() {
    for cloud in Cloud::on_both().await {
        let mut watch = Watch::open(&cloud, "", None).await;
        make(&cloud, "one").await;
        // PostgreSQL may begin a little earlier than now, while an older transaction of the cluster
        // is running.
        while watch.change().await != "created agent one" {}
        let last = watch.last.clone();
        drop(watch);
        let read = cloud.get("/v0/agents/one").await.ok();
        let mut changed = read.clone();
        changed["metadata"]["displayName"] = json!("x");
        cloud.put("/v0/agents/one", changed).await.ok();
        make(&cloud, "two").await;
        cloud.delete("/v0/agents/one").await.ok();
        let mut watch = Watch::open(&cloud, "", Some(&last)).await;
        for expected in ["updated agent one", "created agent two", "deleted agent one"] {
            assert_eq!(watch.change().await, expected);
        }
        let mut by_query = Watch::open(&cloud, &format!("?after={last}"), None).await;
        assert_eq!(by_query.change().await, "updated agent one");
    }
}

#[tokio::test]
async fn a_watcher_sees_the_kinds_it_asked_for_in_its_own_workspace() {
    let cloud = Cloud::start().await;
    let mut watch = Watch::open(&cloud, "?kind=preview,agent&workspace=main", None).await;
    cloud.post("/v0/workspaces", json!({"name": "team"})).await.ok();
    cloud
        .post("/v0/agents?workspace=team", json!({"metadata": {"name": "secret"}, "spec": {}}))
        .await
        .ok();
    cloud
        .post("/v0/sandboxes?workspace=main", json!({"metadata": {"name": "box"}, "spec": {}}))
        .await
        .ok();
    let preview = json!({"metadata": {"name": "web"}, "spec": {"port": 3000}});
    cloud.post("/v0/sandboxes/box/previews?workspace=main", preview).await.ok();
    make(&cloud, "one").await;
    assert_eq!(watch.change().await, "created preview web");
    assert_eq!(watch.change().await, "created agent one");
    cloud.get("/v0/changes?kind=planet&workspace=main").await.refused(400);
    cloud
        .call_with(Method::GET, "/v0/changes?workspace=main", &[("last-event-id", "x")], None)
        .await
        .refused(400);
}

/// Otherwise nobody notices that such a watcher is gone, proxies close its connection, and it
/// resumes from where it began.
#[tokio::test]
async fn a_watcher_of_a_kind_that_is_left_alone_is_told_that_the_stream_goes_on() {
    let cloud = Cloud::start().await;
    let mut watch = Watch::open(&cloud, "?kind=preview", None).await;
    let begun: i64 = watch.last.parse().unwrap();
    let changes = async {
        for n in 0.. {
            make(&cloud, &format!("a{n}")).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = changes => unreachable!("there is no end to them"),
        event = watch.event() => assert_eq!(event, None),
    }
    assert!(watch.last.parse::<i64>().unwrap() > begun, "it knows of what was left out");
}

/// Issues an access token with these scopes.
async fn token(cloud: &Cloud, scope: &str) -> String {
    let made = cloud.post("/v0/service_accounts?workspace=main", json!({"name": "ci"})).await.ok();
    let (id, secret) = (&made["client_id"], &made["client_secret"]);
    let body = json!({"grant_type": "client_credentials", "client_id": id, "client_secret": secret, "scope": scope});
    let headers = [("content-type", "application/json")];
    let body = body.to_string().into_bytes();
    let answer = cloud.raw(Method::POST, "/oauth/token", &headers, body).await.ok();
    answer["access_token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_token_learns_only_of_kinds_that_it_may_read() {
    let cloud = Cloud::start().await;
    let token = token(&cloud, "agents:list agents:get").await;
    let mut watch = Watch::open_with(&cloud, &token, "", None).await;
    let mut all = Watch::open(&cloud, "", None).await;
    let sandbox = json!({"metadata": {"name": "box"}, "spec": {}});
    cloud.post("/v0/sandboxes", sandbox).await.ok();
    make(&cloud, "one").await;
    assert_eq!(watch.change().await, "created agent one");
    assert_eq!(all.change().await, "created sandbox box", "a key learns of everything");
    let bearer = format!("Bearer {token}");
    let ask = async |path: &str| {
        cloud.call_with(Method::GET, path, &[("authorization", bearer.as_str())], None).await
    };
    let message = ask("/v0/changes?kind=agent,sandbox").await.refused(403);
    assert!(message.contains("sandboxes:list"), "{message}");
    for what in ["logs", "requests"] {
        let of = |kinds: &str, name: &str| {
            format!("/v0/observability/{what}?resourceType={kinds}&workloadIds={name}")
        };
        ask(&of("agents", "one")).await.ok();
        let message = ask(&of("functions", "other")).await.refused(403);
        assert!(message.contains("functions:get"), "{message}");
        cloud.get(&of("functions", "other")).await.ok();
    }
}

#[tokio::test]
async fn a_watcher_that_was_away_too_long_is_told_so() {
    for cloud in Cloud::on_both().await {
        make(&cloud, "one").await;
        let trim = |tx: &mut store::Tx<'_>| store::feed::trim(tx, tx.world().now(), 0, 10_000);
        cloud.store.write(trim).await.unwrap();
        let message = cloud.get("/v0/changes?after=0").await.refused(410);
        assert!(message.contains("list again"), "{message}");
    }
}

#[tokio::test]
async fn a_watcher_from_elsewhere_is_told_so_and_does_not_wait_for_nothing() {
    for cloud in Cloud::on_both().await {
        make(&cloud, "one").await;
        let newest = cloud.store.read(store::feed::newest).await.unwrap();
        let ahead = newest + 1;
        let message = cloud.get(&format!("/v0/changes?after={ahead}")).await.refused(410);
        assert!(message.contains("list again"), "{message}");
        let mut watch = Watch::open(&cloud, "", Some(&newest.to_string())).await;
        make(&cloud, "two").await;
        assert_eq!(watch.change().await, "created agent two");
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_right_to_it_and_frees_its_place() {
    let streams = StreamLimits { total: 3, workspace: 2, holder: 1 };
    let cloud = Cloud::start_with(Settings { streams, ..settings() }).await;
    let watch = Watch::open(&cloud, "", None).await;
    cloud.get("/v0/changes").await.refused(429);
    drop(watch);
    let watch = Watch::open(&cloud, "", None).await;
    cloud.delete("/v0/workspaces/main").await.ok();
    watch.end().await;
}

/// Makes a key for the first person; returns its id and value.
async fn new_key(cloud: &Cloud) -> (String, String) {
    let made = cloud.post("/v0/api_keys", json!({"name": "more"})).await.ok();
    (made["id"].as_str().unwrap().to_owned(), made["apiKey"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_stream_ends_with_its_key_though_nothing_happens_in_its_workspace() {
    let cloud = Cloud::start().await;
    let (id, key) = new_key(&cloud).await;
    cloud.post("/v0/workspaces", json!({"name": "quiet"})).await.ok();
    let watch = Watch::open_with(&cloud, &key, "?workspace=quiet", None).await;
    cloud.delete(&format!("/v0/api_keys/{id}")).await.ok();
    // Sooner than the stream would check by itself for its keepalive.
    tokio::time::timeout(Duration::from_secs(10), watch.end()).await.expect("soon");
}

#[tokio::test]
async fn nobody_takes_the_streams_of_others() {
    let streams = StreamLimits { total: 4, workspace: 3, holder: 2 };
    let cloud = Cloud::start_with(Settings { streams, ..settings() }).await;
    cloud.post("/v0/workspaces", json!({"name": "neighbour"})).await.ok();
    let main = "?workspace=main";
    let keys = [new_key(&cloud).await.1, new_key(&cloud).await.1, new_key(&cloud).await.1];
    let open = |key: usize, query: &'static str| Watch::open_with(&cloud, &keys[key], query, None);
    let refused = async |key: usize, query: &str, status| {
        let bearer = format!("Bearer {}", keys[key]);
        let headers = [("authorization", bearer.as_str())];
        cloud
            .call_with(Method::GET, &format!("/v0/changes{query}"), &headers, None)
            .await
            .refused(status)
    };
    let _one_key = [open(0, main).await, open(0, main).await];
    assert!(refused(0, main, 429).await.contains("limit of 2"));
    let _one_workspace = open(1, main).await;
    assert!(refused(2, main, 429).await.contains("limit of 3"));
    let _neighbour = open(2, "?workspace=neighbour").await;
    refused(2, "?workspace=neighbour", 503).await;
}
