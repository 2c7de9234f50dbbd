//! Previews: who may open one, how a browser stays signed in, and what pages of other origins get.

use crate::body::Body;
use crate::routes::Preview;
use crate::{cookies, headers, origin, query};
use http::header::{
    ACCESS_CONTROL_REQUEST_METHOD, CACHE_CONTROL, HOST, LOCATION, REFERER, REFERRER_POLICY,
    SET_COOKIE,
};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};
use types::Timestamp;
use types::browser::Fetch;
use types::edge::{Opens, TokenRoute};

pub(crate) const TOKEN_PARAMETER: &str = "bl_preview_token";
/// Browsers set this to the kind of request; scripts of a page cannot.
const FETCH_MODE: &str = "sec-fetch-mode";
/// Browsers accept the first only over a secure connection and only from the host itself.
const COOKIE_NAMES: [&str; 2] = ["__Host-holm_preview", "holm_preview"];
/// Characters that need no escape in a cookie.
const COOKIE_SAFE: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How a request shows the token of a preview.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Key {
    None,
    Wrong,
    Kept,
    /// In a cookie, but a page of another origin made the browser send it.
    FromElsewhere,
    /// In the query. What the page loads next will not have it there.
    InQuery {
        token: String,
    },
}

pub(crate) fn key(head: &Parts, tokens: &[TokenRoute], now: Timestamp) -> Key {
    let mut any = false;
    let mut opens = |token: &str| {
        any = true;
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        tokens
            .iter()
            .any(|known| known.digest == digest && known.expires_at.is_none_or(|end| now < end))
    };
    if head
        .headers
        .get_all(headers::PREVIEW_TOKEN)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(&mut opens)
    {
        return Key::Kept;
    }
    if let Some(token) = query::values(head.uri.query(), TOKEN_PARAMETER).find(|token| opens(token))
    {
        return Key::InQuery { token: token.into_owned() };
    }
    let kept = cookies::values(&head.headers, &COOKIE_NAMES).any(|token| opens(&token));
    match (kept, any) {
        (true, _) if is_from_elsewhere(head) => Key::FromElsewhere,
        (true, _) => Key::Kept,
        (false, true) => Key::Wrong,
        (false, false) => Key::None,
    }
}

/// Returns what the browser says about the request.
pub(crate) fn fetch(head: &Parts) -> Fetch<'_> {
    Fetch::of(head.method.as_str(), |name| head.headers.get(name)?.to_str().ok())
}

/// Returns whether a page of another origin made the browser send the request, and could use the
/// answer.
fn is_from_elsewhere(head: &Parts) -> bool {
    let fetch = fetch(head);
    let header = || head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let own = head.uri.authority().map(Authority::as_str).or_else(header).unwrap_or_default();
    fetch.is_from_elsewhere(|host| host.eq_ignore_ascii_case(own)) && !fetch.opens_page()
}

/// Returns the cookie that keeps a browser signed in, so that everything the page loads carries the
/// token. It is sent only to the preview's own pages. In a frame of another site, which needs a
/// secure connection, it is partitioned by that site.
pub(crate) fn cookie(head: &Parts, token: &str, root: &str, secure: bool) -> Option<HeaderValue> {
    let site = match (secure, fetch(head).is_framed()) {
        (true, true) => "SameSite=None; Partitioned; Secure",
        (true, false) => "SameSite=Lax; Secure",
        (false, _) => "SameSite=Lax",
    };
    let name = if secure && root == "/" { COOKIE_NAMES[0] } else { COOKIE_NAMES[1] };
    let value = utf8_percent_encode(token, COOKIE_SAFE);
    HeaderValue::try_from(format!("{name}={value}; Path={root}; HttpOnly; {site}")).ok()
}

/// Removes the preview's token from the `Referer` header.
pub(crate) fn clean_referer(headers: &mut HeaderMap) {
    let Some(referer) = headers.get(REFERER) else { return };
    let cleaned = referer.to_str().ok().and_then(|text| {
        let (page, query) = text.split_once('?')?;
        let kept = query::without(query, |name| name == TOKEN_PARAMETER);
        let cleaned = if kept.is_empty() { page.to_owned() } else { format!("{page}?{kept}") };
        HeaderValue::try_from(cleaned).ok()
    });
    match cleaned {
        Some(cleaned) => headers.insert(REFERER, cleaned),
        None if holds(referer, TOKEN_PARAMETER) => headers.remove(REFERER),
        None => None,
    };
}

fn holds(value: &HeaderValue, text: &str) -> bool {
    value.as_bytes().windows(text.len()).any(|window| window == text.as_bytes())
}

/// Returns the answer to a CORS preflight, if this is one. Preflights never carry credentials.
/// Its headers are the workspace's, and confined like those of any other answer; `root` is the path
/// below which the preview answers if it shares its origin.
pub(crate) fn preflight(
    head: &Parts,
    preview: &Preview,
    root: Option<String>,
) -> Option<Response<Body>> {
    let asks =
        head.method == Method::OPTIONS && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    if !asks || !preview.answers_preflights() {
        return None;
    }
    let mut response = Response::new(Body::own(""));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let all = response.headers_mut();
    headers::set_all(all, &preview.response_headers);
    cookies::from_workload(all, root.as_deref());
    origin::confine(all, root.is_some());
    Some(response)
}

/// Redirects a browser that opens something local by path to the host `front` below `localhost`,
/// where links from the root of the page work and documents need no confining. Other programs are
/// not redirected: they rarely resolve hosts below `localhost`.
pub(crate) fn to_own_host(head: &Parts, front: &str, rest: &str) -> Option<Response<Body>> {
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
    redirect(
        StatusCode::TEMPORARY_REDIRECT,
        &at(&format!("http://{front}.localhost{port}"), rest, head.uri.query()),
    )
}

/// Redirects a request for content from the origin of the server's own pages to `url`, where that
/// content is answered. Adds nothing to what was sent.
pub(crate) fn to_content(head: &Parts, url: &str, rest: &str) -> Option<Response<Body>> {
    redirect(StatusCode::TEMPORARY_REDIRECT, &at(url, rest, head.uri.query()))
}

/// Redirects to the same address without the token, so that the token is not shown, kept in the
/// history or sent as a referrer. From here on the cookie stands in for it.
pub(crate) fn without_token(head: &Parts, cookie: HeaderValue) -> Option<Response<Body>> {
    let path = head.uri.path();
    // A path that begins with two slashes would be read as the name of another host.
    let same_host = if path[1..].starts_with(['/', '\\']) { "/." } else { "" };
    let query = head.uri.query().map(|query| query::without(query, |name| name == TOKEN_PARAMETER));
    let query = query.as_deref().filter(|query| !query.is_empty());
    let mut response = redirect(StatusCode::SEE_OTHER, &at(same_host, path, query))?;
    response.headers_mut().append(SET_COOKIE, cookie);
    Some(response)
}

fn at(place: &str, rest: &str, query: Option<&str>) -> String {
    let rest = if rest.is_empty() { "/" } else { rest };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{place}{rest}{query}")
}

fn redirect(status: StatusCode, location: &str) -> Option<Response<Body>> {
    let mut response = Response::new(Body::own(""));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(LOCATION, HeaderValue::try_from(location).ok()?);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    Some(response)
}

pub(crate) fn tokens(opens: &Opens) -> Option<&[TokenRoute]> {
    match opens {
        Opens::ToAll => None,
        Opens::ToTokens(tokens) => Some(tokens),
    }
}

#[cfg(test)]
#[path = "preview_tests.rs"]
mod tests;
