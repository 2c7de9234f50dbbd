//! Reads the credentials of members and accounts from requests.

use crate::{headers, query};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use std::borrow::Cow;
use types::KindName;

/// Query parameter for credentials. Accepted only for WebSocket handshakes and the page of a
/// sandbox's terminal, where browsers cannot set headers.
pub(crate) const TOKEN_PARAMETER: &str = "token";

/// In order of precedence. The `X-` forms win, because provider libraries put a dummy value into
/// `Authorization`.
const NAMES: [HeaderName; 3] =
    [headers::PUBLISHED_AUTHORIZATION, headers::NEUTRAL_AUTHORIZATION, AUTHORIZATION];

pub(crate) struct Shown<'r> {
    pub(crate) token: Cow<'r, str>,
    /// Whether `Authorization` holds the token. If not, that header is for the workload.
    pub(crate) in_authorization: bool,
    pub(crate) in_query: bool,
}

/// Returns the credentials that the request shows, if any. `is_terminal` is what [`is_terminal`]
/// says.
pub(crate) fn shown(head: &Parts, is_terminal: bool) -> Option<Shown<'_>> {
    let by_header = token(&head.headers).map(Cow::Borrowed);
    let takes_query = is_terminal || headers::is_websocket(&head.headers);
    let by_query =
        || query::values(head.uri.query(), TOKEN_PARAMETER).find(|token| !token.is_empty());
    let in_query = if takes_query { by_query() } else { None };
    let token = by_header.or_else(|| in_query.clone())?;
    let authorization = head.headers.get(AUTHORIZATION).and_then(bearer);
    Some(Shown {
        in_authorization: authorization == Some(&*token),
        in_query: in_query.as_ref() == Some(&token),
        token,
    })
}

/// Returns whether a person opens the page of a sandbox's terminal. `rest` is the path within a
/// workload of this kind, and empty if that leads past its guest program.
pub(crate) fn is_terminal(head: &Parts, kind: KindName, rest: &str) -> bool {
    kind == KindName::Sandbox && head.method == Method::GET && rest == "/terminal"
}

/// Returns the credentials that the headers show, if any.
pub(crate) fn token(headers: &HeaderMap) -> Option<&str> {
    NAMES.iter().find_map(|name| bearer(headers.get(name)?))
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}
