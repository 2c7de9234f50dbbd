//! Tests of connections that rules have to look into, by the proxy and transparently, to a site with TLS.

use super::servers::{Server, Told, acceptor};
use super::*;
use rustls::pki_types::ServerName;
use types::kinds::network::ProxyTarget;
use types::parts::TextMap;

/// Starts a site that answers with the request it got. Also returns the certificate of its authority.
pub(super) async fn site() -> (Server, String) {
    let (acceptor, pem) = acceptor("ok.example");
    let server = Server::with(SocketAddrV4::new(OUT_THERE, 0), move |stream: TcpStream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { return };
                head.push(byte);
            }
            let length = head.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all(&[answer.as_bytes(), &head].concat()).await;
            let _ = stream.shutdown().await;
        }
    })
    .await;
    (server, pem)
}

pub(super) fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn rules_for_paths_and_headers_reach_into_tls() {
    let (site, pem) = site().await;
    let net = Net::trusting(limits(), None, Some(&pem)).await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    let headers = [("x-added".to_owned(), "by-rule".to_owned())].into_iter().collect::<TextMap>();
    let routing = vec![ProxyTarget {
        destinations: Some(vec!["ok.example".to_owned()]),
        headers: Some(headers),
        ..ProxyTarget::default()
    }];
    net.set(ONE, EgressRules { routing, ..rules(&["ok.example/api"], &[]) }).await;
    let name = || ServerName::try_from("ok.example").unwrap();
    for (path, status) in [("/api/x", "200"), ("/other", "403")] {
        let diverted = net.divert(ONE, site.address).await;
        let mut stream = net.trusts().connect(name(), diverted).await.unwrap();
        let (heard, _) = talk(&mut stream, request(path).as_bytes()).await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {heard}");
        assert_eq!(heard.contains("x-added: by-rule"), status == "200", "{heard}");
        let (proxied, _) = net.connect(&format!("ok.example:{}", site.port())).await;
        let mut stream = net.trusts().connect(name(), proxied).await.unwrap();
        let (heard, _) = talk(&mut stream, request(path).as_bytes()).await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {heard}");
    }
    // Bytes that are not a request cannot be judged by a path.
    net.resolve(ONE, "ok.example").await;
    let mut stream = net.divert(ONE, site.address).await;
    assert_eq!(talk(&mut stream, b"SSH-2.0-me\r\n").await, (String::new(), true));
}

#[tokio::test]
async fn what_is_added_keeps_no_other_protocol_from_passing() {
    let server = Server::start("one", SocketAddrV4::new(OUT_THERE, 0)).await;
    let net = Net::new().await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    let destinations = Some(vec!["*".to_owned()]);
    let routing = vec![ProxyTarget { destinations, ..ProxyTarget::default() }];
    net.set(ONE, EgressRules { routing, ..rules(&["ok.example"], &[]) }).await;
    net.resolve(ONE, "ok.example").await;
    let mut stream = net.divert(ONE, server.address).await;
    stream.write_all(b"SSH-2.0-me\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(hear(&mut stream).await, ("one:-\n".to_owned(), false));
}
