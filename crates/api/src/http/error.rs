//! Why a request was not served, and the only place that turns decisions into statuses.

use crate::http::malformed::{LogsRule, Malformed, MetricsRule, ModelUsageRule};
use crate::http::operation::Line;
use auth::Denied;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use control::Error as Decision;
use control::error::{Absent, BadCursor, Forbidden, ProviderFault, Unfit};
use http::{HeaderValue, StatusCode, header};
use jobs::StartError;
use serde_json::{Map, Value, json};
use types::error::{ErrorBody, Refusal};
use types::version::UnknownVersion;
use types::{KindName, Problems};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A decision of the control plane.
    #[error(transparent)]
    Control(#[from] Decision),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(
        "changes up to revision {oldest} are no longer kept; list again and begin without `after`"
    )]
    ChangesGone { oldest: i64 },
    #[error(
        "there is no revision after {newest} yet, so the given one is of another server or of what \
         a restore has undone; list again and begin without `after`"
    )]
    ChangesAhead { newest: i64 },
    #[error(transparent)]
    Version(#[from] UnknownVersion),
    #[error("the body has more than the {limit} bytes that are accepted")]
    TooLarge { limit: usize },
    #[error("`Accept` must have both `application/json` and `text/event-stream`")]
    NotAcceptable,
    #[error("`Content-Type` must be `application/json`")]
    MediaType,
    #[error("no operation is at this path")]
    NoRoute,
    #[error("the path exists, but not with this method")]
    NoMethod,
}

/// Errors that first become decisions of the control plane.
macro_rules! through_control {
    ($($source:ty),+) => {$(
        impl From<$source> for Error {
            fn from(source: $source) -> Self {
                Self::Control(source.into())
            }
        }
    )+};
}

through_control!(
    Absent,
    BadCursor,
    Denied,
    Forbidden,
    Problems,
    Unfit,
    admission::Refused,
    auth::Error,
    store::Error
);

/// Errors that are violated rules of one operation.
macro_rules! through_malformed {
    ($($source:ty),+) => {$(
        impl From<$source> for Error {
            fn from(source: $source) -> Self {
                Self::Malformed(source.into())
            }
        }
    )+};
}

through_malformed!(LogsRule, MetricsRule, ModelUsageRule);

impl Error {
    /// Returns the status and the stable name of the error.
    pub(crate) fn case(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Control(decision) => case(decision),
            Self::Malformed(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            Self::Version(_) => (StatusCode::BAD_REQUEST, "invalid_api_version"),
            Self::NoRoute => (StatusCode::NOT_FOUND, "not_found"),
            Self::ChangesGone { .. } | Self::ChangesAhead { .. } => (StatusCode::GONE, "gone"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large"),
            Self::NoMethod => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::NotAcceptable => (StatusCode::NOT_ACCEPTABLE, "not_acceptable"),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type"),
        }
    }

    /// Returns the message for the caller. The causes of internal failures go to the log only.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Control(Decision::Store(store::Error::Busy { .. })) => {
                "too much is waiting for the database; try again shortly".into()
            }
            Self::Control(Decision::Store(store::Error::Unreachable(_))) => {
                "the database cannot be reached; try again shortly".into()
            }
            Self::Control(Decision::Store(store::Error::Interrupted(_))) => {
                "the database did not finish what was asked; try again shortly".into()
            }
            Self::Control(Decision::Store(store::Error::Uncertain(_))) => {
                "the connection to the database broke, and it may have been done; look before you repeat it, or use an Idempotency-Key".into()
            }
            Self::Control(Decision::Store(store::Error::Full(_))) => {
                "the disk of the database is full, so nothing was changed; try again when the operator has made room".into()
            }
            Self::Control(Decision::Store(_)) => {
                "something failed inside the server; the operator finds the cause in its log".into()
            }
            other => other.to_string(),
        }
    }

    /// Returns when the caller may try again, if that is known.
    pub(crate) fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::Control(decision) => retry_after_s(decision),
            _ => None,
        }
    }

    /// Logs a failure inside the server with its cause. Other errors are the caller's, or those of
    /// a tenant's own provider, who is told; or strangers can cause as many as they like, so that
    /// [`Self::refusal`] has them.
    pub(crate) fn log_failure(&self, status: StatusCode) {
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(error = self as &dyn std::error::Error, "a request failed");
        }
    }

    /// Returns the refusal to be logged, at the limited rate of such lines. Other mistakes of callers
    /// are not logged. While the database is away or full, every request is refused for that.
    pub(crate) fn refusal(&self, status: StatusCode, name: &'static str) -> Option<Refusal> {
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::INSUFFICIENT_STORAGE) {
            return Some(Refusal::new(name, types::chain(self)));
        }
        let refuses = [
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        let refuses = refuses.contains(&status)
            || matches!(self, Self::Control(Decision::Quota { .. } | Decision::OverShare(_)));
        refuses.then(|| Refusal::new(name, self.message()))
    }
}

