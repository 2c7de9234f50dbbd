//! Bounds how many bytes a task moves before another one's turn.
//!
//! The runtime counts operations, of which a task may do some hundred in a turn. On a socket that
//! is always ready each of them may move a hundred kilobytes, so a few connections that are read as
//! fast as they are written would make everybody else's wait for seconds. Here bytes count as
//! operations.

use std::task::{Context, Poll, ready};
use tokio::task::coop::poll_proceed;

/// How many bytes count as one operation. A turn so moves a quarter of a megabyte.
const BYTES_PER_UNIT: usize = 2 << 10;

/// What one side of a connection, or one body, has moved and not counted yet.
#[derive(Debug, Default)]
pub struct Pace {
    moved: usize,
}

impl Pace {
    /// Waits for the task's next turn if it has moved enough in this one.
    pub fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.moved >= BYTES_PER_UNIT {
            ready!(poll_proceed(cx)).made_progress();
            self.moved -= BYTES_PER_UNIT;
        }
        Poll::Ready(())
    }

    pub fn moved(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::task::yield_now;

    /// Moves this many bytes in pieces, and returns after how many turns that was done.
    async fn turns_for(bytes: usize, piece: usize) -> usize {
        let moving = tokio::spawn(async move {
            let mut pace = Pace::default();
            for _ in 0..bytes.div_ceil(piece) {
                poll_fn(|cx| pace.poll_turn(cx)).await;
                pace.moved(piece);
            }
        });
        let mut turns = 1;
        while !moving.is_finished() {
            yield_now().await;
            turns += 1;
        }
        turns
    }

    #[tokio::test]
    async fn many_bytes_take_many_turns_in_pieces_of_any_size() {
        for piece in [512, 8 << 10, 128 << 10, 1 << 20] {
            let turns = turns_for(16 << 20, piece).await;
            assert!((56..=80).contains(&turns), "{turns} turns in pieces of {piece}");
        }
        assert!(turns_for(64 << 10, 1 << 10).await <= 3, "a small answer is one turn");
    }
}
