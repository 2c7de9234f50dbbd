//! Room in memory for bytes that have to be gathered.

use admission::{Permit, Pool, Refused};

/// Taken as bytes come, so that whoever only says that many will come holds nothing.
pub(crate) struct Room {
    pool: Pool<String>,
    owner: String,
    permits: Vec<Permit<String>>,
    taken: u64,
    used: u64,
}

/// Taken at once. Doubles, so that a large body takes few permits.
const STEP: u64 = 64 << 10;

impl Room {
    pub(crate) fn new(pool: &Pool<String>, owner: &str) -> Self {
        let (pool, owner) = (pool.clone(), owner.to_owned());
        Self { pool, owner, permits: Vec::new(), taken: 0, used: 0 }
    }

    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Refused> {
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
    use admission::Limits;

    #[test]
    fn room_is_taken_as_it_is_used_and_given_back() {
        let pool = Pool::new("test", Limits { total: 1 << 20, share: 1 << 20 });
        let mut room = Room::new(&pool, "a");
        (0..900).for_each(|_| room.grow(1000).unwrap());
        assert!(pool.held() >= 900_000);
        assert!((0..500).any(|_| room.grow(1000).is_err()));
        drop(room);
        assert_eq!(pool.held(), 0);
    }
}
