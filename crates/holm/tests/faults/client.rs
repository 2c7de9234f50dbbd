//! A client that distinguishes between answers and unknown outcomes.

use reqwest::blocking;
use serde_json::Value;
use std::time::Duration;

/// Time limit for an answer. Requests in these tests wait for nothing but the database.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// The workspace that the first start makes.
const MAIN: &str = "main";

#[derive(Clone)]
pub(crate) struct Client {
    http: blocking::Client,
    base: String,
    key: String,
    workspace: &'static str,
}

/// Outcome of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Done {
        body: Value,
        version: i64,
    },
    Refused {
        status: u16,
        body: Value,
    },
    /// The connection broke, so the request may or may not have been carried out.
    Lost,
}

impl Client {
    pub(crate) fn new(address: &str, key: &str) -> Self {
        // Fails only if it is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = blocking::Client::builder().no_proxy().timeout(ANSWER_MAX).build().unwrap();
        Self { http, base: format!("http://{address}/v0"), key: key.to_owned(), workspace: MAIN }
    }

    /// Returns a client for the same server with different credentials.
    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    /// Returns a client for a different workspace.
    pub(crate) fn in_workspace(&self, workspace: &'static str) -> Self {
        Self { workspace, ..self.clone() }
    }

    fn request(&self, method: &str, path: &str) -> blocking::RequestBuilder {
        let request = self.http.request(method.parse().unwrap(), format!("{}{path}", self.base));
        request
            .bearer_auth(&self.key)
            .header("service-version", "2026-04-28")
            .header("x-service-workspace", self.workspace)
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        if_match: Option<i64>,
    ) -> Answer {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(version) = if_match {
            request = request.header("if-match", format!("\"{version}\""));
        }
        let Ok(response) = request.send() else { return Answer::Lost };
        let status = response.status().as_u16();
        let tag =
            response.headers().get("etag").and_then(|tag| tag.to_str().ok()).unwrap_or_default();
        let version = tag.trim_matches('"').parse().unwrap_or_default();
        let Ok(text) = response.text() else { return Answer::Lost };
        let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() };
        if status < 300 { Answer::Done { body, version } } else { Answer::Refused { status, body } }
    }

    /// Returns the answer to a read that must succeed.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        match self.ask("GET", path, None, None) {
            Answer::Done { body, .. } => body,
            other => panic!("GET {path}: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        match self.ask("POST", path, Some(body), None) {
            Answer::Done { body, .. } => body,
            other => panic!("POST {path}: {other:?}"),
        }
    }

    /// Returns every object of a kind, from all pages, and the total that the pages report.
    pub(crate) fn list(&self, kind: &str) -> (Vec<Value>, i64) {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("/{kind}?limit=200&sort=name:asc&cursor={cursor}"));
            all.extend(page["data"].as_array().unwrap().iter().cloned());
            if page["meta"]["hasMore"] != true {
                return (all, page["meta"]["total"].as_i64().unwrap());
            }
            page["meta"]["nextCursor"].as_str().unwrap().clone_into(&mut cursor);
        }
    }

    /// Opens the change stream after a revision.
    pub(crate) fn changes(&self, after: i64) -> reqwest::Result<blocking::Response> {
        let stream = self.request("GET", "/changes").header("last-event-id", after.to_string());
        // Streams end once their reader has seen enough.
        stream.timeout(Duration::from_secs(3600)).send()?.error_for_status()
    }
}
