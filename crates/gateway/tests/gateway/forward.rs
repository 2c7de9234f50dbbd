//! What passes through: bodies, headers, trailers, connections.

use crate::stage::{KEY, Reply, Stage, get, private, request, settings};
use crate::workload::TRAILERS;
use bytes::Bytes;
use gateway::Settings;
use http::{HeaderName, Request};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use types::edge::{Opens, PreviewRoute};

type Frames =
    StreamBody<futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

fn post(path: &str, frames: mpsc::Receiver<Frame<Bytes>>) -> Request<Frames> {
    let stream = futures_util::stream::unfold(frames, |mut frames| async move {
        Some((Ok(frames.recv().await?), frames))
    });
    let body = StreamBody::new(Box::pin(stream) as futures_util::stream::BoxStream<'static, _>);
    let bearer = format!("Bearer {KEY}");
    Request::post(path).header("host", "h").header("authorization", bearer).body(body).unwrap()
}

#[tokio::test]
async fn both_bodies_stream_at_the_same_time() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let (sender, frames) = mpsc::channel(1);
    sender.send(Frame::data("one".into())).await.unwrap();
    let mut answer = stage.begin(post("/acme/sandboxes/box/echo", frames)).await.into_body();
    for next in ["two", "three"] {
        // Each frame comes back before the next is sent: nothing is buffered on the way.
        answer.frame().await.unwrap().unwrap().into_data().unwrap();
        sender.send(Frame::data(next.into())).await.unwrap();
    }
    drop(sender);
    assert_eq!(answer.collect().await.unwrap().to_bytes(), "three");
}

#[tokio::test]
async fn a_reader_that_stops_stops_the_writer() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let (sender, frames) = mpsc::channel(1);
    let chunk = Bytes::from(vec![b'.'; 64 << 10]);
    sender.send(Frame::data(chunk.clone())).await.unwrap();
    let answer = stage.begin(post("/acme/sandboxes/box/echo", frames)).await;
    // The answer is not read. What fits into sockets and buffers is accepted, then no more.
    let mut taken = 0;
    while tokio::time::timeout(Duration::from_millis(300), sender.send(Frame::data(chunk.clone())))
        .await
        .is_ok()
    {
        taken += chunk.len();
        assert!(taken < 64 << 20, "bytes are gathered somewhere");
    }
    let read = tokio::spawn(answer.into_body().collect());
    drop(sender);
    assert!(read.await.unwrap().unwrap().to_bytes().len() >= taken);
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let (sender, frames) = mpsc::channel(2);
    sender.send(Frame::data("data".into())).await.unwrap();
    sender.send(trailers()).await.unwrap();
    drop(sender);
    let mut request = post("/acme/sandboxes/box/echo", frames);
    request.headers_mut().insert("trailer", TRAILERS.parse().unwrap());
    request.headers_mut().insert("te", "trailers".parse().unwrap());
    let answer = stage.begin(request).await.into_body().collect().await.unwrap();
    assert_eq!(answer.trailers().unwrap()["x-sum"], "7");
    let mut kept: Vec<_> = answer.trailers().unwrap().keys().map(HeaderName::as_str).collect();
    kept.sort_unstable();
    assert_eq!(kept, ["x-plan", "x-sum", "x_plan"], "what only the edge says is no trailer");
    assert_eq!(answer.to_bytes(), "data");
}

/// Returns trailers by the names that [`TRAILERS`] lists.
fn trailers() -> Frame<Bytes> {
    let trailers = TRAILERS.split(", ").map(|name| (name.parse().unwrap(), "7".parse().unwrap()));
    Frame::trailers(trailers.collect())
}

