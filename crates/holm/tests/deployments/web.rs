//! Requests with bodies of bytes, and answers with their headers.

use crate::place::{Client, PATIENCE};
use reqwest::blocking::{self, Body};
use reqwest::header::HeaderMap;
use serde_json::Value;
use std::io::{self, Read};
use std::time::Duration;

#[derive(Clone)]
pub(crate) struct Web {
    http: blocking::Client,
    pub(crate) base: String,
    pub(crate) key: String,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

impl Web {
    pub(crate) fn new(client: &Client) -> Self {
        let http = blocking::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { http, base: client.base.clone(), key: client.key.clone() }
    }

    /// Sends a request; `None` if the connection broke.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        head: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Option<Answer> {
        let url = format!("{}{path}", self.base);
        let mut request = self.http.request(method.parse().unwrap(), url).body(body);
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        let response = request.send().ok()?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Some(Answer { status, headers, body: response.bytes().ok()?.to_vec() })
    }

    /// Sends a request as a member of the workspace.
    pub(crate) fn member(&self, method: &str, path: &str, body: Option<&Value>) -> Option<Answer> {
        let key = format!("Bearer {}", self.key);
        let head = [
            ("authorization", key.as_str()),
            ("service-version", "2026-04-28"),
            ("content-type", "application/json"),
        ];
        self.ask(method, path, &head, body.map(Value::to_string).unwrap_or_default())
    }

    /// Uploads sources to an address from an answer, slowly if a pause is given.
    pub(crate) fn upload(&self, url: &str, sources: Vec<u8>, pause: Duration) -> Option<Answer> {
        let at = url.find("/v0/uploads/").expect("an address for an upload");
        let body = Body::sized(Slowly::new(sources.clone(), pause), sources.len() as u64);
        self.ask("PUT", &url[at..], &[("content-type", "application/zip")], body)
    }
}

/// A body in a few pieces with pauses between them.
struct Slowly {
    left: Vec<u8>,
    piece: usize,
    pause: Duration,
}

impl Slowly {
    fn new(bytes: Vec<u8>, pause: Duration) -> Self {
        let piece = if pause.is_zero() { bytes.len() } else { bytes.len().div_ceil(4) };
        Self { left: bytes, piece: piece.max(1), pause }
    }
}

impl Read for Slowly {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        std::thread::sleep(self.pause);
        let count = self.piece.min(to.len()).min(self.left.len());
        to[..count].copy_from_slice(&self.left[..count]);
        self.left.drain(..count);
        Ok(count)
    }
}
