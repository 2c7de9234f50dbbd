//! Answers that are lists.

use crate::http::reply::{Answer, Reply};
use admission::{Refused, Room};
use axum::response::Response;
use bytes::Bytes;
use control::engine::{Listing, Page};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use std::marker::PhantomData;

/// A list as it is sent, with the room that it takes. It is written where it was read: that is away
/// from the threads that serve connections, and no more lists are in memory uncounted than are read
/// at a time.
pub(crate) struct WrittenList<K> {
    body: Bytes,
    _room: Room<String>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Serialize> WrittenList<K> {
    pub(crate) fn write(list: &Listing<K>, request: &Room<String>) -> Result<Self, Refused> {
        let body = Bytes::from(control::json::bytes(list));
        let mut room = request.another();
        room.hold(body.len())?;
        Ok(Self { body, _room: room, kind: PhantomData })
    }
}

impl<K: Serialize + JsonSchema + Send> Answer for WrittenList<K> {
    fn into_response(self) -> Response {
        Reply::<K>::written(self.body).into_response()
    }

    fn describe(generator: &mut SchemaGenerator) -> Vec<(u16, Option<Schema>)> {
        Listing::<K>::describe(generator)
    }
}

impl<K: Serialize + JsonSchema + Send> Answer for Listing<K> {
    fn into_response(self) -> Response {
        match &self {
            Self::Page(page) => Reply::of(page).into_response(),
            Self::Bare(all) => Reply::of(all).into_response(),
        }
    }

    fn describe(generator: &mut SchemaGenerator) -> Vec<(u16, Option<Schema>)> {
        let (page, item) = (generator.subschema_for::<Page<K>>(), generator.subschema_for::<K>());
        let listing = json_schema!({"oneOf": [page, {"type": "array", "items": item}]});
        vec![(200, Some(listing))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admission::{Limits, Pool};

    #[test]
    fn lists_take_room_where_they_are_read() {
        const LARGE: usize = 1 << 20;
        let pool: Pool<String> = Pool::new("bytes", Limits { total: 8 << 20, share: 4 << 20 });
        let request = Room::new(&pool, "a");
        let list = Listing::Bare(vec!["x".repeat(LARGE)]);
        let mut written: Vec<_> =
            std::iter::from_fn(|| WrittenList::write(&list, &request).ok()).take(9).collect();
        assert_eq!(written.len(), 3);
        let answer = written.remove(0).into_response();
        assert!(pool.held() < 3 << 20, "the answer is counted by whoever sends it");
        assert!(http_body::Body::size_hint(answer.body()).exact() > Some(LARGE as u64));
        drop(written);
        assert_eq!(pool.held(), 0);
    }
}
