//! Decides which target and which replica a request is given. Pure: no clock, no instances.
//!
//! ```text
//! a session that the replica has bound ─┐
//! the revision of a sticky caller ──────┼─→ target ─→ the replica with the fewest requests
//! the next turn, by weight ─────────────┘
//! ```

use sha2::{Digest, Sha256};
use types::edge::{Replica, Scale, Target};
use types::ids::ResourceId;

/// The sum of the weights of all targets.
const WHOLE: u32 = 100;
/// Shares no factor with [`WHOLE`], so that 100 turns in a row take every point once. Close to the
/// golden section of it, so that the points of any few turns lie far apart.
const STRIDE: u32 = 61;

/// Returns where the `turn`th request falls among the weights. Of 100 requests in a row, each
/// target gets exactly as many as its weight says.
pub(crate) fn point_of_turn(turn: u32) -> u32 {
    turn % WHOLE * STRIDE % WHOLE
}

/// Returns where all requests of one conversation with a workload fall: the same on every server.
pub(crate) fn point_of_thread(workload: &ResourceId, thread: &[u8]) -> u32 {
    let digest = Sha256::new().chain_update(workload.as_str()).chain_update([0]);
    let digest: [u8; 32] = digest.chain_update(thread).finalize().into();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) % WHOLE
}

/// Returns the target at a point. `stays_with` is the revision that the caller was given before; it
/// wins as long as it serves. `None` means there is no target.
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
    // If the weights add up to less than [`WHOLE`], the rest goes to the first target.
    at_point.or_else(|| serving(targets).next()).or_else(|| targets.first())
}

/// A target of weight zero exists, but gets no requests.
fn serving(targets: &[Target]) -> impl Iterator<Item = &Target> {
    targets.iter().filter(|target| target.weight > 0)
}

/// Returns the replica with the fewest requests, and how many it has. Among equals the first one
/// wins, so that the others may sleep.
pub(crate) fn least<'t>(
    replicas: impl Iterator<Item = &'t Replica>,
    requests: impl Fn(&Replica) -> u32,
) -> Option<(&'t Replica, u32)> {
    replicas.map(|replica| (replica, requests(replica))).min_by_key(|(_, requests)| *requests)
}

/// Returns whether another replica is wanted, given that the one with the fewest requests has
/// `least`.
pub(crate) fn wants_more(scale: Scale, targets: &[Target], least: u32) -> bool {
    let replicas: usize = targets.iter().map(|target| target.replicas.len()).sum();
    least >= scale.concurrency && replicas < scale.max as usize
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
