use super::servers::{Server, Told};
use super::*;
use crate::hello::tests::{real, split};

fn any(address: Ipv4Addr) -> SocketAddrV4 {
    SocketAddrV4::new(address, 0)
}

#[tokio::test]
async fn the_name_in_the_hello_decides_where_it_goes() {
    let net = Net::new().await;
    let one = Server::start("one", any(OUT_THERE)).await;
    let _two = Server::start("two", SocketAddrV4::new(ELSEWHERE, one.port())).await;
    net.names.tell("ok.example", Told::Addresses(vec![ELSEWHERE]));
    net.set(ONE, rules(&["ok.example"], &[])).await;
    for bytes in [real("ok.example"), split(&real("ok.example"), 7)] {
        // Whatever address the program chose.
        for chosen in [one.address, SocketAddrV4::new(INSIDE, one.port())] {
            let mut stream = net.divert(ONE, chosen).await;
            stream.write_all(&bytes).await.unwrap();
            stream.shutdown().await.unwrap();
            let (heard, _) = hear(&mut stream).await;
            assert!(heard.starts_with("two:ok.example\n"), "{heard}");
        }
    }
    let mut stream = net.divert(ONE, one.address).await;
    assert_eq!(talk(&mut stream, &real("bad.example")).await, (String::new(), true));
    let event = net.events().await.pop().unwrap();
    assert_eq!((event.host.as_str(), event.rule.as_str()), ("bad.example", "allowedDomains"));
    assert_eq!(event.port, one.port());
}

