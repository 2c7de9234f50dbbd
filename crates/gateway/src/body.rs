//! The bodies of answers. Nothing is buffered: each frame is passed on as it comes.

mod error;

pub use error::BodyError;

use crate::headers;
use crate::hold::Hold;
use crate::models::{ModelBody, Pieces, Room};
use crate::standby::Visit;
use crate::tool_lists::Listen;
use crate::wire::{Reusable as _, Wire};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Sleep;

/// How long the server has to send what came of an answer before it breaks off.
const SEND_TIME: Duration = Duration::from_millis(10);

/// The body of an answer of the data plane.
pub struct Body(Source);

enum Source {
    Own(Full<Bytes>),
    Relayed(Box<Relay>),
    Pieces(Box<Gathered>),
    Model(Box<ModelBody>),
}

/// An answer that is already in memory, with its share of the memory for such answers.
struct Gathered {
    pieces: Pieces,
    _room: Option<Room>,
    /// Held only until the answer is sent, and never checked: all of the answer is here already.
    _hold: Option<Hold>,
}

impl Body {
    pub(crate) fn own(bytes: impl Into<Bytes>) -> Self {
        Self(Source::Own(Full::new(bytes.into())))
    }

    /// Keeps `hold` until the answer is over, and ends the answer when `hold` ends. An answer that
    /// is over already needs neither.
    pub(crate) fn keep(&mut self, hold: Hold) {
        match &mut self.0 {
            Source::Relayed(relay) => relay.hold = Some(hold),
            Source::Model(body) if !body.is_over() => body.hold = Some(hold),
            Source::Pieces(body) => body._hold = Some(hold),
            Source::Model(_) | Source::Own(_) => {}
        }
    }

    /// Returns an answer that keeps its room until it is sent.
    pub(crate) fn pieces(pieces: Pieces, room: Option<Room>) -> Self {
        Self(Source::Pieces(Box::new(Gathered { pieces, _room: room, _hold: None })))
    }

    pub(crate) fn of_model(body: ModelBody) -> Self {
        Self(Source::Model(Box::new(body)))
    }

    /// Has an answer that comes from a workload copied as it passes.
    pub(crate) fn copy_to(&mut self, listen: Listen) {
        if let Source::Relayed(relay) = &mut self.0 {
            relay.listen = Some(Box::new(listen));
        }
    }

    pub(crate) fn relayed(mut relay: Relay) -> Self {
        // An answer without a body gives back its connection and ends its visit right away.
        if relay.incoming.is_end_stream() {
            relay.give_back();
            return Self::own(Bytes::new());
        }
        Self(Source::Relayed(Box::new(relay)))
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
            Source::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Source::Pieces(body) => {
                Pin::new(&mut body.pieces).poll_frame(cx).map_err(|never| match never {})
            }
            Source::Relayed(relay) => relay.poll_frame(cx),
            Source::Model(body) => {
                body.poll_piece(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Own(body) => body.is_end_stream(),
            Source::Pieces(body) => body.pieces.is_end_stream(),
            Source::Relayed(relay) => relay.incoming.is_end_stream(),
            Source::Model(body) => body.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Own(body) => body.size_hint(),
            Source::Pieces(body) => body.pieces.size_hint(),
            Source::Relayed(relay) => relay.incoming.size_hint(),
            Source::Model(_) => SizeHint::default(),
        }
    }
}

/// The body of a workload's answer, with the connection that it comes from.
pub(crate) struct Relay {
    pub(crate) incoming: Incoming,
    /// Taken when the answer is over.
    pub(crate) wire: Option<Box<Wire>>,
    pub(crate) port: u16,
    /// Declared after the connection, so that it is dropped after it.
    pub(crate) visit: Option<Visit>,
    /// Dropped after both, which ends the exchange. Calls of the server itself have none.
    pub(crate) hold: Option<Hold>,
    /// Copies the answer.
    pub(crate) listen: Option<Box<Listen>>,
    /// Why the answer ends early. Set when that is known, taken when it is reported.
    pub(crate) failed: Option<BrokenOff>,
}

/// An answer that ends early, which is reported a moment later.
pub(crate) struct BrokenOff {
    error: BodyError,
    reported: Pin<Box<Sleep>>,
}

impl Relay {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(failed) = &mut self.failed {
            ready!(failed.reported.as_mut().poll(cx));
            return Poll::Ready(self.failed.take().map(|failed| Err(failed.error)));
        }
        let Some(wire) = &mut self.wire else { return Poll::Ready(None) };
        if let Some(Poll::Ready(end)) = self.hold.as_mut().map(|hold| hold.poll_end(cx)) {
            return self.fail(end.into(), cx);
        }
        match ready!(wire.poll_frame(&mut self.incoming, cx)) {
            Some(Ok(mut frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    headers::clean_answer_trailers(trailers);
                }
                if let (Some(listen), Some(piece)) = (&mut self.listen, frame.data_ref())
                    && !listen.copy(piece)
                {
                    self.listen = None;
                }
                if self.incoming.is_end_stream() {
                    self.give_back();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => self.fail(error.into(), cx),
            None => {
                self.give_back();
                Poll::Ready(None)
            }
        }
    }

    /// Ends the exchange, and reports why a moment later: the server sends what it has of the answer
    /// meanwhile. It would drop that with the connection, or with the stream of HTTP/2.
    fn fail(
        &mut self,
        error: BodyError,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.end();
        let reported = Box::pin(tokio::time::sleep(SEND_TIME));
        self.failed = Some(BrokenOff { error, reported });
        self.poll_frame(cx)
    }

    fn end(&mut self) {
        self.wire = None;
        self.visit = None;
        self.hold = None;
        self.listen = None;
    }

    /// Keeps the connection for the next request and then ends the visit. In this order, because a
    /// pause that follows must find the connection among the spare ones.
    fn give_back(&mut self) {
        if let Some(listen) = self.listen.take() {
            listen.finish();
        }
        if let (Some(mut wire), Some(visit)) = (self.wire.take(), &self.visit)
            && wire.is_free()
        {
            visit.spares().put(self.port, wire, visit.inner().settings.spare_max);
        }
        self.end();
    }
}
