//! A caller over HTTP/1.1 that costs next to nothing itself: it writes prepared bytes and looks for the end of answers.

use crate::load::{Act, Caller};
use anyhow::{Context as _, bail, ensure};
use std::rc::Rc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const HEADERS_MAX: usize = 16 << 10;

/// What all callers of one server send.
#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) address: String,
    /// Lines that go with each request: credentials and version.
    pub(crate) headers: String,
    /// The query strings of the lists that are measured.
    pub(crate) lists: Vec<String>,
}

pub(crate) struct Http1 {
    stream: TcpStream,
    requests: Rc<Requests>,
    received: Vec<u8>,
}

/// The name of an object.
pub(crate) fn name(object: usize) -> String {
    format!("bench-{object:06}")
}

/// What is stored of an object: about what a small deployment sends.
pub(crate) fn body(object: usize, value: u64) -> String {
    format!(
        r#"{{"metadata":{{"name":"{}","displayName":"Bench {object}","labels":{{"team":"measure","run":"{value:020}"}}}},"spec":{{"region":"local","runtime":{{"image":"blaxel/base-image:latest","memory":2048,"ports":[{{"name":"web","target":3000,"protocol":"HTTP"}}],"envs":[{{"name":"MODE","value":"production"}},{{"name":"LEVEL","value":"info"}}]}},"lifecycle":{{"expirationPolicies":[{{"type":"ttl-idle","value":"30m","action":"delete"}}]}}}}}}"#,
        name(object)
    )
}

impl Http1 {
    pub(crate) async fn connect(requests: &Rc<Requests>) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(&requests.address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, requests: Rc::clone(requests), received: Vec::with_capacity(HEADERS_MAX) })
    }

    /// Sends one request and gives the body of its answer.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<&[u8]> {
        let request = format!(
            "{method} /v0{path} HTTP/1.1\r\nhost: {}\r\n{}content-length: {}\r\n\r\n{body}",
            self.requests.address,
            self.requests.headers,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.received.clear();
        let body_at = self.receive_until(|received| find(received, b"\r\n\r\n").map(|at| at + 4)).await?;
        let head = std::str::from_utf8(&self.received[..body_at])?;
        let status = head.get(9..12).context("no status")?.to_owned();
        let length = content_length(head)?;
        let end =
            self.receive_until(|received| (received.len() >= body_at + length).then_some(body_at + length)).await?;
        let answer = &self.received[body_at..end];
        ensure!(status == "200", "{method} {path} answered {status}: {}", String::from_utf8_lossy(answer));
        Ok(answer)
    }

    async fn receive_until(&mut self, done: impl Fn(&[u8]) -> Option<usize>) -> anyhow::Result<usize> {
        loop {
            if let Some(at) = done(&self.received) {
                return Ok(at);
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                bail!("the server closed the connection");
            }
        }
    }
}

fn content_length(head: &str) -> anyhow::Result<usize> {
    let line = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    Ok(line.context("an answer without its length")?.parse()?)
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

impl Caller for Http1 {
    async fn call(&mut self, act: Act) -> anyhow::Result<()> {
        match act {
            Act::Make { object } => self.ask("POST", "/sandboxes", &body(object, 0)).await.map(drop),
            Act::Put { object, value } => {
                self.ask("PUT", &format!("/sandboxes/{}", name(object)), &body(object, value)).await.map(drop)
            }
            Act::Get { object } => self.ask("GET", &format!("/sandboxes/{}", name(object)), "").await.map(drop),
            Act::List { query } => {
                let path = format!("/sandboxes?{}", self.requests.lists[query]);
                self.ask("GET", &path, "").await.map(drop)
            }
        }
    }
}
