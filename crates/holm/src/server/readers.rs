//! Answers whose client has stopped reading, and the resources they hold.
//!
//! While a client reads nothing, the HTTP layer does not poll the body, over HTTP/1.1 as over
//! HTTP/2. Without this module a client could hold whatever the body holds (a place of its
//! workspace, a replica, a connection to a provider) for as long as it likes. Here each answer is
//! dropped once its reader has taken nothing for too long, even if the connection is still there.
//! That includes answers of one large piece, which are handed on in small ones: the HTTP layer takes
//! a piece when it has sent most of the last, and whatever it has taken nobody can drop any more. An
//! answer that is itself waiting for its next piece is left alone.

use admission::{Busy, Head};
use axum::body::{Body, Bytes};
use axum::response::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Number of checks within the time that a reader has.
const ROUNDS: u32 = 4;
/// Used in place of a round: the reader waits for the answer's next piece.
const AWAITED: u64 = 0;
/// Most bytes that are handed on at once.
const PIECE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
#[error("nobody read on for too long")]
struct Unread;

/// All answers of this server that are not at their end. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Readers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stall: Duration,
    round: AtomicU64,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Weak<Open>>>,
}

impl Readers {
    pub(crate) fn new(stall: Duration) -> Self {
        Self(Arc::new(Shared {
            stall,
            round: AtomicU64::new(AWAITED + 1),
            next: AtomicU64::new(0),
            open: Mutex::default(),
        }))
    }

    /// Wraps an answer. Until it ends or is dropped, its connection counts as busy and its request
    /// as open.
    pub(crate) fn watch(&self, response: Response, request: (Busy, Option<Head>)) -> Response {
        response.map(|body| Body::new(Answer(self.open(Held::new(body, request)))))
    }

    /// Drops stalled answers until the server ends.
    pub(crate) async fn look_after(self) {
        loop {
            tokio::time::sleep(self.0.stall / ROUNDS).await;
            let ended = self.end_stalled();
            if ended > 0 {
                metrics::counter!("holm_answers_unread_total").increment(ended);
                tracing::debug!(ended, "answers that nobody read on were let go");
            }
        }
    }

    fn end_stalled(&self) -> u64 {
        let round = self.0.round.fetch_add(1, Ordering::Relaxed) + 1;
        // Dropped without holding the lock, since each removes itself from the list.
        let open: Vec<_> = self.0.open.lock().values().filter_map(Weak::upgrade).collect();
        let stalled = open.iter().filter(|open| open.is_unread_since(round, ROUNDS.into()));
        stalled.filter(|open| open.held.lock().take().is_some()).count() as u64
    }

    fn open(&self, held: Held) -> Arc<Open> {
        let shared = Arc::clone(&self.0);
        let id = shared.next.fetch_add(1, Ordering::Relaxed);
        let given = AtomicU64::new(shared.round.load(Ordering::Relaxed));
        let open = Arc::new(Open { id, given, held: Mutex::new(Some(held)), shared });
        self.0.open.lock().insert(id, Arc::downgrade(&open));
        open
    }
}

struct Held {
    body: Body,
    /// What has come of the body and was not handed on yet.
    rest: Bytes,
    _request: (Busy, Option<Head>),
}

impl Held {
    const fn new(body: Body, request: (Busy, Option<Head>)) -> Self {
        Self { body, rest: Bytes::new(), _request: request }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => self.rest = piece,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES_MAX));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(rest));
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

struct Answer(Arc<Open>);

