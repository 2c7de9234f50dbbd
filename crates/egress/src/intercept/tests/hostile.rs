//! Tests with bytes that no honest program sends.

use super::super::*;
use super::lab::{Lab, request_one};
use super::rules;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Short limits, for connections on which the rest never arrives.
fn short() -> Limits {
    let short = Duration::from_millis(250);
    Limits { head_timeout: short, idle_timeout: short, ..Limits::default() }
}

/// Sends bytes on a connection without TLS, and reads until it ends.
async fn say(lab: &Lab, bytes: &[u8]) -> String {
    let mut stream = lab.open("api.test", false);
    let mut said = Vec::new();
    // What is too long is not read to its end.
    drop(stream.write_all(bytes).await);
    drop(timeout(Duration::from_secs(20), stream.read_to_end(&mut said)).await.unwrap());
    String::from_utf8_lossy(&said).into_owned()
}

/// Returns the statuses of answers.
fn statuses(said: &str) -> Vec<&str> {
    let answers = said.split("HTTP/1.1 ").skip(1);
    let status = |answer: &&str| answer.bytes().all(|byte| byte.is_ascii_digit());
    answers.filter_map(|answer| answer.get(..3)).filter(status).collect()
}

#[tokio::test]
async fn a_request_is_one_request() {
    let lab = Lab::with_limits(rules(), short());
    lab.plain_site("api.test").await;
    lab.plain_site("other.test").await;
    let smuggled = "GET /admin HTTP/1.1\r\nhost: api.test\r\n\r\n";
    let post = |headers: &str, body: &str| {
        format!(
            "POST /x HTTP/1.1\r\nhost: api.test\r\nconnection: close\r\n{headers}\r\n\r\n{body}"
        )
    };
    for (bytes, wanted) in [
        // Both lengths: both sides must agree with hyper about where the message ends.
        (
            post(
                "content-length: 5\r\ntransfer-encoding: chunked",
                &format!("0\r\n\r\n{smuggled}"),
            ),
            &["200"][..],
        ),
        (
            post(
                "transfer-encoding: chunked\r\ncontent-length: 5",
                &format!("0\r\n\r\n{smuggled}"),
            ),
            &["200"],
        ),
        (post("transfer-encoding: xchunked", smuggled), &["400"]),
        (post("transfer-encoding: chunked, identity", smuggled), &["400"]),
        (post("content-length: 5\r\ncontent-length: 6", "hello!"), &["400"]),
        (post("content-length: +5", "hello"), &["400"]),
        (post("content-length: 5 ", "hello"), &["200"]),
        (post("content-length : 5", "hello"), &["400"]),
        (post("x: a\r\n b", ""), &["400"]),
        (post("x: a\nhost: other.test", ""), &["400"]),
        (post("x: a\r\nhost: other.test", ""), &["400"]),
        (post("x: a\rb", ""), &["400"]),
        (post("x: a\0b", ""), &["400"]),
        ("GET /x HTTP/1.1\r\n\r\n".to_owned(), &["400"]),
        ("GET /x HTTP/1.1\r\nhost: api.test:x\r\n\r\n".to_owned(), &["400"]),
        ("GET http://u@api.test/ HTTP/1.1\r\nhost: api.test\r\n\r\n".to_owned(), &["400"]),
        ("CONNECT api.test:443 HTTP/1.1\r\nhost: api.test\r\n\r\n".to_owned(), &["405"]),
        ("GET /admin HTTP/1.0\r\n\r\n".to_owned(), &["403"]),
        ("\x16\x03\x01\x00\x05hello\r\n\r\n".to_owned(), &["400"]),
        (
            format!("GET /x HTTP/1.1\r\nhost: api.test\r\nx: {}\r\n\r\n", "a".repeat(1 << 20)),
            &["431"],
        ),
    ] {
        let said = say(&lab, bytes.as_bytes()).await;
        let shown = statuses(&said.replace("HTTP/1.0 ", "HTTP/1.1 "))
            .iter()
            .map(|&status| status.to_owned())
            .collect::<Vec<_>>();
        assert!(!said.contains("GET /admin"), "{bytes:.200}\n{said}");
        assert!(shown.is_empty() && wanted == ["400"] || shown == wanted, "{bytes:.200}\n{said}");
    }
}

#[tokio::test]
async fn the_address_of_a_request_counts_and_not_its_header() {
    let lab = Lab::with_limits(rules(), short());
    lab.plain_site("api.test").await;
    lab.plain_site("other.test").await;
    let asked = "GET http://other.test/x HTTP/1.1\r\nhost: api.test\r\nconnection: close\r\n\r\n";
    let said = say(&lab, asked.as_bytes()).await;
    assert!(said.contains("host: other.test") && !said.contains("hush"), "{said}");
    assert_eq!(lab.dialed(), ["other.test"]);
}

