//! Uploads: requesting an address, and receiving what is sent there.

use crate::app::App;
use crate::http::call::{Call, Input, Query};
use crate::http::error::Error;
use crate::http::long_request::LongRequest;
use crate::http::reply::Reply;
use admission::Connection;
use auth::Member;
use axum::body::BodyDataStream;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use control::builds::{self, Source, UploadAddress};
use control::idempotency::{self, JsonAnswer};
use futures_util::StreamExt;
use http::{HeaderName, HeaderValue, StatusCode, header};
use std::io;
use std::time::Duration;
use store::Tx;

/// The neutral header name and that of the published clients.
pub(crate) const UPLOAD_URL: [HeaderName; 2] = [
    HeaderName::from_static("x-blaxel-upload-url"),
    HeaderName::from_static("x-service-upload-url"),
];

/// How long the rest of a refused upload is still read. The limit in bytes is that of any body.
const PASS_OVER_MAX: Duration = Duration::from_secs(2);

/// Runs an operation that requests an upload, only once for each idempotency key, and returns the
/// upload address in a header.
pub(crate) async fn asked<T, Q: Query, B: Input>(
    call: &Call<Member, Q, B>,
    ask: impl FnMut(&mut Tx<'_>) -> Result<UploadAddress, control::Error> + Send + 'static,
) -> Result<Reply<T>, Error> {
    let answer = idempotency::once(&call.app.store, call.key.clone(), ask).await?;
    let asked: UploadAddress = idempotency::kept_answer(&answer.body)?;
    let body = JsonAnswer { body: Bytes::from(asked.object), replayed: answer.replayed };
    let mut reply = Reply::from(body).versioned(asked.version);
    if let Ok(url) = HeaderValue::from_str(&asked.url) {
        let [ours, theirs] = UPLOAD_URL;
        reply = reply.with(ours, url.clone()).with(theirs, url);
    }
    Ok(reply)
}

/// Receives sources: `PUT /v0/uploads/{secret}`. The secret in the address is the only credential,
/// and it works once.
pub(crate) async fn take(
    State(app): State<App>,
    Path(secret): Path<String>,
    request: Request,
) -> Response {
    match receive(&app, &secret, request).await {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => error.into_response(),
    }
}

async fn receive(app: &App, secret: &str, request: Request) -> Result<(), Error> {
    let (parts, body) = request.into_parts();
    let length = parts.headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    let (mut pieces, most) = (Pieces(body.into_data_stream()), app.settings.body_max);
    let upload = match builds::admit(app, secret, length).await {
        Ok(upload) => upload,
        Err(error) => {
            pass_over(pieces, most).await;
            return Err(error.into());
        }
    };
    // An upload limits its own time, and its connection must not be ended to make room for unknown
    // callers.
    if let Some(request) = parts.extensions.get::<LongRequest>() {
        request.announce();
    }
    if let Some(connection) = parts.extensions.get::<Connection>() {
        connection.signed_in(&format!("uploads of {}", upload.workspace()));
    }
    let taken = upload.take(&mut pieces).await;
    if taken.is_err() {
        pass_over(pieces, most).await;
    }
    Ok(taken?)
}

/// Reads a little more: a client that is still sending when the connection closes would not see the
/// reason.
async fn pass_over(mut pieces: Pieces, most: usize) {
    let read = async {
        let mut left = most;
        while let Some(Ok(piece)) = pieces.next().await {
            match left.checked_sub(piece.len()) {
                Some(less) => left = less,
                None => return,
            }
        }
    };
    let _ = tokio::time::timeout(PASS_OVER_MAX, read).await;
}

struct Pieces(BodyDataStream);

impl Source for Pieces {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        self.0.next().await.map(|piece| piece.map_err(io::Error::other))
    }
}
