//! What answers of the registry are made of.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode};

pub(super) const DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

pub(super) fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Builds a header value. Such texts consist only of parts of a path and of digits.
pub(super) fn header_of(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|error| {
        tracing::error!(%error, text, "a header of the registry cannot be written");
        HeaderValue::from_static("")
    })
}