#[tokio::test]
async fn an_address_counts_for_the_name_it_was_given_out_for() {
    let net = Net::new().await;
    let server = Server::start("one", any(OUT_THERE)).await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    net.set(ONE, rules(&["ok.example"], &[])).await;
    net.set(OTHER, rules(&["ok.example"], &[])).await;
    let mut early = net.divert(ONE, server.address).await;
    assert_eq!(talk(&mut early, b"SSH-2.0-me\r\n").await, (String::new(), true));
    net.resolve(ONE, "ok.example").await;
    let mut stream = net.divert(ONE, server.address).await;
    stream.write_all(b"SSH-2.0-me\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(hear(&mut stream).await, ("one:-\n".to_owned(), false));
    // What one instance was told counts for no other one,
    let mut other = net.divert(OTHER, server.address).await;
    assert_eq!(talk(&mut other, b"SSH-2.0-me\r\n").await, (String::new(), true));
    // nor after the name is no longer allowed.
    net.set(ONE, rules(&["elsewhere.example"], &[])).await;
    let mut late = net.divert(ONE, server.address).await;
    assert_eq!(talk(&mut late, b"SSH-2.0-me\r\n").await, (String::new(), true));
}

#[tokio::test]
async fn a_server_may_speak_first() {
    let net = Net::new().await;
    let server = Server::with(any(OUT_THERE), |mut stream: TcpStream| async move {
        stream.write_all(b"220 hello\r\n").await.unwrap();
        let mut line = [0; 4];
        if stream.read_exact(&mut line).await.is_ok() {
            stream.write_all(b"221 bye\r\n").await.unwrap();
        }
    })
    .await;
    net.names.tell("mail.example", Told::Addresses(vec![OUT_THERE]));
    net.set(ONE, rules(&["mail.example"], &[])).await;
    net.resolve(ONE, "mail.example").await;
    let mut stream = net.divert(ONE, server.address).await;
    let mut greeting = [0; 11];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(talk(&mut stream, b"QUIT\r\n").await.0, "221 bye\r\n");
    // After that, no client can begin TLS or HTTP with another name.
    for late in [real("bad.example"), b"GET / HTTP/1.1\r\nHost: bad.example\r\n\r\n".to_vec()] {
        let mut stream = net.divert(ONE, server.address).await;
        stream.read_exact(&mut greeting).await.unwrap();
        assert_eq!(talk(&mut stream, &late).await, (String::new(), true));
    }
}

#[tokio::test]
async fn a_host_inside_that_is_listed_by_name_is_reached_by_its_address() {
    let net = Net::new().await;
    let server = Server::with(any(INSIDE), |mut stream: TcpStream| async move {
        stream.write_all(b"220 hello\r\n").await.unwrap();
    })
    .await;
    for name in ["own.example", "other.example"] {
        net.names.tell(name, Told::Addresses(vec![INSIDE]));
    }
    net.set(ONE, rules(&["*.example"], &[])).await;
    net.resolve(ONE, "own.example").await;
    for bytes in [&b"SSH-2.0-me\r\n"[..], b""] {
        let mut stream = net.divert(ONE, server.address).await;
        assert_eq!(talk(&mut stream, bytes).await.0, "220 hello\r\n");
    }
    // For nobody else, and under no other name.
    net.set(OTHER, rules(&["*.example", &INSIDE.to_string()], &[])).await;
    net.resolve(OTHER, "other.example").await;
    for bytes in [&b"SSH-2.0-me\r\n"[..], b""] {
        let mut stream = net.divert(OTHER, server.address).await;
        assert_eq!(talk(&mut stream, bytes).await, (String::new(), true));
    }
}

#[tokio::test]
async fn who_waits_is_looked_at_all_the_same() {
    let net = Net::new().await;
    let server = Server::start("one", any(OUT_THERE)).await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    net.set(ONE, rules(&["ok.example"], &[])).await;
    net.resolve(ONE, "ok.example").await;
    for (name, heard, was_reset) in
        [("ok.example", "one:ok.example\n", false), ("bad.example", "", true)]
    {
        let mut stream = net.divert(ONE, server.address).await;
        // Longer than a client is waited for.
        tokio::time::sleep(limits().silence * 2).await;
        stream.write_all(&real(name)).await.unwrap();
        let _ = stream.shutdown().await;
        let (text, reset) = hear(&mut stream).await;
        assert!(text.starts_with(heard) && reset == was_reset, "{name}: {text}");
    }
    // A beginning that never becomes either.
    let hello = Duration::from_millis(100);
    let net = Net::with(Limits { hello, ..limits() }, None).await;
    net.set(ONE, rules(&["ok.example"], &[])).await;
    for part in [b"GET / HTT".as_slice(), &real("ok.example")[..40]] {
        let mut stream = net.divert(ONE, server.address).await;
        assert_eq!(talk(&mut stream, part).await, (String::new(), true));
    }
}

#[tokio::test]
async fn requests_are_decided_by_their_host() {
    let net = Net::new().await;
    net.set(ONE, rules(&["ok.example"], &[])).await;
    let mut stream = net.divert(ONE, SocketAddrV4::new(OUT_THERE, 80)).await;
    let request = b"\r\nGET / HTTP/1.1\r\nHost: bad.example\r\nConnection: close\r\n\r\n";
    let (heard, _) = talk(&mut stream, request).await;
    assert!(heard.starts_with("HTTP/1.1 403"), "{heard}");
}

#[tokio::test]
async fn with_the_proxy_alone_nothing_else_gets_out() {
    let net = Net::new().await;
    let server = Server::start("one", any(OUT_THERE)).await;
    for name in ["any.example", "past.example"] {
        net.names.tell(name, Told::Addresses(vec![OUT_THERE]));
    }
    let bypass = vec!["past.example".to_owned()];
    net.set(ONE, EgressRules { proxy_only: true, bypass, ..EgressRules::default() }).await;
    net.resolve(ONE, "any.example").await;
    let mut stream = net.divert(ONE, server.address).await;
    assert_eq!(talk(&mut stream, &real("any.example")).await, (String::new(), true));
    assert_eq!(net.events().await[0].rule, "firewall.rulesets: proxy");
}

#[tokio::test]
async fn what_is_bypassed_is_not_touched_and_leads_nowhere_else() {
    let net = Net::new().await;
    let server = Server::with(any(OUT_THERE), |mut stream: TcpStream| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            head.push(byte);
        }
        let _ = stream.write_all(&head).await;
        let _ = stream.shutdown().await;
    })
    .await;
    let _other = Server::start("other", SocketAddrV4::new(ELSEWHERE, server.port())).await;
    net.names.tell("past.example", Told::Addresses(vec![OUT_THERE]));
    net.names.tell("ok.example", Told::Addresses(vec![ELSEWHERE]));
    let requests = [
        "GET /a HTTP/1.1\r\nHost: past.example\r\nX-Own-Case: 1\r\n\r\n",
        "GET /a HTTP/1.0\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: past.example\r\nHost: past.example\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: ok.example\r\n\r\n",
    ];
    for proxy_only in [false, true] {
        let bypass = vec!["past.example".to_owned()];
        net.set(ONE, EgressRules { proxy_only, bypass, ..rules(&["ok.example"], &[]) }).await;
        net.resolve(ONE, "past.example").await;
        for request in requests {
            let untouched = (request.to_owned(), false);
            let mut stream = net.divert(ONE, server.address).await;
            assert_eq!(talk(&mut stream, request.as_bytes()).await, untouched);
            let mut late = net.divert(ONE, server.address).await;
            // Longer than a client is waited for.
            tokio::time::sleep(limits().silence * 2).await;
            assert_eq!(talk(&mut late, request.as_bytes()).await, untouched);
            let (mut proxied, _) = net.connect(&format!("past.example:{}", server.port())).await;
            assert_eq!(talk(&mut proxied, request.as_bytes()).await, untouched);
        }
    }
}

