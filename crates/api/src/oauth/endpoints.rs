//! The endpoints that programs call.

use super::{Body, Caller, From};
use crate::http::error::Error;
use auth::oauth::{Code, Fault, Params};
use auth::{Auth, Throttled};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::json;
use types::error::Refusal;

pub(crate) async fn token(
    State(auth): State<Auth>,
    headers: HeaderMap,
    Body(body): Body,
) -> Response {
    let authorization = authorization(&headers);
    let tokens = async { auth.token(params(&headers, &body)?, authorization).await };
    answer(tokens.await, authorization)
}

pub(crate) async fn device(
    State(auth): State<Auth>,
    From(client): From,
    headers: HeaderMap,
    Body(body): Body,
) -> Response {
    let authorization = authorization(&headers);
    let device = async { auth.begin_device(client, params(&headers, &body)?, authorization).await };
    answer(device.await, authorization)
}

pub(crate) async fn revoke(
    State(auth): State<Auth>,
    headers: HeaderMap,
    Body(body): Body,
) -> Response {
    let authorization = authorization(&headers);
    let revoked = async { auth.revoke(params(&headers, &body)?, authorization).await };
    answer(revoked.await.map(|()| json!({})), authorization)
}

pub(crate) async fn user_info(
    State(auth): State<Auth>,
    Caller(who): Caller,
) -> Result<Response, Error> {
    Ok(json_answer(&auth.user_info(&who).await?))
}

pub(crate) async fn jwks(State(auth): State<Auth>) -> Response {
    public(json_answer(&auth.jwks()))
}

pub(crate) async fn metadata(State(auth): State<Auth>) -> Response {
    public(json_answer(&auth.metadata()))
}

fn authorization(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap_or_default())
}

/// Parses the parameters. Published clients send JSON, the standard requires a form. Without a
/// content type, the first character decides.
fn params(headers: &HeaderMap, body: &[u8]) -> Result<Params, Fault> {
    let kind =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.contains("json") || (kind.is_empty() && body.starts_with(b"{")) {
        Params::from_json(body)
    } else {
        Params::from_form(body)
    }
}

fn answer<T: Serialize>(outcome: Result<T, Fault>, authorization: Option<&str>) -> Response {
    match outcome {
        Ok(content) => json_answer(&content),
        Err(fault) => refused(fault, authorization.is_some()),
    }
}

/// Answers with an error. The status is 401 only where the standard requires it: for clients that
/// tried the `Authorization` header.
fn refused(fault: Fault, by_header: bool) -> Response {
    // A device that polls until its person has confirmed is not being refused.
    let waits = |code| matches!(code, Code::AuthorizationPending | Code::SlowDown);
    let told = match &fault {
        Fault::Refused { code, description } if !waits(*code) => {
            Some(Refusal::new(code.name(), description.clone()))
        }
        _ => None,
    };
    let (status, error, description) = match fault {
        Fault::Refused { code: Code::InvalidClient, description } if by_header => {
            (StatusCode::UNAUTHORIZED, Code::InvalidClient.name(), description)
        }
        Fault::Throttled(throttled) => return slower(throttled),
        Fault::Refused { code, description } => (StatusCode::BAD_REQUEST, code.name(), description),
        Fault::Store(error) => return Error::from(error).into_response(),
    };
    let body = json!({
        "error": error, "error_description": description, "code": status.as_u16(), "message": description,
    });
    let mut response = json_answer(&body);
    *response.status_mut() = status;
    if let Some(refusal) = told {
        response.extensions_mut().insert(refusal);
    }
    if status == StatusCode::UNAUTHORIZED {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"holm\""));
    }
    response
}

fn slower(throttled: Throttled) -> Response {
    let message = throttled.to_string();
    let body = json!({
        "error": Code::SlowDown.name(), "error_description": message, "code": 429, "message": message,
    });
    let mut response = json_answer(&body);
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response.headers_mut().insert(header::RETRY_AFTER, throttled.wait_s.into());
    response.extensions_mut().insert(Refusal::new("too_many_requests", message));
    response
}

pub(super) fn json_answer(body: &impl Serialize) -> Response {
    let body = control::json::bytes(body);
    let mut response =
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body)
            .into_response();
    // Answers contain tokens (RFC 6749, section 5.1).
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn public(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
        .headers_mut()
        .insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}
