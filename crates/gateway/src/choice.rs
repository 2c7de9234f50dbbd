//! Which target and which replica a request is given. Pure: no clock, no instances.
//!
//! ```text
//! a session that the replica has bound ─┐
//! the revision of a sticky caller ──────┼─→ target ─→ the replica with the fewest requests
//! the next turn, by weight ─────────────┘
//! ```

use sha2::{Digest, Sha256};
use types::edge::{Replica, Scale, Target};
use types::ids::ResourceId;

/// The weights of all targets together.
const WHOLE: u32 = 100;
/// Has no factor in common with [`WHOLE`], so that as many turns in a row take every point once,
/// and it is near the golden section of it, so that any few of them lie far apart.
const STRIDE: u32 = 61;

/// Where the request of this number falls among the weights. Of 100 requests in a row, exactly as
/// many fall to each target as its weight says.
pub(crate) fn point_of_turn(turn: u32) -> u32 {
    turn % WHOLE * STRIDE % WHOLE
}

/// Where all requests of one conversation with a workload fall: the same on every server.
pub(crate) fn point_of_thread(workload: &ResourceId, thread: &[u8]) -> u32 {
    let digest = Sha256::new().chain_update(workload.as_str()).chain_update([0]);
    let digest: [u8; 32] = digest.chain_update(thread).finalize().into();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) % WHOLE
}

/// The target at a point. `stays_with` is the revision that the caller was given before: it counts
/// while it serves. `None`: there is no target.
pub(crate) fn target<'t>(
    targets: &'t [Target],
    stays_with: Option<&str>,
    point: u32,
) -> Option<&'t Target> {
    if let Some(revision) = stays_with
        && let Some(same) = serving(targets).find(|target| target.revision == revision)
    {
        return Some(same);
    }
    let mut end = 0;
    let at_point = serving(targets).find(|target| {
        end += target.weight;
        point < end
    });
    // Weights that do not add up to a whole leave the rest to the first.
    at_point.or_else(|| serving(targets).next()).or_else(|| targets.first())
}

/// One of no weight is there, but gets nobody.
fn serving(targets: &[Target]) -> impl Iterator<Item = &Target> {
    targets.iter().filter(|target| target.weight > 0)
}

/// The replica with the fewest requests, and how many it has. Of those that have the same, the first,
/// so that the others may sleep.
pub(crate) fn least<'t>(
    replicas: impl Iterator<Item = &'t Replica>,
    requests: impl Fn(&Replica) -> u32,
) -> Option<(&'t Replica, u32)> {
    replicas.map(|replica| (replica, requests(replica))).min_by_key(|(_, requests)| *requests)
}

/// Whether another replica is wanted, when the one with the fewest requests has `least` already.
pub(crate) fn wants_more(scale: Scale, targets: &[Target], least: u32) -> bool {
    let replicas: usize = targets.iter().map(|target| target.replicas.len()).sum();
    least >= scale.concurrency && replicas < scale.max as usize
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
