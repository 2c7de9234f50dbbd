//! Headers that must not be passed on, most of them because they apply to one connection.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

static HOP: [HeaderName; 9] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HTTP2_SETTINGS,
];

/// Headers that end a message or say whom it is for. They stay even if `Connection` lists them.
static KEPT: [HeaderName; 2] = [header::CONTENT_LENGTH, header::HOST];

pub(super) fn remove_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &header::CONNECTION)
        .filter_map(|token| HeaderName::try_from(token).ok())
        .filter(|name| !KEPT.contains(name))
        .collect();
    for name in HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

/// Removes headers of an answer that are not for the program. An alternative service for the host
/// would be a way around the rules.
pub(super) fn clean_answer(headers: &mut HeaderMap) {
    remove_hop(headers);
    headers.remove(header::ALT_SVC);
}

/// Returns the items of a list in a header.
pub(super) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// Joins cookies into one header for HTTP/1.1. HTTP/2 may send them one by one.
pub(super) fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_none() {
        return;
    }
    let is_sensitive = headers.get_all(header::COOKIE).iter().any(HeaderValue::is_sensitive);
    let cookies: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // Valid values that are joined by valid characters are a valid value.
    if let Ok(mut joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..])) {
        joined.set_sensitive(is_sensitive);
        headers.insert(header::COOKIE, joined);
    }
}
