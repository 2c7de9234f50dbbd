//! Headers of every answer.

use axum::response::Response;
use http::{HeaderValue, header};

/// Adds the headers that every answer has.
pub(crate) async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
