//! Request bodies that are read into memory, and how much memory each caller may use for them.

use crate::http::error::Error;
use crate::http::malformed::Malformed;
use admission::{Limits, Pool, Refused, Room};
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use control::BodyLimits;
use http::Extensions;
use http_body::Body as _;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use types::Remote;

/// One address gets at most this fraction of the memory for unknown callers.
const STRANGERS_SHARE: u64 = 4;

/// Memory for requests that are read as a whole, until they are answered. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Bodies {
    callers: Pool<String>,
    strangers: Pool<String>,
}

/// A body that was read, and the room that it takes until it is dropped.
pub(crate) struct Gathered {
    pub(crate) bytes: Bytes,
    pub(crate) room: Room<String>,
}

impl Bodies {
    pub(crate) fn new(limits: BodyLimits) -> Self {
        let BodyLimits { total, workspace, strangers } = limits;
        let of_strangers = Limits { total: strangers, share: (strangers / STRANGERS_SHARE).max(1) };
        Self {
            callers: Pool::new("bytes of requests and answers", Limits { total, share: workspace }),
            strangers: Pool::new("bytes of requests and answers of strangers", of_strangers),
        }
    }

    /// Returns room for a known caller, counted by the workspace or person that is responsible.
    pub(crate) fn of_caller(&self, realm: impl Into<String>) -> Room<String> {
        Room::new(&self.callers, realm)
    }

    /// Returns the instance that the router added to a request.
    #[expect(clippy::expect_used, reason = "routers whose handlers have no app add it")]
    pub(crate) fn at(extensions: &Extensions) -> &Self {
        extensions.get().expect("the router adds it")
    }

    /// Returns room for an unknown caller, counted by the address that the request came from.
    pub(crate) fn of_stranger(&self, extensions: &Extensions) -> Room<String> {
        let remote = extensions.get().copied().unwrap_or(Remote::UNKNOWN);
        Room::new(&self.strangers, remote.to_string())
    }
}

/// Reads a body. Room is taken as bytes arrive, so that a caller who sends nothing takes none. A
/// body that says that it is too long is refused as such, however much room there is: sending it
/// again later would not help.
pub(crate) async fn gather(
    body: Body,
    limit: usize,
    mut room: Room<String>,
) -> Result<Gathered, Error> {
    if body.size_hint().lower() > limit as u64 {
        return Err(Error::TooLarge { limit });
    }
    let mut body = Limited::new(body, limit);
    let (mut first, mut whole) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|error| cut(&*error, limit))?.into_data() else { continue };
        room.grow(piece.len())?;
        match (first.is_empty(), whole.is_empty()) {
            (true, true) => first = piece,
            (_, true) => {
                whole.extend_from_slice(&first);
                whole.extend_from_slice(&piece);
            }
            (_, false) => whole.extend_from_slice(&piece),
        }
    }
    let bytes = if whole.is_empty() { first } else { whole.freeze() };
    Ok(Gathered { bytes, room })
}

/// Reads a body that nobody needs, and discards it: some of these operations need no credentials,
/// and slow senders could otherwise hold any amount of memory.
pub(crate) async fn pass_over(
    body: Body,
    limit: usize,
    room: Room<String>,
) -> Result<Gathered, Error> {
    let mut body = Limited::new(body, limit);
    while let Some(frame) = body.frame().await {
        frame.map_err(|error| cut(&*error, limit))?;
    }
    Ok(Gathered { bytes: Bytes::new(), room })
}

