use super::servers::{Server, Told};
use super::*;
use crate::hello::tests::real;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type Proxied = TlsStream<TcpStream>;

impl Net {
    pub(in crate::tests) async fn proxy(&self, from: Ipv4Addr) -> Proxied {
        let stream = bound(from).connect(self.at(self.egress.ports().proxy)).await.unwrap();
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        self.trusts().connect(name, stream).await.unwrap()
    }

    /// Trusts what programs inside trust. That is only our authority, so a connection that is not
    /// opened is noticed.
    pub(in crate::tests) fn trusts(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        let pem = self.egress.authority_pem();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }

    /// Sends `CONNECT`. Returns the connection and the head of the answer.
    pub(in crate::tests) async fn connect(&self, target: &str) -> (Proxied, String) {
        let mut stream = self.proxy(ONE).await;
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n{}\r\n", login(ONE));
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut stream).await;
        (stream, head)
    }
}

fn login(address: Ipv4Addr) -> String {
    let credential = format!("{}:{}", instance(address), credential(address).0);
    format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(credential))
}

pub(super) async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(LONG, stream.read_u8()).await.expect("an answer");
        head.push(byte.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&head))));
    }
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

pub(super) fn any(address: Ipv4Addr) -> SocketAddrV4 {
    SocketAddrV4::new(address, 0)
}

#[tokio::test]
async fn only_the_own_credential_opens_the_proxy() {
    let net = Net::new().await;
    net.set(ONE, rules(&["ok.example"], &[])).await;
    net.set(OTHER, rules(&["ok.example"], &[])).await;
    let own = login(ONE);
    let wrong = [
        String::new(),
        login(OTHER),
        own.replace("Basic", "Bearer"),
        own.replace("\r\n", "AA\r\n"),
        format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode("i-2:")),
        format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode("i-2")),
        "Proxy-Authorization: Basic %%%\r\n".to_owned(),
        [own.clone(), login(OTHER)].concat(),
    ];
    for login in wrong {
        let mut stream = net.proxy(ONE).await;
        let request = format!("CONNECT ok.example:443 HTTP/1.1\r\nHost: x\r\n{login}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut stream).await;
        assert!(head.starts_with("http/1.1 407"), "{login}: {head}");
        assert!(head.contains("proxy-authenticate: basic"), "{head}");
    }
    let url = net.egress.proxy_url(&instance(ONE), &credential(ONE)).0;
    let port = net.egress.ports().proxy;
    assert_eq!(url, format!("https://i-2:secret%2F127%2E0%2E0%2E2@127.0.0.1:{port}"));
}

#[tokio::test]
async fn programs_that_speak_no_tls_to_proxies_are_served_as_well() {
    let net = Net::new().await;
    net.set(ONE, rules(&[], &["bad.example"])).await;
    for (login, status) in [(login(ONE), "403"), (login(OTHER), "407"), (String::new(), "407")] {
        let mut stream = bound(ONE).connect(net.at(net.egress.ports().proxy)).await.unwrap();
        let request = format!("CONNECT bad.example:443 HTTP/1.1\r\nHost: x\r\n{login}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut stream).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{head}");
    }
}