/// An answer on its way to its reader.
struct Open {
    id: u64,
    /// Round in which the reader got the last piece, or in which the answer began.
    given: AtomicU64,
    /// `None` once the answer was dropped for lack of a reader.
    held: Mutex<Option<Held>>,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Open {
    fn is_unread_since(&self, round: u64, rounds: u64) -> bool {
        let given = self.given.load(Ordering::Relaxed);
        given != AWAITED && round.saturating_sub(given) > rounds
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut held = self.held.lock();
        let Some(held) = &mut *held else {
            return Poll::Ready(Some(Err(axum::Error::new(Unread))));
        };
        self.given.store(AWAITED, Ordering::Relaxed);
        let frame = ready!(held.poll(cx));
        self.given.store(self.shared.round.load(Ordering::Relaxed), Ordering::Relaxed);
        Poll::Ready(frame)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.open.lock().remove(&self.id);
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.held.lock().as_ref().is_some_and(Held::is_end)
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.0.held.lock();
        held.as_ref().map_or_else(SizeHint::default, Held::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admission::{Connections, Limits, Places};
    use futures_util::stream;
    use http_body_util::BodyExt;
    use types::Remote;

    const PIECE: Bytes = Bytes::from_static(b"piece");

    fn readers() -> Readers {
        Readers::new(Duration::from_secs(60))
    }

    fn open() -> (Busy, Option<Head>) {
        let limits = Limits { total: 1, share: 1 };
        let places = Places { strangers: 1, signed_in: limits, client: 1 };
        (Connections::<Remote>::new(places).admit(None).unwrap().begin(), None)
    }

    /// Makes a body of pieces that keeps `held` until it ends.
    fn pieces(held: &Arc<()>, of: impl stream::Stream<Item = Bytes> + Send + 'static) -> Body {
        use stream::StreamExt;
        let held = Arc::clone(held);
        Body::from_stream(of.map(move |piece| {
            let _held = &held;
            Ok::<_, std::io::Error>(piece)
        }))
    }

    fn rounds(readers: &Readers, rounds: u32) -> u64 {
        (0..rounds).map(|_| readers.end_stalled()).sum()
    }

    #[tokio::test]
    async fn who_reads_nothing_holds_nothing() {
        let (readers, held) = (readers(), Arc::new(()));
        let endless = pieces(&held, stream::repeat(PIECE));
        let mut body = readers.watch(Response::new(endless), open()).into_body();
        // A slow reader is not cut off.
        for _ in 0..5 {
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), PIECE);
            assert_eq!(rounds(&readers, ROUNDS), 0);
        }
        assert_eq!(Arc::strong_count(&held), 2);
        assert_eq!(rounds(&readers, 1), 1);
        assert_eq!(Arc::strong_count(&held), 1, "it holds its place, and reads nothing");
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("nobody read on"), "{error}");
        drop(body);
        assert!(readers.0.open.lock().is_empty());
    }

    #[tokio::test]
    async fn who_waits_for_the_next_piece_is_left_alone() {
        use stream::StreamExt;
        let (readers, held) = (readers(), Arc::new(()));
        let one = stream::iter([PIECE]).chain(stream::pending());
        let mut body = readers.watch(Response::new(pieces(&held, one)), open()).into_body();
        body.frame().await.unwrap().unwrap();
        assert!(futures_util::poll!(body.frame()).is_pending());
        assert_eq!(rounds(&readers, 10 * ROUNDS), 0);
        assert_eq!(Arc::strong_count(&held), 2);
    }

    /// Over HTTP/2 the piece is taken at once, and then waits with its body for room at the client.
    #[tokio::test]
    async fn an_answer_of_one_piece_is_dropped_if_nobody_takes_it() {
        let (readers, held) = (readers(), Arc::new(()));
        for is_asked in [false, true] {
            let one = pieces(&held, stream::iter([PIECE]));
            let mut body = readers.watch(Response::new(one), open()).into_body();
            if is_asked {
                body.frame().await.unwrap().unwrap();
            }
            assert_eq!((rounds(&readers, ROUNDS), Arc::strong_count(&held)), (0, 2));
            assert_eq!((rounds(&readers, 1), Arc::strong_count(&held)), (1, 1));
        }
    }

    #[tokio::test]
    async fn a_large_piece_is_held_until_the_last_of_it_is_taken() {
        let (readers, held) = (readers(), Arc::new(()));
        let whole: Bytes = (0..=u8::MAX).cycle().take(3 * PIECE_BYTES_MAX + 1).collect();
        let large = pieces(&held, stream::iter([whole.clone()]));
        let mut body = readers.watch(Response::new(large), open()).into_body();
        let mut taken = Vec::new();
        while taken.len() < whole.len() {
            assert_eq!((body.is_end_stream(), Arc::strong_count(&held)), (false, 2));
            let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!((1..=PIECE_BYTES_MAX).contains(&piece.len()), "{}", piece.len());
            taken.extend_from_slice(&piece);
        }
        assert_eq!(taken, whole);
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn what_is_left_of_a_large_piece_is_dropped_if_nobody_reads_on() {
        let readers = readers();
        let whole = Body::from(vec![b'x'; 3 * PIECE_BYTES_MAX]);
        let mut body = readers.watch(Response::new(whole), open()).into_body();
        body.frame().await.unwrap().unwrap();
        assert_eq!(body.size_hint().exact(), Some(2 * PIECE_BYTES_MAX as u64));
        assert_eq!(rounds(&readers, ROUNDS + 1), 1);
        body.frame().await.unwrap().unwrap_err();
    }

    #[tokio::test]
    async fn an_answer_that_was_taken_is_forgotten() {
        let readers = readers();
        let mut body = readers.watch(Response::new(Body::from(PIECE)), open()).into_body();
        assert_eq!(body.size_hint().exact(), Some(PIECE.len() as u64));
        body.frame().await.unwrap().unwrap();
        assert!(body.is_end_stream());
        drop(body);
        assert!(readers.0.open.lock().is_empty());
    }
}
