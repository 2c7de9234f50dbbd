//! Why a request was not served, one variant per decision, and the only place that turns decisions
//! into statuses.

use crate::fleet::{LaunchFault, UnknownImage};
use crate::missing::Missing;
use auth::Denied;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};
use types::error::{ErrorBody, Refusal};
use types::version::UnknownVersion;
use types::{KindName, Problems};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Invalid(#[from] Problems),
    #[error("{0}")]
    Malformed(String),
    #[error(transparent)]
    Version(#[from] UnknownVersion),
    #[error("{0}")]
    Denied(Denied),
    #[error("there is no {kind} `{name}` in this workspace")]
    NoResource { kind: KindName, name: String },
    #[error("{0}")]
    NotFound(String),
    #[error("a {kind} named `{name}` exists already; choose another name, or change it with PUT")]
    Exists { kind: KindName, name: String },
    #[error("{0}")]
    Conflict(String),
    #[error(
        "the {kind} has version {version} now, not the one in `If-Match`; read it and try again"
    )]
    Changed { kind: KindName, version: i64 },
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Gone(String),
    #[error(
        "`{kind}` objects are limited to {limit} in this workspace; delete some, or ask the operator for more"
    )]
    Quota { kind: KindName, limit: i64 },
    #[error(
        "the budget `{budget}` is spent: new work is refused until the month ends (UTC) or an admin of the account raises it"
    )]
    Spent { budget: String },
    #[error("the body has more than the {limit} bytes that are accepted")]
    TooLarge { limit: usize },
    #[error("too many requests; try again in {retry_after_s} s")]
    TooMany { retry_after_s: u64 },
    #[error("{0}; end some first, or try again later")]
    Crowded(admission::Refused),
    #[error("{0}; try again later, or let it wait with `allowQueue`")]
    NoSlots(String),
    #[error("{0}; try again when some have ended")]
    TooManyOpen(String),
    #[error(transparent)]
    InvalidImage(UnknownImage),
    #[error("{0}; try again later, or elsewhere")]
    NoRoom(String),
    #[error("{0}")]
    OverShare(String),
    #[error("the sandbox could not be started: {0}")]
    Launch(String),
    #[error("this server cannot yet {}", .0.act())]
    Missing(Missing),
    #[error("no operation is at this path")]
    NoRoute,
    #[error("the path exists, but not with this method")]
    NoMethod,
    #[error(transparent)]
    Store(store::Error),
}

impl From<admission::Refused> for Error {
    fn from(refused: admission::Refused) -> Self {
        Self::Crowded(refused)
    }
}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Store(error) => error.into(),
            other => Self::Denied(other),
        }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Stale { what } => {
                Self::Conflict(format!("{what} was changed meanwhile; read it and try again"))
            }
            other => Self::Store(other),
        }
    }
}

impl From<LaunchFault> for Error {
    fn from(fault: LaunchFault) -> Self {
        match fault {
            LaunchFault::Image(unknown) => Self::InvalidImage(unknown),
            LaunchFault::Full(why) => Self::NoRoom(why),
            LaunchFault::OverShare(why) => Self::OverShare(why),
            LaunchFault::Pull(why) | LaunchFault::Broken(why) => Self::Launch(why),
        }
    }
}

impl From<auth::Error> for Error {
    fn from(error: auth::Error) -> Self {
        use auth::Error as Identity;
        let message = error.to_string();
        match error {
            Identity::Denied(denied) => denied.into(),
            Identity::Invalid(problems) => problems.into(),
            Identity::NotFound { .. } => Self::NotFound(message),
            Identity::Exists(_) | Identity::LastAdmin | Identity::LastAccountAdmin => {
                Self::Conflict(message)
            }
            Identity::InvitationExpired => Self::Gone(message),
            Identity::TooMany { .. } => Self::Refused(message),
            Identity::Crowded(_) => Self::TooMany { retry_after_s: 1 },
            Identity::Store(error) => error.into(),
        }
    }
}

