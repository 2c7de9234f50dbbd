//! Tests of WebSockets that programs ask for in HTTP/2.

use super::super::*;
use super::lab::{Fetched, Lab, Program, request};
use super::{list, rules};
use crate::policy::Policy;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use types::egress::{EgressDecision, EgressRules};

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Builds an extended `CONNECT`.
fn connect(uri: &str, protocol: &'static str) -> Request<Body> {
    let mut asked = request("CONNECT", uri, "");
    asked.extensions_mut().insert(Protocol::from_static(protocol));
    let headers = asked.headers_mut();
    headers.insert("sec-websocket-version", "13".parse().unwrap());
    headers.insert("sec-websocket-key", "own".parse().unwrap());
    headers.insert("sec-websocket-protocol", "chat".parse().unwrap());
    asked
}

async fn try_open(browser: &mut Program, uri: &str) -> Result<(Socket, Fetched), Fetched> {
    let mut answer = browser.ask(connect(uri, "websocket")).await;
    if answer.status() != 200 {
        return Err(Fetched::of(answer).await);
    }
    let upgraded = hyper::upgrade::on(&mut answer).await.unwrap();
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None);
    Ok((socket.await, Fetched::of(answer).await))
}

async fn open(browser: &mut Program, uri: &str) -> (Socket, Fetched) {
    match try_open(browser, uri).await {
        Ok(opened) => opened,
        Err(page) => panic!("{} {}", page.status, page.text),
    }
}

async fn echoes(socket: &mut Socket, text: &str) -> bool {
    // What is sent before the end is known may seem to go out.
    let _ = socket.send(Message::text(text)).await;
    matches!(socket.next().await, Some(Ok(message)) if message == Message::text(text))
}

const OVER_TWO: &str = "CONNECT HTTP/2.0 websocket";
const OVER_ONE: &str = "GET HTTP/1.1 websocket";

#[tokio::test]
async fn each_side_has_web_sockets_in_its_own_http() {
    // How many connections the first one takes, and each further one.
    for (alpn, takes, asked, first, further) in [
        (&["http/1.1"][..], false, OVER_ONE, 1, 1),
        (&["h2", "http/1.1"], false, OVER_ONE, 2, 1),
        (&["h2", "http/1.1"], true, OVER_TWO, 1, 0),
        (&["h2"], true, OVER_TWO, 1, 0),
    ] {
        let lab = Lab::new(rules());
        lab.site_with("api.test", alpn, takes).await;
        let mut browser = lab.browse("api.test", "h2").await;
        let mut open_still = Vec::new();
        for round in 0..3 {
            let uri = "https://api.test/ws?q={{SECRET:key}}";
            let (mut socket, head) = open(&mut browser, uri).await;
            assert_eq!(head.headers["x-asked"], asked);
            assert_eq!(head.headers["x-path"], "/ws?q=hush");
            assert_eq!(head.headers["x-authorization"], "Bearer hush");
            for gone in ["upgrade", "connection", "sec-websocket-accept"] {
                assert!(!head.headers.contains_key(gone), "{gone}");
            }
            assert_eq!(head.headers["sec-websocket-protocol"], "chat");
            assert!(echoes(&mut socket, "hello").await);
            assert!(echoes(&mut socket, &"a".repeat(1 << 20)).await);
            let dialed = if round == 0 { first } else { further };
            assert_eq!(lab.dialed().len(), dialed, "{alpn:?} {round}");
            open_still.push(socket);
        }
        // Other requests go on beside them.
        let page = browser.fetch(request("GET", "https://api.test/x", "")).await;
        assert_eq!(page.status, 200);
        for mut socket in open_still {
            assert!(echoes(&mut socket, "still").await);
            socket.close(None).await.unwrap();
            while let Some(Ok(_)) = socket.next().await {}
        }
        let event = lab.event().await;
        assert_eq!(event.decision, EgressDecision::Injected);
        assert_eq!((event.method.as_deref(), event.path.as_deref()), (Some("GET"), Some("/ws")));
    }
}

