//! Tests of exchanges that last longer than a question and its answer.

use super::super::*;
use super::lab::{Fetched, Lab, Program, request, request_one};
use super::{list, rules};
use crate::policy::Policy;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Barrier, mpsc};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};
use types::egress::EgressRules;

type Pieces = mpsc::Sender<Bytes>;

/// Returns a body, and a sender to write it piece by piece.
fn written() -> (Pieces, Body) {
    let (pieces, mut read) = mpsc::channel::<Bytes>(1);
    let stream = futures_util::stream::poll_fn(move |cx| {
        read.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    });
    (pieces, StreamBody::new(stream).boxed_unsync())
}

#[tokio::test]
async fn bodies_of_any_size_pass_both_ways() {
    for alpn in ["http/1.1", "h2"] {
        let lab = Lab::new(rules());
        lab.site("api.test", &[alpn]).await;
        let mut browser = lab.browse("api.test", alpn).await;
        let ask = if alpn == "h2" { request } else { request_one };
        let page = browser.fetch(ask("GET", "https://api.test/big", "")).await;
        assert_eq!(page.text.len(), 32 << 20);
        let body = "x".repeat(5 << 20);
        let page = browser.fetch(ask("PUT", "https://api.test/sink", &body)).await;
        assert!(page.text.ends_with("\n\n5242880 bytes"), "{}", page.text);
    }
}

#[tokio::test]
async fn open_requests_of_an_owner_have_a_share_of_the_memory() {
    let heads_shared = admission::Limits { total: 1 << 20, share: 256 << 10 };
    let lab = Lab::with_limits(rules(), Limits { heads_shared, ..Limits::default() });
    lab.site("api.test", &["h2"]).await;
    let Program::Two(sender) = lab.browse("api.test", "h2").await else {
        panic!("the connection speaks HTTP/2");
    };
    let ask = || {
        let (pieces, body) = written();
        let mut asked = request("PUT", "https://api.test/sink", "").map(|_| body);
        for _ in 0..200 {
            asked.headers_mut().append("x", http::HeaderValue::from_static(""));
        }
        let mut sender = sender.clone();
        tokio::spawn(async move {
            let answer = Fetched::of(sender.send_request(asked).await.unwrap()).await;
            drop(pieces);
            answer
        })
    };
    let mut open: Vec<_> = (0..20).map(|_| ask()).collect();
    for _ in 0..10 {
        let (answer, _, rest) = futures_util::future::select_all(open).await;
        let answer = answer.unwrap();
        assert_eq!((answer.status, answer.error()), (429, "too_many_requests"), "{}", answer.text);
        open = rest;
    }
    open.iter().for_each(tokio::task::JoinHandle::abort);
    let page = Program::Two(sender).fetch(request("GET", "https://api.test/x", "")).await;
    assert_eq!(page.status, 200);
}

#[tokio::test]
async fn answers_without_a_body_keep_their_length() {
    for alpn in ["http/1.1", "h2"] {
        let lab = Lab::new(rules());
        lab.site("api.test", &[alpn]).await;
        let mut browser = lab.browse("api.test", alpn).await;
        let ask = if alpn == "h2" { request } else { request_one };
        for _ in 0..2 {
            let page = browser.fetch(ask("HEAD", "https://api.test/x", "")).await;
            assert_eq!((page.status, page.text.as_str()), (200, ""));
            assert_eq!(page.headers["content-length"], "7");
            let page = browser.fetch(ask("GET", "https://api.test/empty", "")).await;
            assert_eq!((page.status, page.text.as_str()), (204, ""));
        }
        assert_eq!(lab.dialed().len(), 1);
    }
}

#[tokio::test]
async fn a_connection_that_ended_meanwhile_is_made_anew() {
    let lab = Lab::new(rules());
    lab.listen("api.test", |mut stream| {
        tokio::spawn(async move {
            let mut head = [0; 16];
            stream.read_exact(&mut head).await.unwrap();
            // It does not announce that the connection will end.
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        });
    })
    .await;
    let mut browser = lab.browse_plain("api.test").await;
    for _ in 0..20 {
        let page = browser.fetch(request_one("GET", "http://api.test/", "")).await;
        assert_eq!((page.status, page.text.as_str()), (200, "ok"));
        assert!((1..=2).contains(&lab.dialed().len()));
    }
}

/// Reads the head of a request. Returns false if the connection has ended.
async fn reads_head(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return false,
        }
    }
    true
}