/// Returns the status and the stable name of a decision.
fn case(decision: &Decision) -> (StatusCode, &'static str) {
    match decision {
        Decision::Invalid(_) | Decision::Unfit(_) => (StatusCode::BAD_REQUEST, "bad_request"),
        Decision::Denied(denied) => denied_case(denied),
        Decision::NoResource { .. } | Decision::Absent(_) => (StatusCode::NOT_FOUND, "not_found"),
        Decision::Exists { kind, .. } => (StatusCode::CONFLICT, exists(*kind)),
        Decision::Conflict(_) => (StatusCode::CONFLICT, "conflict"),
        Decision::Changed { .. } => (StatusCode::PRECONDITION_FAILED, "precondition_failed"),
        Decision::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden"),
        Decision::ShareExpired | Decision::UploadOver => (StatusCode::GONE, "gone"),
        Decision::UploadTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large"),
        Decision::UploadFailed { .. } => (StatusCode::BAD_REQUEST, "bad_request"),
        Decision::Spent { .. } => (StatusCode::FORBIDDEN, "USAGE_LIMIT_EXCEEDED"),
        Decision::Quota { kind: KindName::Sandbox, .. } | Decision::OverShare(_) => {
            (StatusCode::BAD_REQUEST, "QUOTA_EXCEEDED")
        }
        Decision::Quota { .. } => (StatusCode::FORBIDDEN, "QUOTA_EXCEEDED"),
        Decision::InvalidImage(_) => (StatusCode::BAD_REQUEST, "INVALID_IMAGE"),
        Decision::NoRoom(_) | Decision::Crowded(admission::Refused::Total { .. }) => {
            (StatusCode::SERVICE_UNAVAILABLE, "NO_CAPACITY")
        }
        Decision::Snapshot(_) | Decision::Volume(_) | Decision::Machine(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "internal_error")
        }
        Decision::Egress(_) => (StatusCode::INTERNAL_SERVER_ERROR, "NETWORK_NOT_IN_EFFECT"),
        Decision::Launch(_) => (StatusCode::INTERNAL_SERVER_ERROR, "LAUNCH_FAILED"),
        Decision::TooMany { .. }
        | Decision::AnswersFull { .. }
        | Decision::Crowded(admission::Refused::Share { .. }) => {
            (StatusCode::TOO_MANY_REQUESTS, "too_many_requests")
        }
        Decision::NotQueued(why) => not_queued_case(why),
        Decision::Identity(why) => identity_case(why),
        Decision::Provider(ProviderFault::Connection { .. }) => {
            (StatusCode::BAD_REQUEST, "bad_request")
        }
        Decision::Provider(_) => (StatusCode::BAD_GATEWAY, "PROVIDER_FAILED"),
        Decision::Missing(_) => (StatusCode::NOT_IMPLEMENTED, "not_implemented"),
        Decision::Store(store::Error::Busy { .. }) => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
        Decision::Store(error) if error.is_away() => {
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
        }
        Decision::Store(store::Error::Full(_)) => (StatusCode::INSUFFICIENT_STORAGE, "disk_full"),
        Decision::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
    }
}

/// Returns members of the error body that only some decisions have.
fn more(decision: &Decision, status: StatusCode, form: ProblemsForm) -> Map<String, Value> {
    let more = match decision {
        Decision::Invalid(problems) => json!({"details": form.write(problems)}),
        Decision::Exists { .. } => json!({"status_code": status.as_u16()}),
        Decision::InvalidImage(unknown) => {
            json!({"details": {"requested_image": unknown.wanted, "supported_images": unknown.there_are}})
        }
        Decision::NoRoom(_)
        | Decision::Crowded(_)
        | Decision::NotQueued(StartError::Full { .. } | StartError::Crowded { .. })
        | Decision::TooMany { .. } => match retry_after_s(decision) {
            Some(after) => json!({"retryable": true, "retry_after": after}),
            None => json!({"retryable": true}),
        },
        _ => return Map::new(),
    };
    match more {
        Value::Object(more) => more,
        _ => Map::new(),
    }
}

fn retry_after_s(decision: &Decision) -> Option<u64> {
    match decision {
        Decision::TooMany { retry_after_s } => Some(*retry_after_s),
        Decision::Crowded(_)
        | Decision::NotQueued(StartError::Full { .. } | StartError::Crowded { .. }) => Some(1),
        Decision::Store(error) if error.is_away() => Some(1),
        _ => None,
    }
}

