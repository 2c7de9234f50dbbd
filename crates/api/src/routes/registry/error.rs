//! Refusals in the format of the registry protocol.

use crate::http::error::Error;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use control::registry::RegistryFault;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde_json::json;
use types::own_image::BadImageName;

#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The refusal to be logged, if the caller lacks the right, or the server its database.
    noted: Option<Box<types::error::Refusal>>,
    /// What is wrong with the token, in the terms of the token protocol.
    pub(super) token_fault: Option<&'static str>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, code, message, headers: Vec::new(), noted: None, token_fault: None }
    }

    /// The token was issued for something else. The program then asks for another one.
    pub(super) fn beyond_token() -> Self {
        let why = "the token was not given for this";
        let refusal = Self::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", why);
        Self { token_fault: Some("insufficient_scope"), ..refusal }
    }

    /// A registry token that is no longer valid.
    pub(super) fn bad_token(denied: auth::Denied) -> Self {
        Self { token_fault: Some("invalid_token"), ..Self::from(denied) }
    }

    pub(super) fn wants_credentials(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    pub(super) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// No tag exists there, or ever has.
    pub(super) fn no_name() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NAME_UNKNOWN", "the workspace has no such repository")
    }

    pub(super) fn no_route() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "NAME_INVALID",
            "nothing is here; repositories are `{workspace}/{type}/{name}`",
        )
    }

    pub(super) fn no_method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "UNSUPPORTED", "not with this method")
    }
}

impl From<BadImageName> for Refusal {
    fn from(bad: BadImageName) -> Self {
        let code = match bad {
            BadImageName::Type | BadImageName::Name => "NAME_INVALID",
            BadImageName::Tag => "TAG_INVALID",
            BadImageName::Digest => "DIGEST_INVALID",
        };
        Self::new(StatusCode::BAD_REQUEST, code, format!("the name {bad}"))
    }
}

impl From<RegistryFault> for Refusal {
    fn from(fault: RegistryFault) -> Self {
        use RegistryFault as Fault;
        let (status, code) = match &fault {
            Fault::BadDigest | Fault::WrongDigest => (StatusCode::BAD_REQUEST, "DIGEST_INVALID"),
            Fault::NoBlob => (StatusCode::NOT_FOUND, "BLOB_UNKNOWN"),
            Fault::NoManifest | Fault::Elsewhere => (StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN"),
            Fault::NoUpload => (StatusCode::NOT_FOUND, "BLOB_UPLOAD_UNKNOWN"),
            Fault::OutOfOrder(_) => (StatusCode::RANGE_NOT_SATISFIABLE, "BLOB_UPLOAD_INVALID"),
            Fault::Busy => (StatusCode::CONFLICT, "BLOB_UPLOAD_INVALID"),
            Fault::Cut => (StatusCode::BAD_REQUEST, "BLOB_UPLOAD_INVALID"),
            Fault::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "SIZE_INVALID"),
            Fault::NoPart(_) => (StatusCode::NOT_FOUND, "MANIFEST_BLOB_UNKNOWN"),
            Fault::WrongSize(_) => (StatusCode::BAD_REQUEST, "SIZE_INVALID"),
            Fault::Malformed(_) => (StatusCode::BAD_REQUEST, "MANIFEST_INVALID"),
            // As for a tag that is in use.
            Fault::Needed => (StatusCode::BAD_REQUEST, "DENIED"),
            // No client should retry by itself: only its user can make room.
            Fault::Full(admission::Refused::Share { .. }) => (StatusCode::FORBIDDEN, "DENIED"),
            Fault::Crowded(_) => (StatusCode::TOO_MANY_REQUESTS, "TOOMANYREQUESTS"),
            Fault::Full(admission::Refused::Total { .. }) => {
                (StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE")
            }
            Fault::DiskFull => (StatusCode::INSUFFICIENT_STORAGE, "DENIED"),
            Fault::Broken(_) => (StatusCode::INTERNAL_SERVER_ERROR, "UNKNOWN"),
        };
        let refusal = Self::new(status, code, fault.to_string());
        match fault {
            Fault::OutOfOrder(size) => refusal.with(header::RANGE, range(size)),
            Fault::Crowded(_) => refusal.with(header::RETRY_AFTER, HeaderValue::from_static("1")),
            _ => refusal,
        }
    }
}

/// Returns how much of an upload has arrived, in the format of the protocol: the position of the
/// last byte.
pub(super) fn range(size: u64) -> HeaderValue {
    let text = format!("0-{}", size.saturating_sub(1));
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("0-0"))
}

/// Converts everything that is decided as for any other request.
impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let (status, name) = error.case();
        error.log_failure(status);
        let code = match status {
            StatusCode::UNAUTHORIZED => "UNAUTHORIZED",
            StatusCode::FORBIDDEN
            | StatusCode::BAD_REQUEST
            | StatusCode::CONFLICT
            | StatusCode::INSUFFICIENT_STORAGE => "DENIED",
            StatusCode::NOT_FOUND => "NAME_UNKNOWN",
            StatusCode::PAYLOAD_TOO_LARGE => "SIZE_INVALID",
            StatusCode::TOO_MANY_REQUESTS => "TOOMANYREQUESTS",
            StatusCode::SERVICE_UNAVAILABLE => "UNAVAILABLE",
            _ => "UNKNOWN",
        };
        let noted = error.refusal(status, name).map(Box::new);
        let refusal = Self { noted, ..Self::new(status, code, error.message()) };
        match error.retry_after_s() {
            Some(seconds) => refusal.with(header::RETRY_AFTER, HeaderValue::from(seconds)),
            None => refusal,
        }
    }
}

macro_rules! through_error {
    ($($source:ty),+) => {$(
        impl From<$source> for Refusal {
            fn from(source: $source) -> Self {
                Error::from(source).into()
            }
        }
    )+};
}

through_error!(admission::Refused, auth::Denied, control::Error, store::Error);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body =
            json!({"errors": [{"code": self.code, "message": self.message, "detail": null}]});
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        if let Some(noted) = self.noted {
            response.extensions_mut().insert(*noted);
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(self.headers);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_is_refused_alike_whether_it_is_a_blob_or_a_tag() {
        let refusal = Refusal::from(RegistryFault::Needed);
        assert_eq!((refusal.status, refusal.code), (StatusCode::BAD_REQUEST, "DENIED"));
    }

    #[test]
    fn a_full_disk_is_told_in_the_words_of_the_protocol() {
        let database = store::Error::Full("no space".into());
        for refusal in [Refusal::from(RegistryFault::DiskFull), Refusal::from(database)] {
            let case = (refusal.status, refusal.code);
            assert_eq!(case, (StatusCode::INSUFFICIENT_STORAGE, "DENIED"));
            assert!(refusal.message.contains("full"), "{}", refusal.message);
        }
    }
}