#[tokio::test]
async fn the_proxy_alone_is_left_from_the_moment_the_rules_say_so() {
    let net = Net::with(Limits { silence: LONG, ..limits() }, None).await;
    let server = Server::start("one", any(OUT_THERE)).await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    net.set(ONE, rules(&["ok.example"], &[])).await;
    let mut stream = net.divert(ONE, server.address).await;
    // Meanwhile the connection has been taken.
    net.resolve(ONE, "ok.example").await;
    net.set(ONE, EgressRules { proxy_only: true, ..rules(&["ok.example"], &[]) }).await;
    let request = b"GET / HTTP/1.1\r\nHost: ok.example\r\n\r\n";
    assert_eq!(talk(&mut stream, request).await, (String::new(), true));
}

#[tokio::test]
async fn who_is_not_known_waits_and_is_refused() {
    let net = Net::new().await;
    let server = Server::start("one", any(OUT_THERE)).await;
    let mut stream = net.divert(ONE, server.address).await;
    assert_eq!(talk(&mut stream, b"").await, (String::new(), true));
    let net = Net::with(Limits { unknown_wait: LONG, ..limits() }, None).await;
    let mut stream = net.divert(ONE, server.address).await;
    net.set(ONE, EgressRules::default()).await;
    stream.write_all(b"SSH-2.0-me\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(hear(&mut stream).await.0, "one:-\n");
    // A connection that no firewall rule has redirected.
    let mut stream = bound(ONE).connect(net.at(net.egress.ports().transparent)).await.unwrap();
    assert_eq!(talk(&mut stream, b"").await, (String::new(), true));
}

#[tokio::test]
async fn what_new_rules_forbid_is_cut_when_they_are_set() {
    let net = Net::new().await;
    let server = Server::start("one", any(OUT_THERE)).await;
    for name in ["kept.example", "lost.example"] {
        net.names.tell(name, Told::Addresses(vec![OUT_THERE]));
    }
    net.set(ONE, rules(&[], &["bad.example"])).await;
    let mut streams = Vec::new();
    for name in ["kept.example", "lost.example"] {
        let mut stream = net.divert(ONE, server.address).await;
        stream.write_all(&real(name)).await.unwrap();
        let mut first = vec![0; name.len() + 5];
        stream.read_exact(&mut first).await.unwrap();
        streams.push(stream);
    }
    net.set(ONE, rules(&[], &["bad.example", "lost.example"])).await;
    let mut lost = streams.pop().unwrap();
    assert!(hear(&mut lost).await.1);
    let mut kept = streams.pop().unwrap();
    kept.write_all(b"still here").await.unwrap();
    let mut still = [0; 10];
    kept.read_exact(&mut still).await.unwrap();
    assert_eq!(&still, b"still here");
    net.egress.remove(&instance(ONE));
    assert!(hear(&mut kept).await.1);
}

#[tokio::test]
async fn one_instance_cannot_take_all_connections() {
    let connections = admission::Limits { total: 8, share: 4 };
    let net = Net::with(Limits { connections, ..limits() }, None).await;
    let server = Server::start("one", any(OUT_THERE)).await;
    net.set(ONE, EgressRules::default()).await;
    net.set(OTHER, EgressRules::default()).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(net.divert(ONE, server.address).await);
    }
    for _ in 0..20 {
        let mut refused = net.divert(ONE, server.address).await;
        assert_eq!(hear(&mut refused).await.0, "");
    }
    let mut stream = net.divert(OTHER, server.address).await;
    stream.write_all(b"SSH-2.0-me\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(hear(&mut stream).await.0, "one:-\n");
}

#[tokio::test]
async fn a_client_that_does_not_read_cannot_hold_up_new_rules() {
    let net = Net::new().await;
    let server = Server::with(any(OUT_THERE), |mut stream: TcpStream| async move {
        let much = vec![0; 1 << 20];
        while stream.write_all(&much).await.is_ok() {}
    })
    .await;
    net.names.tell("ok.example", Told::Addresses(vec![OUT_THERE]));
    net.set(ONE, rules(&["ok.example"], &[])).await;
    net.resolve(ONE, "ok.example").await;
    let mut stream = net.divert(ONE, server.address).await;
    // The server has spoken, and goes on until nothing more fits.
    assert_eq!(stream.read_u8().await.unwrap(), 0);
    net.set(ONE, rules(&["other.example"], &[])).await;
    assert!(hear(&mut stream).await.1);
}
