//! Tests of the organisation's proxy in front, with TLS and without.

use super::opened::{request, site};
use super::proxy::{any, head};
use super::servers::{Server, Told, acceptor};
use super::*;
use crate::hello::tests::real;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::ServerName;
use types::kinds::network::ProxyTarget;

#[tokio::test]
async fn the_proxy_of_an_organisation_is_asked() {
    let server = Server::start("one", any(OUT_THERE)).await;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let organisation = Server::with(any(Ipv4Addr::LOCALHOST), {
        let seen = Arc::clone(&seen);
        let to = server.address;
        move |mut stream: TcpStream| {
            let seen = Arc::clone(&seen);
            async move {
                let head = head(&mut stream).await;
                let refuses = head.contains("closed.example");
                seen.lock().push(head);
                if refuses {
                    let _ = stream.write_all(b"HTTP/1.1 403 no\r\n\r\n").await;
                    return;
                }
                stream.write_all(b"HTTP/1.1 200 ok\r\nX: y\r\n\r\n").await.unwrap();
                let mut out = TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut out).await;
            }
        }
    })
    .await;
    let upstream = Upstream {
        url: format!("http://127.0.0.1:{}", organisation.port()),
        user: Some("we".to_owned()),
        password: Some(Sensitive("pass".to_owned())),
        no_proxy: vec!["direct.example".to_owned()],
    };
    let net = Net::with(limits(), Some(upstream)).await;
    net.set(ONE, rules(&[], &["bad.example"])).await;
    for name in ["ok.example", "closed.example", "direct.example"] {
        net.names.tell(name, Told::Addresses(vec![OUT_THERE]));
    }
    net.names.tell("inside.example", Told::Addresses(vec![INSIDE]));
    let (mut stream, _) = net.connect("ok.example:443").await;
    stream.write_all(&real("ok.example")).await.unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"one:ok.example\n");
    let asked = seen.lock().pop().unwrap();
    assert!(asked.starts_with("connect ok.example:443 http/1.1"), "{asked}");
    let expected = STANDARD.encode("we:pass").to_ascii_lowercase();
    assert!(asked.contains(&format!("proxy-authorization: basic {expected}\r\n")), "{asked}");
    assert!(net.connect("closed.example:443").await.1.starts_with("http/1.1 502"));
    // Hosts inside cannot be reached this way either.
    assert!(net.connect("inside.example:443").await.1.starts_with("http/1.1 403"));
    seen.lock().clear();
    let (_, head) = net.connect(&format!("direct.example:{}", server.port())).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    assert!(seen.lock().is_empty());
}

/// How a proxy with TLS answers `CONNECT`.
#[derive(Clone, Copy)]
enum Answers {
    /// Connects to this address, whatever it was asked for.
    With(SocketAddrV4),
    Text(&'static str),
    /// Ends the connection.
    Nothing,
    /// Never answers.
    Silence,
}

struct Organisation {
    server: Server,
    /// The heads of the requests it got.
    seen: Arc<Mutex<Vec<String>>>,
    /// The certificate of its authority.
    pem: String,
}

impl Organisation {
    /// Starts a proxy whose certificate is for `name`.
    async fn start(name: &str, answers: Answers) -> Self {
        let (acceptor, pem) = acceptor(name);
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let server = Server::with(any(Ipv4Addr::LOCALHOST), {
            let seen = Arc::clone(&seen);
            move |stream: TcpStream| {
                let (acceptor, seen) = (acceptor.clone(), Arc::clone(&seen));
                async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let asked = head(&mut stream).await;
                    seen.lock().push(asked);
                    answer(&mut stream, answers).await;
                }
            }
        })
        .await;
        Self { server, seen, pem }
    }

    fn upstream(&self) -> Upstream {
        Upstream {
            url: format!("https://proxy.example:{}", self.server.port()),
            user: Some("we".to_owned()),
            password: Some(Sensitive("hush".to_owned())),
            no_proxy: Vec::new(),
        }
    }

