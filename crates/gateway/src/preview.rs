//! Previews: who may open one, how a browser stays in, and what is said to pages of other origins.

use crate::body::Body;
use crate::headers;
use crate::query;
use crate::routes::Preview;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, CACHE_CONTROL, COOKIE, HOST, LOCATION};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::{Digest, Sha256};
use types::Timestamp;
use types::edge::{Opens, TokenRoute};

pub(crate) const TOKEN_PARAMETER: &str = "bl_preview_token";
/// Browsers say with it what a request is for; only they can.
const FETCH_MODE: &str = "sec-fetch-mode";
const COOKIE_NAME: &str = "holm_preview";
/// What a cookie may hold as it is.
const COOKIE_SAFE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How a request shows the token of a preview.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Key {
    None,
    Wrong,
    Kept,
    /// In the address itself: what the page loads next will come without it.
    InQuery {
        token: String,
    },
}

pub(crate) fn key(head: &Parts, tokens: &[TokenRoute], now: Timestamp) -> Key {
    let mut any = false;
    let mut opens = |token: &str| {
        any = true;
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        tokens.iter().any(|known| known.digest == digest && known.expires_at.is_none_or(|end| now < end))
    };
    if head.headers.get_all(headers::PREVIEW_TOKEN).iter().filter_map(|value| value.to_str().ok()).any(&mut opens) {
        return Key::Kept;
    }
    if let Some(token) = query::values(head.uri.query(), TOKEN_PARAMETER).find(|token| opens(token)) {
        return Key::InQuery { token: token.into_owned() };
    }
    if cookies(&head.headers).any(|token| opens(&token)) {
        return Key::Kept;
    }
    if any { Key::Wrong } else { Key::None }
}

fn cookies(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|cookies| cookies.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    pairs
        .filter(|(name, _)| *name == COOKIE_NAME)
        .filter_map(|(_, value)| percent_decode_str(value).decode_utf8().ok().map(Into::into))
}

/// Lets a browser stay in: what a page loads carries the token without the page's doing. A page within the frame of
/// another site is let in too, which browsers allow on secure connections only.
pub(crate) fn cookie(token: &str, root: &str, secure: bool) -> Option<HeaderValue> {
    let site = if secure { "SameSite=None; Secure" } else { "SameSite=Lax" };
    let value = utf8_percent_encode(token, COOKIE_SAFE);
    HeaderValue::try_from(format!("{COOKIE_NAME}={value}; Path={root}; HttpOnly; {site}")).ok()
}

/// The workload has no use for the token, and must not be able to use it elsewhere.
pub(crate) fn remove_cookie(headers: &mut HeaderMap) {
    let holds = |value: &HeaderValue| value.as_bytes().windows(COOKIE_NAME.len()).any(|w| w == COOKIE_NAME.as_bytes());
    if !headers.get_all(COOKIE).iter().any(holds) {
        return;
    }
    let ours = |cookie: &&[u8]| {
        let name = cookie.trim_ascii().split(|byte| *byte == b'=').next().unwrap_or_default();
        name.trim_ascii() == COOKIE_NAME.as_bytes()
    };
    let all: Vec<HeaderValue> = headers.get_all(COOKIE).iter().cloned().collect();
    headers.remove(COOKIE);
    for value in all {
        let kept: Vec<&[u8]> = value.as_bytes().split(|byte| *byte == b';').filter(|cookie| !ours(cookie)).collect();
        match HeaderValue::from_bytes(kept.join(&b';').trim_ascii()) {
            Ok(value) if !value.is_empty() => {
                headers.append(COOKIE, value);
            }
            _ => {}
        }
    }
}

/// The answer to the question of a browser whether a page may send a request. Such questions never carry credentials.
pub(crate) fn preflight(head: &Parts, preview: &Preview) -> Option<Response<Body>> {
    let asks = head.method == Method::OPTIONS && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    if !asks || !preview.answers_preflights() {
        return None;
    }
    let mut response = Response::new(Body::own(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    headers::set_all(response.headers_mut(), &preview.response_headers);
    Some(response)
}

/// Sends a browser that opens a preview of this machine by its path to the host that the preview has for itself. There,
/// links from the root of the page work, and the page is of another origin than the server's own pages. Programs stay:
/// they rarely find hosts below `localhost`.
pub(crate) fn to_own_host(head: &Parts, label: &str, rest: &str) -> Option<Response<Body>> {
    if head.headers.get(FETCH_MODE)? != "navigate" {
        return None;
    }
    let named = head.headers.get(HOST).and_then(|host| host.to_str().ok()?.parse().ok());
    let authority: Authority = head.uri.authority().cloned().or(named)?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    if host != "localhost" && !host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()) {
        return None;
    }
    let port = authority.port().map(|port| format!(":{port}")).unwrap_or_default();
    let rest = if rest.is_empty() { "/" } else { rest };
    let query = head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut response = Response::new(Body::own(""));
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let headers = response.headers_mut();
    headers.insert(LOCATION, format!("http://{label}.preview.localhost{port}{rest}{query}").try_into().ok()?);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Some(response)
}

pub(crate) fn tokens(opens: &Opens) -> Option<&[TokenRoute]> {
    match opens {
        Opens::ToAll => None,
        Opens::ToTokens(tokens) => Some(tokens),
    }
}