impl Error {
    /// Status and stable name.
    fn case(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Invalid(_) | Self::Malformed(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::Version(_) => (StatusCode::BAD_REQUEST, "invalid_api_version"),
            Self::Denied(denied) => denied_case(denied),
            Self::NoResource { .. } | Self::NotFound(_) | Self::NoRoute => {
                (StatusCode::NOT_FOUND, "not_found")
            }
            Self::Exists { kind, .. } => (StatusCode::CONFLICT, exists(*kind)),
            Self::Conflict(_) => (StatusCode::CONFLICT, "conflict"),
            Self::Changed { .. } => (StatusCode::PRECONDITION_FAILED, "precondition_failed"),
            Self::Refused(_) => (StatusCode::FORBIDDEN, "forbidden"),
            Self::Gone(_) => (StatusCode::GONE, "gone"),
            Self::Spent { .. } => (StatusCode::FORBIDDEN, "USAGE_LIMIT_EXCEEDED"),
            Self::Quota { kind: KindName::Sandbox, .. } | Self::OverShare(_) => {
                (StatusCode::BAD_REQUEST, "QUOTA_EXCEEDED")
            }
            Self::Quota { .. } => (StatusCode::FORBIDDEN, "QUOTA_EXCEEDED"),
            Self::InvalidImage(_) => (StatusCode::BAD_REQUEST, "INVALID_IMAGE"),
            Self::NoRoom(_) | Self::Crowded(admission::Refused::Total { .. }) => {
                (StatusCode::SERVICE_UNAVAILABLE, "NO_CAPACITY")
            }
            Self::Launch(_) => (StatusCode::INTERNAL_SERVER_ERROR, "LAUNCH_FAILED"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large"),
            Self::TooMany { .. }
            | Self::NoSlots(_)
            | Self::TooManyOpen(_)
            | Self::Crowded(admission::Refused::Share { .. }) => {
                (StatusCode::TOO_MANY_REQUESTS, "too_many_requests")
            }
            Self::Missing(_) => (StatusCode::NOT_IMPLEMENTED, "not_implemented"),
            Self::NoMethod => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::Store(store::Error::Busy { .. }) => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::Store(store::Error::Unreachable(_)) => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
            }
            Self::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
        }
    }

    /// What the caller reads. What broke inside is for the log only.
    fn message(&self) -> String {
        match self {
            Self::Store(store::Error::Busy { .. }) => {
                "too much is waiting for the database; try again shortly".into()
            }
            Self::Store(store::Error::Unreachable(_)) => {
                "the database cannot be reached; try again shortly".into()
            }
            Self::Store(_) => {
                "something failed inside the server; the operator finds the cause in its log".into()
            }
            other => other.to_string(),
        }
    }

    /// Members that only some cases have.
    fn more(&self, status: StatusCode) -> Map<String, Value> {
        let more = match self {
            Self::Invalid(problems) => json!({"details": problems}),
            Self::Exists { .. } => json!({"status_code": status.as_u16()}),
            Self::InvalidImage(unknown) => {
                json!({"details": {"requested_image": unknown.wanted, "supported_images": unknown.there_are}})
            }
            Self::NoRoom(_) | Self::NoSlots(_) | Self::TooManyOpen(_) | Self::Crowded(_) => {
                json!({"retryable": true})
            }
            Self::TooMany { retry_after_s } => {
                json!({"retryable": true, "retry_after": retry_after_s})
            }
            _ => return Map::new(),
        };
        match more {
            Value::Object(more) => more,
            _ => Map::new(),
        }
    }

    /// What the log is told. Other mistakes of callers are their own business, and what broke
    /// inside is logged with its cause.
    fn refusal(&self, status: StatusCode, name: &'static str) -> Option<Refusal> {
        let refuses = [
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        let refuses =
            refuses.contains(&status) || matches!(self, Self::Quota { .. } | Self::OverShare(_));
        refuses.then(|| Refusal::new(name, self.message()))
    }

    fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::TooMany { retry_after_s } => Some(*retry_after_s),
            Self::NoSlots(_)
            | Self::TooManyOpen(_)
            | Self::Crowded(_)
            | Self::Store(store::Error::Busy { .. }) => Some(1),
            _ => None,
        }
    }
}

/// The names by which the published clients know a conflict of names.
fn exists(kind: KindName) -> &'static str {
    match kind {
        KindName::Sandbox => "SANDBOX_ALREADY_EXISTS",
        KindName::Volume => "VOLUME_ALREADY_EXISTS",
        KindName::Drive => "DRIVE_ALREADY_EXISTS",
        KindName::Application => "APPLICATION_ALREADY_EXISTS",
        _ => "conflict",
    }
}

fn denied_case(denied: &Denied) -> (StatusCode, &'static str) {
    match denied.blame() {
        auth::Blame::Credentials => (StatusCode::UNAUTHORIZED, "unauthorized"),
        auth::Blame::Rights => (StatusCode::FORBIDDEN, "forbidden"),
        auth::Blame::Request => (StatusCode::BAD_REQUEST, "bad_request"),
        auth::Blame::Server => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, name) = self.case();
        if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
            tracing::error!(error = &self as &dyn std::error::Error, "a request failed");
        }
        let body = ErrorBody {
            error: name.into(),
            code: i64::from(status.as_u16()),
            message: self.message(),
            more: self.more(status),
        };
        let mut response = Response::new(Body::from(serde_json::to_vec(&body).unwrap_or_default()));
        *response.status_mut() = status;
        if let Some(refusal) = self.refusal(status, name) {
            response.extensions_mut().insert(refusal);
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after_s() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
