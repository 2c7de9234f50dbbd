//! Ports: which process has which open, waiting for ports, and notifications of them.

use crate::common::Guest;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use tokio::net::TcpSocket;

/// Returns a command that listens on a free port of an address and prints the port.
fn listener(address: &str) -> String {
    format!(
        "python3 -uc \"import socket,time; s=socket.create_server(('{address}',0)); print(s.getsockname()[1]); time.sleep(99)\""
    )
}

/// Starts a listener; returns its process and port.
fn listening(guest: &Guest, address: &str, name: &str) -> (String, u16) {
    let process = guest.post("/process", &json!({"command": listener(address), "name": name})).ok();
    let shown = guest.until(&format!("/process/{name}"), |process| {
        process["stdout"].as_str().unwrap().ends_with('\n')
    });
    let port = shown["stdout"].as_str().unwrap().trim().parse().unwrap();
    (process["pid"].as_str().unwrap().to_owned(), port)
}

/// Reads a request up to the end of its JSON.
fn read_request(stream: &mut impl Read) -> String {
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        request.push(byte[0]);
    }
    String::from_utf8(request).unwrap()
}

#[test]
fn the_ports_of_a_process_are_those_of_all_below_it() {
    let guest = Guest::start();
    let (pid, port) = listening(&guest, "127.0.0.1", "server");
    let ports = guest.get(&format!("/network/process/{pid}/ports")).ok();
    let found = &ports["ports"][0];
    assert_eq!(
        (&found["localPort"], &found["protocol"], &found["state"]),
        (&json!(port), &json!("tcp"), &json!("LISTEN"))
    );
    assert_eq!(found["localAddr"], "127.0.0.1");
    assert!(found["processName"].as_str().unwrap().starts_with("python3"));
    guest.get("/network/process/02280x/ports").refused(400);
    guest.get("/network/process/-1/ports").refused(400);
    guest.get(&format!("/network/process/0{pid}/ports")).refused(400);
    guest.get(&format!("/process/0{pid}")).refused(404);
}

#[test]
fn waiting_for_a_port_ends_when_it_can_be_reached() {
    let guest = Guest::start();
    // Kept from others, but not from Python's servers, because both allow to reuse it and this does
    // not listen.
    let kept = TcpSocket::new_v4().unwrap();
    kept.set_reuseaddr(true).unwrap();
    kept.bind("0.0.0.0:0".parse().unwrap()).unwrap();
    let free = kept.local_addr().unwrap().port();
    let serve = |address: &str, name: &str| {
        json!({
            "command": format!("python3 -m http.server --bind {address} {free}"),
            "name": name, "waitForPorts": [free], "timeout": 20,
        })
    };
    for (address, name) in [("0.0.0.0", "open"), ("127.0.0.1", "inside")] {
        let process = guest.post("/process", &serve(address, name)).ok();
        assert_eq!(process["status"], "running");
        guest.delete(&format!("/process/{name}/kill")).ok();
    }
    let mut elsewhere = serve("::1", "elsewhere");
    elsewhere["timeout"] = json!(1);
    assert_eq!(
        guest.post("/process", &elsewhere).refused(422),
        "process timed out after 1 seconds"
    );
}

#[test]
fn a_monitor_tells_over_tls_to_whom_the_image_trusts() {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let trusted = directory.path().join("trusted.pem");
    std::fs::write(&trusted, cert.pem()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(
        vec![cert.der().clone()],
        PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap(),
    )
    .unwrap();
    let guest = Guest::start_with(&[("SSL_CERT_FILE", trusted.to_str().unwrap())]);
    let callback = TcpListener::bind("127.0.0.1:0").unwrap();
    let (pid, port) = listening(&guest, "127.0.0.1", "server");
    let url = format!("https://localhost:{}/ports", callback.local_addr().unwrap().port());
    guest.post(&format!("/network/process/{pid}/monitor"), &json!({"callback": url})).ok();
    let (stream, _) = callback.accept().unwrap();
    let mut stream =
        rustls::StreamOwned::new(rustls::ServerConnection::new(Arc::new(config)).unwrap(), stream);
    let request = read_request(&mut stream);
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    assert!(
        request.ends_with(&json!({"pid": pid.parse::<i32>().unwrap(), "port": port}).to_string()),
        "{request}"
    );
}

#[test]
fn what_is_no_port_is_refused() {
    let guest = Guest::start();
    for ports in ["[02280]", "[\"02280\"]", "[70000]", "[-1]", "[1.5]", "8080"] {
        let body = format!("{{\"command\": \"true\", \"waitForPorts\": {ports}}}");
        guest.send("POST", "/process", &[], body.as_bytes()).refused(400);
    }
}

#[test]
fn a_tunnel_is_checked_and_not_brought_up() {
    let guest = Guest::start();
    let set = |config: &str| {
        guest.send(
            "PUT",
            "/network/tunnel/config",
            &[],
            json!({"config": config}).to_string().as_bytes(),
        )
    };
    set("not base64!").refused(400);
    set("e30K").refused(422);
    guest.send("PUT", "/network/tunnel/config", &[], b"{}").refused(400);
    assert!(!set("eyJwcml2YXRlX2tleSI6ICJzZWNyZXQifQ==").refused(422).contains("secret"));
    guest.delete("/network/tunnel").refused(400);
}

#[test]
fn drives_are_checked_and_none_is_mounted() {
    let guest = Guest::start();
    assert_eq!(guest.get("/drives/mount").ok(), json!({"mounts": []}));
    guest.post("/drives/mount", &json!({"driveName": "data", "mountPath": "mnt"})).refused(400);
    let why = guest
        .post("/drives/mount", &json!({"driveName": "data", "mountPath": "/mnt/data"}))
        .refused(500);
    assert!(why.contains("at the address of the sandbox"), "{why}");
    assert!(guest.delete("/drives/mount/mnt/data").refused(404).contains("/mnt/data"));
}

#[test]
fn waiting_for_a_port_ends_with_the_process() {
    let guest = Guest::start();
    let why = guest
        .post("/process", &json!({"command": "exit 1", "waitForPorts": [1], "timeout": 20}))
        .refused(422);
    assert!(why.contains("ended before its ports were open"), "{why}");
}

#[test]
fn a_monitor_tells_of_every_new_port() {
    let guest = Guest::start();
    let callback = TcpListener::bind("127.0.0.1:0").unwrap();
    let (pid, port) = listening(&guest, "127.0.0.1", "server");
    let path = format!("/network/process/{pid}/monitor");
    let url = format!("http://{}/ports?x=1", callback.local_addr().unwrap());
    assert_eq!(
        guest.post(&path, &json!({"callback": url})).ok()["message"],
        "Port monitoring started"
    );
    let (mut stream, _) = callback.accept().unwrap();
    let request = read_request(&mut stream);
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    assert!(request.starts_with("POST /ports?x=1 HTTP/1.1\r\n"), "{request}");
    let body: Value = serde_json::from_str(request.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body, json!({"pid": pid.parse::<i32>().unwrap(), "port": port}));
    assert_eq!(guest.delete(&path).ok()["message"], "Port monitoring stopped");
    for wrong in ["", "nothing", "ftp://x/", "https://", "/relative"] {
        guest.post(&path, &json!({"callback": wrong})).refused(400);
    }
}