#[tokio::test]
async fn no_request_hides_behind_an_upgrade() {
    let lab = Lab::with_limits(rules(), short());
    lab.plain_site("api.test").await;
    for protocol in ["h2c", "HTTP/2.0", "TLS/1.3", "websocket, h2c"] {
        let asked = format!(
            "GET /ws2 HTTP/1.1\r\nhost: api.test\r\nconnection: upgrade, HTTP2-Settings, close\r\n\
             upgrade: {protocol}\r\nhttp2-settings: AAMAAABk\r\n\r\n"
        );
        let said = say(&lab, asked.as_bytes()).await;
        assert_eq!(statuses(&said), ["200"], "{said}");
        assert!(!said.contains("upgrade") && !said.contains("http2-settings"), "{said}");
    }
}

#[tokio::test]
async fn what_a_connection_names_for_itself_goes_no_further() {
    let lab = Lab::with_limits(rules(), short());
    lab.plain_site("api.test").await;
    let asked = "GET /x HTTP/1.1\r\nhost: api.test\r\nconnection: close, x-mine, host, authorization\r\n\
        x-mine: 1\r\nkeep-alive: 5\r\nproxy-authorization: Basic own\r\nproxy-connection: keep-alive\r\n\
        te: trailers\r\nauthorization: own\r\nx-blaxel-request-id: mine\r\nx-other: 2\r\n\r\n";
    let said = say(&lab, asked.as_bytes()).await;
    for gone in ["x-mine", "keep-alive", "proxy-", "\nte: ", "authorization: own", "mine"] {
        assert!(!said.contains(gone), "{gone}\n{said}");
    }
    for kept in ["host: api.test", "x-other: 2", "authorization: Bearer hush"] {
        assert!(said.contains(kept), "{kept}\n{said}");
    }
}

#[tokio::test]
async fn a_body_that_is_waited_for_is_asked_for() {
    let lab = Lab::with_limits(rules(), short());
    lab.plain_site("api.test").await;
    let mut stream = lab.open("api.test", false);
    let head = "POST /x HTTP/1.1\r\nhost: api.test\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\
        content-type: application/json\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut said = vec![0; 25];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(said, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"{}").await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    assert!(said.ends_with(r#"{"field":"hush"}"#), "{said}");
    // A blocked request is not sent, and its client may not send the body either. So the connection
    // ends, even if the client did not ask for that.
    let head = head.replace("/x", "/admin").replace("connection: close\r\n", "");
    let said = say(&lab, head.as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 403"), "{said}");
    assert!(said.contains("\r\nconnection: close\r\n"), "{said}");
}

#[tokio::test]
async fn an_instance_has_a_share_of_the_memory() {
    let limits =
        Limits { bodies_max: 1, answer_timeout: Duration::from_millis(300), ..Limits::default() };
    let lab = Lab::with_limits(rules(), limits);
    lab.plain_site("api.test").await;
    let mut slow = lab.open("api.test", false);
    let head = "POST /x HTTP/1.1\r\nhost: api.test\r\ncontent-length: 9\r\n\r\nhalf";
    slow.write_all(head.as_bytes()).await.unwrap();
    // Its body never arrives, so its place is freed after a while.
    let mut said = vec![0; 12];
    slow.read_exact(&mut said).await.unwrap();
    assert_eq!(said, b"HTTP/1.1 408");
    let mut browser = lab.browse_plain("api.test").await;
    assert_eq!(browser.fetch(request_one("POST", "http://api.test/x", "{}")).await.status, 200);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    /// Whatever is sent, nothing forbidden is reached and no key goes to another host.
    #[test]
    fn nothing_forbidden_passes(
        pieces in proptest::collection::vec(prop_oneof![
            Just("GET ".to_owned()), Just("POST ".to_owned()), Just("/ok".to_owned()),
            Just("/admin".to_owned()), Just("/%61dmin".to_owned()), Just("/..".to_owned()),
            Just(" HTTP/1.1\r\n".to_owned()), Just("\r\n".to_owned()), Just("\r\n\r\n".to_owned()),
            Just("host: api.test\r\n".to_owned()), Just("host: other.test\r\n".to_owned()),
            Just("host: closed.test\r\n".to_owned()), Just("http://closed.test".to_owned()),
            Just("http://other.test".to_owned()), Just("http://api.test".to_owned()),
            Just("content-length: 5\r\n".to_owned()), Just("5\r\nhello\r\n0\r\n\r\n".to_owned()),
            Just("transfer-encoding: chunked\r\n".to_owned()), Just("hello".to_owned()),
            Just("x: {{SECRET:key}}\r\n".to_owned()), "[ -~\r\n]{0,6}",
        ], 1..24),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let lab = Lab::with_limits(rules(), short());
            lab.plain_site("api.test").await;
            lab.plain_site("other.test").await;
            lab.plain_site("closed.test").await;
            let last = "GET /end HTTP/1.1\r\nhost: api.test\r\nconnection: close\r\n\r\n";
            let said = say(&lab, (pieces.concat() + last).as_bytes()).await;
            assert!(!lab.dialed().contains(&"closed.test".to_owned()));
            for answer in said.split("HTTP/1.1 200").skip(1) {
                let is_admin = answer.contains(" /admin");
                let is_other = answer.contains("\nhost: other.test");
                assert!(!is_admin, "{answer}");
                assert!(!is_other || !answer.contains("hush"), "{answer}");
            }
        });
    }
}
