//! The answer that tells a caller about a problem.

use super::{Page, Problem};
use crate::body::Body;
use crate::guard::Refused;
use crate::headers;
use crate::models::{ModelProblem, fault};
use ::models::dialect::Dialect;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;
use std::time::Duration;
use types::Timestamp;
use types::error::Refusal;

/// Seconds after which a caller may try again, unless a better time is known.
const RETRY_AFTER_S: u64 = 1;
/// The code that MCP servers use for a session that they do not have.
const SESSION_NOT_FOUND: i64 = -32001;

impl Problem {
    pub(crate) fn response(&self, now: Timestamp, docs_url: &str) -> Response<Body> {
        self.response_in(None, now, docs_url)
    }

    /// Returns the answer in the dialect of the model request, so that the caller's client can read
    /// it.
    pub(crate) fn response_in(
        &self,
        dialect: Option<Dialect>,
        now: Timestamp,
        docs_url: &str,
    ) -> Response<Body> {
        let Page { code, status, retryable, .. } = *self.page();
        metrics::counter!("holm_gateway_errors_total", "code" => code).increment(1);
        let mut response = Response::new(match dialect {
            Some(dialect) => Body::own(fault(dialect, status.as_u16(), code, self.to_string())),
            None => Body::own(self.body(now, docs_url)),
        });
        *response.status_mut() = status;
        if refuses_or_fails(status) {
            response.extensions_mut().insert(Refusal::new(code, self.to_string()));
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(headers::SOURCE, HeaderValue::from_static("platform"));
        if retryable {
            headers.insert(RETRY_AFTER, self.retry_after_s().into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    fn retry_after_s(&self) -> u64 {
        let whole = |time: Duration| {
            time.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX).max(RETRY_AFTER_S)
        };
        match self {
            Self::Refused(Refused::TooMany { retry_after_s }) => *retry_after_s,
            Self::Model(ModelProblem::OverLimit(over)) => whole(over.retry_after),
            Self::Model(ModelProblem::Resting { left }) => whole(*left),
            _ => RETRY_AFTER_S,
        }
    }

    fn body(&self, now: Timestamp, docs_url: &str) -> String {
        let Page { code, status, retryable, action, do_not } = *self.page();
        let mut body = json!({"error": {
            "action": action,
            "code": code,
            "do_not": do_not,
            "docs_url": format!("{docs_url}#{}", code.to_ascii_lowercase()),
            "message": self.to_string(),
            "origin": "platform",
            "retryable": retryable,
            "status": status.as_u16(),
            "timestamp": now,
        }});
        if let Self::SessionLost = self {
            // Clients of MCP servers read messages of the protocol.
            body["error"]["code"] = SESSION_NOT_FOUND.into();
            body["error"]["data"] = json!({"code": code});
            body["jsonrpc"] = "2.0".into();
            body["id"] = serde_json::Value::Null;
        }
        body.to_string()
    }
}

/// Returns whether an answer is logged. Addresses that lead nowhere are the callers' own business.
fn refuses_or_fails(status: StatusCode) -> bool {
    let refuses = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::PAYLOAD_TOO_LARGE,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    status.is_server_error() || refuses.contains(&status)
}
