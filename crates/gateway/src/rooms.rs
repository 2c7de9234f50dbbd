//! Waiting rooms: requests that cannot be served yet, kept in bounded number for a bounded time.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// One room for each thing that somebody waits for; an empty room is no room.
#[derive(Default)]
pub(crate) struct Rooms {
    rooms: Mutex<HashMap<String, Room>>,
}

#[derive(Default)]
struct Room {
    seats_taken: usize,
    bell: Arc<Notify>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub(crate) seats: usize,
    pub(crate) until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turned {
    Full,
    TimedOut,
}

impl Rooms {
    /// Asks `ready` now and after each call, until it has an answer.
    pub(crate) async fn wait<T>(
        &self,
        key: &str,
        limit: Limit,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, Turned> {
        let seat = self.sit(key, limit.seats).ok_or(Turned::Full)?;
        loop {
            let mut rung = pin!(seat.bell.notified());
            // From here on no call is missed: what changes after the question rings for this very
            // seat.
            rung.as_mut().enable();
            if let Some(answer) = ready() {
                return Ok(answer);
            }
            timeout_at(limit.until, rung).await.map_err(|_| Turned::TimedOut)?;
        }
    }

    /// Lets everybody in the room ask again.
    pub(crate) fn call(&self, key: &str) {
        if let Some(room) = self.rooms.lock().get(key) {
            room.bell.notify_waiters();
        }
    }

    pub(crate) fn seats_taken(&self, key: &str) -> usize {
        self.rooms.lock().get(key).map_or(0, |room| room.seats_taken)
    }

    fn sit<'r>(&'r self, key: &'r str, seats: usize) -> Option<Seat<'r>> {
        if seats == 0 {
            return None;
        }
        let mut rooms = self.rooms.lock();
        let room = match rooms.get_mut(key) {
            Some(room) => room,
            None => rooms.entry(key.to_owned()).or_default(),
        };
        if room.seats_taken >= seats {
            return None;
        }
        room.seats_taken += 1;
        Some(Seat { rooms: self, key, bell: Arc::clone(&room.bell) })
    }
}

struct Seat<'r> {
    rooms: &'r Rooms,
    key: &'r str,
    bell: Arc<Notify>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut rooms = self.rooms.rooms.lock();
        if let Some(room) = rooms.get_mut(self.key) {
            room.seats_taken -= 1;
            if room.seats_taken == 0 {
                rooms.remove(self.key);
            }
        }
    }
}