/// Returns the code by which published clients recognize that a name is taken.
fn exists(kind: KindName) -> &'static str {
    match kind {
        KindName::Sandbox => "SANDBOX_ALREADY_EXISTS",
        KindName::Volume => "VOLUME_ALREADY_EXISTS",
        KindName::Drive => "DRIVE_ALREADY_EXISTS",
        KindName::Application => "APPLICATION_ALREADY_EXISTS",
        _ => "conflict",
    }
}

fn not_queued_case(why: &StartError) -> (StatusCode, &'static str) {
    match why {
        StartError::Tasks { .. } | StartError::NeverFits(_) => {
            (StatusCode::BAD_REQUEST, "bad_request")
        }
        StartError::Taken(_) => (StatusCode::CONFLICT, "conflict"),
        StartError::UsedUp { .. } => (StatusCode::FORBIDDEN, "forbidden"),
        StartError::Full { .. } | StartError::Crowded { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "too_many_requests")
        }
        StartError::Store(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"),
    }
}

fn identity_case(why: &auth::Error) -> (StatusCode, &'static str) {
    use auth::Error as Identity;
    match why {
        Identity::NotFound { .. } => (StatusCode::NOT_FOUND, "not_found"),
        Identity::Exists(_) | Identity::LastAdmin | Identity::LastAccountAdmin => {
            (StatusCode::CONFLICT, "conflict")
        }
        Identity::InvitationExpired => (StatusCode::GONE, "gone"),
        Identity::TooMany { .. } => (StatusCode::FORBIDDEN, "forbidden"),
        Identity::Denied(denied) => denied_case(denied),
        // These are converted into decisions of their own before they get here.
        Identity::Invalid(_) | Identity::Crowded(_) | Identity::Store(_) => {
            (StatusCode::INTERNAL_SERVER_ERROR, "internal_error")
        }
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

/// The form in which an answer has the problems of a body, in `details`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProblemsForm {
    List,
    /// `{"problems": […]}`, for operations whose errors have a schema with an object there: published
    /// clients read no list.
    Object,
}

impl ProblemsForm {
    pub(crate) fn of(line: &Line) -> Self {
        match line.id.as_str() {
            "CreateSandbox" => Self::Object,
            _ => Self::List,
        }
    }

    fn write(self, problems: &Problems) -> Value {
        match self {
            Self::List => json!(problems),
            Self::Object => json!({"problems": problems}),
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        self.answer(ProblemsForm::List)
    }
}

impl Error {
    pub(crate) fn answer(self, form: ProblemsForm) -> Response {
        let (status, name) = self.case();
        self.log_failure(status);
        let decision = match &self {
            Self::Control(decision) => Some(decision),
            _ => None,
        };
        let body = ErrorBody {
            error: name.into(),
            code: i64::from(status.as_u16()),
            message: self.message(),
            more: decision.map(|decision| more(decision, status, form)).unwrap_or_default(),
        };
        let mut response = Response::new(Body::from(control::json::bytes(&body)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    /// Counts the lines that are written to the log.
    #[derive(Clone, Default)]
    struct Lines(Arc<AtomicUsize>);

    impl Subscriber for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn whoever_asks_while_the_database_goes_away_may_ask_again() {
        let broken = || Box::new(std::io::Error::other("broken"));
        for away in [
            store::Error::Busy { limit: 1 },
            store::Error::Unreachable(None),
            store::Error::Interrupted(broken()),
            store::Error::Uncertain(broken()),
        ] {
            let answer = Error::from(away);
            assert_eq!(answer.case().0, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
            assert_eq!(answer.retry_after_s(), Some(1), "{answer:?}");
        }
        let failed = Error::from(store::Error::Database(broken()));
        assert_eq!(failed.case().0, StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(failed.retry_after_s(), None);
    }

    #[test]
    fn what_strangers_can_cause_while_the_database_is_away_is_logged_at_a_limited_rate() {
        let broken = || Box::new(std::io::Error::other("no route to it"));
        let lines = |error: store::Error| {
            let lines = Lines::default();
            let answer = || Error::from(error).into_response();
            let response = tracing::subscriber::with_default(lines.clone(), answer);
            let refusal = response.extensions().get::<Refusal>().cloned();
            (lines.0.load(Ordering::Relaxed), refusal.map(|refusal| refusal.message))
        };
        for error in [store::Error::Unreachable(Some(broken())), store::Error::Full(broken())] {
            let (written, refusal) = lines(error);
            assert!(
                refusal.is_some_and(|why| why.contains("no route to it")),
                "why, for operators"
            );
            assert_eq!(written, 0);
        }
        assert_eq!(lines(store::Error::Database(broken())), (1, None));
    }
}
