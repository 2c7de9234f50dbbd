//! What the program sends to browsers, trace collectors and TLS clients.

use crate::browser::Browser;
use crate::common::{Server, holm, text, write};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[test]
fn a_device_is_signed_in_by_a_browser() {
    let server = Server::start();
    let home = server.folder.path();
    let mut login = holm(home);
    login.args(["login", "--server", &server.url()]).stderr(Stdio::piped());
    let mut login = login.spawn().unwrap();
    let mut noted = BufReader::new(login.stderr.take().unwrap()).lines().map(Result::unwrap);
    let shown = noted.find(|line| line.trim().starts_with(&server.url())).unwrap();

    let mut browser = Browser::new(&server.address);
    let sign_in = browser.open(shown.trim().strip_prefix(&server.url()).unwrap());
    let password = server.told("sign in");
    let confirm = browser.submit(
        "/oauth/sign-in",
        &sign_in,
        &[("email", "admin@holm.local"), ("password", &password)],
    );
    let done = browser.submit("/oauth/device", &confirm, &[("decision", "allow")]);
    assert!(done.text.contains("signed in"), "{}", done.text);

    assert!(noted.any(|line| line.contains("workspace main")));
    assert!(login.wait().unwrap().success());
    let run = |arguments: &[&str]| text(&holm(home).args(arguments).output().unwrap(), 0);
    run(&["get", "sandboxes"]);
    assert_eq!(run(&["token"]).trim().split('.').count(), 3);
    run(&["logout"]);
}

#[test]
fn a_server_with_a_certificate_speaks_tls() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = write(folder.path(), "certificate.pem", &made.cert.pem());
    let key = write(folder.path(), "key.pem", &made.signing_key.serialize_pem());
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let settings = [("HOLM_SERVER__TLS_CERTIFICATE", certificate), ("HOLM_SERVER__TLS_KEY", key)];
    let server = Server::start_with(folder, &settings);
    assert!(server.greeting().contains("https://127.0.0.1:"));

    let mut command = holm(server.folder.path());
    command
        .env("HOLM_URL", format!("https://{}", server.address))
        .env("HOLM_API_KEY", server.api_key());
    text(&command.args(["get", "sandboxes"]).output().unwrap(), 8);
    text(&command.env("SSL_CERT_FILE", certificate).output().unwrap(), 0);

    // The doctor sees that it is this server that has the port.
    let mut doctor = holm(server.folder.path());
    doctor.args(["doctor", "--json"]).envs(settings).env("HOLM_SERVER__LISTEN", &server.address);
    let findings = doctor.output().unwrap().stdout;
    let findings: serde_json::Value = serde_json::from_slice(&findings).unwrap();
    let port = findings.as_array().unwrap().iter().find(|finding| finding["check"] == "port");
    assert_eq!(port.unwrap()["health"], "ok", "{findings}");
}

#[test]
fn a_certificate_that_cannot_be_used_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "x.pem", "nothing");
    let mut command = holm(folder.path());
    command.args(["up", "--data", "data", "--listen", "127.0.0.1:0"]);
    command.env("HOLM_SERVER__TLS_CERTIFICATE", "x.pem").env("HOLM_SERVER__TLS_KEY", "x.pem");
    assert!(text(&command.output().unwrap(), 1).contains("x.pem"));
}

#[test]
fn traces_reach_the_collector_before_the_end() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let (heard, hears) = mpsc::channel();
    thread::spawn(move || {
        for stream in collector.incoming() {
            let _ = heard.send(take_request(&mut stream.unwrap()));
        }
    });
    let settings = [("HOLM_TELEMETRY__OTLP_ENDPOINT", endpoint.as_str())];
    let server = Server::start_with(tempfile::tempdir().unwrap(), &settings);
    text(&server.cli(&server.api_key(), &["get", "sandboxes"]), 0);
    let (status, log, _folder) = server.stop();
    assert!(status.success() && !log.contains("could not be sent"), "{log}");
    // All traces have been sent by now, but the collector reports a request here only after it has
    // answered it.
    let first = hears.recv().unwrap();
    assert!(first.starts_with("POST /v1/traces "), "{first}");
    let patience = Duration::from_secs(30);
    let mut heard = first;
    while !heard.contains("ListSandboxes") {
        heard = hears.recv_timeout(patience).expect("the request was traced");
    }
}

/// Reads one request of known length and answers it.
fn take_request(stream: &mut (impl Read + Write)) -> String {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).unwrap();
    reader
        .into_inner()
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .unwrap();
    head + &String::from_utf8_lossy(&body)
}
