//! Turns of which one workspace has a percentage.

use admission::Turns;

pub(crate) fn shared(all: usize, share_percent: u32) -> Turns {
    let share = node::divided(all as u64, share_percent).share;
    Turns::new(all, usize::try_from(share).unwrap_or(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::poll;

    #[tokio::test]
    async fn large_snapshots_of_one_workspace_leave_a_turn_to_others() {
        let turns = shared(4, 80);
        let mut large = Vec::new();
        for _ in 0..3 {
            large.push(turns.take("large").await);
        }
        assert!(poll!(Box::pin(turns.take("large"))).is_pending());
        assert!(poll!(Box::pin(turns.take("small"))).is_ready());
    }
}
