//! The layer around every request, and the endpoints for monitoring: `/health`, `/ready`,
//! `/metrics`.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::{FutureExt, StreamExt};
use http::{StatusCode, header};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Map, json};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;
use store::Store;
use tokio_util::sync::CancellationToken;
use types::ErrorBody;

/// If the store takes longer than this, the server is not ready.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(crate) struct Probes {
    pub(crate) store: Store,
    pub(crate) draining: CancellationToken,
    pub(crate) metrics: Option<PrometheusHandle>,
    pub(crate) request_timeout: Duration,
}

/// Adds the probes to `api` and wraps both in the guard.
pub(crate) fn surround(api: Router, probes: Probes) -> Router {
    let own = Router::new().route("/health", get(health)).route("/ready", get(ready));
    let own = if probes.metrics.is_some() { own.route("/metrics", get(metrics)) } else { own };
    own.with_state(probes.clone()).merge(api).layer(middleware::from_fn_with_state(probes, guard))
}

/// Answers that the process is alive.
async fn health() -> Response {
    Json(json!({"status": "alive", "version": env!("CARGO_PKG_VERSION")})).into_response()
}

/// Answers whether the process wants requests: its store answers and it is not about to stop.
async fn ready(State(probes): State<Probes>) -> Response {
    if probes.draining.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "draining"})))
            .into_response();
    }
    let question = probes.store.read(store::feed::latest);
    match tokio::time::timeout(STORE_TIMEOUT, question).await {
        Ok(Ok(_)) => Json(json!({"status": "ready"})).into_response(),
        Ok(Err(_)) | Err(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "the store does not answer"})))
                .into_response()
        }
    }
}

async fn metrics(State(probes): State<Probes>) -> Response {
    let text = probes.metrics.map(|metrics| metrics.render()).unwrap_or_default();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// Limits the time until an answer starts, turns a panic into an answer, and ends event streams
/// when draining.
async fn guard(State(probes): State<Probes>, mut request: Request, next: Next) -> Response {
    let long = api::LongRequest::default();
    request.extensions_mut().insert(long.clone());
    let answer =
        AssertUnwindSafe(in_time(probes.request_timeout, long, next.run(request))).catch_unwind();
    match answer.await {
        Ok(Some(response)) => end_with_drain(response, probes.draining),
        Ok(None) => refuse(
            StatusCode::SERVICE_UNAVAILABLE,
            "timeout",
            "the request took too long; try again",
        ),
        Err(_) => refuse(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the server failed; the cause is in its log",
        ),
    }
}

/// Waits for the answer; `None` if it is late, unless the handler announced that it takes longer.
async fn in_time<T>(
    limit: Duration,
    long: api::LongRequest,
    answer: impl Future<Output = T>,
) -> Option<T> {
    let mut answer = pin!(answer);
    match tokio::time::timeout(limit, &mut answer).await {
        Ok(answer) => Some(answer),
        Err(_) if long.is_announced() => Some(answer.await),
        Err(_) => None,
    }
}

fn end_with_drain(response: Response, draining: CancellationToken) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
        return response;
    }
    response.map(|body| {
        Body::from_stream(body.into_data_stream().take_until(draining.cancelled_owned()))
    })
}

fn refuse(status: StatusCode, error: &str, message: &str) -> Response {
    let body = ErrorBody {
        error: error.to_owned(),
        code: i64::from(status.as_u16()),
        message: message.to_owned(),
        more: Map::new(),
    };
    (status, Json(body)).into_response()
}
