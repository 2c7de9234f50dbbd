//! The question `tools/list`, with everything that its answer may depend on.

use super::message::Id;
use crate::headers;
use crate::sessions::SessionId;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Request};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Headers that differ between requests for the same thing.
static PASSING: [HeaderName; 7] = [
    headers::REQUEST_ID,
    CONTENT_LENGTH,
    TRANSFER_ENCODING,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("baggage"),
    HeaderName::from_static("x-request-start"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    jsonrpc: String,
    id: Id,
    method: String,
    #[serde(default)]
    params: Map<String, Value>,
}

/// A request for the list of tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListRequest {
    pub(super) id: Id,
    pub(super) session: Option<SessionId>,
    pub(super) session_name: Option<HeaderValue>,
    /// Of everything that the answer may depend on.
    pub(super) digest: [u8; 32],
}

impl ListRequest {
    /// `None` means the request asks for something else. `request` is as the server gets it.
    pub(crate) fn of<B>(
        request: &Request<B>,
        session: Option<SessionId>,
        body: &[u8],
    ) -> Option<Self> {
        let Question { jsonrpc, id, method, params } = serde_json::from_slice(body).ok()?;
        if jsonrpc != "2.0" || method != "tools/list" || params.contains_key("cursor") {
            return None;
        }
        let progress = params.get("_meta").and_then(|meta| meta.get("progressToken"));
        if progress.is_some() {
            return None;
        }
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        };
        add(request.uri().to_string().as_bytes());
        add(Value::Object(params).to_string().as_bytes());
        let mut sent: Vec<(&str, &[u8])> = request
            .headers()
            .iter()
            .filter(|(name, _)| !PASSING.contains(name))
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        // The order of different headers means nothing. That of equal names does, and is kept.
        sent.sort_by_key(|(name, _)| *name);
        for (name, value) in sent {
            add(name.as_bytes());
            add(value);
        }
        let session_name = request.headers().get(headers::MCP_SESSION).cloned();
        Some(Self { id, session, session_name, digest: digest.finalize().into() })
    }

    pub(crate) fn is_in_session(&self) -> bool {
        self.session.is_some()
    }

    pub(super) fn key(&self, revision: &str) -> Key {
        match self.session {
            Some(session) => Key::InSession(session),
            None => Key::Anyone(revision.to_owned(), self.digest),
        }
    }
}

/// What the list that answers a question is kept under.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Anyone(String, [u8; 32]),
    /// Only the latest of each session is kept.
    InSession(SessionId),
}