    /// Opens a way out that leads through it, for an instance that may reach `ok.example`.
    async fn net(&self, limits: Limits, roots: &str, rules: EgressRules) -> Net {
        let net = Net::trusting(limits, Some(self.upstream()), Some(roots)).await;
        net.names.tell("proxy.example", Told::Addresses(vec![Ipv4Addr::LOCALHOST]));
        net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
        net.set(ONE, rules).await;
        net
    }
}

async fn answer<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, answers: Answers) {
    match answers {
        Answers::With(to) => {
            stream.write_all(b"HTTP/1.1 200 ok\r\n\r\n").await.unwrap();
            let mut out = TcpStream::connect(to).await.unwrap();
            // Ends the socket without ending TLS, as some proxies do.
            let _ = tokio::io::copy_bidirectional(stream, &mut out).await;
        }
        Answers::Text(text) => {
            let _ = stream.write_all(text.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        Answers::Nothing => {}
        Answers::Silence => std::future::pending().await,
    }
}

#[tokio::test]
async fn bytes_pass_within_tls_to_the_proxy() {
    let server = Server::start("one", any(OUT_THERE)).await;
    let organisation = Organisation::start("proxy.example", Answers::With(server.address)).await;
    let net = organisation.net(limits(), &organisation.pem, rules(&["ok.example"], &[])).await;
    let (mut stream, head) = net.connect("ok.example:443").await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    stream.write_all(&real("ok.example")).await.unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"one:ok.example\n");
    let asked = organisation.seen.lock().pop().unwrap();
    assert!(asked.starts_with("connect ok.example:443 http/1.1"), "{asked}");
    let expected = STANDARD.encode("we:hush").to_ascii_lowercase();
    assert!(asked.contains(&format!("proxy-authorization: basic {expected}\r\n")), "{asked}");
    // More than any buffer on the way holds.
    let big: Vec<u8> = (0..1_000_000u32).map(|byte| byte.to_be_bytes()[3]).collect();
    let (mut read, mut write) = tokio::io::split(stream);
    let sent = big.clone();
    let sending = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    read.read_to_end(&mut received).await.unwrap();
    sending.await.unwrap();
    assert!(received == big);
    // Also for programs that use no proxy, and is cut like any other connection.
    let mut stream = net.divert(ONE, SocketAddrV4::new(OUT_THERE, 443)).await;
    stream.write_all(&real("ok.example")).await.unwrap();
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"one:ok.example\n");
    net.set(ONE, rules(&["other.example"], &[])).await;
    hear(&mut stream).await;
}

#[tokio::test]
async fn opened_connections_have_tls_within_tls() {
    let (site, of_site) = site().await;
    let organisation = Organisation::start("proxy.example", Answers::With(site.address)).await;
    let headers = [("x-added".to_owned(), "by-rule".to_owned())].into_iter().collect();
    let routing = vec![ProxyTarget {
        destinations: Some(vec!["ok.example".to_owned()]),
        headers: Some(headers),
        ..ProxyTarget::default()
    }];
    let rules = EgressRules { routing, ..rules(&["ok.example/api"], &[]) };
    let roots = [organisation.pem.as_str(), &of_site].concat();
    let net = organisation.net(limits(), &roots, rules).await;
    for (path, status) in [("/api/x", "200"), ("/other", "403")] {
        let (proxied, _) = net.connect("ok.example:443").await;
        let name = ServerName::try_from("ok.example").unwrap();
        let mut stream = net.trusts().connect(name, proxied).await.unwrap();
        let (heard, _) = talk(&mut stream, request(path).as_bytes()).await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status}")), "{path}: {heard}");
        assert_eq!(heard.contains("x-added: by-rule"), status == "200", "{heard}");
    }
    assert_eq!(organisation.seen.lock().len(), 1);
}

