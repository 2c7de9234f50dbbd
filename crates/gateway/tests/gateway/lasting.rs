//! Long exchanges end when the right to them ends, and leave room for others.

use crate::sockets::{echo, exchange, open};
use crate::stage::{KEY, Reply, Stage, deployment, get, private, request, settings, to, token};
use admission::Limits;
use futures_util::StreamExt;
use gateway::Settings;
use http_body_util::BodyExt;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use types::edge::{Opens, PreviewRoute, RouteChange, Serving, WorkloadRoute};
use types::ids::ResourceId;
use types::{KindName, Timestamp};

const AT: &str = "/acme/sandboxes/box/port/7/ws";
const PREVIEW: &str = "p.preview.holm.test";
/// Longer than any test machine takes; it only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(60);

async fn stage() -> Stage {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    echo(&stage).await;
    stage
}

async fn end_of(mut socket: WebSocketStream<TcpStream>) {
    let end = async { while let Some(Ok(_)) = socket.next().await {} };
    tokio::time::timeout(PATIENCE, end).await.unwrap();
}

#[tokio::test]
async fn a_revoked_key_keeps_no_socket_no_stream_and_no_long_poll() {
    let stage = stage().await;
    stage.preview(PreviewRoute { opens: Opens::ToAll, ..private(7) });
    let mut public = open(&stage, PREVIEW, "/", None).await.unwrap();
    let mut socket = open(&stage, "127.0.0.1", AT, Some(KEY)).await.unwrap();
    exchange(&mut socket, "mine").await;
    let stream = stage.begin(get("/acme/sandboxes/box/endless")).await;
    let poll = tokio::spawn(stage.begin(get("/acme/sandboxes/box/gate")));
    stage.revoke();
    end_of(socket).await;
    let read = async {
        let mut body = stream.into_body();
        while body.frame().await.expect("the answer is cut off").is_ok() {}
    };
    tokio::time::timeout(PATIENCE, read).await.expect("the stream ends");
    let answer =
        tokio::time::timeout(PATIENCE, poll).await.expect("the long poll is answered").unwrap();
    assert_eq!(answer.status(), 401);
    // A caller who needs no key goes on.
    exchange(&mut public, "still here").await;
}

#[tokio::test]
async fn a_sandbox_that_is_turned_off_keeps_no_socket_no_stream_and_no_long_poll() {
    let stage = stage().await;
    stage.preview(PreviewRoute { opens: Opens::ToAll, ..private(7) });
    let public = open(&stage, PREVIEW, "/", None).await.unwrap();
    let mut socket = open(&stage, "127.0.0.1", AT, Some(KEY)).await.unwrap();
    exchange(&mut socket, "mine").await;
    let stream = stage.begin(get("/acme/sandboxes/box/endless")).await;
    let poll = tokio::spawn(stage.begin(get("/acme/sandboxes/box/gate")));
    stage.route("acme", "box", off());
    end_of(socket).await;
    end_of(public).await;
    tokio::time::timeout(PATIENCE, stream.into_body().collect()).await.unwrap().unwrap_err();
    let answer = tokio::time::timeout(PATIENCE, poll).await.expect("it is answered").unwrap();
    let error = Reply::read(answer).await.problem(404, "WORKLOAD_UNAVAILABLE");
    assert_eq!(error["message"], "the sandbox is disabled");
    // The last visit may be ending just now.
    let standby = stage.gateway.standby();
    let asleep = async { while standby.pause("box").await.is_err() {} };
    tokio::time::timeout(PATIENCE, asleep).await.expect("nothing keeps it awake");
}

fn off() -> Serving {
    Serving::Off { why: "is disabled".into() }
}

/// Its replicas end when they have answered what they were asked.
#[tokio::test]
async fn a_deployment_that_is_turned_off_answers_what_it_was_asked() {
    let stage = stage().await;
    let replica = stage.replica("bot-1").await;
    let targets = vec![to("r1", 100, &["bot-1"])];
    let route =
        WorkloadRoute { serving: Serving::To(targets), ..deployment(KindName::Agent, "bot") };
    stage.deploy(&route);
    let poll = tokio::spawn(stage.begin(get("/acme/agents/bot/gate")));
    while replica.busy.is_empty() {
        tokio::task::yield_now().await;
    }
    let socket = open(&stage, "127.0.0.1", AT, Some(KEY)).await.unwrap();
    stage.deploy(&WorkloadRoute { serving: off(), ..route });
    // Everything is looked at together.
    stage.route("acme", "box", off());
    end_of(socket).await;
    replica.gate.add_permits(1);
    assert_eq!(poll.await.unwrap().status(), 200);
}

