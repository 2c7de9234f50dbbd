//! The head of an answer as the caller gets it.

use super::served::Served;
use crate::{headers, origin};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, SET_COOKIE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

/// Names the model that answered.
const ANSWERED_BY: HeaderName = HeaderName::from_static("x-holm-model");
/// Lists what a translation could not express.
pub(super) const LEFT_OUT: HeaderName = HeaderName::from_static("x-holm-left-out");
pub(super) const CACHE: HeaderName = HeaderName::from_static("x-holm-cache");

/// Reduces a provider's headers to those that the caller gets.
pub(super) fn dress(headers: &mut HeaderMap, model: &Served, is_same: bool) {
    headers::remove_hop(headers);
    headers.remove(TRANSFER_ENCODING);
    headers.remove(SET_COOKIE);
    headers.remove(headers::SOURCE);
    headers.remove(CONTENT_LENGTH);
    if !is_same {
        headers.remove(CONTENT_ENCODING);
    }
    for name in [ANSWERED_BY, LEFT_OUT, CACHE] {
        headers.remove(name);
    }
    origin::confine(headers, true);
    if let Ok(name) = HeaderValue::try_from(&model.route.name) {
        headers.insert(ANSWERED_BY, name);
    }
}

/// Builds an answer with a new head.
pub(super) fn response<B>(status: StatusCode, headers: HeaderMap, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
