//! Memory of the requests that are open on one connection at the same time.
//!
//! HTTP/1.1 has one request at a time on a connection. HTTP/2 has hundreds, and a byte on the wire
//! can stand for a whole header, so that a few kilobytes become megabytes of heads. A connection has
//! room for as much as HTTP/1.1 could send; what exceeds that is counted for whoever sends it.

use crate::{Permit, Refused};
use http::{HeaderMap, Uri};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What every connection may hold. A head of HTTP/1.1, with as many bytes and headers as it can
/// have, always fits.
const OWN_BYTES: u64 = 96 << 10;
/// An estimate of what an open request takes besides its head, and of what a header takes besides
/// its text.
const REQUEST_BYTES: usize = 8 << 10;
const HEADER_BYTES: usize = 160;

/// The open requests of one connection. Clones are the same connection.
#[derive(Debug, Clone, Default)]
pub struct Heads(Arc<AtomicU64>);

/// One open request, until this is dropped.
#[derive(Debug)]
pub struct Head {
    heads: Heads,
    own: u64,
    _beyond: Option<Permit<String>>,
}

impl Heads {
    /// Takes a request in. If its connection has no room for it, `beyond` gives a permit for its
    /// bytes.
    pub fn take(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        beyond: impl FnOnce(u64) -> Result<Permit<String>, Refused>,
    ) -> Result<Head, Refused> {
        let bytes = bytes(uri, headers);
        let held = self.0.fetch_add(bytes, Ordering::Relaxed);
        let mut head = Head { heads: self.clone(), own: bytes, _beyond: None };
        if held.saturating_add(bytes) > OWN_BYTES {
            head.give_back();
            head._beyond = Some(beyond(bytes)?);
        }
        Ok(head)
    }
}

impl Head {
    fn give_back(&mut self) {
        self.heads.0.fetch_sub(std::mem::take(&mut self.own), Ordering::Relaxed);
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        self.give_back();
    }
}

fn bytes(uri: &Uri, headers: &HeaderMap) -> u64 {
    let uri = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let lines = headers.iter().map(|(name, value)| {
        name.as_str().len().saturating_add(value.len()).saturating_add(HEADER_BYTES)
    });
    (REQUEST_BYTES + uri + lines.sum::<usize>()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Pool};
    use http::HeaderValue;

    fn pool() -> Pool<String> {
        Pool::new("bytes of heads", Limits { total: 2 << 20, share: 1 << 20 })
    }

    fn take(
        heads: &Heads,
        headers: &HeaderMap,
        pool: &Pool<String>,
        owner: &str,
    ) -> Result<Head, Refused> {
        let beyond = |bytes| pool.take(&owner.to_owned(), bytes);
        heads.take(&Uri::from_static("/"), headers, beyond)
    }

    fn headers(count: usize, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for _ in 0..count {
            headers.append("a", HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn one_request_of_the_largest_size_that_http_1_has_is_not_counted() {
        let (pool, heads) = (pool(), Heads::default());
        let largest = headers(100, &"x".repeat(655));
        for _ in 0..3 {
            let head = take(&heads, &largest, &pool, "a").unwrap();
            assert_eq!(pool.held(), 0);
            drop(head);
        }
    }

    #[test]
    fn many_open_requests_count_for_whoever_sends_them() {
        let pool = pool();
        // Each is a few bytes on the wire.
        let small = headers(1_900, "");
        let open = |heads: &Heads, owner: &'static str| {
            (0..250).map_while(|_| take(heads, &small, &pool, owner).ok()).collect::<Vec<_>>()
        };
        let connections = [Heads::default(), Heads::default()];
        let held: Vec<_> = connections.iter().flat_map(|heads| open(heads, "a")).collect();
        assert!(held.len() < 5, "{}", held.len());
        assert_eq!(pool.held_by(&"a".to_owned()), pool.held());
        assert!(!open(&Heads::default(), "b").is_empty(), "others have their share");
        drop(held);
        assert_eq!(pool.held(), 0);
        assert!(!open(&connections[0], "a").is_empty());
    }

    #[test]
    fn what_a_connection_has_room_for_comes_back() {
        let (pool, heads) = (pool(), Heads::default());
        let none = HeaderMap::new();
        for _ in 0..1_000 {
            let few = [(); 8].map(|()| take(&heads, &none, &pool, "a").unwrap());
            assert_eq!(pool.held(), 0);
            drop(few);
        }
    }
}
