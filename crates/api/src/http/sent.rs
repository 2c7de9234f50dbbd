//! Memory of answers until they are sent. They are made whole, and readers take as long as they
//! like.

use admission::{Refused, Room};
use axum::body::{Body, Bytes};
use axum::response::Response;
use http::Method;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Smaller answers are not counted. A connection takes that much at once.
const BYTES_MIN: u64 = 64 << 10;

/// Counts an answer for its caller until the last of it is on its way, beside the room of the
/// request. Refuses what was only read; what was done is answered in any case.
pub(crate) fn counted(
    response: Response,
    method: &Method,
    request: Arc<Room<String>>,
) -> Result<Response, Refused> {
    let bytes = HttpBody::size_hint(response.body()).exact().unwrap_or_default();
    if bytes < BYTES_MIN {
        return Ok(response);
    }
    let mut room = request.another();
    let taken = room.grow(usize::try_from(bytes).unwrap_or(usize::MAX));
    if method.is_safe() {
        taken?;
    }
    Ok(response.map(|body| Body::new(Counted { body, _rooms: (request, room) })))
}

/// A body, and the room that it and its request take.
struct Counted {
    body: Body,
    _rooms: (Arc<Room<String>>, Room<String>),
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admission::{Limits, Pool};
    use http_body_util::BodyExt;

    const LARGE: usize = 1 << 20;

    fn pool() -> Pool<String> {
        Pool::new("bytes", Limits { total: 8 << 20, share: 3 << 20 })
    }

    fn answered(pool: &Pool<String>, method: &Method, bytes: usize) -> Result<Response, Refused> {
        let request = Arc::new(Room::new(pool, "a"));
        counted(Response::new(Body::from(vec![b'x'; bytes])), method, request)
    }

    #[tokio::test]
    async fn answers_that_are_not_read_have_a_share_of_the_memory() {
        let pool = pool();
        let unread = || answered(&pool, &Method::GET, LARGE);
        let mut held: Vec<_> = std::iter::from_fn(|| unread().ok()).take(9).collect();
        assert_eq!(held.len(), 3);
        assert_eq!(unread().unwrap_err(), Refused::Share { resource: "bytes", limit: 3 << 20 });
        assert_eq!(held[0].body().size_hint().exact(), Some(LARGE as u64));
        assert_eq!(
            held.pop().unwrap().into_body().collect().await.unwrap().to_bytes().len(),
            LARGE
        );
        unread().unwrap();
        drop(held);
        assert_eq!(pool.held(), 0);
    }

    #[test]
    fn what_was_done_is_answered_and_keeps_the_room_of_its_request() {
        let pool = pool();
        let mut request = Room::new(&pool, "a");
        request.grow(3 << 20).unwrap();
        let body = Body::from(vec![b'x'; LARGE]);
        let answer = counted(Response::new(body), &Method::PUT, Arc::new(request)).unwrap();
        assert_eq!(pool.held(), 3 << 20);
        drop(answer);
        assert_eq!(pool.held(), 0);
    }

    #[test]
    fn small_answers_are_not_counted() {
        let pool = pool();
        let small = answered(&pool, &Method::GET, 60 << 10).unwrap();
        assert_eq!(pool.held(), 0);
        drop(small);
    }
}