#[tokio::test]
async fn the_answer_says_why_a_host_is_not_reached() {
    // A name server that is late would look like a host that is not there.
    let net = Net::with(Limits { nameserver: LONG, ..limits() }, None).await;
    net.names.tell("inside.example", Told::Addresses(vec![INSIDE]));
    net.names.tell("closed.example", Told::Addresses(vec![OUT_THERE]));
    net.set(ONE, rules(&[], &["bad.example", "192.0.2.1"])).await;
    let cases = [
        ("bad.example:443", "403", "firewall_blocked"),
        ("BAD.example.:443", "403", "firewall_blocked"),
        ("192.0.2.1:443", "403", "firewall_blocked"),
        ("[::ffff:192.0.2.1]:443", "403", "firewall_blocked"),
        ("inside.example:443", "403", "firewall_blocked"),
        ("127.0.0.1:22", "403", "firewall_blocked"),
        ("10.0.0.1:80", "403", "firewall_blocked"),
        ("169.254.169.254:80", "403", "firewall_blocked"),
        ("[::1]:80", "403", "firewall_blocked"),
        ("[::ffff:127.0.0.1]:80", "403", "firewall_blocked"),
        ("nothing.example:443", "502", "upstream_not_found"),
        ("closed.example:1", "502", "upstream_unreachable"),
    ];
    for (target, status, word) in cases {
        let (_, head) = net.connect(target).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{target}: {head}");
        assert!(head.contains(&format!("proxy-error: {word}")), "{target}: {head}");
    }
    for target in ["ok.example", "ok.example:0", "me@ok.example:443", "2130706433:80", "0x7f.1:80"]
    {
        let (_, head) = net.connect(target).await;
        assert!(head.starts_with("http/1.1 400"), "{target}: {head}");
    }
    let mut stream = net.proxy(ONE).await;
    let request = format!("GET /own HTTP/1.1\r\nHost: x\r\n{}\r\n", login(ONE));
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(head(&mut stream).await.starts_with("http/1.1 400"));
}

#[tokio::test]
async fn the_answer_says_that_a_host_takes_too_long() {
    let connect = Duration::from_millis(300);
    let net = Net::with(Limits { connect, nameserver: LONG, ..limits() }, None).await;
    net.names.tell("slow.example", Told::Silence);
    net.set(ONE, rules(&[], &["bad.example"])).await;
    let (_, head) = net.connect("slow.example:443").await;
    assert!(head.starts_with("http/1.1 504"), "{head}");
    assert!(head.contains("proxy-error: upstream_timeout"), "{head}");
}

#[tokio::test]
async fn what_is_blocked_names_its_rule() {
    let net = Net::new().await;
    net.set(ONE, rules(&["ok.example"], &[])).await;
    let (mut stream, _) = net.connect("bad.example:443").await;
    let mut body = vec![0; 64];
    let count = stream.read(&mut body).await.unwrap();
    let body = String::from_utf8_lossy(&body[..count]);
    assert!(body.contains("firewall_blocked"), "{body}");
    let event = &net.events().await[0];
    assert_eq!((event.host.as_str(), event.port), ("bad.example", 443));
    assert_eq!(event.rule, "allowedDomains");
}

#[tokio::test]
async fn bytes_pass_as_they_are() {
    let net = Net::new().await;
    let server = Server::start("one", any(OUT_THERE)).await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    net.set(ONE, rules(&["ok.example"], &[])).await;
    let target = format!("ok.example:{}", server.port());
    let (mut stream, head) = net.connect(&target).await;
    assert!(head.starts_with("http/1.1 200"), "{head}");
    stream.write_all(&real("ok.example")).await.unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"one:ok.example\n");
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
}

#[tokio::test]
async fn the_name_in_the_hello_has_to_pass_as_well() {
    let net = Net::new().await;
    let server = Server::start("one", any(OUT_THERE)).await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    net.set(ONE, rules(&["ok.example"], &[])).await;
    let target = format!("ok.example:{}", server.port());
    let (mut stream, _) = net.connect(&target).await;
    assert_eq!(talk(&mut stream, &real("bad.example")).await.0, "");
    let (mut stream, _) = net.connect(&target).await;
    let request = b"GET / HTTP/1.1\r\nHost: bad.example\r\nConnection: close\r\n\r\n";
    let (heard, _) = talk(&mut stream, request).await;
    assert!(heard.starts_with("HTTP/1.1 403"), "{heard}");
}

