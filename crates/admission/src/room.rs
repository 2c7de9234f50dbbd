//! Memory for request bodies and other bytes that have to be collected, counted per owner.

use crate::{Permit, Pool, Refused};
use std::hash::Hash;

/// Memory that one owner has taken. It is taken as bytes arrive, so that merely announcing many
/// holds nothing.
pub struct Room<K: Eq + Hash + Clone> {
    pool: Pool<K>,
    owner: K,
    permits: Vec<Permit<K>>,
    taken: u64,
    used: u64,
}

/// The smallest amount taken at once. The amount doubles, so that a large body takes few permits.
const STEP: u64 = 64 << 10;
/// An estimate of the memory that one parsed JSON value takes.
const VALUE_BYTES: usize = 40;

impl<K: Eq + Hash + Clone> Room<K> {
    pub fn new(pool: &Pool<K>, owner: impl Into<K>) -> Self {
        Self { pool: pool.clone(), owner: owner.into(), permits: Vec::new(), taken: 0, used: 0 }
    }

    /// Returns more room for the same owner, of which nothing is taken yet.
    pub fn another(&self) -> Self {
        Self::new(&self.pool, self.owner.clone())
    }

    /// Takes the room that `json` needs once it is parsed into values.
    pub fn of_values(pool: &Pool<K>, owner: impl Into<K>, json: &[u8]) -> Result<Self, Refused> {
        let mut room = Self::new(pool, owner);
        room.grow_by_values(json)?;
        Ok(room)
    }

    /// Takes additional room for `json` parsed into values.
    pub fn grow_by_values(&mut self, json: &[u8]) -> Result<(), Refused> {
        let values = json.iter().filter(|byte| b",[{:".contains(byte)).count();
        self.grow(values.saturating_mul(VALUE_BYTES))
    }

    /// Makes sure that `bytes` are held in all. Less than one `STEP` is not counted.
    pub fn hold(&mut self, bytes: usize) -> Result<(), Refused> {
        match (bytes as u64).checked_sub(self.used.max(STEP)) {
            Some(_) => self.grow(bytes.saturating_sub(usize::try_from(self.used).unwrap_or(0))),
            None => Ok(()),
        }
    }

    pub fn grow(&mut self, bytes: usize) -> Result<(), Refused> {
        self.used += bytes as u64;
        if self.used > self.taken {
            let more = (self.used - self.taken).max(self.taken.min(STEP << 8)).max(STEP);
            self.permits.push(self.pool.take(&self.owner, more)?);
            self.taken += more;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    #[test]
    fn room_is_taken_as_it_is_used_and_given_back() {
        let pool: Pool<&str> = Pool::new("test", Limits { total: 1 << 20, share: 1 << 20 });
        let mut room = Room::new(&pool, "a");
        (0..900).for_each(|_| room.grow(1000).unwrap());
        assert!(pool.held() >= 900_000);
        assert!((0..500).any(|_| room.grow(1000).is_err()));
        drop(room);
        assert_eq!(pool.held(), 0);
    }

    #[test]
    fn what_is_held_is_counted_at_its_most() {
        let pool: Pool<&str> = Pool::new("test", Limits { total: 1 << 20, share: 1 << 20 });
        let mut room = Room::new(&pool, "a");
        room.hold(60_000).unwrap();
        assert_eq!(pool.held(), 0, "a little is not counted");
        room.hold(300_000).unwrap();
        let held = pool.held();
        assert!(held >= 300_000);
        room.hold(200_000).unwrap();
        assert_eq!(pool.held(), held);
        assert!(room.hold(2 << 20).is_err());
        assert!(Room::of_values(&pool, "b", &[b','; 100_000]).is_err());
    }
}
