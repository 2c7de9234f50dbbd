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
/// Of one value of JSON in memory.
const VALUE_BYTES: usize = 40;

impl Room {
    pub(crate) fn new(pool: &Pool<String>, owner: &str) -> Self {
        let (pool, owner) = (pool.clone(), owner.to_owned());
        Self { pool, owner, permits: Vec::new(), taken: 0, used: 0 }
    }

    /// What bytes of JSON take that are read as values.
    pub(crate) fn of_values(
        pool: &Pool<String>,
        owner: &str,
        json: &[u8],
    ) -> Result<Self, Refused> {
        let mut room = Self::new(pool, owner);
        let values = json.iter().filter(|byte| b",[{:".contains(byte)).count();
        room.grow(values.saturating_mul(VALUE_BYTES))?;
        Ok(room)
    }

    /// For so much at least, of which a little is not worth counting.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), Refused> {
        match (bytes as u64).checked_sub(self.used.max(STEP)) {
            Some(_) => self.grow(bytes.saturating_sub(usize::try_from(self.used).unwrap_or(0))),
            None => Ok(()),
        }
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

    #[test]
    fn what_is_held_is_counted_at_its_most() {
        let pool = Pool::new("test", Limits { total: 1 << 20, share: 1 << 20 });
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
