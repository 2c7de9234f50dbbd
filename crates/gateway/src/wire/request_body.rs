//! The body of a request to a workload. Nothing is buffered: each frame is passed on as it comes.

use super::silence::LastSent;
use crate::headers;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) enum RequestBody {
    Whole(Full<Bytes>),
    Streamed(Streamed),
}

pub(crate) struct Streamed {
    body: UnsyncBoxBody<Bytes, BoxError>,
    last_sent: LastSent,
    limit: Option<BodyLimit>,
}

/// How many more bytes a body may have.
pub(crate) struct BodyLimit {
    left: u64,
    /// Set when the body had more.
    exceeded: Arc<AtomicBool>,
}

impl BodyLimit {
    pub(crate) fn new(max: u64, exceeded: &Arc<AtomicBool>) -> Self {
        Self { left: max, exceeded: Arc::clone(exceeded) }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the body of the request is too large")]
struct TooLarge;

impl RequestBody {
    pub(crate) fn empty() -> Self {
        Self::Whole(Full::default())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.is_end_stream()
    }

    pub(crate) fn streamed<B>(body: B, last_sent: LastSent, limit: Option<BodyLimit>) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let body = UnsyncBoxBody::new(body.map_err(Into::into));
        Self::Streamed(Streamed { body, last_sent, limit })
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Whole(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Streamed(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Streamed(streamed) => streamed.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Streamed(streamed) => streamed.body.size_hint(),
        }
    }
}

impl Streamed {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.last_sent.touch();
        // Some servers put trailers among the headers.
        if let Some(trailers) = frame.as_mut().and_then(|frame| frame.as_mut().ok()?.trailers_mut())
        {
            headers::remove_ours(trailers, None);
        }
        if let (Some(limit), Some(Ok(frame))) = (&mut self.limit, &frame) {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            match limit.left.checked_sub(bytes) {
                Some(left) => limit.left = left,
                None => {
                    limit.exceeded.store(true, Ordering::Relaxed);
                    return Poll::Ready(Some(Err(TooLarge.into())));
                }
            }
        }
        Poll::Ready(frame)
    }
}
