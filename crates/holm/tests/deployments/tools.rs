//! Shared helpers for tests of deployments: hand-made requests, sources, and builds as their users
//! see them.

use crate::place::{Client, PATIENCE, eventually};
use base64::Engine as _;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// Reads an answer; if the server breaks off, whatever has arrived.
    fn read(mut stream: &TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A server that refuses a body closes the connection while it is sent.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no answer: {text:?}"));
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }
}

/// A request whose body may stay unfinished.
pub(crate) struct Request {
    stream: TcpStream,
}

impl Request {
    /// Sends the head of a request. The URL in `line` is a path, or an address on the server.
    pub(crate) fn begin(client: &Client, line: &str, headers: &str, length: u64) -> Self {
        let address = client.base.trim_start_matches("http://");
        let line = line.replace(&client.base, "");
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let fixed = "Host: holm\r\nConnection: close\r\nContent-Length";
        write!(stream, "{line} HTTP/1.1\r\n{headers}{fixed}: {length}\r\n\r\n").unwrap();
        Self { stream }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        // A server that refuses it may have closed the connection.
        let _ = self.stream.write_all(bytes);
    }

    pub(crate) fn answer(self) -> Answer {
        Answer::read(&self.stream)
    }
}

pub(crate) fn send(client: &Client, line: &str, headers: &str, body: &[u8]) -> Answer {
    let mut request = Request::begin(client, line, headers, body.len() as u64);
    request.send(body);
    request.answer()
}

/// Returns a header with credentials in the form that registry clients use.
pub(crate) fn basic(client: &Client) -> String {
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("me:{}", client.key));
    format!("Authorization: Basic {pair}\r\n")
}

/// Returns an archive of files with these names.
pub(crate) fn sources(files: &[(&str, &[u8])]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let tar = Command::new("tar").arg("-C").arg(folder.path()).args(["-cf", "-", "."]).output();
    tar.unwrap().stdout
}

/// Requests an agent that is built from sources.
pub(crate) fn ask(client: &Client, name: &str) -> Answer {
    let runtime =
        json!({"memory": 128, "minScale": 0, "envs": [{"name": "PATH", "value": "/bin"}]});
    let body = json!({"metadata": {"name": name}, "spec": {"runtime": runtime}}).to_string();
    let headers = format!(
        "Authorization: Bearer {}\r\nX-Blaxel-Workspace: main\r\nContent-Type: application/json\r\n",
        client.key
    );
    let there = client.ask("GET", &format!("/v0/agents/{name}"), None).unwrap().0 == 200;
    let line = match there {
        true => format!("PUT /v0/agents/{name}?upload=true"),
        false => "POST /v0/agents?upload=true".to_owned(),
    };
    send(client, &line, &headers, body.as_bytes())
}

/// Returns the upload address for an agent's sources.
#[track_caller]
pub(crate) fn address(client: &Client, name: &str) -> String {
    let answer = ask(client, name);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.header("x-blaxel-upload-url").unwrap().to_owned()
}

/// Uploads the sources of an agent.
#[track_caller]
pub(crate) fn upload(client: &Client, name: &str, archive: &[u8]) {
    let answer = send(client, &format!("PUT {}", address(client, name)), "", archive);
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[track_caller]
pub(crate) fn upload_dockerfile(client: &Client, name: &str, text: &str) {
    upload(client, name, &sources(&[("Dockerfile", text.as_bytes())]));
}

pub(crate) fn agent(client: &Client, name: &str) -> Value {
    client.done("GET", &format!("/v0/agents/{name}"), None)
}

/// Returns the agent once it has the status.
#[track_caller]
pub(crate) fn until(client: &Client, name: &str, status: &str) -> Value {
    let mut seen = Value::Null;
    eventually(&format!("{name} is {status}"), || {
        seen = agent(client, name);
        let is_over = ["FAILED", "DEPLOYED"].iter().any(|end| seen["status"] == *end);
        assert!(!is_over || seen["status"] == status, "{seen}\n{}", printed(client, name));
        seen["status"] == status
    });
    seen
}

/// Returns the reason why a build failed.
#[track_caller]
pub(crate) fn failure(client: &Client, name: &str) -> String {
    let failed = until(client, name, "FAILED");
    let events = failed["events"].as_array().unwrap();
    let mut failures = events.iter().filter(|event| event["status"] == "FAILED");
    failures.next_back().unwrap()["message"].as_str().unwrap().to_owned()
}

/// Returns the output of an agent's builds and replicas, oldest first.
pub(crate) fn printed(client: &Client, name: &str) -> String {
    let query = format!("resourceType=agents&workloadIds={name}&limit=1000");
    let answer = client.done("GET", &format!("/v0/observability/logs?{query}"), None);
    let lines = answer[name]["logs"].as_array().unwrap().iter().rev();
    let lines: Vec<_> = lines.map(|line| line["message"].as_str().unwrap()).collect();
    lines.join("\n")
}

/// Returns the output once it contains a text.
#[track_caller]
pub(crate) fn until_printed(client: &Client, name: &str, text: &str) -> String {
    let mut all = String::new();
    eventually(&format!("{name} prints {text}"), || {
        all = printed(client, name);
        all.contains(text)
    });
    all
}

/// Deletes all deployments, so that none is left running.
pub(crate) fn clear(client: &Client) {
    for kind in ["agents", "functions", "jobs", "applications"] {
        let page = client.done("GET", &format!("/v0/{kind}?limit=200"), None);
        for object in page["data"].as_array().unwrap() {
            let name = object["metadata"]["name"].as_str().unwrap();
            client.done("DELETE", &format!("/v0/{kind}/{name}"), None);
        }
    }
}