#[tokio::test]
async fn what_a_preview_sets_is_no_trailer() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080, 3000]).await;
    let request_headers = [("X-Plan".into(), "free".into())].into();
    stage.preview(PreviewRoute { opens: Opens::ToAll, request_headers, ..private(3000) });
    let (sender, frames) = mpsc::channel(1);
    sender.send(trailers()).await.unwrap();
    drop(sender);
    let mut request = post("/echo", frames);
    for (name, value) in
        [("host", "p.preview.holm.test"), ("trailer", TRAILERS), ("te", "trailers")]
    {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let answer = stage.begin(request).await.into_body().collect().await.unwrap();
    let kept = answer.trailers().unwrap();
    assert_eq!((kept.len(), &kept["x-sum"]), (1, &"7".parse().unwrap()));
}

#[tokio::test]
async fn no_trailer_of_an_answer_says_that_it_is_the_platforms() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.machine.listen("box", 9, listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\
                    trailer: x-sum, x-blaxel-source, x_blaxel_source\r\n\r\n";
        let trailers = "x-sum: 7\r\nx-blaxel-source: platform\r\nx_blaxel_source: platform";
        let answer = format!("{head}4\r\ndata\r\n0\r\n{trailers}\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    let mut request = get("/acme/sandboxes/box/port/9/");
    request.headers_mut().insert("te", "trailers".parse().unwrap());
    let answer = stage.begin(request).await.into_body().collect().await.unwrap();
    let kept = answer.trailers().unwrap();
    assert_eq!((kept.len(), &kept["x-sum"]), (1, &"7".parse().unwrap()));
}

#[tokio::test]
async fn a_body_that_waits_to_be_asked_for_is_asked_for() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    let head = "POST /acme/sandboxes/box/echo HTTP/1.1\r\nhost: h\r\nauthorization: Bearer key-of-acme\r\n\
                connection: close\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 25];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"data").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("data"), "{answer}");
}

#[tokio::test]
async fn what_holds_for_one_connection_stays_on_it() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let mut request = get("/acme/sandboxes/box/");
    for (name, value) in [
        ("connection", "x-private, close, content-length, host"),
        ("x-private", "1"),
        ("keep-alive", "timeout=1"),
        ("proxy-authorization", "Basic x"),
        ("te", "gzip, trailers"),
        ("upgrade", "h2c"),
        ("x-forwarded-for", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
        ("x-kept", "yes"),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let reply = stage.send(request).await;
    let told = reply.ok();
    let headers = told["headers"].as_object().unwrap();
    for name in
        ["x-private", "keep-alive", "proxy-authorization", "upgrade", "connection", "forwarded"]
    {
        assert!(!headers.contains_key(name), "{name}");
    }
    assert_eq!(
        (&headers["te"], &headers["x-kept"], &headers["host"]),
        (&"trailers".into(), &"yes".into(), &"127.0.0.1".into())
    );
    assert_eq!(headers["x-forwarded-for"], "127.0.0.1");
    // A workload cannot speak as the platform.
    assert!(
        !reply.headers.contains_key("x-blaxel-source") && !reply.headers.contains_key("keep-alive")
    );
}

#[tokio::test]
async fn every_method_passes() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    for method in ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE"] {
        let sent = request(
            method,
            "h",
            "/acme/sandboxes/box/",
            &[("authorization", "Bearer key-of-acme")],
        );
        assert_eq!(stage.send(sent).await.ok()["method"], method);
    }
    let head =
        request("HEAD", "h", "/acme/sandboxes/box/", &[("authorization", "Bearer key-of-acme")]);
    let reply = stage.send(head).await;
    assert!(reply.body.is_empty() && reply.headers["content-length"] != "0");
    let nothing = stage.get("/acme/sandboxes/box/nothing").await;
    assert_eq!((nothing.status.as_u16(), nothing.body.len()), (204, 0));
}

#[tokio::test]
async fn a_connection_serves_the_next_request_but_never_one_after_a_pause() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let connects = || stage.machine.connects.load(Ordering::Relaxed);
    for _ in 0..5 {
        stage.get("/acme/sandboxes/box/").await.ok();
        stage.get("/acme/sandboxes/box/nothing").await;
        let mut echo = request(
            "POST",
            "h",
            "/acme/sandboxes/box/echo",
            &[("authorization", "Bearer key-of-acme")],
        );
        *echo.body_mut() = Full::from("data");
        assert_eq!(stage.send(echo).await.body, "data");
    }
    assert_eq!(connects(), 1);
    while stage.gateway.standby().pause("box").await.is_err() {
        tokio::task::yield_now().await;
    }
    stage.get("/acme/sandboxes/box/").await.ok();
    assert_eq!(connects(), 2);
}