/// Asks for a host that the proxy does not lead to. Returns the head and what the event says.
async fn failure(net: &Net) -> (String, String) {
    let (mut stream, head) = net.connect("ok.example:443").await;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    let body = String::from_utf8(body).unwrap();
    let event = net.events().await.swap_remove(0);
    assert!(body.contains(&event.rule), "{body} {}", event.rule);
    assert!(!format!("{head} {body} {event:?}").contains("hush"), "{body}");
    assert!(!format!("{head} {body} {event:?}").contains(&STANDARD.encode("we:hush")), "{body}");
    (head, event.rule)
}

#[tokio::test]
async fn what_a_proxy_with_tls_did_wrong_is_said() {
    for (answers, wanted) in [
        (Answers::Text("HTTP/1.1 407 no\r\n\r\n"), "the proxy in front answers 407"),
        (Answers::Text("SSH-2.0-nonsense\r\n\r\n"), "the proxy in front answers nonsense"),
        (Answers::Nothing, "the proxy in front ended the connection"),
    ] {
        let organisation = Organisation::start("proxy.example", answers).await;
        let net = organisation.net(limits(), &organisation.pem, rules(&["ok.example"], &[])).await;
        let (head, why) = failure(&net).await;
        assert!(head.starts_with("http/1.1 502"), "{head}");
        assert!(head.contains("proxy-error: upstream_unreachable"), "{head}");
        assert!(why.contains(wanted), "{why}");
    }
}

#[tokio::test]
async fn the_password_is_for_a_proxy_that_proves_who_it_is() {
    let untrusted = "is not from an authority that is trusted";
    for (name, trusted, wanted) in [
        ("proxy.example", Some("other.example"), untrusted),
        // An authority of the same name.
        ("proxy.example", Some("proxy.example"), untrusted),
        ("other.example", None, "is for another name"),
    ] {
        let organisation = Organisation::start(name, Answers::Nothing).await;
        let roots = trusted.map_or_else(|| organisation.pem.clone(), |it| acceptor(it).1);
        let net = organisation.net(limits(), &roots, rules(&["ok.example"], &[])).await;
        let (head, why) = failure(&net).await;
        assert!(head.contains("proxy-error: upstream_unreachable"), "{head}");
        assert!(why.contains(wanted), "{why}");
        assert!(organisation.seen.lock().is_empty());
    }
}

#[tokio::test]
async fn a_proxy_that_does_not_answer_is_not_waited_for() {
    let short = Duration::from_secs(1);
    // It speaks no TLS, and says nothing at all.
    let mute = Server::with(any(Ipv4Addr::LOCALHOST), |stream: TcpStream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let (_, pem) = acceptor("proxy.example");
    let silent = Organisation { server: mute, seen: Arc::default(), pem };
    let net = Limits { handshake: short, ..limits() };
    let net = silent.net(net, &silent.pem, rules(&["ok.example"], &[])).await;
    let (head, why) = failure(&net).await;
    assert!(head.contains("proxy-error: upstream_timeout"), "{head}");
    assert!(why.contains("the proxy in front was not ready for TLS in time"), "{why}");
    // It speaks TLS, but no more.
    let silent = Organisation::start("proxy.example", Answers::Silence).await;
    let net = Limits { connect: short, ..limits() };
    let net = silent.net(net, &silent.pem, rules(&["ok.example"], &[])).await;
    let (head, why) = failure(&net).await;
    assert!(head.contains("proxy-error: upstream_timeout"), "{head}");
    assert!(why.contains("the proxy in front did not answer in time"), "{why}");
    // It speaks no TLS, but another protocol.
    let plain = Server::start("one", any(Ipv4Addr::LOCALHOST)).await;
    let (_, pem) = acceptor("proxy.example");
    let plain = Organisation { server: plain, seen: Arc::default(), pem };
    let net = plain.net(limits(), &plain.pem, rules(&["ok.example"], &[])).await;
    let (_, why) = failure(&net).await;
    assert!(why.contains("TLS with the proxy in front failed"), "{why}");
}
