//! Headers of every answer, and of every page that people type secrets into.

use axum::response::Response;
use http::{HeaderName, HeaderValue, header};

/// Adds the headers that every answer has.
pub(crate) async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Adds what keeps a page to itself: no framing, caching, sniffing or referrers to other sites, and
/// nothing is loaded except what `policy` allows.
pub(crate) fn guard_page(mut response: Response, policy: HeaderValue) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    for (name, value) in [
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Our own pages get the referrer, because browsers would otherwise not name the origin of
        // our forms either.
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
