mod hostile;
mod lab;
mod sockets;
mod streams;
mod waiting;

use crate::policy::Policy;
use hyper_util::rt::TokioIo;
use lab::{Lab, Program, name, request, request_one};
use std::net::Ipv4Addr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use types::egress::{EgressDecision, EgressRules};
use types::kinds::network::ProxyTarget;
use types::parts::{Sensitive, TextMap};

fn list(entries: &[&str]) -> Vec<String> {
    entries.iter().map(|&entry| entry.to_owned()).collect()
}

fn map(entries: &[(&str, &str)]) -> TextMap {
    entries.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Rules with a key for `api.test`, of which everything but one folder is allowed.
fn rules() -> EgressRules {
    let target = ProxyTarget {
        destinations: Some(list(&["api.test"])),
        headers: Some(map(&[
            ("authorization", "Bearer {{SECRET:key}}"),
            ("x-at", "{{FUNC:date()}}"),
        ])),
        body: Some(map(&[("field", "{{SECRET:key}}")])),
        secrets: Some(Sensitive(map(&[("key", "hush")]))),
    };
    EgressRules {
        forbidden_domains: list(&["api.test/admin", "closed.test"]),
        routing: vec![target],
        ..EgressRules::default()
    }
}

#[tokio::test]
async fn each_side_speaks_its_own_http() {
    for (program, site) in [
        ("http/1.1", &["http/1.1"][..]),
        ("http/1.1", &["h2", "http/1.1"]),
        ("h2", &["http/1.1"]),
        ("h2", &["h2"]),
        ("http/1.1", &[]),
    ] {
        let lab = Lab::new(rules());
        lab.site("api.test", site).await;
        let mut browser = lab.browse("api.test", program).await;
        let ask = if program == "h2" { request } else { request_one };
        for round in 0..3 {
            let mut asked =
                ask("POST", "https://api.test/a?q={{SECRET:key}}", r#"{"own":"{{SECRET:key}}"}"#);
            let headers = asked.headers_mut();
            headers.insert("content-type", "application/json".parse().unwrap());
            headers.insert("authorization", "Bearer own".parse().unwrap());
            headers.insert("cookie", "a=1".parse().unwrap());
            let page = browser.fetch(asked).await;
            assert_eq!(page.status, 200, "{}", page.text);
            let is_two = site == ["h2"] || (site.contains(&"h2"));
            let line = if is_two {
                "HTTP/2.0 POST /a?q=hush api.test"
            } else {
                "HTTP/1.1 POST /a?q=hush -"
            };
            assert!(page.text.starts_with(line), "{}", page.text);
            assert!(
                page.text.contains("authorization: Bearer hush\nauthorization: Bearer own"),
                "{}",
                page.text
            );
            assert!(page.text.contains("x-blaxel-request-id: "), "{}", page.text);
            assert!(page.text.ends_with(r#"{"field":"hush","own":"hush"}"#), "{}", page.text);
            assert!(page.headers["x-blaxel-func-x-at"].to_str().unwrap().starts_with("date=20"));
            assert!(!page.headers.contains_key("alt-svc"));
            let connections = usize::from(round == 0);
            assert_eq!(lab.dialed().len(), connections, "a connection is kept");
        }
        let event = lab.event().await;
        assert_eq!(event.decision, EgressDecision::Injected);
        assert_eq!((event.path.as_deref(), event.rule.as_str()), (Some("/a"), "routing: api.test"));
        let told = ["secret key", "header authorization", "header x-at", "body field"];
        assert_eq!(event.injected, told);
        assert!(!format!("{event:?}").contains("hush"));
    }
}

#[tokio::test]
async fn rules_hold_for_each_request_as_they_are_now() {
    let lab = Lab::new(rules());
    lab.site("api.test", &["http/1.1"]).await;
    let mut browser = lab.browse("api.test", "http/1.1").await;
    for path in ["/admin", "/admin/x", "/x/../admin", "/%61dmin", "//admin", "/x/..%2fadmin"] {
        let page = browser.fetch(request_one("GET", &format!("https://api.test{path}"), "")).await;
        assert_eq!((page.status, page.error()), (403, "firewall_blocked"), "{path}");
        assert!(page.text.contains("forbiddenDomains: api.test/admin"), "{}", page.text);
    }
    assert!(lab.dialed().is_empty());
    let event = lab.event().await;
    assert_eq!((event.decision, event.port), (EgressDecision::Blocked, 443));
    assert_eq!(event.rule, "forbiddenDomains: api.test/admin");
    assert_eq!(browser.fetch(request_one("GET", "https://api.test/", "")).await.status, 200);
    // The same connection, with other rules.
    lab.client.set_policy(Policy::compile(EgressRules {
        forbidden_domains: list(&["GET:api.test"]),
        ..EgressRules::default()
    }));
    assert_eq!(browser.fetch(request_one("GET", "https://api.test/", "")).await.status, 403);
    let page = browser.fetch(request_one("POST", "https://api.test/admin", "")).await;
    assert_eq!(page.status, 200);
    assert!(!page.text.contains("hush"));
}

#[tokio::test]
async fn a_connection_is_for_one_host() {
    let lab = Lab::new(rules());
    lab.site("api.test", &["h2", "http/1.1"]).await;
    lab.site("other.test", &["http/1.1"]).await;
    lab.plain_site("other.test").await;
    // A certificate for the host of the connection, but the name of another host.
    let mut browser = lab.browse("api.test", "http/1.1").await;
    let page = browser.fetch(request_one("GET", "https://other.test/", "")).await;
    assert_eq!((page.status, page.error()), (421, "misdirected_request"));
    let mut browser = lab.browse("api.test", "h2").await;
    assert_eq!(browser.fetch(request("GET", "https://other.test/", "")).await.status, 421);
    let mut browser = lab.browse("other.test", "h2").await;
    assert_eq!(browser.fetch(request("GET", "https://api.test/", "")).await.status, 421);
    assert!(lab.dialed().is_empty());
    // Without TLS, each request is for the host it names, by that host's rules.
    let mut browser = lab.browse_plain("api.test").await;
    let page = browser.fetch(request_one("GET", "http://other.test/", "")).await;
    assert_eq!(page.status, 200);
    assert!(!page.text.contains("hush") && page.text.contains("host: other.test"), "{}", page.text);
    assert_eq!(lab.dialed(), ["other.test"]);
    let page = browser.fetch(request_one("GET", "http://closed.test/", "")).await;
    assert_eq!((page.status, page.error()), (403, "firewall_blocked"));
    let page = browser.fetch(request_one("GET", "http://inside/", "")).await;
    assert_eq!((page.status, page.error()), (403, "firewall_blocked"));
    assert!(lab.dialed().is_empty());
}

/// Asks for an address, on a connection to it and through the proxy, and checks the answers.
async fn check_address(lab: &Lab, (method, address, status): (&str, Ipv4Addr, u16)) {
    let uri = format!("http://{address}/");
    let mut browser = lab.browse_plain(&address.to_string()).await;
    let page = browser.fetch(request_one(method, &uri, "")).await;
    assert_eq!(page.status, status, "{method} {uri} {}", page.text);
    let mut browser = Program::one(TokioIo::new(lab.proxy())).await;
    let page = browser.fetch(request(method, &uri, "")).await;
    assert_eq!(page.status, status, "{method} {uri} {}", page.text);
}

#[tokio::test]
async fn an_address_is_judged_by_the_names_it_was_given_out_for() {
    let forbidden_domains = list(&["POST:api.test", "closed.test"]);
    let lab = Lab::new(EgressRules { forbidden_domains, ..EgressRules::default() });
    let [one, both, none] = [1, 2, 3].map(|last| Ipv4Addr::new(192, 0, 2, last));
    let now = lab.shared.world.uptime_ms();
    lab.client.gave_out("api.test", &[one, both], now, i64::MAX);
    lab.client.gave_out("closed.test", &[both], now, i64::MAX);
    for address in [one, both, none] {
        lab.plain_site(&address.to_string()).await;
    }
    lab.site("api.test", &["http/1.1"]).await;
    for case in [
        ("POST", one, 403),
        ("GET", one, 200),
        ("GET", both, 403),
        ("POST", both, 403),
        ("POST", none, 200),
    ] {
        check_address(&lab, case).await;
    }
    lab.client.set_policy(Policy::compile(EgressRules {
        allowed_domains: list(&["api.test"]),
        ..EgressRules::default()
    }));
    for case in [("POST", one, 200), ("GET", both, 403), ("GET", none, 403)] {
        check_address(&lab, case).await;
    }
    // It says nothing about whom it is for.
    let mut stream = lab.open(&one.to_string(), false);
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).await.unwrap();
    assert!(said.contains(" 200 OK"), "{said}");
    // TLS that names nobody.
    let mut browser = lab.browse(&one.to_string(), "http/1.1").await;
    let page = browser.fetch(request_one("GET", "https://api.test/", "")).await;
    assert_eq!(page.status, 200, "{}", page.text);
    let page = browser.fetch(request_one("GET", "https://closed.test/", "")).await;
    assert_eq!((page.status, page.error()), (421, "misdirected_request"));
}

#[tokio::test]
async fn an_address_with_too_many_names_is_not_judged_by_each() {
    let forbidden_domains = list(&["POST:api.test"]);
    let lab = Lab::new(EgressRules { forbidden_domains, ..EgressRules::default() });
    let (address, now) = (Ipv4Addr::new(192, 0, 2, 4), lab.shared.world.uptime_ms());
    lab.plain_site(&address.to_string()).await;
    let give = |name: usize| {
        lab.client.gave_out(&format!("n{name}.test"), &[address], now, i64::MAX);
    };
    (0..64).for_each(give);
    check_address(&lab, ("GET", address, 200)).await;
    give(64);
    check_address(&lab, ("GET", address, 403)).await;
    lab.client.set_policy(Policy::compile(EgressRules::default()));
    check_address(&lab, ("GET", address, 200)).await;
}

/// Asks for a path of a host that fails, with TLS or without, and checks the status and the code
/// that the program gets.
async fn check_fault(lab: &Lab, (host, is_tls, path, status, code): (&str, bool, &str, u16, &str)) {
    let scheme = if is_tls { "https" } else { "http" };
    let mut browser = match is_tls {
        true => lab.browse(host, "http/1.1").await,
        false => lab.browse_plain(host).await,
    };
    let asked = request_one("GET", &format!("{scheme}://{host}{path}"), "");
    let page = browser.fetch(asked).await;
    assert_eq!((page.status, page.error()), (status, code), "{host} {path} {}", page.text);
    assert!(page.text.contains(host), "{}", page.text);
    let event = lab.event().await;
    assert_eq!((event.decision, event.host.as_str()), (EgressDecision::Failed, host));
}

#[tokio::test]
async fn whoever_is_at_fault_is_named() {
    let lab = Lab::new(rules());
    lab.site_named("api.test", "other.test", &["h2"]).await;
    lab.plain_site("noise.test").await;
    lab.listen("rst.test", drop).await;
    lab.listen("nonsense.test", |mut stream| {
        tokio::spawn(async move {
            use tokio::io::AsyncWriteExt as _;
            stream.write_all(b"SSH-2.0-nonsense\r\n\r\n").await.unwrap();
            std::future::pending::<()>().await;
        });
    })
    .await;
    for case in [
        ("api.test", true, "/", 502, "upstream_tls"),
        ("nonsense.test", true, "/", 502, "upstream_tls"),
        ("noise.test", true, "/", 502, "upstream_tls"),
        ("rst.test", true, "/", 502, "upstream_tls"),
        ("rst.test", false, "/", 502, "upstream_broken"),
        ("nonsense.test", false, "/", 502, "upstream_broken"),
        ("noise.test", false, "/break", 502, "upstream_broken"),
        ("nowhere.test", true, "/", 502, "upstream_not_found"),
    ] {
        check_fault(&lab, case).await;
    }
}

#[tokio::test]
async fn a_host_that_does_not_answer_in_time_is_named() {
    let limits = super::Limits {
        answer_timeout: std::time::Duration::from_millis(300),
        ..super::Limits::default()
    };
    let lab = Lab::with_limits(rules(), limits);
    lab.plain_site("noise.test").await;
    lab.site("hang.test", &["h2"]).await;
    for (host, is_tls) in [("noise.test", false), ("hang.test", true)] {
        check_fault(&lab, (host, is_tls, "/hang", 504, "upstream_timeout")).await;
    }
}

#[tokio::test]
async fn a_program_that_knows_its_certificate_ends_the_connection() {
    let lab = Lab::new(rules());
    let stream = lab.open("api.test", true);
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let server = rustls::pki_types::ServerName::try_from("api.test").unwrap();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(tls));
    connector.connect(server, stream).await.unwrap_err();
    let event = lab.event().await;
    assert_eq!((event.decision, event.host.as_str()), (EgressDecision::Failed, "api.test"));
    assert!(event.rule.contains("the program ended it"), "{}", event.rule);
}

#[tokio::test]
async fn nothing_is_added_to_what_shows_it() {
    let lab = Lab::new(rules());
    lab.site("api.test", &["http/1.1"]).await;
    let mut browser = lab.browse("api.test", "http/1.1").await;
    for method in ["TRACE", "trace", "Track"] {
        let page = browser.fetch(request_one(method, "https://api.test/", "")).await;
        assert_eq!((page.status, page.error()), (405, "method_not_allowed"), "{method}");
    }
    assert!(lab.dialed().is_empty());
    // No key is on disk.
    for folder in lab.folders() {
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let content = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!content.windows(4).any(|text| text == b"hush"));
        }
    }
    assert_eq!(name("api.test").to_string(), "api.test");
}