#[tokio::test]
async fn without_tls_the_same_holds() {
    for (takes, asked) in [(false, OVER_ONE), (true, OVER_TWO)] {
        let lab = Lab::new(rules());
        lab.plain_site_with("api.test", takes).await;
        let mut browser = Program::two(TokioIo::new(lab.open("api.test", false))).await;
        let (mut socket, head) = open(&mut browser, "http://api.test/ws").await;
        assert_eq!(head.headers["x-asked"], asked);
        assert!(echoes(&mut socket, "hello").await);
    }
}

#[tokio::test]
async fn rules_see_a_web_socket_as_the_request_that_it_is() {
    for forbidden in ["api.test/ws/closed", "GET:api.test/ws/closed"] {
        let forbidden = format!("forbiddenDomains: {forbidden}");
        let lab = Lab::new(EgressRules {
            forbidden_domains: list(&[forbidden.split_once(": ").unwrap().1]),
            ..rules()
        });
        lab.site_with("api.test", &["h2"], true).await;
        let mut browser = lab.browse("api.test", "h2").await;
        for path in ["/ws/closed", "/ws/closed/x", "/ws/x/../closed", "/ws/%63losed"] {
            let uri = format!("https://api.test{path}");
            let page = try_open(&mut browser, &uri).await.err().unwrap();
            assert_eq!((page.status, page.error()), (403, "firewall_blocked"), "{path}");
            assert!(page.text.contains(&forbidden), "{}", page.text);
        }
        assert!(lab.dialed().is_empty());
        let event = lab.event().await;
        assert_eq!((event.decision, event.rule), (EgressDecision::Blocked, forbidden));
        assert_eq!(event.method.as_deref(), Some("GET"));
        open(&mut browser, "https://api.test/ws/open").await;
    }
    // It is no CONNECT to them, and for no other host than its connection.
    let forbidden_domains = list(&["CONNECT:api.test"]);
    let lab = Lab::new(EgressRules { forbidden_domains, ..rules() });
    lab.site_with("api.test", &["h2"], true).await;
    let mut browser = lab.browse("api.test", "h2").await;
    open(&mut browser, "https://api.test/ws").await;
    let page = try_open(&mut browser, "https://other.test/ws").await.err().unwrap();
    assert_eq!((page.status, page.error()), (421, "misdirected_request"));
}

#[tokio::test]
async fn new_rules_end_web_sockets_that_they_do_not_allow() {
    for takes in [true, false] {
        let lab = Lab::new(rules());
        lab.site_with("api.test", &["h2", "http/1.1"], takes).await;
        let mut browser = lab.browse("api.test", "h2").await;
        let (mut ends, _) = open(&mut browser, "https://api.test/ws/a").await;
        let (mut stays, _) = open(&mut browser, "https://api.test/ws/b").await;
        assert!(echoes(&mut ends, "hello").await);
        lab.client.set_policy(Policy::compile(EgressRules {
            forbidden_domains: list(&["api.test/ws/a"]),
            ..EgressRules::default()
        }));
        assert!(!echoes(&mut ends, "no more").await);
        assert!(echoes(&mut stays, "on").await);
        let page = try_open(&mut browser, "https://api.test/ws/a").await.err().unwrap();
        assert_eq!(page.status, 403);
    }
}

#[tokio::test]
async fn nothing_else_is_connected_to_within_a_connection() {
    let lab = Lab::new(rules());
    lab.site_with("api.test", &["h2", "http/1.1"], true).await;
    let mut browser = lab.browse("api.test", "h2").await;
    for protocol in ["connect-udp", "connect-ip", "webtransport", "h2c", "WebSocket", ""] {
        let page = browser.fetch(connect("https://api.test/ws", protocol)).await;
        assert_eq!((page.status, page.error()), (405, "method_not_allowed"), "{protocol}");
    }
    let mut plain = request("CONNECT", "https://api.test/", "");
    *plain.uri_mut() = "api.test:443".parse().unwrap();
    let page = browser.fetch(plain).await;
    assert_eq!((page.status, page.error()), (405, "method_not_allowed"));
    assert!(lab.dialed().is_empty());
}

