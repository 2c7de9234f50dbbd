//! Connections that switch protocols.

use crate::stage::{Stage, private, settings};
use futures_util::{SinkExt, StreamExt};
use gateway::Settings;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// Echoes messages on port 7 of `box`, and counts those that it got while it was paused.
pub async fn echo(stage: &Stage) -> Arc<AtomicUsize> {
    echo_at(stage, "box", 7).await
}

pub async fn echo_at(stage: &Stage, instance: &'static str, port: u16) -> Arc<AtomicUsize> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.machine.listen(instance, port, listener.local_addr().unwrap());
    let while_paused = Arc::new(AtomicUsize::new(0));
    let (machine, count) = (Arc::clone(&stage.machine), Arc::clone(&while_paused));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (machine, count) = (Arc::clone(&machine), Arc::clone(&count));
            tokio::spawn(async move {
                let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
                while let Some(Ok(message)) = socket.next().await {
                    count.fetch_add(usize::from(machine.is_paused(instance)), Ordering::Relaxed);
                    if socket.send(message).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    while_paused
}

pub async fn open(
    stage: &Stage,
    host: &str,
    path: &str,
    bearer: Option<&str>,
) -> Result<WebSocketStream<TcpStream>, u16> {
    let bearer = bearer.map(|bearer| ("authorization", format!("Bearer {bearer}")));
    open_with(stage, host, path, bearer.as_slice()).await
}

async fn open_with(
    stage: &Stage,
    host: &str,
    path: &str,
    headers: &[(&'static str, String)],
) -> Result<WebSocketStream<TcpStream>, u16> {
    let mut request = format!("ws://{host}{path}").into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(stage.address).await.unwrap();
    match tokio_tungstenite::client_async(request, stream).await {
        Ok((socket, _)) => Ok(socket),
        Err(tokio_tungstenite::tungstenite::Error::Http(reply)) => Err(reply.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

pub async fn exchange(socket: &mut WebSocketStream<TcpStream>, text: &str) {
    socket.send(Message::text(text)).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text(text));
}

#[tokio::test]
async fn a_socket_carries_messages_and_ends_cleanly() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    echo(&stage).await;
    let at = "/acme/sandboxes/box/port/7/ws";
    let mut socket = open(&stage, "h", at, Some("key-of-acme")).await.unwrap();
    exchange(&mut socket, "a").await;
    exchange(&mut socket, &"b".repeat(1 << 20)).await;
    assert_eq!(stage.gateway.standby().look("box").unwrap().visits, 1);
    socket.close(None).await.unwrap();
    while socket.next().await.is_some_and(|message| message.is_ok()) {}
    drop(socket);
    while stage.gateway.standby().look("box").unwrap().visits > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_handshake_may_show_its_token_in_the_query() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    echo(&stage).await;
    stage.preview(private(7));
    let mut socket =
        open(&stage, "h", "/acme/sandboxes/box/port/7/?token=key-of-acme&cols=80", None)
            .await
            .unwrap();
    exchange(&mut socket, "a").await;
    let mut socket =
        open(&stage, "p.preview.holm.test", "/?bl_preview_token=secret", None).await.unwrap();
    exchange(&mut socket, "a").await;
    assert_eq!(
        open(&stage, "h", "/acme/sandboxes/box/port/7/?token=no", None).await.unwrap_err(),
        401
    );
    assert_eq!(open(&stage, "p.preview.holm.test", "/", None).await.unwrap_err(), 401);
    // Only a handshake may: a link must not carry a key.
    let plain = crate::stage::request("GET", "h", "/acme/sandboxes/box/?token=key-of-acme", &[]);
    stage.send(plain).await.problem(401, "AUTHENTICATION_REQUIRED");
}

#[tokio::test]
async fn a_page_of_another_origin_opens_no_socket_with_a_kept_token() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    echo(&stage).await;
    stage.preview(private(7));
    let host = "p.preview.holm.test";
    let by_cookie = |origin: &str| {
        [("cookie", "holm_preview=secret".to_owned()), ("origin", origin.to_owned())]
    };
    for origin in [
        "http://evil.example",
        "http://other.preview.holm.test",
        "http://p.preview.holm.test:8700",
        "null",
    ] {
        assert_eq!(
            open_with(&stage, host, "/", &by_cookie(origin)).await.unwrap_err(),
            403,
            "{origin}"
        );
        // A page that shows the token itself does not borrow it from the browser.
        let shown = [("origin", origin.to_owned())];
        let mut socket =
            open_with(&stage, host, "/?bl_preview_token=secret", &shown).await.unwrap();
        exchange(&mut socket, "a").await;
    }
    let mut socket =
        open_with(&stage, host, "/", &by_cookie("http://p.preview.holm.test")).await.unwrap();
    exchange(&mut socket, "a").await;
}

#[tokio::test]
async fn an_idle_socket_lets_its_sandbox_rest_and_wakes_it_with_its_next_byte() {
    let soon = Duration::from_millis(20);
    let stage =
        Stage::start(Settings { socket_idle: soon, standby_delay: Some(soon), ..settings() }).await;
    stage.sandbox("box", &[8080]).await;
    let while_paused = echo(&stage).await;
    let mut socket =
        open(&stage, "h", "/acme/sandboxes/box/port/7/", Some("key-of-acme")).await.unwrap();
    for round in 0..5 {
        exchange(&mut socket, "awake").await;
        stage.machine.until_paused("box").await;
        exchange(&mut socket, &format!("again {round}")).await;
    }
    assert_eq!(while_paused.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_socket_that_is_cut_off_lets_go() {
    let stage =
        Stage::start(Settings { standby_delay: Some(Duration::from_millis(20)), ..settings() })
            .await;
    stage.sandbox("box", &[8080]).await;
    echo(&stage).await;
    let mut socket =
        open(&stage, "h", "/acme/sandboxes/box/port/7/", Some("key-of-acme")).await.unwrap();
    exchange(&mut socket, "a").await;
    drop(socket);
    stage.machine.until_paused("box").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_messages_over_many_sockets_arrives() {
    let stage = Arc::new(Stage::start(settings()).await);
    stage.sandbox("box", &[8080]).await;
    echo(&stage).await;
    let sockets = (0..20).map(|_| {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move {
            let socket = open(&stage, "h", "/acme/sandboxes/box/port/7/", Some("key-of-acme"))
                .await
                .unwrap();
            let (mut send, receive) = socket.split();
            let sending = async {
                for number in 0..500 {
                    send.send(Message::text(number.to_string())).await.unwrap();
                }
            };
            let receiving = receive
                .take(500)
                .map(|message| message.unwrap().into_text().unwrap().parse::<u32>().unwrap());
            let ((), received) = tokio::join!(sending, receiving.collect::<Vec<_>>());
            assert!(received.into_iter().eq(0..500));
        })
    });
    for socket in sockets.collect::<Vec<_>>() {
        socket.await.unwrap();
    }
}
