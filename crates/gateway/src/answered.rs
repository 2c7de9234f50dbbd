//! The parts of the sandbox API that the server answers itself, because root inside a sandbox must
//! not decide them.

pub(crate) mod drives;
pub(crate) mod tunnels;

use crate::body::Body;
use crate::problem::Problem;
use crate::wire::BoxError;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::fmt::Display;
use std::future::Future;
use types::guest::ANSWER_HEADERS;
use types::ids::ResourceId;

/// A request for one of these parts.
pub(crate) trait Answered: Send + 'static {
    /// The service that carries it out.
    type By: Send + Sync + ?Sized + 'static;
    const BODY_BYTES_MAX: usize;

    /// Whether the sandbox has to be awake, and stay awake, while this is answered.
    fn needs_instance(&self) -> bool;

    /// Returns the answer in the form that the sandbox API has.
    fn answer(
        self,
        by: &Self::By,
        sandbox: &ResourceId,
        body: &[u8],
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// Returns what is wrong with a body that could not be read, of which at most `bytes_max` are taken.
pub(crate) fn unread(error: &BoxError, bytes_max: usize) -> Problem {
    match error.is::<LengthLimitError>() {
        true => Problem::TooLarge(bytes_max as u64),
        false => Problem::BadRequest("the body of the request was cut off"),
    }
}

/// Reads a body that has to be a JSON object: serde also fills a struct from the entries of a list.
pub(crate) fn read_object<T: DeserializeOwned>(body: &[u8]) -> serde_json::Result<T> {
    let object = serde_json::from_slice::<Map<String, Value>>(body)?;
    serde_json::from_value(Value::Object(object))
}

pub(crate) fn respond(status: StatusCode, body: &Value) -> Response<Body> {
    let mut response = respond_empty(status);
    *response.body_mut() = Body::own(Bytes::from(body.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns a refusal. One for which the server is at fault only now says when to try again.
pub(crate) fn refuse(status: StatusCode, refusal: &impl Display) -> Response<Body> {
    let mut response = respond(status, &json!({"error": refusal.to_string()}));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Returns an answer without a body, with the headers that every answer of the sandbox API has.
pub(crate) fn respond_empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::default());
    *response.status_mut() = status;
    // Callers must not notice who answers.
    for (name, value) in ANSWER_HEADERS {
        let name = HeaderName::from_static(name);
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::{BodyExt, Full, Limited, StreamBody};
    use std::io;

    #[test]
    fn a_list_is_no_object() {
        #[derive(Debug, serde::Deserialize)]
        struct Order {
            config: String,
        }
        assert_eq!(read_object::<Order>(br#"{"config": "a"}"#).unwrap().config, "a");
        for wrong in [&br#"["a"]"#[..], b"7", b"null", b"", b"{}"] {
            assert!(read_object::<Order>(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }

    #[tokio::test]
    async fn only_a_body_that_is_too_large_is_said_to_be() {
        let large = Limited::new(Full::new(Bytes::from_static(b"large")), 4).collect().await;
        assert!(matches!(unread(&large.unwrap_err(), 4), Problem::TooLarge(4)));
        let pieces = [
            Ok(Frame::data(Bytes::from_static(b"a"))),
            Err(io::Error::from(io::ErrorKind::ConnectionReset)),
        ];
        let cut = Limited::new(StreamBody::new(stream::iter(pieces)), 4).collect().await;
        assert!(matches!(unread(&cut.unwrap_err(), 4), Problem::BadRequest(_)));
    }
}
