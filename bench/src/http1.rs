//! An HTTP/1.1 caller that costs next to nothing itself: it writes prepared bytes and only looks
//! for the end of answers.

use anyhow::{Context as _, bail, ensure};
use std::rc::Rc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const HEADERS_MAX: usize = 16 << 10;
pub(crate) const JSON: &str = "application/json";

/// A server as its callers know it.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) address: String,
    /// Lines that are sent with each request: credentials and version.
    pub(crate) headers: String,
}

pub(crate) struct Http1 {
    stream: TcpStream,
    origin: Rc<Origin>,
    received: Vec<u8>,
}

impl Http1 {
    pub(crate) async fn connect(origin: &Rc<Origin>) -> anyhow::Result<Self> {
        Self::over(TcpStream::connect(&origin.address).await?, origin)
    }

    pub(crate) fn over(stream: TcpStream, origin: &Rc<Origin>) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, origin: Rc::clone(origin), received: Vec::with_capacity(HEADERS_MAX) })
    }

    /// Sends one request with a JSON body or none, and returns the body of its answer.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<&[u8]> {
        self.send(method, path, JSON, body.as_bytes()).await
    }

    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> anyhow::Result<&[u8]> {
        self.send_with(method, path, &format!("content-type: {content_type}\r\n"), body).await
    }

    /// Sends a request with additional headers: lines, as they are sent.
    pub(crate) async fn send_with(
        &mut self,
        method: &str,
        path: &str,
        more: &str,
        body: &[u8],
    ) -> anyhow::Result<&[u8]> {
        let Origin { address, headers } = &*self.origin;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{headers}{more}content-length: {}\r\n\r\n",
            body.len()
        );
        if body.len() < HEADERS_MAX {
            self.stream.write_all(&[head.as_bytes(), body].concat()).await?;
        } else {
            self.stream.write_all(head.as_bytes()).await?;
            self.stream.write_all(body).await?;
        }
        let (status, body) = self.receive().await.with_context(|| format!("{method} {path}"))?;
        let answer = &self.received[body];
        ensure!(
            status == "200",
            "{method} {path} answered {status}: {}",
            String::from_utf8_lossy(answer)
        );
        Ok(answer)
    }

    /// Returns a header of the last answer.
    pub(crate) fn header(&self, name: &str) -> anyhow::Result<&str> {
        let end = find(&self.received, b"\r\n\r\n").context("no answer yet")?;
        let head = std::str::from_utf8(&self.received[..end])?;
        header(head, name).with_context(|| format!("an answer without {name}"))
    }

    /// Reads one answer, and returns its status and where its body is.
    async fn receive(&mut self) -> anyhow::Result<(String, std::ops::Range<usize>)> {
        self.received.clear();
        let start =
            self.receive_until(|received| find(received, b"\r\n\r\n").map(|at| at + 4)).await?;
        let head = std::str::from_utf8(&self.received[..start])?;
        let status = head.get(9..12).context("no status")?.to_owned();
        let length = content_length(head)?;
        let missing = (start + length).saturating_sub(self.received.len());
        self.received.reserve(missing);
        let end = self
            .receive_until(|received| (received.len() >= start + length).then_some(start + length))
            .await?;
        Ok((status, start..end))
    }

    async fn receive_until(
        &mut self,
        done: impl Fn(&[u8]) -> Option<usize>,
    ) -> anyhow::Result<usize> {
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
    Ok(header(head, "content-length").context("an answer without its length")?.parse()?)
}

fn header<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(wanted).then(|| value.trim())
    })
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
