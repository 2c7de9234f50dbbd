//! What other machines are building, as this one sees it.
//!
//! The calendars of machines differ, and one may be set by hours. So the end of a lease in a row
//! says only whether the lease was renewed; how long it was not is measured here.

use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;
use types::Timestamp;
use types::ids::BuildId;

type Leased = (BuildId, Option<Timestamp>);

#[derive(Default)]
pub(super) struct Elsewhere {
    /// The end of each lease, and since when it is known.
    seen: HashMap<BuildId, (Option<Timestamp>, Instant)>,
    /// When this machine last looked.
    looked: Option<Instant>,
}

impl Elsewhere {
    /// Notes the leases as they were read from `now` on. Returns those that were not renewed for as
    /// long as a lease lasts.
    pub(super) fn run_out(
        &mut self,
        leases: Vec<Leased>,
        now: Instant,
        lease: Duration,
    ) -> Vec<Leased> {
        // If nobody looked for a while, the database may have been away from the others as well.
        let looks_on = self.looked.is_some_and(|looked| now.duration_since(looked) <= lease / 2);
        let before = std::mem::take(&mut self.seen);
        self.looked = Some(now);
        let mut out = Vec::new();
        for (id, until) in leases {
            let known = before.get(&id).filter(|(known, _)| looks_on && *known == until);
            let since = known.map_or(now, |(_, since)| *since);
            self.seen.insert(id.clone(), (until, since));
            if now.duration_since(since) >= lease {
                out.push((id, until));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(60);

    #[test]
    fn a_lease_runs_out_when_it_is_not_renewed_whatever_the_calendars_say() {
        let (mut elsewhere, start) = (Elsewhere::default(), Instant::now());
        let of = |until_ms: i64| {
            vec![(BuildId::known("bld_1".to_owned()), Some(Timestamp::from_ms(until_ms)))]
        };
        let mut at = |seconds: u64, until_ms: i64| {
            let now = start + Duration::from_secs(seconds);
            !elsewhere.run_out(of(until_ms), now, LEASE).is_empty()
        };
        // Its calendar is set back meanwhile.
        assert!(!at(0, 9_000_000) && !at(20, 9_000_000) && !at(40, 1) && !at(60, 1) && !at(80, 1));
        assert!(at(100, 1));
        assert!(!at(101, 2), "it was renewed after all");
        assert!(!at(140, 2) && !at(150, 2));
        assert!(!at(181, 2), "nobody looked for a while");
    }
}