/// A host that starts anew has ended all connections at once.
#[tokio::test]
async fn the_second_try_is_made_on_a_new_connection() {
    let lab = Lab::new(rules());
    let (both, count) = (Arc::new(Barrier::new(2)), AtomicUsize::new(0));
    let acceptor = lab.acceptor("api.test", &["http/1.1"]);
    lab.listen("api.test", move |stream| {
        let (both, number) = (Arc::clone(&both), count.fetch_add(1, Ordering::Relaxed));
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let mut stream = acceptor.accept(stream).await.unwrap();
            assert!(reads_head(&mut stream).await);
            if number < 2 {
                both.wait().await;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            // It ends at the next request, without an answer.
            reads_head(&mut stream).await;
        });
    })
    .await;
    let Program::Two(sender) = lab.browse("api.test", "h2").await else { return };
    let fetch = || async {
        let mut browser = Program::Two(sender.clone());
        browser.fetch(request("GET", "https://api.test/", "")).await.text
    };
    assert_eq!(tokio::join!(fetch(), fetch()), ("ok".to_owned(), "ok".to_owned()));
    assert_eq!(fetch().await, "ok");
    assert_eq!(lab.dialed().len(), 3);
}

#[tokio::test]
async fn both_directions_flow_at_once() {
    for alpn in ["http/1.1", "h2"] {
        let lab = Lab::new(rules());
        lab.site("api.test", &[alpn]).await;
        let mut browser = lab.browse("api.test", alpn).await;
        let ask = if alpn == "h2" { request } else { request_one };
        let (pieces, body) = written();
        let asked = ask("POST", "https://api.test/echo-stream", "").map(|_| body);
        let mut answer = browser.ask(asked).await.into_body();
        for round in 0..50 {
            let piece = Bytes::from(format!("piece {round}"));
            pieces.send(piece.clone()).await.unwrap();
            let frame = answer.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), piece);
        }
        drop(pieces);
        assert!(answer.collect().await.unwrap().to_bytes().is_empty());
    }
}

#[tokio::test]
async fn grpc_has_its_trailers() {
    let lab = Lab::new(rules());
    lab.site("api.test", &["h2"]).await;
    let mut browser = lab.browse("api.test", "h2").await;
    let mut asked = request("POST", "https://api.test/grpc", &b"\0\0\0\0\x01a"[..]);
    asked.headers_mut().insert("te", "trailers".parse().unwrap());
    asked.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
    let answer = browser.ask(asked).await.into_body().collect().await.unwrap();
    assert_eq!(answer.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(answer.to_bytes(), &b"\0\0\0\0\x01a"[..]);
}

#[tokio::test]
async fn http2_without_tls_stays_that() {
    let lab = Lab::new(rules());
    lab.plain_site("api.test").await;
    let mut browser = Program::two(TokioIo::new(lab.open("api.test", false))).await;
    let page = browser.fetch(request("GET", "http://api.test/x", "")).await;
    assert!(page.text.starts_with("HTTP/2.0 GET /x api.test"), "{}", page.text);
    assert!(page.text.contains("Bearer hush"));
}

/// Otherwise each host that a program chooses would add a connection.
#[tokio::test]
async fn one_connection_does_not_keep_connections_to_all_hosts() {
    let lab = Lab::new(rules());
    let hosts: Vec<String> = (0..20).map(|number| format!("n{number}.test")).collect();
    for host in &hosts {
        lab.plain_site(host).await;
    }
    let mut browser = Program::two(TokioIo::new(lab.open(&hosts[0], false))).await;
    let last = &hosts[hosts.len() - 1];
    for host in hosts.iter().chain([last, &hosts[0]]) {
        let page = browser.fetch(request("GET", &format!("http://{host}/x"), "")).await;
        assert!(page.text.starts_with(&format!("HTTP/2.0 GET /x {host}")), "{}", page.text);
    }
    // The last one was kept; the first one had to make room.
    assert_eq!(lab.dialed().len(), hosts.len() + 1);
}

#[tokio::test]
async fn many_requests_share_a_connection() {
    for (alpn, connections) in [("h2", 1), ("http/1.1", 16)] {
        let lab = Lab::new(rules());
        lab.site("api.test", &[alpn]).await;
        let Program::Two(browser) = lab.browse("api.test", "h2").await else { return };
        let ask = |number: usize| {
            let mut browser = browser.clone();
            async move {
                let asked = request("GET", &format!("https://api.test/{number}"), "");
                let answer = browser.send_request(asked).await.unwrap();
                let text = answer.into_body().collect().await.unwrap().to_bytes();
                let text = String::from_utf8(text.to_vec()).unwrap();
                assert!(text.contains(&format!(" GET /{number} ")), "{text}");
            }
        };
        let mut asked: tokio::task::JoinSet<()> = (0..64).map(ask).collect();
        while let Some(answered) = asked.join_next().await {
            answered.unwrap();
        }
        let dialed = lab.dialed().len();
        assert!((1..=connections).contains(&dialed), "{alpn} {dialed}");
    }
}

#[tokio::test]
async fn who_is_refused_can_send_the_rest() {
    let lab = Lab::new(rules());
    lab.site("api.test", &["h2"]).await;
    let mut browser = lab.browse("api.test", "h2").await;
    let (pieces, body) = written();
    let asked = request("POST", "https://api.test/admin", "").map(|_| body);
    let page = browser.fetch(asked).await;
    assert_eq!((page.status, page.error()), (403, "firewall_blocked"));
    // By now the stream would have been reset, which some clients take for the answer.
    let other = browser.fetch(request("GET", "https://api.test/x", "")).await;
    assert_eq!(other.status, 200);
    for _ in 0..3 {
        pieces.send(Bytes::from_static(b"more")).await.unwrap();
    }
    assert!(!pieces.is_closed());
}

async fn socket<S>(stream: S, address: &str) -> WebSocketStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut socket, answer) = client_async(address, stream).await.unwrap();
    assert_eq!(answer.status(), 101);
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("hello"));
    socket
}

