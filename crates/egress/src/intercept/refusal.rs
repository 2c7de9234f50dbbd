//! Answers of our own, which say whose fault it is.

use super::body::{Body, full};
use super::failure::Failure;
use crate::dial::DialError;
use crate::events::Note;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use types::egress::EgressDecision;
use types::parts::hosts::Host;

const PROXY_ERROR: HeaderName = HeaderName::from_static("proxy-error");

#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the request cannot be passed on: {0}")]
    BadRequest(&'static str),
    #[error("this connection is for {host} and no other host")]
    Misdirected { host: Host },
    #[error("the network rules of this sandbox block the request ({rule})")]
    Blocked { rule: String },
    #[error("{0}")]
    Method(&'static str),
    #[error("{0}: have fewer requests open at a time, or with smaller headers")]
    Crowded(#[from] admission::Refused),
    #[error("the body of the request did not arrive: {0}")]
    Body(String),
    #[error("{0}")]
    Upstream(#[from] Failure),
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::Misdirected { .. } => StatusCode::MISDIRECTED_REQUEST,
            Self::Blocked { .. } | Self::Upstream(Failure::Dial(DialError::Inside(_))) => {
                StatusCode::FORBIDDEN
            }
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Crowded(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Body(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Upstream(failure) if failure.is_too_slow() => StatusCode::GATEWAY_TIMEOUT,
            Self::Upstream(_) => StatusCode::BAD_GATEWAY,
        }
    }

    /// Returns the code for programs.
    fn code(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "bad_request",
            Self::Misdirected { .. } => "misdirected_request",
            Self::Blocked { .. } | Self::Upstream(Failure::Dial(DialError::Inside(_))) => {
                "firewall_blocked"
            }
            Self::Method(_) => "method_not_allowed",
            Self::Crowded(_) => "too_many_requests",
            Self::Body(_) => "request_incomplete",
            Self::Upstream(failure) => failure.code(),
        }
    }

    /// Returns what decided, in words that the owner of the rules knows.
    fn rule(&self) -> Option<&str> {
        match self {
            Self::Blocked { rule } => Some(rule),
            Self::Upstream(Failure::Dial(DialError::Inside(_))) => Some("addresses inside"),
            _ => None,
        }
    }

    /// Returns the event for the owner of the rules, if it concerns them.
    pub(super) fn note(&self, host: &Host, port: u16) -> Option<Note> {
        let decision = match self {
            Self::Blocked { .. } | Self::Upstream(Failure::Dial(DialError::Inside(_))) => {
                EgressDecision::Blocked
            }
            Self::Upstream(_) => EgressDecision::Failed,
            Self::BadRequest(_)
            | Self::Misdirected { .. }
            | Self::Method(_)
            | Self::Crowded(_)
            | Self::Body(_) => return None,
        };
        let rule = self.rule().map_or_else(|| self.to_string(), str::to_owned);
        Some(Note { rule, ..Note::new(decision, host.to_string(), port) })
    }

    pub(super) fn answer(&self) -> Response<Body> {
        answer(self.status(), self.code(), &self.to_string(), self.rule())
    }
}

/// Builds an answer. All our own answers to outgoing requests have this form.
fn answer(
    status: StatusCode,
    code: &'static str,
    message: &str,
    rule: Option<&str>,
) -> Response<Body> {
    let mut error = serde_json::json!({ "code": code, "message": message, "origin": "platform" });
    if let (Some(rule), Some(error)) = (rule, error.as_object_mut()) {
        error.insert("rule".to_owned(), rule.into());
    }
    let mut response = Response::new(full(format!("{}\n", serde_json::json!({ "error": error }))));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(PROXY_ERROR, HeaderValue::from_static(code));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the answer to anything that a rule blocks, wherever that is found.
pub(crate) fn blocked(rule: &str) -> Response<Body> {
    Refusal::Blocked { rule: rule.to_owned() }.answer()
}

/// Returns the answer if a connection cannot be made, and the event about it.
pub(crate) fn unreached(
    error: DialError,
    host: &Host,
    port: u16,
) -> (Response<Body>, Option<Note>) {
    let refusal = Refusal::Upstream(Failure::Dial(error));
    (refusal.answer(), refusal.note(host, port))
}

pub(crate) fn bad_request(why: &'static str) -> Response<Body> {
    Refusal::BadRequest(why).answer()
}
