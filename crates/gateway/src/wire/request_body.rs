//! The body of a request to a workload. Nothing is buffered: each frame is passed on as it comes.

use super::silence::LastSent;
use crate::headers;
use bytes::Bytes;
use http::HeaderMap;
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
    rules: BodyRules,
}

/// What a body is held to on its way.
pub(crate) struct BodyRules {
    /// How many more bytes it may have. `None` means any number.
    pub(crate) left: Option<u64>,
    /// The headers that a preview sets, which no trailer may repeat.
    pub(crate) set: Option<Arc<HeaderMap>>,
    pub(crate) faults: Arc<BodyFaults>,
}

/// What was wrong with a body, for whoever learns only that its exchange broke off.
#[derive(Default)]
pub(crate) struct BodyFaults {
    exceeded: AtomicBool,
    broken: AtomicBool,
}

impl BodyFaults {
    /// Returns whether the body was longer than it may be.
    pub(crate) fn is_too_large(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }

    /// Returns whether the body broke off, or could not be read: that is the caller's doing.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
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

    pub(crate) fn streamed<B>(body: B, last_sent: LastSent, rules: BodyRules) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let body = UnsyncBoxBody::new(body.map_err(Into::into));
        Self::Streamed(Streamed { body, last_sent, rules })
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
        let BodyRules { left, set, faults } = &mut self.rules;
        match &mut frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    headers::clean_trailers(trailers, set.as_deref());
                }
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                if let Some(left) = left {
                    let Some(rest) = left.checked_sub(bytes) else {
                        faults.exceeded.store(true, Ordering::Relaxed);
                        return Poll::Ready(Some(Err(TooLarge.into())));
                    };
                    *left = rest;
                }
            }
            Some(Err(_)) => faults.broken.store(true, Ordering::Relaxed),
            None => {}
        }
        Poll::Ready(frame)
    }
}
