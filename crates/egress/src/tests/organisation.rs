//! Tests of the organisation's proxy in front.

use super::proxy::{any, head};
use super::servers::{Server, Told};
use super::*;
use crate::hello::tests::real;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

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
