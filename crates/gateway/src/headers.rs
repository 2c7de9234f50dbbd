//! The header fields that the data plane reads, sets or removes.

use crate::peer::Peer;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Version};
use types::edge::headers::{are_one, is_reserved};
use types::parts::TextMap;

macro_rules! names {
    ($($name:ident = $text:literal;)*) => {
        $(pub(crate) const $name: HeaderName = HeaderName::from_static($text);)*
    };
}

names! {
    SERVICE_WORKER = "service-worker";
    PUBLISHED_AUTHORIZATION = "x-blaxel-authorization";
    NEUTRAL_AUTHORIZATION = "x-service-authorization";
    PREVIEW_TOKEN = "x-blaxel-preview-token";
    SUBJECT_ID = "x-blaxel-subject-id";
    SUBJECT_TYPE = "x-blaxel-subject-type";
    AUTH_METHOD = "x-blaxel-auth-method";
    REQUEST_ID = "x-request-id";
    FORWARDED_FOR = "x-forwarded-for";
    FORWARDED_PROTO = "x-forwarded-proto";
    FORWARDED_HOST = "x-forwarded-host";
    FALLBACK = "x-blaxel-fallback";
    FALLBACK_PREVIEW = "x-blaxel-fallback-preview";
    FALLBACK_DOMAIN = "x-blaxel-fallback-domain";
    SOURCE = "x-blaxel-source";
    THREAD = "x-blaxel-thread-id";
    NEUTRAL_THREAD = "x-service-thread-id";
    MCP_SESSION = "mcp-session-id";
    SERVER_TIMING = "server-timing";
    KEEP_ALIVE = "keep-alive";
    PROXY_CONNECTION = "proxy-connection";
}

/// Only this edge may send these to a workload.
static OURS: [HeaderName; 9] = [
    SUBJECT_ID,
    SUBJECT_TYPE,
    AUTH_METHOD,
    PUBLISHED_AUTHORIZATION,
    NEUTRAL_AUTHORIZATION,
    PREVIEW_TOKEN,
    FALLBACK,
    FALLBACK_PREVIEW,
    FALLBACK_DOMAIN,
];

/// Says who the caller is. Set by this edge, unless a trusted proxy has done so.
static FORWARDED: [HeaderName; 4] =
    [FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST, header::FORWARDED];

/// Headers that apply to a single connection.
static HOP: [HeaderName; 8] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Returns the headers of a preview, leaving out those that would change where a message ends or
/// who appears to have sent it.
pub(crate) fn settable(wanted: &TextMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in wanted {
        let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value))
        else {
            continue;
        };
        if !is_reserved(name.as_str()) {
            headers.insert(name, value);
        }
    }
    headers
}

/// Sets each field, replacing what was there.
pub(crate) fn set_all(headers: &mut HeaderMap, wanted: &HeaderMap) {
    for (name, value) in wanted {
        headers.insert(name, value.clone());
    }
}

/// Removes all of `names`. Most messages have none of them, which one pass over their few headers
/// tells.
pub(crate) fn remove_any(headers: &mut HeaderMap, names: &[HeaderName]) {
    if headers.keys().any(|name| names.contains(name)) {
        for name in names {
            headers.remove(name);
        }
    }
}

/// Removes the headers that only this edge may send, and any that a workload could mistake for
/// them. `preview` holds the headers that will be set later.
pub(crate) fn remove_ours(headers: &mut HeaderMap, preview: Option<&HeaderMap>) {
    remove_any(headers, &OURS);
    let said_here = |name: &HeaderName| {
        let is_one = |said: &HeaderName| are_one(name.as_str(), said.as_str());
        is_reserved(name.as_str()) || FORWARDED.iter().chain([&REQUEST_ID]).any(is_one)
    };
    let set_later = |name: &HeaderName| {
        preview.is_some_and(|set| {
            set.keys().any(|set| set != name && are_one(set.as_str(), name.as_str()))
        })
    };
    remove_where(headers, |name| {
        (name.as_str().contains('_') && said_here(name)) || set_later(name)
    });
}

