//! Cursors of paged lists: opaque, signed, bound to the query and the workspace, and short-lived.

use crate::error::BadCursor;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use store::Store;
use types::Timestamp;

const LIFE_S: i64 = 24 * 60 * 60;
const MAC_BYTES: usize = 16;
/// All our cursors are shorter than this; longer ones are refused unread.
const TEXT_MAX: usize = 2_048;

/// The key that signs cursors. All servers of one database share it.
pub struct CursorKey([u8; 32]);

impl CursorKey {
    pub async fn load(store: &Store) -> Result<Self, store::Error> {
        crate::shared_secret::shared(store, "cursor-key").await.map(Self)
    }

    /// Makes a cursor. `query` identifies the list and its filters; the cursor is valid only for
    /// these.
    pub fn sign(&self, query: &str, position: &str, now: Timestamp) -> String {
        let expires = now.plus_s(LIFE_S).ms();
        let mut bytes = format!("{expires}.{position}").into_bytes();
        let mac = self.mac(query, &bytes);
        bytes.extend_from_slice(&mac);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns the position in a cursor, if it is genuine and has not expired.
    pub fn open(&self, query: &str, cursor: &str, now: Timestamp) -> Result<String, BadCursor> {
        let bad = || BadCursor::Foreign;
        if cursor.len() > TEXT_MAX {
            return Err(bad());
        }
        let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| bad())?;
        let split = bytes.len().checked_sub(MAC_BYTES).ok_or_else(bad)?;
        let (body, mac) = bytes.split_at(split);
        self.hmac(query, body).verify_truncated_left(mac).map_err(|_| bad())?;
        let body = std::str::from_utf8(body).map_err(|_| bad())?;
        let (expires, position) = body.split_once('.').ok_or_else(bad)?;
        if expires.parse::<i64>().map_err(|_| bad())? < now.ms() {
            return Err(BadCursor::Expired);
        }
        Ok(position.to_owned())
    }

    fn mac(&self, query: &str, body: &[u8]) -> [u8; MAC_BYTES] {
        let full = self.hmac(query, body).finalize().into_bytes();
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&full[..MAC_BYTES]);
        mac
    }

    #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
    fn hmac(&self, query: &str, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any key length");
        mac.update(&(query.len() as u64).to_be_bytes());
        mac.update(query.as_bytes());
        mac.update(body);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_serves_its_own_query_for_a_day() {
        let (key, now) = (CursorKey([7; 32]), Timestamp::from_ms(1_700_000_000_000));
        let cursor = key.sign("w/agents?q=a", "12.x", now);
        assert_eq!(key.open("w/agents?q=a", &cursor, now).unwrap(), "12.x");
        assert!(key.open("w/agents?q=b", &cursor, now).is_err());
        assert!(key.open("w/agents?q=a", &cursor, now.plus_s(LIFE_S + 1)).is_err());
        assert!(CursorKey([8; 32]).open("w/agents?q=a", &cursor, now).is_err());
        for bad in ["", "!", "AAAA", &cursor[1..]] {
            assert!(key.open("w/agents?q=a", bad, now).is_err());
        }
    }
}
