//! A caller that costs next to nothing itself, and can read answers in pieces too.

use crate::load::Caller;
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const ROOM: usize = 32 << 10;
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// What is asked, and where, as bytes.
#[derive(Clone)]
pub(crate) struct Question {
    address: String,
    path: String,
    /// Lines, as they are sent.
    headers: String,
    bytes: Vec<u8>,
}

impl Question {
    pub(crate) fn new(address: &str, path: &str, headers: &str) -> Self {
        let (address, path, headers) = (address.to_owned(), path.to_owned(), headers.to_owned());
        Self { address, path, headers, bytes: Vec::new() }
    }

    pub(crate) fn waits(&self, model: &str) -> Self {
        self.with(&body(model))
    }

    pub(crate) fn streams(&self, model: &str) -> Self {
        let mut body = body(model);
        body["stream"] = true.into();
        body["stream_options"] = json!({"include_usage": true});
        self.with(&body)
    }

    fn with(&self, body: &Value) -> Self {
        let (body, Self { address, path, headers, .. }) = (body.to_string(), self);
        let length = body.len();
        let text = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\n{headers}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        Self { bytes: text.into_bytes(), ..self.clone() }
    }
}

/// Returns a body of about a kilobyte, like a short conversation.
fn body(model: &str) -> Value {
    let told =
        "You answer questions about the geography of Europe, briefly and friendly. ".repeat(8);
    json!({
        "model": model, "max_tokens": 256, "temperature": 0.2, "user": "bench",
        "messages": [
            {"role": "system", "content": told},
            {"role": "user", "content": "Where is Paris, and how many people live there?"},
        ],
    })
}

pub(crate) struct Asker {
    stream: TcpStream,
    question: Rc<Question>,
    received: Vec<u8>,
}

impl Caller for Asker {
    type Act = ();

    async fn call(&mut self, (): ()) -> anyhow::Result<()> {
        self.ask().await.map(drop)
    }
}

impl Asker {
    pub(crate) async fn connect(question: &Rc<Question>) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(&question.address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, question: Rc::clone(question), received: Vec::with_capacity(ROOM) })
    }

    /// Asks, reads the whole answer, and returns the time to the first byte of its body.
    pub(crate) async fn ask(&mut self) -> anyhow::Result<Duration> {
        let asked = Instant::now();
        let body = self.begin().await?;
        let first = asked.elapsed();
        let head = std::str::from_utf8(&self.received[..body])?.to_ascii_lowercase();
        if let Some(length) = head.lines().find_map(|line| line.strip_prefix("content-length:")) {
            let end = body + length.trim().parse::<usize>()?;
            while self.received.len() < end {
                self.read().await?;
            }
        } else {
            while !self.received.ends_with(LAST_CHUNK) {
                self.read().await?;
            }
        }
        Ok(first)
    }

    /// Asks, reads up to the first byte of the body, and returns where that is.
    pub(crate) async fn begin(&mut self) -> anyhow::Result<usize> {
        self.received.clear();
        self.stream.write_all(&self.question.bytes).await?;
        loop {
            self.read().await?;
            let end = self.received.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(body) = end.map(|end| end + 4).filter(|body| *body < self.received.len()) {
                let said = || String::from_utf8_lossy(&self.received).into_owned();
                ensure!(self.received.starts_with(b"HTTP/1.1 200"), "{}", said());
                return Ok(body);
            }
        }
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        let length = self.stream.read_buf(&mut self.received).await?;
        ensure!(length > 0, "the server closed the connection");
        Ok(())
    }

    /// Reads whatever comes for some time, and discards it.
    pub(crate) async fn follow(&mut self, time: Duration) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + time;
        loop {
            self.received.clear();
            match tokio::time::timeout_at(deadline, self.read()).await {
                Ok(read) => read.context("a stream ended early")?,
                Err(_) => return Ok(()),
            }
        }
    }
}
