//! Bodies on their way through: nothing is gathered, each frame is handed on as it comes.

use crate::headers;
use crate::keeper::Visit;
use crate::lasting::Hold;
use crate::wire::{Pulse, Wire};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body of an answer of the data plane.
pub struct Body(Answer);

enum Answer {
    Own(Full<Bytes>),
    Relayed(Box<Relay>),
}

/// Why an answer ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the workload closed the connection before the end of its answer")]
    Broken(#[source] hyper::Error),
    #[error("the workload sent nothing for too long")]
    Silent,
    #[error("the right to the answer ended before it did")]
    Revoked,
}

impl Body {
    pub(crate) fn own(bytes: impl Into<Bytes>) -> Self {
        Self(Answer::Own(Full::new(bytes.into())))
    }

    /// Lets the answer end with the right to it. What is over already has no need of it.
    pub(crate) fn rest_on(&mut self, hold: Hold) {
        if let Answer::Relayed(relay) = &mut self.0 {
            relay.hold = Some(hold);
        }
    }

    pub(crate) fn relayed(relay: Relay) -> Self {
        // What is over before it begins gives back its connection and its visit now.
        if relay.incoming.is_end_stream() {
            drop(relay.finished());
            return Self::own(Bytes::new());
        }
        Self(Answer::Relayed(Box::new(relay)))
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::own(Bytes::new())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Answer::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Answer::Relayed(relay) => relay.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Answer::Own(body) => body.is_end_stream(),
            Answer::Relayed(relay) => relay.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Answer::Own(body) => body.size_hint(),
            Answer::Relayed(relay) => relay.incoming.size_hint(),
        }
    }
}

/// The body of a workload's answer, with the connection that it comes from.
pub(crate) struct Relay {
    pub(crate) incoming: Incoming,
    /// Taken when the answer is over.
    pub(crate) wire: Option<Box<Wire>>,
    pub(crate) port: u16,
    /// Behind the connection, so that it ends after it. The health question has none.
    pub(crate) visit: Option<Visit>,
    /// Last of all: the exchange is over when it is dropped. The health question has none.
    pub(crate) hold: Option<Hold>,
}

impl Relay {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(wire) = &mut self.wire else { return Poll::Ready(None) };
        if self.hold.as_mut().is_some_and(|hold| hold.lasting.is_over(cx)) {
            self.end();
            return Poll::Ready(Some(Err(BodyError::Revoked)));
        }
        // Asking the body lets the connection read more, so it is driven once before and once
        // after.
        wire.drive(cx);
        let mut next = Pin::new(&mut self.incoming).poll_frame(cx);
        if next.is_pending() {
            wire.drive(cx);
            next = Pin::new(&mut self.incoming).poll_frame(cx);
        }
        if next.is_pending() && wire.is_silent(cx) {
            self.end();
            return Poll::Ready(Some(Err(BodyError::Silent)));
        }
        let frame = ready!(next);
        wire.heard();
        match frame {
            Some(Ok(frame)) => {
                if self.incoming.is_end_stream() {
                    self.give_back();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.end();
                Poll::Ready(Some(Err(BodyError::Broken(error))))
            }
            None => {
                self.give_back();
                Poll::Ready(None)
            }
        }
    }

    fn end(&mut self) {
        self.wire = None;
        self.visit = None;
        self.hold = None;
    }

    /// Keeps the connection for the next request before the visit ends: a pause that follows must
    /// meet it there.
    fn give_back(&mut self) {
        if let (Some(mut wire), Some(visit)) = (self.wire.take(), &self.visit)
            && wire.is_free()
        {
            visit.spares().put(self.port, wire, visit.inner().settings.spare_max);
        }
        self.end();
    }

    fn finished(mut self) -> Self {
        self.give_back();
        self
    }
}

/// The body of a request to a workload.
pub(crate) enum Outgoing {
    Whole(Full<Bytes>),
    Streamed(Streamed),
}

pub(crate) struct Streamed {
    body: UnsyncBoxBody<Bytes, BoxError>,
    pulse: Pulse,
    /// Bytes that may still come, and where to say that more did.
    left: Option<(u64, Arc<AtomicBool>)>,
}

#[derive(Debug, thiserror::Error)]
#[error("the body of the request is too large")]
struct TooLarge;

impl Outgoing {
    pub(crate) fn empty() -> Self {
        Self::Whole(Full::default())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.is_end_stream()
    }

    pub(crate) fn streamed<B>(body: B, pulse: Pulse, left: Option<(u64, Arc<AtomicBool>)>) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let body = UnsyncBoxBody::new(body.map_err(Into::into));
        Self::Streamed(Streamed { body, pulse, left })
    }
}

impl HttpBody for Outgoing {
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
        self.pulse.beat();
        // Some servers put trailers among the headers.
        if let Some(trailers) = frame.as_mut().and_then(|frame| frame.as_mut().ok()?.trailers_mut())
        {
            headers::remove_ours(trailers, None);
        }
        if let (Some((left, over)), Some(Ok(frame))) = (&mut self.left, &frame) {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            match left.checked_sub(bytes) {
                Some(rest) => *left = rest,
                None => {
                    over.store(true, Ordering::Relaxed);
                    return Poll::Ready(Some(Err(TooLarge.into())));
                }
            }
        }
        Poll::Ready(frame)
    }
}
