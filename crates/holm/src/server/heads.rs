//! Memory for the requests that callers have open at the same time on one connection of HTTP/2.

use crate::config;
use admission::{Connection, Head, Heads, Limits, Pool, Refused};
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode, Version, header};
use types::Remote;
use types::error::Refusal;

/// One address gets at most this fraction of what strangers have.
const STRANGERS_SHARE: u64 = 4;
const RETRY_AFTER_S: u64 = 1;

/// As much memory as there is for bodies, divided in the same way. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct HeadPools {
    callers: Pool<String>,
    strangers: Pool<String>,
}

impl HeadPools {
    pub(crate) fn new(server: &config::Server) -> Self {
        let (total, share) = (server.bodies_bytes_max, server.bodies_workspace_bytes_max);
        let callers = Limits { total: total as u64, share: share as u64 };
        let total = server.bodies_strangers_bytes_max as u64;
        let strangers = Limits { total, share: (total / STRANGERS_SHARE).max(1) };
        Self {
            callers: Pool::new("bytes of open requests", callers),
            strangers: Pool::new("bytes of open requests of strangers", strangers),
        }
    }

    /// Takes a request in, until what this returns is dropped. One of HTTP/1.1 is alone on its
    /// connection and takes nothing.
    pub(crate) fn take<B>(
        &self,
        heads: &Heads,
        connection: &Connection,
        remote: Remote,
        request: &Request<B>,
    ) -> Result<Option<Head>, Refused> {
        if request.version() != Version::HTTP_2 {
            return Ok(None);
        }
        let beyond = |bytes| match connection.holder() {
            Some(holder) => self.callers.take(&holder, bytes),
            None => self.strangers.take(&remote.to_string(), bytes),
        };
        heads.take(request.uri(), request.headers(), beyond).map(Some)
    }
}

/// Answers that there is no room for the request. The answer has no body: one that its caller does
/// not read would keep the request open, with the memory that it was refused.
pub(crate) fn refuse(refused: &Refused) -> Response {
    let (status, error) = match refused {
        Refused::Share { .. } => (StatusCode::TOO_MANY_REQUESTS, "too_many_requests"),
        Refused::Total { .. } => (StatusCode::SERVICE_UNAVAILABLE, "NO_CAPACITY"),
    };
    let message = format!("{refused}: have fewer requests open at a time, or with smaller headers");
    let mut response = (status, [(header::RETRY_AFTER, RETRY_AFTER_S)]).into_response();
    let refusal = Refusal::new(error, &message);
    response.extensions_mut().insert(refusal);
    response
}
