//! What the edge answers when a workload does not.

use crate::stage::{Reply, Stage, get, request, settings};
use bytes::Bytes;
use gateway::Settings;
use http::Request;
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use types::edge::RouteChange;
use types::ids::ResourceId;

#[tokio::test]
async fn each_refusal_has_its_code() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let at = |token: &'static str| {
        request("GET", "h", "/acme/sandboxes/box/", &[("authorization", token)])
    };
    stage
        .send(request("GET", "h", "/acme/sandboxes/box/", &[]))
        .await
        .problem(401, "AUTHENTICATION_REQUIRED");
    stage.send(at("Bearer no")).await.problem(401, "AUTHENTICATION_FAILED");
    stage.send(at("Bearer old")).await.problem(401, "AUTHENTICATION_FAILED");
    stage.send(at("Basic abc")).await.problem(401, "AUTHENTICATION_REQUIRED");
    let reply = stage.send(at("Bearer away")).await;
    reply.problem(503, "UNAVAILABLE");
    assert_eq!(reply.headers["retry-after"], "1");
    let reply = stage.send(at("Bearer eager")).await;
    reply.problem(429, "TOO_MANY_REQUESTS");
    assert_eq!(reply.headers["retry-after"], "7");
    stage.get("/foreign/sandboxes/box/").await.problem(403, "FORBIDDEN");
    stage.get("/acme/sandboxes/none/").await.problem(404, "WORKLOAD_NOT_FOUND");
}

#[tokio::test]
async fn a_port_without_listener_says_what_the_app_must_do() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let error =
        stage.get("/acme/sandboxes/box/port/4000/").await.problem(502, "PORT_NOT_LISTENING");
    assert_eq!(error["message"], "nothing listens on 127.0.0.1:4000 in the sandbox");
}

#[tokio::test]
async fn a_port_of_a_sandbox_that_just_started_is_waited_for() {
    let patient = Settings { launch_grace: Duration::from_secs(60), ..settings() };
    let stage = std::sync::Arc::new(Stage::start(patient).await);
    stage.sandbox("box", &[8080]).await;
    let asking = tokio::spawn({
        let stage = stage.clone();
        async move { stage.get("/acme/sandboxes/box/port/4000/late").await }
    });
    while stage.machine.connects.load(Ordering::Relaxed) < 2 {
        tokio::task::yield_now().await;
    }
    assert!(!asking.is_finished());
    crate::workload::Workload::start(&stage.machine, "box", &[4000]).await;
    assert_eq!(asking.await.unwrap().ok()["uri"], "/late");
}

/// Starts a workload that reads the head of a request, sends `bytes` and closes.
async fn abrupt(stage: &Stage, port: u16, bytes: impl AsRef<[u8]> + Send + 'static) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.machine.listen("box", port, listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(bytes.as_ref()).await;
        }
    });
}

#[tokio::test]
async fn a_workload_that_closes_early_is_said_to() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    abrupt(&stage, 1, b"").await;
    abrupt(&stage, 2, b"HTTP/1.1 200 OK\r\ncontent-le").await;
    abrupt(&stage, 3, b"\x00\x01nonsense\r\n\r\n").await;
    abrupt(
        &stage,
        4,
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    )
    .await;
    abrupt(&stage, 5, format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101))).await;
    for (port, why) in [
        (1, "closed the connection"),
        (2, "closed the connection"),
        (3, "not HTTP"),
        (4, "changed the protocol"),
        (5, "more than 100 headers"),
    ] {
        let reply = stage.get(&format!("/acme/sandboxes/box/port/{port}/")).await;
        let error = reply.problem(502, "WORKLOAD_NO_ANSWER");
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
    }
    assert_eq!(stage.gateway.standby().look("box").unwrap().visits, 0);
}

#[tokio::test]
async fn what_a_workload_sent_before_it_closed_reaches_the_caller() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n";
    for (port, sent) in [(1, ""), (2, "half")] {
        abrupt(&stage, port, format!("{head}{sent}")).await;
        let path = format!("/acme/sandboxes/box/port/{port}/");
        let ask = "HTTP/1.1\r\nhost: h\r\nauthorization: Bearer key-of-acme\r\n\r\n";
        let answer = raw(&stage, &format!("GET {path} {ask}")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
        assert!(answer.ends_with(&format!("\r\n\r\n{sent}")), "{answer:?}");
    }
}

