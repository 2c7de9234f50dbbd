//! Answers of the code host that are kept, so that a later request can ask whether they still hold.

use admission::{Limits, Permit, Pool, Refused};
use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::header::HeaderValue;
use std::collections::HashMap;
use types::ids::ResourceId;

/// Most bytes that are kept of all connections together, and of one. A share holds the pages about
/// a busy repository; what does not fit is only asked for again.
pub(super) const BYTES: Limits = Limits { total: 128 << 20, share: 16 << 20 };
/// An estimate of what an entry takes beside its texts.
const ENTRY_BYTES: usize = 256;

/// Each connection has its own answers, because it must not see what another may see.
pub(super) struct Remembered {
    bytes: Pool<ResourceId>,
    kept: Mutex<HashMap<ResourceId, HashMap<String, Kept>>>,
}

type Answer = (HeaderValue, Bytes);

struct Kept {
    answer: Answer,
    _bytes: Permit<ResourceId>,
}

impl Remembered {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            bytes: Pool::new("bytes of kept answers of the code host", limits),
            kept: Mutex::default(),
        }
    }

    pub(super) fn get(&self, connection: &ResourceId, path: &str) -> Option<Answer> {
        Some(self.kept.lock().get(connection)?.get(path)?.answer.clone())
    }

    /// Keeps an answer. To make room, it forgets the others of the connection, or of all
    /// connections if all of them together have too much.
    pub(super) fn keep(&self, connection: &ResourceId, path: &str, answer: Answer) {
        let bytes = (path.len() + answer.0.len() + answer.1.len() + ENTRY_BYTES) as u64;
        let mut kept = self.kept.lock();
        if let Some(own) = kept.get_mut(connection) {
            own.remove(path);
        }
        let taken = self.bytes.take(connection, bytes).or_else(|refused| {
            match refused {
                Refused::Share { .. } => drop(kept.remove(connection)),
                Refused::Total { .. } => kept.clear(),
            }
            self.bytes.take(connection, bytes)
        });
        if let Ok(taken) = taken {
            let own = kept.entry(connection.clone()).or_default();
            own.insert(path.to_owned(), Kept { answer, _bytes: taken });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: usize) -> Answer {
        (HeaderValue::from_static("tag"), vec![b'x'; bytes].into())
    }

    #[test]
    fn a_connection_with_large_answers_forgets_its_own_and_not_those_of_others() {
        let remembered = Remembered::new(Limits { total: 100_000, share: 20_000 });
        let (big, small) = (ResourceId::known("res_a"), ResourceId::known("res_b"));
        remembered.keep(&small, "/p", answer(10));
        for page in 0..100 {
            remembered.keep(&big, &format!("/{page}"), answer(6000));
            assert!(remembered.bytes.held() <= 21_000, "page {page}");
            assert_eq!(remembered.get(&big, &format!("/{page}")), Some(answer(6000)));
        }
        assert_eq!(remembered.get(&big, "/0"), None);
        assert_eq!(remembered.get(&small, "/p"), Some(answer(10)));
        remembered.keep(&big, "/99", answer(20_000));
        assert_eq!(remembered.get(&big, "/99"), None, "it is larger than a share");
    }

    #[test]
    fn all_connections_together_keep_no_more_than_there_is() {
        let remembered = Remembered::new(Limits { total: 50_000, share: 20_000 });
        for number in 0..20 {
            let connection = ResourceId::known(format!("res_{number}"));
            remembered.keep(&connection, "/p", answer(10_000));
            assert!(remembered.bytes.held() <= 50_000);
            assert_eq!(remembered.get(&connection, "/p"), Some(answer(10_000)));
        }
    }
}