#[tokio::test]
async fn requests_with_a_whole_uri_are_forwarded() {
    let net = Net::new().await;
    net.set(ONE, rules(&["ok.example"], &[])).await;
    let server = Server::with(any(OUT_THERE), |mut stream: TcpStream| async move {
        let mut request = vec![0; 4096];
        let count = stream.read(&mut request).await.unwrap();
        let request = String::from_utf8_lossy(&request[..count]).to_ascii_lowercase();
        let leaks = request.contains("proxy-authorization");
        let status = if leaks { "500 leaked" } else { "200 OK" };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nhi");
        stream.write_all(answer.as_bytes()).await.unwrap();
    })
    .await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    for (host, status) in [("ok.example", "200"), ("bad.example", "403")] {
        let mut stream = net.proxy(ONE).await;
        let uri = format!("http://{host}:{}/x", server.port());
        let request = format!("GET {uri} HTTP/1.1\r\nHost: {host}\r\n{}\r\n", login(ONE));
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = head(&mut stream).await;
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{host}: {head}");
    }
}

/// What a request turns into ends with its instance, and counts as a connection until then.
#[tokio::test]
async fn websockets_through_the_proxy_are_connections_as_well() {
    let connections = admission::Limits { total: 8, share: 1 };
    let net = Net::with(Limits { connections, ..limits() }, None).await;
    net.set(ONE, rules(&["ok.example"], &[])).await;
    let server = Server::with(any(OUT_THERE), |mut stream: TcpStream| async move {
        head(&mut stream).await;
        let answer = "HTTP/1.1 101 ok\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nhi";
        stream.write_all(answer.as_bytes()).await.unwrap();
        hear(&mut stream).await;
    })
    .await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    let mut stream = net.proxy(ONE).await;
    let uri = format!("http://ok.example:{}/x", server.port());
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    let request = format!("GET {uri} HTTP/1.1\r\nHost: ok.example\r\n{upgrade}{}\r\n", login(ONE));
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(head(&mut stream).await.starts_with("http/1.1 101"));
    let mut first = [0; 2];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"hi");
    // The owner may have one connection, which is taken.
    let mut second = bound(ONE).connect(net.at(net.egress.ports().proxy)).await.unwrap();
    assert_eq!(hear(&mut second).await.0, "");
    net.egress.remove(&instance(ONE));
    hear(&mut stream).await;
}

#[tokio::test]
async fn slow_and_huge_heads_are_ended() {
    let head = Duration::from_millis(200);
    let net = Net::with(Limits { head, ..limits() }, None).await;
    net.set(ONE, rules(&["ok.example"], &[])).await;
    let mut slow = net.proxy(ONE).await;
    slow.write_all(b"CONNECT ok.exam").await.unwrap();
    hear(&mut slow).await;
    let net = Net::with(Limits { head_bytes: 16 << 10, ..limits() }, None).await;
    net.set(ONE, rules(&["ok.example"], &[])).await;
    let mut huge = net.proxy(ONE).await;
    let request = format!("GET http://ok.example/ HTTP/1.1\r\nA: {}", "x".repeat(40_000));
    huge.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    huge.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 431");
    // It may go on sending without losing the rest of the answer.
    let (_, was_reset) = talk(&mut huge, b"x\r\n\r\n").await;
    assert!(!was_reset);
    // A client that never begins TLS.
    let handshake = Duration::from_millis(100);
    let net = Net::with(Limits { handshake, ..limits() }, None).await;
    net.set(ONE, rules(&["ok.example"], &[])).await;
    let mut mute = bound(ONE).connect(net.at(net.egress.ports().proxy)).await.unwrap();
    assert_eq!(hear(&mut mute).await.0, "");
}

#[tokio::test]
async fn what_was_asked_for_is_cut_as_well() {
    let net = Net::new().await;
    let server = Server::start("one", any(OUT_THERE)).await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    net.set(ONE, rules(&["ok.example"], &[])).await;
    let (mut stream, _) = net.connect(&format!("ok.example:{}", server.port())).await;
    stream.write_all(&real("ok.example")).await.unwrap();
    let mut first = [0; 15];
    stream.read_exact(&mut first).await.unwrap();
    net.set(ONE, rules(&["other.example"], &[])).await;
    hear(&mut stream).await;
}
