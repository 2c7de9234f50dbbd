//! Webhooks of a code host, for workspaces that have runners for it. They carry no credentials of
//! ours: each is signed with a secret that the workspace shares with the code host.

use crate::http::bodies::{Bodies, gather};
use crate::http::error::Error;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jobs::runners::{Runners, WEBHOOK_BYTES_MAX, Webhook, WebhookRefused};
use types::error::Refusal;

/// Receives what a workflow reports about a job: `POST /v0/webhooks/github/{workspace}`.
pub(crate) async fn take(
    State(runners): State<Runners>,
    Path(workspace): Path<String>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let headers = parts.headers;
    let room = Bodies::at(&parts.extensions).of_stranger(&parts.extensions);
    let body = match gather(body, WEBHOOK_BYTES_MAX, room).await {
        Ok(body) => body,
        Err(error) => return error.into_response(),
    };
    let webhook = Webhook {
        event: text(&headers, "x-github-event"),
        delivery: text(&headers, "x-github-delivery"),
        signature: text(&headers, "x-hub-signature-256"),
        body: &body,
    };
    match runners.take(&workspace, webhook).await {
        Ok(()) => StatusCode::OK.into_response(),
        // The answer does not say what was wrong, not even whether the workspace exists.
        Err(WebhookRefused::Unsigned) => {
            let why = "the webhook is not signed with the secret of its workspace";
            refused(StatusCode::UNAUTHORIZED, Refusal::new("unauthorized", why))
        }
        Err(WebhookRefused::Busy) => {
            let why = "too many webhooks of its workspace are being taken";
            let mut response =
                refused(StatusCode::SERVICE_UNAVAILABLE, Refusal::new("too_many_requests", why));
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        Err(WebhookRefused::Store(error)) => Error::from(error).into_response(),
    }
}

/// Answers with a bare status, and has the reason logged.
fn refused(status: StatusCode, refusal: Refusal) -> Response {
    let mut response = status.into_response();
    response.extensions_mut().insert(refusal);
    response
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