/// Answers one request on each connection without saying that it will close.
async fn forgetful(stage: &Stage) -> Arc<AtomicUsize> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.machine.listen("box", 9, listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                // Takes the next request and drops it unanswered.
                let _ = stream.read(&mut head).await;
            });
        }
    });
    accepted
}

#[tokio::test]
async fn a_spare_connection_that_was_closed_costs_no_request() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let accepted = forgetful(&stage).await;
    for _ in 0..20 {
        assert_eq!(stage.get("/acme/sandboxes/box/port/9/").await.body, "ok");
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 20);
}

/// Answers any request with this head, and sends a body that comes late, when the next is there.
async fn late(stage: &Stage, head: &'static str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.machine.listen("box", 9, listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = [0; 4096];
                while stream.read(&mut asked).await.is_ok_and(|bytes| bytes > 0) {
                    let (head, body) = match asked.starts_with(b"HEAD ") {
                        true => (head, ""),
                        false => ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n", "own"),
                    };
                    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                    if body.is_empty() {
                        let _ = stream.read(&mut asked).await;
                        let stray = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nstray";
                        let _ = stream.write_all(stray.as_bytes()).await;
                    }
                }
            });
        }
    });
}

#[tokio::test]
async fn what_follows_an_answer_without_its_body_is_nobodys_answer() {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 43\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 43\r\n\r\n",
    ] {
        let stage = Stage::start(settings()).await;
        stage.sandbox("box", &[8080]).await;
        late(&stage, head).await;
        let path = "/acme/sandboxes/box/port/9/";
        let asked = request("HEAD", "h", path, &[("authorization", "Bearer key-of-acme")]);
        assert_eq!(stage.send(asked).await.body, "", "{head}");
        assert_eq!(stage.get(path).await.body, "own", "{head}");
    }
}

#[tokio::test]
async fn what_must_not_be_done_twice_is_not() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let accepted = forgetful(&stage).await;
    let post = || {
        request(
            "POST",
            "h",
            "/acme/sandboxes/box/port/9/",
            &[("authorization", "Bearer key-of-acme")],
        )
    };
    assert_eq!(stage.send(post()).await.body, "ok");
    stage.send(post()).await.problem(502, "WORKLOAD_NO_ANSWER");
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn http_2_passes_from_end_to_end() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://sbx-box-acme.local.holm.test/a%2Fb//c")
        .header("authorization", "Bearer key-of-acme")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(Full::<Bytes>::default())
        .unwrap();
    let told = Reply::read(sender.send_request(request).await.unwrap()).await.ok();
    assert_eq!(told["uri"], "/a%2Fb//c");
    assert_eq!(told["headers"]["host"], "sbx-box-acme.local.holm.test");
    assert_eq!(told["headers"]["cookie"], "a=1; b=2");
    let big = Bytes::from(vec![1; 3 << 20]);
    let request = Request::post("http://sbx-box-acme.local.holm.test/echo")
        .header("authorization", "Bearer key-of-acme")
        .body(Full::from(big.clone()))
        .unwrap();
    assert_eq!(Reply::read(sender.send_request(request).await.unwrap()).await.body, big);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_served_and_leaves_nothing() {
    let stage = Arc::new(Stage::start(Settings { spare_max: 4, ..settings() }).await);
    let workload = stage.sandbox("box", &[8080]).await;
    let asked = (0..500).map(|_| {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move { stage.get("/acme/sandboxes/box/").await.ok() })
    });
    for reply in asked.collect::<Vec<_>>() {
        reply.await.unwrap();
    }
    assert_eq!(workload.served.load(Ordering::Relaxed), 500);
    assert_eq!(stage.gateway.standby().look("box").unwrap().visits, 0);
}