#[tokio::test]
async fn who_waits_for_what_is_deleted_is_told_that_it_is_gone() {
    let stage = stage().await;
    let poll = tokio::spawn(stage.begin(get("/acme/sandboxes/box/gate")));
    echo(&stage).await;
    stage.gateway.routes().apply(RouteChange::Gone(ResourceId::known("acme/box")));
    let answer = tokio::time::timeout(PATIENCE, poll).await.expect("it is answered").unwrap();
    Reply::read(answer).await.problem(404, "WORKLOAD_NOT_FOUND");
}

#[tokio::test]
async fn a_socket_ends_with_the_token_or_the_preview_that_opened_it() {
    let stage = stage().await;
    let with_token = "/?bl_preview_token=secret";
    stage.preview(private(7));
    let revoked = open(&stage, PREVIEW, with_token, None).await.unwrap();
    stage
        .preview(PreviewRoute { opens: Opens::ToTokens(vec![token("other", None)]), ..private(7) });
    end_of(revoked).await;
    stage.preview(private(7));
    let deleted = open(&stage, PREVIEW, with_token, None).await.unwrap();
    stage.gateway.routes().apply(RouteChange::Gone(private(7).id));
    end_of(deleted).await;
    stage.preview(PreviewRoute { opens: Opens::ToAll, ..private(7) });
    let closed = open(&stage, PREVIEW, "/", None).await.unwrap();
    stage.preview(private(7));
    end_of(closed).await;
    let end = Timestamp::from_ms(2_000_000);
    stage.preview(PreviewRoute {
        opens: Opens::ToTokens(vec![token("secret", Some(end))]),
        ..private(7)
    });
    let expired = open(&stage, PREVIEW, with_token, None).await.unwrap();
    stage.clock.store(end.ms(), std::sync::atomic::Ordering::Relaxed);
    end_of(expired).await;
}

#[tokio::test]
async fn a_workspace_that_holds_its_share_leaves_the_rest_to_others() {
    let open_max = Limits { total: 3, share: 2 };
    let stage = Stage::start(Settings { open: open_max, ..settings() }).await;
    stage.sandbox("box", &[8080]).await;
    stage.route("acme-b", "other", crate::stage::by("box"));
    echo(&stage).await;
    let mut sockets = Vec::new();
    for _ in 0..2 {
        let mut socket = open(&stage, "127.0.0.1", AT, Some(KEY)).await.unwrap();
        exchange(&mut socket, "held").await;
        sockets.push(socket);
    }
    stage.get("/acme/sandboxes/box/x").await.problem(429, "TOO_MANY_REQUESTS");
    stage.get("/acme-b/sandboxes/other/x").await.ok();
    let _last = stage.begin(get("/acme-b/sandboxes/other/endless")).await;
    stage.get("/acme-b/sandboxes/other/x").await.problem(503, "NO_CAPACITY");
    // A stranger gets an error about credentials, not about room.
    stage
        .send(request("GET", "127.0.0.1", "/acme/sandboxes/box/x", &[]))
        .await
        .problem(401, "AUTHENTICATION_REQUIRED");
    for mut socket in sockets {
        socket.close(None).await.unwrap();
        while socket.next().await.is_some_and(|message| message.is_ok()) {}
    }
    tokio::time::timeout(PATIENCE, async {
        while stage.get("/acme/sandboxes/box/x").await.status != 200 {}
    })
    .await
    .expect("the places are given back");
}

#[tokio::test]
async fn strangers_leave_a_workspace_places_of_its_own() {
    let limits = Limits { total: 10, share: 3 };
    let stage = Stage::start(Settings { open: limits, open_public_max: 1, ..settings() }).await;
    stage.sandbox("box", &[8080]).await;
    echo(&stage).await;
    stage.preview(PreviewRoute { opens: Opens::ToAll, ..private(7) });
    let mut stranger = open(&stage, PREVIEW, "/", None).await.unwrap();
    exchange(&mut stranger, "held").await;
    let at_preview = || stage.send(request("GET", PREVIEW, "/", &[]));
    at_preview().await.problem(429, "TOO_MANY_REQUESTS");
    let mut owner = open(&stage, "127.0.0.1", AT, Some(KEY)).await.unwrap();
    exchange(&mut owner, "mine").await;
    stage.get("/acme/sandboxes/box/x").await.ok();
    // A caller who shows a token is not a stranger.
    stage.preview(private(7));
    end_of(stranger).await;
    let mut with_token = open(&stage, PREVIEW, "/?bl_preview_token=secret", None).await.unwrap();
    exchange(&mut with_token, "shown").await;
    stage.preview(PreviewRoute { opens: Opens::ToAll, ..private(7) });
    let mut again = open(&stage, PREVIEW, "/", None).await.unwrap();
    exchange(&mut again, "there is room again").await;
}