#[tokio::test]
async fn web_sockets_pass_until_the_rules_end_them() {
    let lab = Lab::new(rules());
    lab.site("api.test", &["h2", "http/1.1"]).await;
    lab.plain_site("plain.test").await;
    let stream = lab.open_tls("api.test", "http/1.1").await.unwrap();
    let mut sealed = socket(stream, "wss://api.test/ws").await;
    let mut plain = socket(lab.open("plain.test", false), "ws://plain.test/ws").await;
    sealed.send(Message::text("a".repeat(1 << 20))).await.unwrap();
    assert_eq!(sealed.next().await.unwrap().unwrap().len(), 1 << 20);
    lab.client.set_policy(Policy::compile(EgressRules {
        allowed_domains: list(&["plain.test"]),
        ..EgressRules::default()
    }));
    plain.send(Message::text("on")).await.unwrap();
    assert_eq!(plain.next().await.unwrap().unwrap(), Message::text("on"));
    // What is sent before the end is known may seem to go out.
    let _ = sealed.send(Message::text("no more")).await;
    assert!(!matches!(sealed.next().await, Some(Ok(message)) if message.is_text()));
}

#[tokio::test]
async fn the_explicit_proxy_forwards_by_the_same_rules() {
    let lab = Lab::new(rules());
    lab.site("api.test", &["h2", "http/1.1"]).await;
    lab.plain_site("plain.test").await;
    let mut browser = Program::one(TokioIo::new(lab.proxy())).await;
    let page = browser.fetch(request("GET", "http://plain.test/x?y", "")).await;
    assert!(page.text.starts_with("HTTP/1.1 GET /x?y -"), "{}", page.text);
    assert!(page.text.contains("host: plain.test") && !page.text.contains("hush"));
    let page = browser.fetch(request("GET", "https://api.test/x", "")).await;
    assert!(page.text.starts_with("HTTP/2.0 GET /x api.test"), "{}", page.text);
    assert!(page.text.contains("Bearer hush"), "{}", page.text);
    for blocked in ["http://closed.test/", "https://api.test/admin", "http://inside/"] {
        let page = browser.fetch(request("GET", blocked, "")).await;
        assert_eq!((page.status, page.error()), (403, "firewall_blocked"), "{blocked}");
    }
    assert_eq!(browser.fetch(request_one("GET", "http://plain.test/big", "")).await.status, 200);
    let mut socket = socket(lab.proxy(), "ws://plain.test/ws").await;
    socket.close(None).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_flows_ends_with_the_rules() {
    let lab = Lab::new(rules());
    lab.site("api.test", &["http/1.1"]).await;
    let mut browser = lab.browse("api.test", "http/1.1").await;
    let (pieces, body) = written();
    let asked = request_one("POST", "https://api.test/echo-stream", "").map(|_| body);
    let mut answer = browser.ask(asked).await.into_body();
    pieces.send(Bytes::from_static(b"first")).await.unwrap();
    assert!(answer.frame().await.unwrap().is_ok());
    lab.client.set_policy(Policy::compile(EgressRules {
        forbidden_domains: list(&["api.test"]),
        ..EgressRules::default()
    }));
    pieces.send(Bytes::from_static(b"second")).await.unwrap();
    assert!(answer.frame().await.is_none_or(|frame| frame.is_err()));
}

#[tokio::test]
async fn a_quiet_connection_ends() {
    use std::time::Duration;
    let limits = Limits {
        head_timeout: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(400),
        ..Limits::default()
    };
    let lab = Lab::with_limits(rules(), limits);
    lab.site("api.test", &["h2", "http/1.1"]).await;
    // Nothing, half of a head, and an open stream that nobody writes to.
    let mut ends = Vec::new();
    for begun in ["", "PRI * HTTP/2", "GET / HTTP/1.1\r\nhost: api.test\r\n"] {
        let mut stream = lab.open("api.test", false);
        stream.write_all(begun.as_bytes()).await.unwrap();
        ends.push(tokio::spawn(async move {
            let mut said = Vec::new();
            drop(stream.read_to_end(&mut said).await);
        }));
    }
    let mut browser = lab.browse("api.test", "h2").await;
    let (pieces, body) = written();
    let asked = request("POST", "https://api.test/echo-stream", "").map(|_| body);
    let mut answer = browser.ask(asked).await.into_body();
    ends.push(tokio::spawn(async move {
        let _open = pieces;
        assert!(answer.frame().await.is_none_or(|frame| frame.is_err()));
    }));
    for end in ends {
        timeout(Duration::from_secs(20), end).await.unwrap().unwrap();
    }
}