/// Starts a host that speaks HTTP/1.1 and gives this answer to everything.
async fn answers(lab: &Lab, host: &str, answer: &'static str) {
    lab.listen(host, move |mut stream| {
        tokio::spawn(async move {
            let mut head = vec![0; 8 << 10];
            let count = stream.read(&mut head).await.unwrap();
            // It does not know what begins like HTTP/2.
            if !head[..count].starts_with(b"PRI") {
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_is_no_web_socket_is_not_taken_for_one() {
    let lab = Lab::new(rules());
    let switches = "HTTP/1.1 101 x\r\nconnection: upgrade\r\nupgrade: websocket\r\n";
    let accepts = "sec-websocket-accept: ";
    let wrong: &'static str =
        format!("{switches}{accepts}s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n").leak();
    let none: &'static str = format!("{switches}\r\n").leak();
    for (host, answer, status, code) in [
        ("wrong.test", wrong, 502, "upstream_broken"),
        ("none.test", none, 502, "upstream_broken"),
        ("page.test", "HTTP/1.1 200 x\r\ncontent-length: 2\r\n\r\nhi", 502, "upstream_broken"),
        ("away.test", "HTTP/1.1 302 x\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", 302, ""),
        ("no.test", "HTTP/1.1 403 x\r\ncontent-length: 2\r\n\r\nno", 403, ""),
        ("nonsense.test", "SSH-2.0-nonsense\r\n\r\n", 502, "upstream_broken"),
    ] {
        answers(&lab, host, answer).await;
        let mut browser = Program::two(TokioIo::new(lab.open(host, false))).await;
        let page = try_open(&mut browser, &format!("http://{host}/ws")).await.err().unwrap();
        assert_eq!((page.status, page.error()), (status, code), "{host} {}", page.text);
    }
}

#[tokio::test]
async fn an_http2_host_may_say_no() {
    let lab = Lab::new(rules());
    lab.site_with("api.test", &["h2"], true).await;
    let mut browser = lab.browse("api.test", "h2").await;
    let page = try_open(&mut browser, "https://api.test/empty").await.err().unwrap();
    assert_eq!((page.status, page.error()), (502, "upstream_broken"), "{}", page.text);
    let page = try_open(&mut browser, "https://api.test/refuse").await.err().unwrap();
    assert_eq!((page.status, page.text.as_str()), (403, "no"));
    // It takes no WebSockets, and speaks no HTTP/1.1.
    lab.site_with("two.test", &["h2"], false).await;
    let mut browser = lab.browse("two.test", "h2").await;
    let page = try_open(&mut browser, "https://two.test/ws").await.err().unwrap();
    assert_eq!((page.status, page.error()), (502, "upstream_tls"), "{}", page.text);
}

#[tokio::test]
async fn a_web_socket_has_a_connection_for_as_long_as_it_lasts() {
    let limits =
        Limits { upstreams_max: 1, answer_timeout: Duration::from_secs(1), ..Limits::default() };
    let lab = Lab::with_limits(rules(), limits);
    lab.site_with("api.test", &["http/1.1"], false).await;
    let mut browser = lab.browse("api.test", "h2").await;
    let (mut socket, _) = open(&mut browser, "https://api.test/ws").await;
    let page = try_open(&mut browser, "https://api.test/ws").await.err().unwrap();
    assert_eq!((page.status, page.error()), (504, "upstream_timeout"));
    socket.close(None).await.unwrap();
    while let Some(Ok(_)) = socket.next().await {}
    drop(socket);
    open(&mut browser, "https://api.test/ws").await;
}

#[tokio::test]
async fn a_quiet_web_socket_ends() {
    for takes in [true, false] {
        let limits = Limits { idle_timeout: Duration::from_secs(1), ..Limits::default() };
        let lab = Lab::with_limits(rules(), limits);
        lab.site_with("api.test", &["h2", "http/1.1"], takes).await;
        let mut browser = lab.browse("api.test", "h2").await;
        let (mut socket, _) = open(&mut browser, "https://api.test/ws").await;
        assert!(echoes(&mut socket, "hello").await);
        let end = timeout(Duration::from_secs(20), socket.next()).await.unwrap();
        assert!(!matches!(end, Some(Ok(message)) if message.is_text()));
    }
}
