//! Brings a request into the form that is signed.

use super::sha256_hex;
use http::HeaderMap;
use http::request::Parts;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::borrow::Cow;

const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const IN_PATH: &AsciiSet = &IN_QUERY.remove(b'/');

/// Encodes a key for a path.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, IN_PATH).to_string()
}

/// Decodes percent-encoding. A `+` stays as it is.
pub(crate) fn decode(text: &str) -> Option<Cow<'_, str>> {
    // An invalid escape is refused: it would be signed as one thing and read as another.
    let escapes = text.split('%').skip(1);
    let whole = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|b| b.is_ascii_hexdigit());
    if !escapes.into_iter().all(whole) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok()
}

/// Returns the decoded names and values of a query.
pub(crate) fn query(parts: &Parts) -> Option<Vec<(String, String)>> {
    let pairs = parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?.into_owned(), decode(value)?.into_owned()))
        })
        .collect()
}

/// Returns the host that the client asked for, in any version of HTTP.
fn host(parts: &Parts) -> Option<Cow<'_, str>> {
    match parts.headers.get(http::header::HOST) {
        Some(host) => Some(host.to_str().ok()?.into()),
        None => Some(parts.uri.authority()?.as_str().into()),
    }
}

/// Returns the values of a header field as they are signed.
fn field(parts: &Parts, name: &str) -> Option<String> {
    if name == "host" {
        return host(parts).map(Cow::into_owned);
    }
    let mut found = None::<String>;
    for value in parts.headers.get_all(name) {
        // Most clients sign text that is not ASCII as its plain bytes.
        let value = std::str::from_utf8(value.as_bytes()).ok()?;
        let value: Vec<&str> = value.split(' ').filter(|word| !word.is_empty()).collect();
        let value = value.join(" ");
        match &mut found {
            Some(values) => {
                values.push(',');
                values.push_str(&value);
            }
            None => found = Some(value),
        }
    }
    found
}

/// Returns the first field that must be signed but is not.
pub(super) fn unsigned(headers: &HeaderMap, signed: &[String]) -> Option<String> {
    let names = headers.keys().map(http::HeaderName::as_str);
    let mut needed = names.filter(|name| name.starts_with("x-amz-"));
    needed.find(|name| !signed.iter().any(|signed| signed == name)).map(str::to_owned)
}

/// Returns the text whose digest is signed, or `None` if a signed field is missing or cannot be
/// read.
pub(super) fn request(
    parts: &Parts,
    query: &[(String, String)],
    signed: &[String],
    payload: &str,
) -> Option<String> {
    let path = decode(parts.uri.path())?;
    let mut pairs: Vec<(String, String)> = query
        .iter()
        .filter(|(name, _)| name != "X-Amz-Signature")
        .map(|(name, value)| {
            let part = |text: &str| utf8_percent_encode(text, IN_QUERY).to_string();
            (part(name), part(value))
        })
        .collect();
    pairs.sort();
    let pairs: Vec<String> =
        pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut text = format!("{}\n{}\n{}\n", parts.method, encode(&path), pairs.join("&"));
    for name in signed {
        text.push_str(name);
        text.push(':');
        text.push_str(&field(parts, name)?);
        text.push('\n');
    }
    Some(format!("{text}\n{}\n{payload}", signed.join(";")))
}

/// Returns the text that is signed.
pub(super) fn string_to_sign(date: &str, scope: &str, request: &str) -> String {
    format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", sha256_hex(request.as_bytes()))
}