#[tokio::test]
async fn what_a_workload_sent_before_it_closed_reaches_callers_of_http_2() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    abrupt(&stage, 1, "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await;
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let connected = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://h/acme/sandboxes/box/port/1/")
        .header("authorization", "Bearer key-of-acme")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let mut answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    let sent = answer.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(sent, "half");
    assert!(answer.body_mut().frame().await.unwrap().is_err());
}

/// The HTTP library undoes the chunks and no other coding.
#[tokio::test]
async fn a_transfer_coding_that_nobody_asked_for_is_not_passed_on() {
    let stage = Stage::start(settings()).await;
    let workload = stage.sandbox("box", &[8080]).await;
    let answer = |coding: &str| format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n");
    for (port, coding) in
        [(1, "gzip, chunked"), (2, "gzip"), (3, "gzip\r\ntransfer-encoding: chunked")]
    {
        abrupt(&stage, port, answer(coding) + "2\r\nok\r\n0\r\n\r\n").await;
        let reply = stage.get(&format!("/acme/sandboxes/box/port/{port}/")).await;
        reply.problem(502, "WORKLOAD_NO_ANSWER");
    }
    abrupt(&stage, 4, answer("Chunked") + "2\r\nok\r\n0\r\n\r\n").await;
    assert_eq!(stage.get("/acme/sandboxes/box/port/4/").await.body, "ok");
    abrupt(&stage, 5, answer("identity") + "ok").await;
    assert_eq!(stage.get("/acme/sandboxes/box/port/5/").await.body, "ok");
    for coding in ["gzip, chunked", "gzip\r\ntransfer-encoding: chunked"] {
        let answer = chunked(&stage, coding, "2\r\nok\r\n0\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("BAD_REQUEST"), "{answer}");
    }
    assert_eq!(workload.served.load(Ordering::Relaxed), 0);
}

/// Sends a request with a body in chunks.
async fn chunked(stage: &Stage, coding: &str, body: &str) -> String {
    let head = "POST /acme/sandboxes/box/echo HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
                authorization: Bearer key-of-acme\r\ntransfer-encoding: ";
    raw(stage, &format!("{head}{coding}\r\n\r\n{body}")).await
}

#[tokio::test]
async fn a_body_that_is_no_http_is_the_callers_own_fault() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.machine.listen("box", 8080, listener.local_addr().unwrap());
    let reads = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_to_end(&mut Vec::new()).await
    });
    let answer = chunked(&stage, "chunked", "2\r\nok\r\nnonsense\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("BAD_REQUEST"), "{answer}");
    let _ = reads.await.unwrap();
}

#[tokio::test]
async fn an_answer_of_two_lengths_comes_whole() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    for (port, length) in [(1, 2), (2, 0), (3, 99)] {
        let lengths = format!("content-length: {length}\r\ntransfer-encoding: chunked");
        let answer = format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        abrupt(&stage, port, answer).await;
        let reply = stage.get(&format!("/acme/sandboxes/box/port/{port}/")).await;
        assert_eq!((reply.status.as_u16(), &reply.body[..]), (200, &b"hello"[..]), "{length}");
    }
}

/// Interim answers without end would keep a thread from everybody else.
#[tokio::test]
async fn a_workload_that_only_ever_says_that_it_will_answer_is_given_up() {
    const EARLY: &[u8] = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n";
    let stage = Stage::start(Settings { head_bytes_max: 8192, ..settings() }).await;
    stage.sandbox("box", &[8080]).await;
    let few = [EARLY, EARLY, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"].concat();
    abrupt(&stage, 6, few).await;
    assert_eq!(stage.get("/acme/sandboxes/box/port/6/").await.body, "ok");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.machine.listen("box", 7, listener.local_addr().unwrap());
    let endless = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        while stream.write_all(EARLY).await.is_ok() {}
    });
    stage.get("/acme/sandboxes/box/port/7/").await.problem(502, "WORKLOAD_NO_ANSWER");
    endless.await.unwrap();
}

