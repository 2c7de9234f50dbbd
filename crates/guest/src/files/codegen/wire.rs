//! Sends one JSON request over HTTP and reads the JSON answer.

use crate::http_client::{self, send};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::Value;
use std::time::Duration;

const ANSWER_BYTES_MAX: usize = 16 << 20;
const ANSWER_WAIT: Duration = Duration::from_secs(120);

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Send(#[from] http_client::Error),
    #[error("it answered with status {0}")]
    Status(StatusCode),
    #[error("its answer is too large, cut off or no JSON")]
    Answer,
    #[error("it gave no answer in time")]
    Late,
}

pub(super) async fn post(url: &str, key: &str, question: &Value) -> Result<Value, Error> {
    let exchange = Box::pin(exchange(url, key, question));
    tokio::time::timeout(ANSWER_WAIT, exchange).await.map_err(|_| Error::Late)?
}

async fn exchange(url: &str, key: &str, question: &Value) -> Result<Value, Error> {
    let request = Request::post(url)
        .header(header::AUTHORIZATION, format!("Bearer {key}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(question.to_string())))
        .map_err(|_| http_client::Error::Address)?;
    let response = send(request).await?;
    if !response.status().is_success() {
        return Err(Error::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|_| Error::Answer)?;
    serde_json::from_slice(&body.to_bytes()).map_err(|_| Error::Answer)
}