impl std::ops::Deref for Gathered {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

impl Gathered {
    /// Takes room for the values that JSON is parsed into.
    pub(crate) fn as_values(&mut self) -> Result<(), Refused> {
        self.room.grow_by_values(&self.bytes)
    }
}

fn cut(error: &(dyn std::error::Error + 'static), limit: usize) -> Error {
    match error.is::<LengthLimitError>() {
        true => Error::TooLarge { limit },
        false => Malformed::CutBody.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt, stream};
    use std::net::IpAddr;

    fn bodies() -> Bodies {
        Bodies::new(BodyLimits { total: 512 << 10, workspace: 256 << 10, strangers: 512 << 10 })
    }

    /// Returns a body that sends pieces of 1 KiB and then stalls.
    fn slow(pieces: usize) -> Body {
        let pieces = (0..pieces).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 1 << 10]));
        Body::from_stream(stream::iter(pieces).chain(stream::pending()))
    }

    async fn read(pieces: usize, room: Room<String>) -> Result<Gathered, Error> {
        let body = Body::from(vec![b'x'; pieces << 10]);
        gather(body, 4 << 20, room).await
    }

    #[tokio::test]
    async fn slow_senders_take_what_is_theirs_and_leave_the_rest() {
        let bodies = bodies();
        let mut held = Vec::new();
        for _ in 0..4 {
            let mut sending = Box::pin(gather(slow(60), 4 << 20, bodies.of_caller("a")));
            assert!(futures_util::poll!(&mut sending).is_pending());
            held.push(sending);
        }
        let refused = read(60, bodies.of_caller("a")).await.err().unwrap();
        assert!(refused.to_string().contains("bytes of requests"), "{refused}");
        let other = read(200, bodies.of_caller("b")).await.unwrap();
        assert_eq!(other.bytes.len(), 200 << 10);
        drop(held);
        read(60, bodies.of_caller("a")).await.unwrap();
    }

    #[tokio::test]
    async fn one_address_leaves_room_for_other_strangers_and_all_of_them_for_callers() {
        let bodies = bodies();
        let from = |address: [u8; 4]| {
            let mut extensions = Extensions::new();
            extensions.insert(Remote::of(IpAddr::from(address)));
            bodies.of_stranger(&extensions)
        };
        let mut held = vec![read(120, from([192, 0, 2, 1])).await.unwrap()];
        assert!(read(120, from([192, 0, 2, 1])).await.is_err());
        for address in 2..5 {
            held.push(read(120, from([192, 0, 2, address])).await.unwrap());
        }
        assert!(read(120, from([192, 0, 2, 9])).await.is_err(), "strangers have no more");
        read(100, bodies.of_caller("a")).await.unwrap();
    }

    #[tokio::test]
    async fn values_take_more_room_than_their_text() {
        let bodies = bodies();
        let text = |bytes: usize| Body::from(vec![b'['; bytes]);
        let mut few = gather(text(4 << 10), 4 << 20, bodies.of_caller("a")).await.unwrap();
        few.as_values().unwrap();
        drop(few);
        let mut many = gather(text(64 << 10), 4 << 20, bodies.of_caller("a")).await.unwrap();
        assert!(many.as_values().is_err());
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_so_even_if_there_is_no_room() {
        let (bodies, body) = (bodies(), || Body::from(vec![b'x'; 300 << 10]));
        let long = gather(body(), 280 << 10, bodies.of_caller("a")).await.err().unwrap();
        assert!(matches!(long, Error::TooLarge { .. }), "{long}");
        let crowded = gather(body(), 300 << 10, bodies.of_caller("a")).await.err().unwrap();
        assert!(!matches!(crowded, Error::TooLarge { .. }), "{crowded}");
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_or_cut_says_so() {
        let room = || bodies().of_caller("a");
        let long = gather(Body::from("12345"), 4, room()).await.err().unwrap();
        assert!(matches!(long, Error::TooLarge { limit: 4 }), "{long}");
        let broken = stream::iter([Ok("1"), Err(std::io::Error::other("gone"))]);
        let cut = gather(Body::from_stream(broken), 4, room()).await.err().unwrap();
        assert!(matches!(cut, Error::Malformed(Malformed::CutBody)), "{cut}");
        let pieces = stream::iter(["1", "2", "3"].map(Ok::<_, std::io::Error>));
        assert_eq!(gather(Body::from_stream(pieces), 4, room()).await.unwrap().bytes, "123");
    }
}