/// A head stays in memory until it has come whole.
#[tokio::test]
async fn a_head_that_is_large_and_never_ends_is_given_up() {
    // Without a limit for its size, this decides, with another answer.
    let stage = Stage::start(Settings { answer_idle: Duration::from_secs(5), ..settings() }).await;
    stage.sandbox("box", &[8080]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.machine.listen("box", 7, listener.local_addr().unwrap());
    let endless = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let header = format!("x: {}\r\n", "a".repeat(1_000));
        let head = format!("HTTP/1.1 200 OK\r\n{}", header.repeat(200));
        // The gateway may hang up before all of it is written.
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    stage.get("/acme/sandboxes/box/port/7/").await.problem(502, "WORKLOAD_NO_ANSWER");
    endless.await.unwrap();
}

/// Its connection breaks off before anything else can tell why.
#[tokio::test]
async fn what_is_deleted_while_it_is_asked_is_not_there() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    stage.machine.listen("box", 7, listener.local_addr().unwrap());
    let asking = tokio::spawn(stage.begin(get("/acme/sandboxes/box/port/7/")));
    let (asked, _) = listener.accept().await.unwrap();
    stage.gateway.routes().apply(RouteChange::Gone(ResourceId::known("acme/box")));
    drop(asked);
    Reply::read(asking.await.unwrap()).await.problem(404, "WORKLOAD_NOT_FOUND");
}

#[tokio::test]
async fn a_workload_of_the_older_protocol_is_answered_for_in_the_newer() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    abrupt(&stage, 5, b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let head = "host: h\r\nauthorization: Bearer key-of-acme\r\nconnection: close\r\n\r\n";
    let answer = raw(&stage, &format!("GET /acme/sandboxes/box/port/5/ HTTP/1.1\r\n{head}")).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
}

#[tokio::test]
async fn a_silent_workload_is_given_up() {
    let stage =
        Stage::start(Settings { answer_idle: Duration::from_millis(50), ..settings() }).await;
    stage.sandbox("box", &[8080]).await;
    stage.get("/acme/sandboxes/box/gate").await.problem(504, "WORKLOAD_TIMEOUT");
    assert_eq!(stage.gateway.standby().look("box").unwrap().visits, 0);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_by_its_length_and_by_its_bytes() {
    let stage = Stage::start(Settings { body_max: 1000, ..settings() }).await;
    stage.sandbox("box", &[8080]).await;
    for (size, chunked) in [(1001, false), (1001, true), (1 << 20, true)] {
        let mut request = request(
            "POST",
            "h",
            "/acme/sandboxes/box/echo",
            &[("authorization", "Bearer key-of-acme")],
        );
        *request.body_mut() = Full::from(vec![1; size]);
        if chunked {
            request.headers_mut().insert("transfer-encoding", "chunked".parse().unwrap());
        }
        stage.send(request).await.problem(413, "REQUEST_ENTITY_TOO_LARGE");
    }
    let mut request = request(
        "POST",
        "h",
        "/acme/sandboxes/box/echo",
        &[("authorization", "Bearer key-of-acme")],
    );
    *request.body_mut() = Full::from(vec![1; 1000]);
    assert_eq!(stage.send(request).await.body.len(), 1000);
}

/// Sends bytes as they are and reads until the end.
async fn raw(stage: &Stage, bytes: &str) -> String {
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

#[tokio::test]
async fn a_message_of_two_lengths_carries_no_second_request() {
    let stage = Stage::start(settings()).await;
    let workload = stage.sandbox("box", &[8080]).await;
    let smuggled = "GET /acme/sandboxes/box/smuggled HTTP/1.1\r\nhost: h\r\n\r\n";
    for lengths in [
        format!("content-length: {}\r\ntransfer-encoding: chunked", smuggled.len() + 5),
        format!("transfer-encoding: chunked\r\ncontent-length: {}", smuggled.len() + 5),
        "content-length: 5\r\ncontent-length: 6".into(),
        "transfer-encoding: chunked, identity".into(),
    ] {
        let answer = raw(
            &stage,
            &format!(
                "POST /acme/sandboxes/box/first HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
                 authorization: Bearer key-of-acme\r\n{lengths}\r\n\r\n0\r\n\r\n{smuggled}"
            ),
        )
        .await;
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
        assert!(!answer.contains("smuggled"), "{answer}");
    }
    assert!(workload.served.load(std::sync::atomic::Ordering::Relaxed) <= 2);
}

#[tokio::test]
async fn a_tunnel_is_not_opened() {
    let stage = Stage::start(settings()).await;
    stage.sandbox("box", &[8080]).await;
    let answer = raw(
        &stage,
        "CONNECT sbx-box-acme.holm.test:80 HTTP/1.1\r\nhost: sbx-box-acme.holm.test:80\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}
