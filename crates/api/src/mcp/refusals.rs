//! Refusals of the protocol library, in the form of all other errors of the management API.

use crate::http::error::Error;
use crate::http::malformed::Malformed;
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use serde::de::IgnoredAny;

/// Checks what the library has no answer of its own for: whether a body says that it is JSON, and
/// is. To the library, JSON that cannot be read is of the wrong type.
pub(super) fn require_json(headers: &HeaderMap, body: &[u8]) -> Result<(), Error> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let essence = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if !essence.trim().eq_ignore_ascii_case("application/json") {
        return Err(Error::MediaType);
    }
    if body.is_empty() {
        return Err(Malformed::NoBody.into());
    }
    let read = serde_json::from_slice::<IgnoredAny>(body);
    read.map(drop)
        .map_err(|error| Malformed::NotJson { line: error.line(), column: error.column() }.into())
}

/// Returns an answer of the library, or the refusal that it is. Those have no type and plain text,
/// unlike answers to messages.
pub(super) async fn checked(answer: Response) -> Result<Response, Error> {
    let is_message = answer.headers().contains_key(header::CONTENT_TYPE);
    match answer.status() {
        status if status.is_success() || is_message => Ok(answer),
        StatusCode::NOT_ACCEPTABLE => Err(Error::NotAcceptable),
        // The type was right, so it is the body.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Err(Malformed::NotRpc.into()),
        _ => {
            let text = answer.into_body().collect().await.map(|text| text.to_bytes());
            let why = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
            Err(Malformed::Mcp { why }.into())
        }
    }
}