/// Removes from the trailers of a request what only this edge may say, and what is set for the
/// `preview`, in every spelling: some servers put trailers among the headers.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap, preview: Option<&HeaderMap>) {
    let said_here = |name: &HeaderName| {
        let is_one = |said: &HeaderName| are_one(name.as_str(), said.as_str());
        is_reserved(name.as_str())
            || FORWARDED.iter().chain([&REQUEST_ID]).any(is_one)
            || preview.is_some_and(|set| set.keys().any(is_one))
    };
    remove_where(trailers, said_here);
}

/// Removes from the trailers of an answer what only this edge may say, or applies to a single
/// connection.
pub(crate) fn clean_answer_trailers(trailers: &mut HeaderMap) {
    remove_where(trailers, |name| is_reserved(name.as_str()));
}

fn remove_where(headers: &mut HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) {
    let unwanted: Vec<HeaderName> = headers.keys().filter(|name| unwanted(name)).cloned().collect();
    for name in unwanted {
        headers.remove(name);
    }
}

/// Returns the protocol that a client wants to switch to. `h2c` is refused, because it would let
/// later requests on the connection pass unchecked.
pub(crate) fn upgrade(headers: &HeaderMap, version: Version) -> Option<HeaderValue> {
    let asked = version == Version::HTTP_11 && lists(headers, &header::CONNECTION, "upgrade");
    let protocol = headers.get(header::UPGRADE).filter(|_| asked)?;
    let text = protocol.to_str().ok()?;
    let hidden = text.split(',').any(|name| {
        let name = name.trim().to_ascii_lowercase();
        name.starts_with("h2") || name.starts_with("http")
    });
    (!hidden).then(|| protocol.clone())
}

pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    lists(headers, &header::UPGRADE, "websocket")
}

fn lists(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(wanted))
}

/// Removes the headers of a single connection, and those that `Connection` names. `TE: trailers` is
/// kept, because trailers are passed on. A length beside `Transfer-Encoding` counts for nothing, so
/// it must not be left behind as if it did.
pub(crate) fn remove_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    let trailers = headers.contains_key(header::TE) && lists(headers, &header::TE, "trailers");
    if headers.contains_key(header::CONNECTION) {
        remove_named(headers);
    }
    remove_any(headers, &HOP);
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

fn remove_named(headers: &mut HeaderMap) {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> = values
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named {
        // A client must not remove the length or the target of its own message.
        if name != header::HOST && name != header::CONTENT_LENGTH {
            headers.remove(name);
        }
    }
}

/// Tells the workload who sent the request and which host it asked for.
pub(crate) fn forwarded(headers: &mut HeaderMap, peer: Option<Peer>, trusted: bool) {
    if !trusted {
        remove_any(headers, &FORWARDED);
    }
    let host = headers.get(header::HOST).cloned();
    if let (Some(host), false) = (host, headers.contains_key(FORWARDED_HOST)) {
        headers.insert(FORWARDED_HOST, host);
    }
    let Some(peer) = peer else { return };
    headers.insert(
        FORWARDED_PROTO,
        HeaderValue::from_static(if peer.secure { "https" } else { "http" }),
    );
    // Several fields are read as one list.
    headers.append(FORWARDED_FOR, ascii(&peer.address.to_string()));
}

/// Turns text that the server itself made into a header value.
#[expect(clippy::expect_used, reason = "such texts are printable ASCII")]
pub(crate) fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("printable ASCII is a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The management side refuses previews that set them, so both have to know the same ones.
    #[test]
    fn no_preview_sets_what_the_edge_sets_or_reads() {
        for name in HOP.iter().chain(&OURS).chain([&header::CONTENT_LENGTH, &SOURCE]) {
            assert!(is_reserved(name.as_str()), "{name}");
        }
        for name in FORWARDED.iter().chain([&REQUEST_ID, &header::HOST]) {
            assert!(!is_reserved(name.as_str()), "{name}");
        }
    }
}
